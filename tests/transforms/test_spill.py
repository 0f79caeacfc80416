"""Segments through the shuffle and through a private folder."""

import os
import pickle
import stat
from pathlib import Path

import pytest

from hadabeam.transforms.spill import SegmentReader, SegmentWriter, private_folder


def test_the_folder_is_private_and_removed():
    with private_folder() as folder:
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        SegmentWriter(folder).write([b"x"])
    assert not Path(folder).exists()


def test_the_folder_is_removed_after_a_failure(tmp_path):
    with pytest.raises(KeyError), private_folder(str(tmp_path)) as folder:
        raise KeyError
    assert Path(folder).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_inline_segments_travel_in_the_element():
    elements = SegmentWriter(None).write([b"", b"abc"])
    reader = SegmentReader(None)
    assert [bytes(reader.read(element)) for element in elements] == [b"", b"abc"]


def test_spilled_segments_are_read_by_another_process_object(tmp_path):
    segments = [os.urandom(1000), b"", os.urandom(5)]
    writer = SegmentWriter(str(tmp_path))
    elements = writer.write(segments) + writer.write([b"second file"])
    reader = SegmentReader(str(tmp_path))
    assert [bytes(reader.read(pickle.loads(pickle.dumps(e)))) for e in elements] == [
        *segments,
        b"second file",
    ]
    assert max(map(len, elements)) < 100
    assert len(list(tmp_path.iterdir())) == 2


def test_spilled_files_are_for_their_owner_only(tmp_path):
    SegmentWriter(str(tmp_path)).write([b"x"])
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_reference_without_a_folder_is_an_error(tmp_path):
    (element,) = SegmentWriter(str(tmp_path)).write([b"x"])
    with pytest.raises(RuntimeError, match="no folder"):
        SegmentReader(None).read(element)
