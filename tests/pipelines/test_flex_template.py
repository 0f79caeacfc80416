"""The Flex Templates' files fit the commands that they launch. No image is built here."""

import json
import re
import runpy
from pathlib import Path

import pytest

from hadabeam.pipelines import batch, cli, extras, stream

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy" / "dataflow"
TEMPLATES = {"metadata.json": batch.parser, "stream_metadata.json": stream.parser}
#: Parameters that deploy/dataflow/template.py turns into something else.
NO_FLAGS = {"command", "table"}
SECRET = "gcpsecret:projects/p/secrets/s/versions/3"
GOOD = {
    "input": "gs://bucket/logs/*.jsonl.gz",
    "message_schema": "7=gs://bucket/visit.avsc",
    "user_field": "user.id",
    "value_field": "page",
    "domain": "gs://bucket/pages.txt",
    "epsilon": "1.5",
    "output": "gs://bucket/out/pages",
    "table": "my-project.telemetry.pages",
    "assignment_key": SECRET,
    "coin_key": SECRET,
    "time_field": "time",
    "timestamp_attribute": "at",
    "id_attribute": "id",
    "window": "7d",
    "key_field": "country",
    "early": "30s",
    "allowed_lateness": "2h",
    "min_reports": "100",
}
ALSO_GOOD = {
    "stream_metadata.json": {
        "input": ["pubsub:projects/my-project/subscriptions/visits", "kafka:broker:9092/visits"],
        "message_schema": ["gs://bucket/visit.avsc"],
        "early": ["none"],
        "allowed_lateness": ["0"],
    },
}
BAD = {
    "input": "/logs/x",
    "message_schema": "x=gs://bucket/visit.avsc",
    "domain": "pages.txt",
    "epsilon": "one",
    "output": "gs://bucket/out/",
    "table": "telemetry.pages",
    "assignment_key": "key.bin",
    "coin_key": "gcpsecret:projects/p/secrets/s/versions/latest",
    "window": "soon",
    "early": "soon",
    "min_reports": "0",
}


@pytest.fixture(autouse=True)
def all_extras(monkeypatch):
    """As if every extra were installed: nothing here gets as far as using one."""
    monkeypatch.setattr(extras, "has", lambda module: True)


def parameters(template):
    return json.loads((FOLDER / template).read_text())["parameters"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_parameter_is_a_flag_and_explained(template):
    actions = {action.dest: action for action in TEMPLATES[template]()._actions}
    for parameter in parameters(template):
        assert parameter["helpText"]
        assert parameter["label"]
        name = parameter["name"]
        if name in NO_FLAGS:
            continue
        action = actions[name]
        # What is required must be asked for; a stream also needs what only some jobs need.
        assert not (action.required and parameter["isOptional"]), name
        if "enumOptions" in parameter:
            offered = [option["value"] for option in parameter["enumOptions"]]
            assert offered == list(action.choices), name
            assert parameter["defaultValue"] == action.default
        else:
            assert name in GOOD, "is checked by a pattern"
    required = {name for name, action in actions.items() if action.required}
    assert required <= {parameter["name"] for parameter in parameters(template)}


@pytest.mark.parametrize(
    ("template", "parameter"),
    [
        pytest.param(template, parameter, id=f"{template}-{parameter['name']}")
        for template in TEMPLATES
        for parameter in parameters(template)
    ],
)
def test_patterns_take_what_is_good_and_nothing_else(template, parameter):
    patterns = parameter.get("regexes", [])
    name = parameter["name"]
    assert bool(patterns) == (name in GOOD)
    for pattern in patterns:
        for good in [GOOD[name], *ALSO_GOOD.get(template, {}).get(name, [])]:
            assert re.match(pattern, good)
        if name in BAD:
            assert not re.match(pattern, BAD[name])


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_good_values_are_taken_by_the_command(template):
    given = {p["name"]: GOOD[p["name"]] for p in parameters(template) if "regexes" in p}
    table = given.pop("table", None)
    words = [f"--{name}={value}" for name, value in given.items()]
    if table is not None:
        words.append(f"--output=bigquery:{table}")
    TEMPLATES[template]().parse_args(words)


def launched(monkeypatch, *flags):
    """What hadabeam is started with when the launcher passes these."""
    got = []
    monkeypatch.setattr(cli, "main", lambda words: got.append(words) or 0)
    monkeypatch.setattr("sys.argv", ["template.py", *flags])
    with pytest.raises(SystemExit) as leaving:
        runpy.run_path(str(FOLDER / "template.py"), run_name="__main__")
    assert leaving.value.code == 0
    return got


def test_the_launcher_starts_the_command_without_empty_parameters(monkeypatch):
    flags = ["--input=gs://b/x", "--window=", "--template_location=gs://b/t", "--no_auth"]
    assert launched(monkeypatch, *flags) == [
        ["batch", "--input=gs://b/x", "--template_location=gs://b/t", "--no_auth"]
    ]


def test_a_stream_and_its_table(monkeypatch):
    flags = ["--command=stream", "--output=gs://b/out", "--table=p.d.t", "--early=1m"]
    assert launched(monkeypatch, *flags) == [
        ["stream", "--output=gs://b/out", "--output=bigquery:p.d.t", "--early=1m"]
    ]


def test_the_image_takes_files_that_exist():
    text = (FOLDER / "Dockerfile").read_text()
    assert "/tmp/hadabeam/deploy/dataflow/template.py /opt/hadabeam_template.py" in text
    assert "FLEX_TEMPLATE_PYTHON_PY_FILE=/opt/hadabeam_template.py" in text
