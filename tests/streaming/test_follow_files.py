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


def archive(path: Path, text: str, at: float) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    os.utime(path, (at, at))


def test_files_that_hold_the_same_line_are_all_read(logs):
    read = []
    for number in range(60):
        write(logs.folder / f"r{number}.jsonl", f"line {number % 3}\n", logs.now)
        read += logs.round()
        if number == 30:  # one that was read is removed, and later the same line comes again
            (logs.folder / "r0.jsonl").unlink()
            assert logs.round() == []
    assert sorted(read) == sorted(f"line {number % 3}" for number in range(60))


def test_content_that_comes_back_under_its_name_is_new_unless_the_file_is_untouched(logs):
    path = logs.folder / "a.jsonl"
    for number, text in enumerate(["one", "two", "one"]):
        write(path, f"{text}\n", NOW + number, mode="w")
        assert logs.round() == [text]
    # A folder that cannot be seen for a while.
    away = logs.folder.parent / f"{logs.folder.name}-away"
    path.rename(away)
    assert logs.round() == []
    logs.now += 1000
    away.rename(path)
    assert logs.round() == []


def test_copy_beside_its_original_is_a_file_of_its_own(logs):
    write(logs.folder / "a.log", "one\n")
    assert logs.round() == ["one"]
    shutil.copy(logs.folder / "a.log", logs.folder / "b.log")
    assert logs.round() == ["one"]
    write(logs.folder / "a.log", "two\n", NOW + 9)
    write(logs.folder / "b.log", "three\n", NOW + 9)
    assert logs.round() == ["two", "three"]


def test_what_was_read_is_handed_on_to_one_name_only(logs):
    write(logs.folder / "a.log", "one\n")
    assert logs.round() == ["one"]
    shutil.copy(logs.folder / "a.log", logs.folder / "b.log")
    shutil.copy(logs.folder / "a.log", logs.folder / "c.log")
    (logs.folder / "a.log").unlink()
    assert logs.round() == ["one"]
    assert logs.round() == []


def test_copy_that_is_seen_before_the_log_is_cut_short_is_not_read_again(logs):
    path = logs.folder / "a.log"
    write(path, "one\ntwo\n")
    assert logs.round() == ["one", "two"]
    shutil.copy(path, logs.folder / "a.log.1")
    assert logs.round() == []
    path.write_text("three\n")
    assert logs.round() == ["three"]
    # Nor where log and copy are first seen together.
    path.write_text("four\n")
    shutil.copy(path, logs.folder / "a.log.0")
    assert logs.round() == ["four"]
    path.write_text("five\n")
    assert logs.round() == ["five"]
    # Where the log stays, the copy is read after a while.
    shutil.copy(path, logs.folder / "a.log.2")
    found = [logs.round() for _ in range(7)]
    assert sorted(found) == [[]] * 6 + [["five"]]


def test_rotated_log_that_is_compressed_while_both_names_are_there(logs):
    write(logs.folder / "a.log", "one\ntwo\n")
    assert logs.round() == ["one", "two"]
    (logs.folder / "a.log").rename(logs.folder / "a.log.1")
    write(logs.folder / "a.log", "three\n", logs.now)
    assert logs.round() == ["three"]
    archive(logs.folder / "a.log.1.gz", "one\ntwo\n", logs.now)
    assert logs.round() == []
    (logs.folder / "a.log.1").unlink()
    for _ in range(10):
        assert logs.round() == []
    # Nothing is behind what was read before.
    assert logs.whole == [("a.log.1.gz", 8)]
    (logs.folder / "a.log.1.gz").rename(logs.folder / "a.log.2.gz")
    for _ in range(10):
        assert logs.round() == []
    assert len(logs.whole) == 1


def test_file_that_was_read_whole_is_not_read_again_under_another_name_or_time(logs):
    archive(logs.folder / "a.log.1.gz", "one\ntwo\n", NOW - 100)
    (logs.folder / "b.parquet").write_bytes(b"PAR1" + b"x" * 100_000 + b"b")
    os.utime(logs.folder / "b.parquet", (NOW - 90, NOW - 90))
    logs.round()
    assert [name for name, _ in logs.whole] == ["a.log.1.gz", "b.parquet"]
    (logs.folder / "a.log.1.gz").rename(logs.folder / "a.log.2.gz")
    archive(logs.folder / "a.log.1.gz", "three\n", logs.now)
    (logs.folder / "b.parquet").rename(logs.folder / "c.parquet")
    os.utime(logs.folder / "c.parquet", (NOW, NOW))
    for _ in range(10):
        logs.round()
    assert logs.whole[2:] == [("a.log.1.gz", 0)]
    os.utime(logs.folder / "a.log.2.gz", (NOW, NOW))
    # One byte at the end makes a Parquet file another one.
    (logs.folder / "b.parquet").write_bytes(b"PAR1" + b"x" * 100_000 + b"d")
    os.utime(logs.folder / "b.parquet", (NOW, NOW))
    logs.round()
    assert logs.whole[3:] == [("b.parquet", 0)]


def test_memory_of_a_name_does_not_disturb_the_file_that_has_it_now(logs):
    path = logs.folder / "a.log.1.gz"
    archive(path, "one\n", NOW - 100)
    logs.round()
    path.unlink()
    logs.round()
    archive(path, "two\n", NOW - 50)
    logs.round()
    assert len(logs.whole) == 2
    # The first text comes back elsewhere while the second's file is touched.
    os.utime(path, (logs.now + 1, logs.now + 1))
    archive(logs.folder / "a.log.2.gz", "one\n", NOW - 100)
    for _ in range(10):
        logs.round()
    assert len(logs.whole) == 2


def test_compressed_file_that_grows_goes_on_where_its_text_was_read_to(logs):
    path = logs.folder / "a.log.gz"
    archive(path, "one\n", NOW - 100)
    logs.round()
    logs.progress = logs.progress.with_offset(str(path), 4)  # as its reader found
    with path.open("ab") as file:
        file.write(gzip.compress(b"two\n"))
    os.utime(path, (NOW - 50, NOW - 50))
    logs.round()
    assert logs.whole == [("a.log.gz", 0), ("a.log.gz", 4)]


def test_watermark_stays_while_a_file_waits_to_be_read_whole(logs):
    write(logs.folder / "new.log", "one\n")
    archive(logs.folder / "old.log.gz", "two\n", NOW)
    assert logs.round() == ["one"]
    logs.progress = logs.progress.with_time(1_000_000)
    assert logs.progress.watermark(0) is None
    logs.now += follow.WHOLE_SECONDS
    logs.round()
    assert logs.whole == [("old.log.gz", 0)]
    assert logs.progress.watermark(0) == 1_000_000


def test_file_that_was_set_aside_is_left_until_it_has_changed_and_settled(logs):
    path = logs.folder / "a.log"
    write(path, "one\n")
    logs.progress = look(Progress(), [str(path)], logs.now).set_aside(str(path))
    assert logs.progress.todo == ()
    assert logs.round() == []
    write(path, "two\n", logs.now)
    assert logs.round() == []
    logs.now += follow.WHOLE_SECONDS
    assert logs.round() == ["one", "two"]


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
