"""How each service is started, and how one knows that it is ready."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

from installs import Installs, run
from processes import ClusterError, Processes, listening

HERE = Path(__file__).resolve().parent
TASK_MANAGERS = 3

#: Flink reaches into classes of the JDK that Java 17 keeps closed.
_OPENED = [
    "java.base/java.lang=ALL-UNNAMED",
    "java.base/java.net=ALL-UNNAMED",
    "java.base/java.io=ALL-UNNAMED",
    "java.base/java.nio=ALL-UNNAMED",
    "java.base/sun.nio.ch=ALL-UNNAMED",
    "java.base/java.lang.reflect=ALL-UNNAMED",
    "java.base/java.text=ALL-UNNAMED",
    "java.base/java.time=ALL-UNNAMED",
    "java.base/java.util=ALL-UNNAMED",
    "java.base/java.util.concurrent=ALL-UNNAMED",
    "java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "java.base/java.util.concurrent.locks=ALL-UNNAMED",
]

_LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %c{2} - %m%n
"""

_FLINK = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
jobmanager.memory.process.size: 1024m
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
taskmanager.bind-host: 127.0.0.1
taskmanager.host: 127.0.0.1
taskmanager.numberOfTaskSlots: 1
# Of one task manager; its start script would work these out of one number.
taskmanager.cpu.cores: 1.0
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.task.heap.size: 384m
taskmanager.memory.task.off-heap.size: 64m
taskmanager.memory.managed.size: 256m
taskmanager.memory.network.min: 96m
taskmanager.memory.network.max: 96m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
# A dead task manager is noticed after 15 s, and the job waits for as long as that takes.
heartbeat.interval: 3000
heartbeat.timeout: 15000
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 1000
restart-strategy.fixed-delay.delay: 1 s
execution.checkpointing.dir: file://{state}/checkpoints
state.checkpoints.dir: file://{state}/checkpoints
state.savepoints.dir: file://{state}/savepoints
io.tmp.dirs: {state}/tmp
parallelism.default: 2
"""

_KAFKA = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={state}/kafka-logs
# Records are deleted by their own timestamps, and tests send events of long ago.
log.retention.ms=-1
num.partitions=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=true
"""

#: Port names and their defaults; HADABEAM_PORT_<NAME> sets another.
PORTS = {
    "FLINK": 18081,
    "FLINK_RPC": 18123,
    "WORKERS": 18150,
    "KAFKA": 18092,
    "KAFKA_CONTROLLER": 18093,
    "EXPANSION": 18097,
    "PUBSUB": 18085,
    "GCS": 18023,
    "S3": 18024,
    "BIGQUERY": 18025,
    "BIGQUERY_GCS": 18026,
}


