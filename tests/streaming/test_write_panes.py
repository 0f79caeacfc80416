"""What a stream writes: names that order panes, whole files, the same again, nothing stale."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.mechanisms import Domain, OneBitHadamard, ParameterError, TwoStageOneBit
from hadabeam.transforms.panes import PaneInfo, WindowCounts
from hadabeam.transforms.records import DeadLetter
from hadabeam.transforms.stream import EstimatePanes, Pane
from hadabeam.transforms.summary import privacy_notes
from hadabeam.transforms.write_panes import (
    WritePanes,
    WriteRunSummary,
    WriteStreamDeadLetters,
    current_panes,
    stream_folder,
)

HOUR = 3_600_000_000
ORACLE = OneBitHadamard(Domain(["a", "b", "c"]), 1.0)


def pane(
    timing: str, index: int, n: int, *, start: int = 0, previous: PaneInfo | None = None
) -> Pane:
    """A pane of n reports, estimated as a stream does."""
    info = PaneInfo(start, start + HOUR, timing, index, n)
    columns = np.arange(n) % 3 + 1
    counts = ORACLE.count(columns, (columns == 1).astype(np.uint8))
    window = WindowCounts(info, previous, 2, {None: counts})
    (found,) = EstimatePanes(ORACLE, min_reports=5)._estimate(window)
    return found


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


PANES = st.builds(
    PaneInfo,
    st.just(0),
    st.just(HOUR),
    st.sampled_from(["early", "on_time", "late"]),
    st.integers(0, 10**6 - 1),
    st.integers(0, 10**12 - 1),
)


@given(PANES, PANES)
def test_names_order_panes_by_their_reports(left, right):
    if left.reports != right.reports:
        assert (left.file_name < right.file_name) == (left.reports < right.reports)
    # An on-time pane has its window's early ones behind it, also with the same numbers.
    elif (left.timing, right.timing) == ("early", "on_time"):
        assert left.file_name < right.file_name


def test_a_pane_is_a_table_and_a_summary_and_written_again_the_same(tmp_path):
    write = WritePanes(str(tmp_path / "out/"), "parquet")._write
    panes = [
        pane("early", 0, 7),
        pane("on_time", 1, 9),
        pane("early", 0, 12, start=HOUR),
        # After a restart an index comes again, with fewer reports.
        pane("early", 2, 8, start=HOUR),
    ]
    for found in panes:
        write(found)
    first, second = "1970-01-01T000000Z_1970-01-01T010000Z", "1970-01-01T010000Z_1970-01-01T020000Z"
    names = [
        f"{first}/000000000007-early-000000",
        f"{first}/000000000009-on_time-000001",
        f"{second}/000000000008-early-000002",
        f"{second}/000000000012-early-000000",
    ]
    out = tmp_path / "out"
    assert files(out) == sorted(f"{name}.{kind}" for name in names for kind in ("json", "parquet"))
    assert current_panes(str(out)) == {
        first: str(out / f"{names[1]}.parquet"),
        second: str(out / f"{names[3]}.parquet"),
    }
    before = {name: (out / name).read_bytes() for name in files(out)}
    for found in reversed(panes):
        write(found)
    assert {name: (out / name).read_bytes() for name in files(out)} == before
    table = pq.read_table(out / f"{names[1]}.parquet")
    assert table["pane"].to_pylist() == ["on_time-1"] * 3
    assert table.column("window_end").cast(pa.int64()).to_pylist() == [HOUR] * 3
    summary = json.loads(before[f"{names[1]}.json"])
    assert (summary["reports"], summary["records_read"]) == (9, 11)
    assert summary["dropped"] == {"over_limit": 2}
    assert summary["pane"] == "on_time-1"
    # What other programs leave in the folder is no pane.
    (out / first / "999999999999-on_time-000009.tmp").write_text("")
    (out / first / "notes.avro").write_text("")
    assert current_panes(str(out))[first].endswith("on_time-000001.parquet")


def test_early_panes_can_be_dropped_and_withheld_ones_have_no_table(tmp_path):
    write = WritePanes(str(tmp_path), "csv", keep_early=False)._write
    first = pane("early", 0, 7)
    second = pane("early", 1, 8, previous=first.info)
    third = pane("on_time", 2, 8, previous=second.info)
    for found in (first, second, third, pane("late", 3, 9, previous=third.info)):
        write(found)
    window = first.info.window_name
    stems = ["000000000008-on_time-000002", "000000000009-late-000003"]
    assert files(tmp_path) == sorted(
        f"{window}/{stem}.{kind}" for stem in stems for kind in ("csv", "json")
    )
    write(pane("on_time", 0, 4, start=HOUR))
    withheld = f"{pane('on_time', 0, 4, start=HOUR).info.window_name}/000000000004-on_time-000000"
    assert [name for name in files(tmp_path) if name.startswith(withheld)] == [f"{withheld}.json"]
    summary = json.loads((tmp_path / f"{withheld}.json").read_text())
    assert summary["tables_withheld"] == 1
    assert list(current_panes(str(tmp_path))) == [window]


def test_run_summary_and_dead_letters(tmp_path):
    write = WriteRunSummary(str(tmp_path), ORACLE, 2.0, "window")._write
    write({"records_read": 9, "reports": 4, "late": 3, "unparseable": 2})
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["dropped"] == {"late": 3, "unparseable": 2}
    assert summary["epsilon_effective"] == 2.0
    letters = WriteStreamDeadLetters(str(tmp_path))
    from hadabeam.transforms.write_panes import _WriteLetters

    for _ in range(2):  # tried again: the same file
        step = _WriteLetters(letters.prefix)
        step.start_bundle()
        step.process(DeadLetter("bad_time", "b", 7))
        step.process(DeadLetter("unparseable", "a", 3))
        step.finish_bundle()
    (path,) = (tmp_path / "dead-letters").iterdir()
    assert [json.loads(line)["file"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_notes_say_what_a_memo_promises_and_no_more():
    two = TwoStageOneBit(ORACLE.domain, 1.0, 0.5)
    assert "each window" in privacy_notes(ORACLE, "window")[0].lower()
    assert "no epsilon covers" in privacy_notes(ORACLE, "forever")[0]
    (note,) = privacy_notes(two, "forever")
    assert "0.5" in note
    assert "1.18" in note
    assert "not covered" in note


@pytest.mark.parametrize("folder", ["", "/", None])
def test_output_must_be_a_folder(folder):
    with pytest.raises(ParameterError, match="folder"):
        stream_folder(folder)
