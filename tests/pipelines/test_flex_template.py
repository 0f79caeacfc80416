"""The Flex Template's files fit the command that they launch. No image is built here."""

import json
import re
import runpy
from pathlib import Path

import pytest

from hadabeam.pipelines import batch

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy" / "dataflow"
PARAMETERS = json.loads((FOLDER / "metadata.json").read_text())["parameters"]
SECRET = "gcpsecret:projects/p/secrets/s/versions/3"
GOOD = {
    "input": "gs://bucket/logs/*.jsonl.gz",
    "user_field": "user.id",
    "value_field": "page",
    "domain": "gs://bucket/pages.txt",
    "epsilon": "1.5",
    "output": "gs://bucket/out/pages",
    "assignment_key": SECRET,
    "coin_key": SECRET,
    "time_field": "time",
    "window": "7d",
    "key_field": "country",
}
BAD = {
    "input": "/logs/x",
    "domain": "pages.txt",
    "epsilon": "one",
    "output": "gs://bucket/out/",
    "assignment_key": "key.bin",
    "coin_key": "gcpsecret:projects/p/secrets/s/versions/latest",
    "window": "soon",
}


def test_every_parameter_is_a_flag_and_explained():
    actions = {action.dest: action for action in batch.parser()._actions}
    for parameter in PARAMETERS:
        action = actions[parameter["name"]]
        assert parameter["isOptional"] is not action.required, parameter["name"]
        assert parameter["helpText"]
        assert parameter["label"]
        if "enumOptions" in parameter:
            offered = [option["value"] for option in parameter["enumOptions"]]
            assert offered == list(action.choices), parameter["name"]
            assert parameter["defaultValue"] == action.default
        else:
            assert parameter["name"] in GOOD, "is checked by a pattern"
    required = {name for name, action in actions.items() if action.required}
    assert required <= {parameter["name"] for parameter in PARAMETERS}


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda parameter: parameter["name"])
def test_patterns_take_what_is_good_and_nothing_else(parameter):
    patterns = parameter.get("regexes", [])
    name = parameter["name"]
    assert bool(patterns) == (name in GOOD)
    for pattern in patterns:
        assert re.match(pattern, GOOD[name])
        if name in BAD:
            assert not re.match(pattern, BAD[name])


def test_the_launcher_starts_the_command_without_empty_parameters(monkeypatch):
    got = []
    monkeypatch.setattr(batch, "main", lambda flags: got.append(flags) or 0)
    flags = ["--input=gs://b/x", "--window=", "--template_location=gs://b/t"]
    monkeypatch.setattr("sys.argv", ["template.py", *flags])
    with pytest.raises(SystemExit) as leaving:
        runpy.run_path(str(FOLDER / "template.py"), run_name="__main__")
    assert leaving.value.code == 0
    assert got == [["--input=gs://b/x", "--template_location=gs://b/t"]]


def test_the_image_takes_files_that_exist():
    text = (FOLDER / "Dockerfile").read_text()
    assert "/tmp/hadabeam/deploy/dataflow/template.py /opt/hadabeam_template.py" in text
    assert "FLEX_TEMPLATE_PYTHON_PY_FILE=/opt/hadabeam_template.py" in text
