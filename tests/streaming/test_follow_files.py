"""What happens to log files while they are followed: they grow, rotate, are cut and come back."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from hadabeam.mechanisms import InputError
from hadabeam.transforms import follow
from hadabeam.transforms.follow import Progress, look, take_piece

NOW = 2_000_000_000.0


class Follower:
    """Follows the files of a folder, and keeps what was read of them."""

    def __init__(self, folder: Path, pattern: str = "*", piece_bytes: int = 64) -> None:
        self.folder = folder
        self.pattern = pattern
        self.piece_bytes = piece_bytes
        self.progress = Progress()
        self.now = NOW
        self.whole: list[tuple[str, int]] = []

    def round(self) -> list[str]:
        """The lines of one round."""
        self.now += 1
        paths = [str(path) for path in self.folder.glob(self.pattern)]
        self.progress = look(self.progress, paths, self.now)
        found = b""
        while self.progress.todo:
            self.progress, piece = take_piece(
                self.progress, lambda path, data: data.rfind(b"\n") + 1, self.piece_bytes
            )
            if piece is not None and piece.whole:
                self.whole.append((Path(piece.path).name, piece.offset))
            elif piece is not None:
                found += piece.data
        return found.decode().splitlines()


def write(path: Path, text: str, at: float = NOW, mode: str = "a") -> None:
    with path.open(mode) as file:
        file.write(text)
    os.utime(path, (at, at))


@pytest.fixture
def logs(tmp_path: Path) -> Follower:
    return Follower(tmp_path)


def test_new_lines_are_read_once_and_half_a_line_waits(logs):
    path = logs.folder / "a.log"
    assert logs.round() == []
    write(path, "one\ntwo\nthr")
    assert logs.round() == ["one", "two"]
    assert logs.round() == []
    write(path, "ee\n", NOW + 2)
    assert logs.round() == ["three"]
    write(path, "x" * 500 + "\n" + "y" * 1000 + "\nz", NOW + 3)
    assert [len(line) for line in logs.round()] == [500, 1000]
    assert logs.round() == []


def test_last_line_without_an_end_is_read_when_the_file_has_settled(logs):
    write(logs.folder / "a.log", "one\ntwo")
    assert logs.round() == ["one"]
    logs.now = NOW + follow.SETTLED_SECONDS
    assert logs.round() == ["two"]
    assert logs.round() == []


def test_renamed_file_goes_on_where_it_was(logs):
    path = logs.folder / "a.log"
    write(path, "one\ntwo\n")
    assert logs.round() == ["one", "two"]
    write(path, "three\n", NOW + 2)
    path.rename(logs.folder / "a.log.1")
    write(path, "four\n", NOW + 3)
    assert logs.round() == ["three", "four"]
    (logs.folder / "a.log.1").rename(logs.folder / "a.log.2")
    path.rename(logs.folder / "a.log.1")
    write(path, "five\n", NOW + 4)
    assert logs.round() == ["five"]


def test_copied_and_truncated_file_is_neither_lost_nor_read_again(logs):
    path = logs.folder / "a.log"
    write(path, "one\ntwo\n")
    assert logs.round() == ["one", "two"]
    write(path, "three\n", NOW + 2)  # not read before the copy
    shutil.copy(path, logs.folder / "a.log.1")
    path.write_text("four\n")
    assert sorted(logs.round()) == ["four", "three"]
    # Truncated, and longer than before when it is looked at next.
    path.write_text("five\nsix\nseven\neight\n")
    assert logs.round() == ["five", "six", "seven", "eight"]
    # Empty for a while, and the same lines again: the same fingerprint, so they are known.
    path.write_text("")
    assert logs.round() == []
    path.write_text("nine\n")
    assert logs.round() == ["nine"]


def test_file_that_is_cut_short_in_place_goes_on_from_there(logs):
    path = logs.folder / "a.log"
    write(path, "one\n" * 10_000)
    assert len(logs.round()) == 10_000
    with path.open("r+") as file:
        file.truncate(30_000)
    assert logs.round() == []
    write(path, "two\n", NOW + 9)
    assert logs.round() == ["two"]


def test_header_that_files_share_makes_them_no_copies(logs):
    header = "# the same long header of every file " * 20 + "\n"
    write(logs.folder / "a.log", header + "a1\n")
    write(logs.folder / "b.log", header)
    assert logs.round() == [header.rstrip("\n"), "a1", header.rstrip("\n")]
    write(logs.folder / "b.log", "b1\n", NOW + 2)
    write(logs.folder / "a.log", "a2\n", NOW + 2)
    write(logs.folder / "c.log", header + "c1\n", NOW + 2)
    found = logs.round()
    assert found[:2] == ["a2", "b1"]
    assert found[-1] == "c1"


def test_restart_in_mid_round_goes_on_in_it(logs):
    write(logs.folder / "a.log", "".join(f"{number:06d}\n" for number in range(100)))
    write(logs.folder / "b.log", "b\n", NOW + 1)
    progress = look(Progress(), [str(logs.folder / name) for name in ("b.log", "a.log")], NOW)
    seen = []
    while progress.todo:
        progress, piece = take_piece(progress, lambda path, data: data.rfind(b"\n") + 1, 64)
        assert piece is not None
        seen += piece.data.decode().split()
        # What a runner keeps of the source is its progress, and nothing else.
        progress = Progress(**vars(progress))
    assert seen == [*(f"{number:06d}" for number in range(100)), "b"]


def test_older_file_comes_first_and_lost_files_are_passed_over(logs):
    write(logs.folder / "z.log", "old\n", NOW - 10)
    write(logs.folder / "a.log", "new\n", NOW)
    write(logs.folder / "b.log", "gone\n", NOW)
    progress = look(Progress(), [str(path) for path in logs.folder.glob("*")], NOW)
    assert [Path(task.path).name for task in progress.todo] == ["z.log", "a.log", "b.log"]
    (logs.folder / "b.log").unlink()
    logs.progress = progress
    while logs.progress.todo:
        logs.progress, _ = take_piece(logs.progress, lambda path, data: len(data), 64)
    assert logs.round() == []


def test_compressed_file_is_read_whole_when_it_has_settled_and_known_by_its_text(logs):
    path = logs.folder / "a.log"
    write(path, "one\ntwo\n")
    assert logs.round() == ["one", "two"]
    archive = logs.folder / "a.log.gz"
    archive.write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    os.utime(archive, (logs.now, logs.now))
    path.unlink()
    assert logs.round() == []
    assert logs.whole == []
    logs.now += follow.WHOLE_SECONDS
    logs.round()
    # What was read of it before it was compressed is not read again.
    assert logs.whole == [("a.log.gz", 8)]
    logs.now += 100
    logs.round()
    assert len(logs.whole) == 1


def test_record_without_an_end_is_an_error(logs, monkeypatch):
    monkeypatch.setattr(follow, "MAX_RECORD_BYTES", 1000)
    write(logs.folder / "a.log", "canary" * 1000)
    with pytest.raises(InputError, match=r"a\.log has a record at byte 0") as error:
        logs.round()
    assert "canary" not in str(error.value)


def test_watermark_follows_events_and_for_live_logs_the_clock():
    second = 1_000_000
    start = Progress(started=1000 * second)
    assert start.watermark(10 * second) is None
    old = start.with_time(500 * second)
    assert old.watermark(10 * second) == 490 * second
    assert old.with_time(400 * second).watermark(10 * second) == 490 * second
    # An event of the future moves it to the clock only.
    assert old.with_time(5000 * second).watermark(10 * second) == 990 * second
    # Only news of a later time tells whether logs are live.
    assert old.fresh
    assert not Progress(started=1, greatest=500 * second).with_time(400 * second).fresh
    live = Progress(started=1000 * second, greatest=995 * second, live=True)
    assert live.watermark(10 * second) == 990 * second
    assert Progress(started=1, greatest=995 * second).watermark(0) == 995 * second
