"""Flags: ours, Beam's, and what is neither."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, WorkerOptions
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.pipelines import flag_types
from hadabeam.pipelines.flags import CommandParser, nearest, parse


@pytest.fixture
def parser() -> CommandParser:
    parser = CommandParser("batch", "Counts.", "  hadabeam batch --input 'logs/*'")
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--user_field")
    parser.add_argument("--epsilon", type=flag_types.epsilon)
    parser.add_argument("--window", type=flag_types.duration)
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--mode", choices=["a", "b"])
    return parser


def refusal(argv: list[str], parser: CommandParser, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        parse(argv, parser)
    assert stop.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 2
    first, second = output.err.splitlines()
    assert second == "See hadabeam batch --help"
    return first.removeprefix("hadabeam batch: error: ")


def test_ours_and_beams_in_both_notations(parser: CommandParser) -> None:
    beams = ["--runner", "FlinkRunner", "--direct_num_workers=2", "--no_use_public_ips"]
    repeated = ["--experiments=x", "--experiments", "y"]
    ours = ["--input", "a", "b", "--epsilon=1", "--debug", "--user_field", "u"]
    args, beam_args = parse([*ours[:4], *beams, *ours[4:], *repeated], parser)
    assert args == argparse.Namespace(
        input=["a", "b"], epsilon=1.0, window=None, debug=True, mode=None, user_field="u"
    )
    assert beam_args == beams + repeated
    options = PipelineOptions(beam_args)
    assert options.view_as(DirectOptions).direct_num_workers == 2
    assert options.view_as(WorkerOptions).use_public_ips is False


def test_after_double_dash_nothing_is_checked(parser: CommandParser) -> None:
    args, beam_args = parse(
        ["--input", "a", "--runner=FlinkRunner", "--", "--checkpointing_interval=2000", "x"],
        parser,
    )
    assert args.input == ["a"]
    assert beam_args == ["--runner=FlinkRunner", "--checkpointing_interval=2000", "x"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--user-field u", "unknown flag --user-field; it is written --user_field"),
        ("--temp-location=x", "unknown flag --temp-location; it is written --temp_location"),
        ("--usr_field u", "unknown flag --usr_field; did you mean --user_field?"),
        ("--epsilom=1", "unknown flag --epsilom; did you mean --epsilon?"),
        ("--runer x", "unknown flag --runer; did you mean --runner?"),
        ("--wind 7d", "unknown flag --wind; did you mean --window?"),
        ("--xyzzy", "unknown flag --xyzzy; flags of a job server go after a bare --"),
        ("-x", "unknown flag -x; flags of a job server go after a bare --"),
        ("--epsilon", "--epsilon needs a value: --epsilon EPSILON"),
        ("--epsilon --debug", "--epsilon needs a value: --epsilon EPSILON"),
        ("--mode", "--mode needs a value: --mode a|b"),
        ("--runner --debug", "--runner needs a value: --runner RUNNER"),
        ("--epsilon 1 --epsilon 2", "--epsilon is given twice"),
        ("--runner=A --runner B", "--runner is given twice"),
        (
            "--debug on",
            "unexpected argument 'on'; flags are written --flag value, and a "
            "pattern of files is quoted, or the shell writes their names in its place",
        ),
        ("--direct_num_workers=two", "argument --direct_num_workers: invalid int value: 'two'"),
        (
            "--epsilon -1",
            "argument --epsilon: epsilon must lie between 9.54e-07 and 50, not -1.0; "
            "usual choices are 0.5 to 4",
        ),
        ("--epsilon one", "argument --epsilon: 'one' is no number such as 1.0"),
        (
            "--window 7",
            "argument --window: '7' is no length of time; "
            "write a length of time as 30s, 90m, 1h, 7d, day or week",
        ),
    ],
)
def test_refusals(
    flags: str, message: str, parser: CommandParser, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(["--input", "a", *flags.split()], parser, capsys) == message


def test_a_required_flag_is_asked_for(
    parser: CommandParser, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--input" in refusal(["--debug"], parser, capsys)


def test_stray_argument_first(parser: CommandParser, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(["logs"], parser, capsys).startswith("unexpected argument 'logs'")


def test_help_shows_the_examples(parser: CommandParser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(["--unheard_of", "--help"], parser)
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:\n  hadabeam batch --input 'logs/*'" in shown
    assert "--runner" in shown


def test_clashing_options_of_other_pipelines_do_no_harm(parser: CommandParser) -> None:
    # Declared in another process: subclasses stay registered with Beam for good.
    program = """