class Cluster:
    """All services over one state folder.

    Args:
      state: the folder of the running cluster.
      installs: where its programs are.
    """

    def __init__(self, state: Path, installs: Installs) -> None:
        self.state = state
        self.installs = installs
        self.processes = Processes(state)
        self.ports = {
            name: int(os.environ.get(f"HADABEAM_PORT_{name}", default))
            for name, default in PORTS.items()
        }

    # Each service returns the variables by which others find it.

    def _port(self, name: str, process: str) -> int:
        """The port of a process, which nothing but that process may use."""
        port = self.ports[name]
        if self.processes.pid(process) is None and listening(port):
            raise ClusterError(
                f"port {port} is taken by another program; give {process} another one with "
                f"HADABEAM_PORT_{name}"
            )
        return port

    def flink(self) -> dict[str, str]:
        """One job manager, three task managers of one slot, and a pool of Python workers."""
        lib = self.installs.flink() / "pyflink" / "lib"
        jar = self.installs.job_server()
        rest = self._port("FLINK", "flink-jobmanager")
        conf = self.state / "flink-conf"
        for folder in (conf, self.state / "tmp"):
            folder.mkdir(exist_ok=True)
        settings = _FLINK.format(
            state=self.state, rest=rest, rpc=self._port("FLINK_RPC", "flink-jobmanager")
        )
        (conf / "config.yaml").write_text(settings)
        (conf / "log4j.properties").write_text(_LOG4J)
        java = ["java", *(f"--add-opens={name}" for name in _OPENED)]
        java += [f"-Dlog4j.configurationFile={conf}/log4j.properties", "-cp", f"{lib}/*"]
        self.processes.start(
            "flink-jobmanager",
            [
                *java[:1],
                "-Xmx640m",
                *java[1:],
                "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
                "--configDir",
                str(conf),
                "--executionMode",
                "cluster",
            ],
        )
        for number in range(1, TASK_MANAGERS + 1):
            self.processes.start(
                f"flink-taskmanager-{number}",
                [
                    *java[:1],
                    "-Xmx512m",
                    "-XX:MaxDirectMemorySize=512m",
                    # Each job leaves classes behind: threads of its gRPC servers outlive it.
                    "-XX:MaxMetaspaceSize=1g",
                    *java[1:],
                    "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
                    "--configDir",
                    str(conf),
                    f"-Dtaskmanager.resource-id=taskmanager-{number}",
                ],
            )
        pool = self._port("WORKERS", "python-workers")
        # The pool starts workers as plain "python": that of the environment it is in.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self.processes.start(
            "python-workers",
            [sys.executable, str(HERE / "worker_pool.py"), str(pool)],
            # Each worker imports Beam anew: compiling it each time takes ten times as long.
            {"PATH": path, "PYTHONDONTWRITEBYTECODE": ""},
        )
        self.processes.wait("flink-jobmanager", lambda: self._slots(rest) >= TASK_MANAGERS, 90)
        self.processes.wait("python-workers", lambda: listening(pool), 60)
        return {
            "HADABEAM_FLINK_MASTER": f"127.0.0.1:{rest}",
            "HADABEAM_FLINK_JOB_SERVER_JAR": str(jar),
            "HADABEAM_FLINK_WORKERS": f"127.0.0.1:{pool}",
        }

    @staticmethod
    def _slots(rest: int) -> int:
        if not listening(rest):
            return 0
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{rest}/overview", timeout=5) as answer:
                return int(json.load(answer)["slots-total"])
        except (OSError, ValueError, KeyError):
            # It listens before it can answer.
            return 0

    def kafka(self) -> dict[str, str]:
        """A broker, and the Java side of Beam's KafkaIO: a worker pool, an expansion service."""
        libs, jar = self.installs.kafka(), self.installs.kafka_expansion()
        port = self._port("KAFKA", "kafka-broker")
        controller = self._port("KAFKA_CONTROLLER", "kafka-broker")
        config = self.state / "kafka.properties"
        config.write_text(_KAFKA.format(port=port, controller=controller, state=self.state))
        java = ["java", "-cp", f"{libs}/*"]
        if not (self.state / "kafka-logs" / "meta.properties").exists():
            # The id is 16 bytes of no meaning in base64.
            options = ["format", "-c", str(config), "-t", "aGFkYWJlYW0tY2x1c3RlcQ"]
            run([*java, "kafka.tools.StorageTool", *options], self.processes.logs / "kafka.log")
        self.processes.start(
            "kafka-broker", ["java", "-Xmx512m", *java[1:], "kafka.Kafka", str(config)]
        )
        self.processes.start(
            "java-workers",
            [
                "java",
                "-Xmx768m",
                "-cp",
                str(jar),
                "org.apache.beam.fn.harness.ExternalWorkerService",
            ],
            {"PIPELINE_OPTIONS": "{}"},
        )
        self.processes.wait("java-workers", lambda: bool(self._java_workers()), 60)
        expansion = self._port("EXPANSION", "kafka-expansion")
        self.processes.start(
            "kafka-expansion",
            [
                "java",
                "-Xmx512m",
                "-jar",
                str(jar),
                str(expansion),
                "--javaClassLookupAllowlistFile=*",
                "--defaultEnvironmentType=EXTERNAL",
                f"--defaultEnvironmentConfig={self._java_workers()}",
            ],
        )
        self.processes.wait("kafka-broker", lambda: listening(port), 60)
        self.processes.wait("kafka-expansion", lambda: listening(expansion), 60)
        return {
            "HADABEAM_KAFKA": f"127.0.0.1:{port}",
            "HADABEAM_KAFKA_EXPANSION": f"localhost:{expansion}",
            "HADABEAM_KAFKA_EXPANSION_JAR": str(jar),
        }

    def _java_workers(self) -> str:
        """The address that the Java worker pool printed last."""
        log = (self.processes.logs / "java-workers.log").read_text(errors="replace")
        found = re.findall(r"(localhost:\d+|127\.0\.0\.1:\d+)", log)
        return found[-1] if found else ""

    def pubsub(self) -> dict[str, str]:
        """Google's in-memory Pub/Sub server."""
        port = self._port("PUBSUB", "pubsub")
        program = str(self.installs.pubsub())
        self.processes.start("pubsub", [program, "-port", str(port)])
        self.processes.wait("pubsub", lambda: listening(port), 30)
        return {"PUBSUB_EMULATOR_HOST": f"127.0.0.1:{port}"}

    def gcs(self) -> dict[str, str]:
        """An emulator of Google Cloud Storage, in memory."""
        port = self._port("GCS", "gcs")
        module = ["-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}"]
        python = str(self.installs.emulators())
        self.processes.start("gcs", [python, *module, "--in-memory"])
        self.processes.wait("gcs", lambda: listening(port), 60)
        return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"}

    def s3(self) -> dict[str, str]:
        """An emulator of Amazon S3, in memory."""
        port = self._port("S3", "s3")
        python = str(self.installs.emulators())
        self.processes.start(
            "s3", [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        )
        self.processes.wait("s3", lambda: listening(port), 60)
        return {"HADABEAM_S3": f"http://127.0.0.1:{port}"}

    def bigquery(self) -> dict[str, str]:
        """An emulator of BigQuery, and a bucket store on the disk that it loads files from."""
        port, store = self._port("BIGQUERY", "bigquery"), self._port("BIGQUERY_GCS", "bigquery-gcs")
        installed, objects = self.installs.bigquery(), self.state / "bigquery-objects"
        module = ["-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={store}"]
        self.processes.start(
            "bigquery-gcs",
            [str(self.installs.emulators()), *module],
            {"STORAGE_BASE": str(self.state), "STORAGE_DIR": objects.name},
        )
        program = "from local_bigquery.cli import main; main()"
        flags = ["--host=127.0.0.1", f"--port={port}", "--grpc-port=0"]
        self.processes.start(
            "bigquery",
            [str(installed / "venv/bin/python"), "-c", program, *flags],
            {
                "HOME": str(installed / "home"),
                "DATA_DIR": str(self.state / "bigquery"),
                # It reads gs:// files where the bucket store keeps them.
                "GCS_LOCAL_ROOT": str(objects),
            },
        )
        self.processes.wait("bigquery-gcs", lambda: listening(store), 60)
        self.processes.wait("bigquery", lambda: listening(port), 120)
        return {
            "HADABEAM_BIGQUERY": f"http://127.0.0.1:{port}",
            "HADABEAM_BIGQUERY_GCS": f"http://127.0.0.1:{store}",
        }


#: Service to the processes that it consists of, in the order they are stopped.
SERVICES = {
    "flink": [
        "python-workers",
        *(f"flink-taskmanager-{number}" for number in range(1, TASK_MANAGERS + 1)),
        "flink-jobmanager",
    ],
    "kafka": ["kafka-expansion", "java-workers", "kafka-broker"],
    "pubsub": ["pubsub"],
    "gcs": ["gcs"],
    "s3": ["s3"],
    "bigquery": ["bigquery", "bigquery-gcs"],
}
