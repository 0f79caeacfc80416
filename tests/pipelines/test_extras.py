"""Without an extra, its name is said before anything runs."""

import pytest

from hadabeam.mechanisms import errors
from hadabeam.pipelines import extras
from hadabeam.pipelines.cli import main

FLAGS = ["--user_field", "u", "--value_field", "v", "--epsilon", "1"]


@pytest.mark.parametrize(("scheme", "extra"), [("gs", "gcp"), ("s3", "aws"), ("hdfs", "hdfs")])
@pytest.mark.parametrize("form", ["two words", "one word", "a message schema"])
def test_a_missing_filesystem_names_its_extra(scheme, extra, form, capsys, monkeypatch):
    monkeypatch.setattr(extras, "has", lambda module: False)
    path = f"{scheme}://bucket/log.jsonl"
    command, given = {
        "two words": ("batch", ["--input", path]),
        "one word": ("batch", [f"--input={path}"]),
        "a message schema": ("stream", ["--input=kafka:h:1/t", f"--message_schema=7={path}"]),
    }[form]
    with pytest.raises(SystemExit) as leaving:
        main([command, *given, *FLAGS, "--domain", "d.txt", "--output", "out/x"])
    assert leaving.value.code == 2
    assert f"pip install 'hadabeam[{extra}]'" in capsys.readouterr().err


def test_local_paths_need_nothing(monkeypatch):
    monkeypatch.setattr(extras, "has", lambda module: False)
    extras.check_paths(["batch", "--input", "logs/gs:/x", "--output=out/s3", "--key=a=gs"])


def test_whether_a_module_is_there():
    assert extras.has("json.decoder")
    assert not extras.has("no_such_package.module")
    with pytest.raises(errors.ParameterError, match=r"hadabeam\[x\]"):
        extras.need("tests", "no_such_package", "x")