from apache_beam.options.pipeline_options import PipelineOptions
class A(PipelineOptions):
    @classmethod
    def _add_argparse_args(cls, parser):
        parser.add_argument("--input")
        parser.add_value_provider_argument("--shared")
class B(PipelineOptions):
    @classmethod
    def _add_argparse_args(cls, parser):
        parser.add_argument("--shared", type=int)
from hadabeam.pipelines.flags import CommandParser, parse
parser = CommandParser("batch", "Counts.")
parser.add_argument("--input")
print(parse(["--input", "x", "--shared", "7"], parser))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "(Namespace(input='x'), ['--shared', '7'])\n"


def test_own_flags_alone_import_no_beam() -> None:
    program = """
import sys
from hadabeam.pipelines.flags import CommandParser, parse
parser = CommandParser("batch", "Counts.")
parser.add_argument("--input")
parse(["--input", "x"], parser)
sys.exit("apache_beam" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("7d", 604_800_000_000),
        ("1h", 3_600_000_000),
        ("30s", 30_000_000),
        ("90m", 5_400_000_000),
        ("90 min", 5_400_000_000),
        ("day", 86_400_000_000),
        ("Week", 604_800_000_000),
        ("2 weeks", 1_209_600_000_000),
        ("1h30m", 5_400_000_000),
        ("1.5h", 5_400_000_000),
        (".5s", 500_000),
        ("250ms", 250_000),
        ("1us", 1),
    ],
)
def test_durations(text: str, microseconds: int) -> None:
    assert flag_types.duration(text) == microseconds


@pytest.mark.parametrize(
    "text",
    ["", "7", "0s", "-1h", "1.5us", "month", "1 fortnight", "1hd", "d1", "1e9w", "٣h", "200000w"],
)
def test_bad_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write a length of time as 30s"):
        flag_types.duration(text)


@given(st.integers(1, 100 * 365 * 86_400_000_000))
def test_format_duration_is_read_back(microseconds: int) -> None:
    assert flag_types.duration(flag_types.format_duration(microseconds)) == microseconds


@pytest.mark.parametrize("text", ["nan", "inf", "0", "-1", "50.1", "1e-9", "True", ""])
def test_bad_epsilons(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        flag_types.epsilon(text)


def test_whole_numbers() -> None:
    assert flag_types.positive_int("1_000") == 1000
    assert flag_types.non_negative_int("0") == 0
    for text in ("0", "-3", "1.0", "x", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="no whole number from 1 up"):
            flag_types.positive_int(text)


def test_prefixes(tmp_path: object) -> None:
    assert flag_types.prefix(f"{tmp_path}/pages") == f"{tmp_path}/pages"
    assert flag_types.prefix("gs://bucket/pages") == "gs://bucket/pages"
    for text in ("", "out/", "gs://bucket/"):
        with pytest.raises(argparse.ArgumentTypeError, match="names a folder"):
            flag_types.prefix(text)
    with pytest.raises(argparse.ArgumentTypeError, match="is a folder"):
        flag_types.prefix(str(tmp_path))


def test_nearest() -> None:
    assert nearest("btach", ["batch", "stream"]) == "batch"
    assert nearest("zzz", ["batch", "stream"]) is None
