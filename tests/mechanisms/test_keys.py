import base64
import os
import pickle
import stat

import pytest

from hadabeam.mechanisms import InputError, KeyFile, ParameterError, generate_key_file, read_key


class FixedSecret:
    def __init__(self, content):
        self.content = content

    def get_secret_bytes(self):
        return self.content


def test_generates_random_keys_that_only_the_owner_can_read(tmp_path):
    old = os.umask(0)
    try:
        one = generate_key_file(tmp_path / "one.key")
        two = generate_key_file(str(tmp_path / "two.key"))
    finally:
        os.umask(old)
    assert len(one.read()) == 32
    assert one.read() != two.read()
    assert stat.S_IMODE(os.stat(one.path).st_mode) == 0o600
    assert not one.loose_permissions


def test_never_overwrites(tmp_path):
    path = tmp_path / "a.key"
    before = generate_key_file(path).read()
    with pytest.raises(InputError, match="not overwritten"):
        generate_key_file(path)
    assert KeyFile(str(path)).read() == before


def test_does_not_follow_a_link_to_write(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError):
        generate_key_file(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_unwritable_folder(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        generate_key_file(tmp_path / "missing" / "a.key")


@pytest.mark.parametrize("size", [0, 16, 31, 33, 1000])
def test_a_file_of_another_size_is_no_key(tmp_path, size):
    path = tmp_path / "a.key"
    path.write_bytes((b"CANARY" * 200)[:size])
    with pytest.raises(InputError) as caught:
        KeyFile(str(path)).read()
    message = str(caught.value)
    assert str(path) in message
    assert f"{size} bytes" in message
    assert "hadabeam keygen" in message
    assert "CANARY" not in message


@pytest.mark.parametrize(
    ("name", "hint"), [("missing", "make one with hadabeam keygen"), (".", "check its path")]
)
def test_what_is_no_file_is_no_key(tmp_path, name, hint):
    # A new key in the place of one that is there would spend epsilon again.
    with pytest.raises(InputError, match=f"cannot read the key file .*; {hint}"):
        KeyFile(str(tmp_path / name)).read()


def test_loose_permissions_are_told(tmp_path):
    key = generate_key_file(tmp_path / "a.key")
    os.chmod(key.path, 0o640)
    assert key.loose_permissions
    assert len(key.read()) == 32
    assert not KeyFile(str(tmp_path / "missing")).loose_permissions


def test_the_reference_is_pickled_and_not_the_key(tmp_path):
    path = tmp_path / "a.key"
    path.write_bytes(b"CANARY-key-of-32-bytes-for-tests")
    key = KeyFile(path)
    data = pickle.dumps(key)
    assert b"CANARY" not in data
    assert "CANARY" not in repr(key)
    assert pickle.loads(data) == key
    assert read_key(pickle.loads(data)) == b"CANARY-key-of-32-bytes-for-tests"


def test_reads_secrets_as_bytes_or_base64():
    key = bytes(range(200, 232))
    assert read_key(FixedSecret(key)) == key
    assert read_key(FixedSecret(base64.urlsafe_b64encode(key))) == key


@pytest.mark.parametrize(
    "content", [b"CANARY", b"CANARY+" * 6 + b"!!", "CANARY" * 5 + "ab", b"", None]
)
def test_a_secret_that_is_no_key(content):
    with pytest.raises(InputError) as caught:
        read_key(FixedSecret(content))
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("source", [b"CANARY-key-of-32-bytes-for-tests", "CANARY", None])
def test_only_references_are_read(source):
    with pytest.raises(ParameterError) as caught:
        read_key(source)
    assert "CANARY" not in str(caught.value)
    assert "KeyFile" in str(caught.value)


@pytest.mark.parametrize("path", ["", None, 7, b"a.key"])
def test_a_key_file_needs_a_path(path):
    with pytest.raises(ParameterError):
        KeyFile(path)
