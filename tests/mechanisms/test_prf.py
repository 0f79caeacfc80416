import copy
import pickle

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.cmac import CMAC

from hadabeam.mechanisms import ParameterError, Prf
from hadabeam.mechanisms.prf import CHUNK, LONG

# RFC 4493, section 4.
RFC_KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
RFC_MESSAGE = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
RFC_CODES = {
    0: "bb1d6929e95937287fa37d129b756746",
    16: "070a16b46b4d4144f79bdd9dd04a287c",
    40: "dfa66747de9ae63030ca32611497c827",
    64: "51f0bebf7e3b9d92fc49741779363cfe",
}
KEY = bytes(range(32))


def reference(key, message):
    code = CMAC(algorithms.AES(key))
    code.update(message)
    return code.finalize()


class FixedContext:
    """A context whose block is given, to reach the vectors of the RFC."""

    def __init__(self, block):
        self.block = block


@pytest.mark.parametrize(("length", "code"), RFC_CODES.items())
def test_vectors_of_the_rfc(length, code):
    assert Prf(RFC_KEY).cmac(RFC_MESSAGE[:length]).hex() == code


def test_subkeys_of_the_rfc():
    prf = Prf(RFC_KEY)
    assert prf._full.hex() == "fbeed618357133667c85e08f7236a8de"
    assert prf._padded.hex() == "f7ddac306ae266ccf90bc11ee46d513b"


@pytest.mark.parametrize("length", [40, 64])
def test_vectors_of_the_rfc_through_the_array_code(length):
    context = FixedContext(RFC_MESSAGE[:16])
    rows = np.frombuffer(RFC_MESSAGE[16:length], dtype=np.uint8).reshape(1, -1)
    assert Prf(RFC_KEY).blocks(context, rows).tobytes().hex() == RFC_CODES[length]


def test_vector_of_one_block_through_the_array_code():
    offsets = np.array([0, 0])
    blocks = Prf(RFC_KEY)._variable(
        FixedContext(RFC_MESSAGE[:16]), offsets, np.zeros(0, dtype=np.uint8)
    )
    assert blocks.tobytes().hex() == RFC_CODES[16]


@pytest.mark.parametrize("key", [KEY, KEY[:16]])
def test_pseudonyms_are_the_cmac_of_context_and_id(key):
    generator = np.random.default_rng(1)
    ids = [generator.bytes(int(n)) for n in generator.integers(1, 201, 2000)]
    ids += [generator.bytes(n) for n in range(1, 201)]
    ids += [generator.bytes(n) for n in (LONG - 1, LONG, LONG + 1, 5000)]
    prf = Prf(key)
    head = prf.context("user").block
    result = prf.pseudonyms(ids)
    assert result.shape == (len(ids), 16)
    assert result.dtype == np.uint8
    for row, user in zip(result, ids, strict=True):
        assert row.tobytes() == reference(key, head + user) == prf.cmac(head + user)


@pytest.mark.parametrize("n", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1])
def test_chunks_join_up(n):
    prf = Prf(KEY)
    result = prf.pseudonyms([f"user{i}" for i in range(n)])
    assert len(result) == n
    head = prf.context("user").block
    for i in {0, n // 2, CHUNK - 1, CHUNK, n - 1} & set(range(n)):
        assert result[i].tobytes() == prf.cmac(head + f"user{i}".encode())


def test_text_is_taken_as_utf8_and_equals_its_bytes():
    prf = Prf(KEY)
    names = ["a", "zoë", "日本", "😀" * 9]
    np.testing.assert_array_equal(
        prf.pseudonyms(names), prf.pseudonyms([name.encode() for name in names])
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_arrow_buffers_of_a_slice(kind):
    names = [f"user-{i * i}" for i in range(100)]
    part = pa.array(names, kind).slice(20, 50)
    width = np.int32 if kind == pa.string() else np.int64
    offsets = np.frombuffer(part.buffers()[1], dtype=width)[20:71]
    data = np.frombuffer(part.buffers()[2], dtype=np.uint8)
    prf = Prf(KEY)
    np.testing.assert_array_equal(
        prf.pseudonyms_arrow_buffers(offsets, data), prf.pseudonyms(names[20:70])
    )


def test_bytes_after_an_id_do_not_matter():
    prf = Prf(KEY)
    one = prf.pseudonyms_arrow_buffers(np.array([0, 3]), np.frombuffer(b"abcXYZ", np.uint8))
    two = prf.pseudonyms_arrow_buffers(np.array([0, 3]), np.frombuffer(b"abc" * 9, np.uint8))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("offsets", "data"),
    [
        ([0, 9], np.zeros(4, np.uint8)),
        ([-1, 2], np.zeros(4, np.uint8)),
        ([0, 3, 2, 4], np.zeros(4, np.uint8)),
        ([0.0, 2.0], np.zeros(4, np.uint8)),
        ([0, 2], np.zeros(4, np.int8)),
        ([], np.zeros(4, np.uint8)),
    ],
)
def test_broken_buffers_are_refused(offsets, data):
    with pytest.raises(ParameterError):
        Prf(KEY).pseudonyms_arrow_buffers(np.array(offsets), data)


@pytest.mark.parametrize("length", [1, 5, 15, 16, 17, 31, 32, 33, 48, 100])
def test_fixed_rows(length):
    prf = Prf(KEY)
    rows = np.random.default_rng(length).integers(0, 256, (CHUNK + 3, length), dtype=np.uint8)
    context = prf.context("limit", "a")
    result = prf.blocks(context, rows)
    for i in (0, 1, CHUNK - 1, CHUNK, CHUNK + 2):
        assert result[i].tobytes() == reference(KEY, context.block + rows[i].tobytes())


@pytest.mark.parametrize("length", [1, 8, 16])
def test_absorbing_once_and_finishing_twice(length):
    prf = Prf(KEY)
    generator = np.random.default_rng(2)
    users = generator.integers(0, 256, (50, 32), dtype=np.uint8)
    context = prf.context("coin", "c", 5)
    chain = prf.absorb(context, users)
    for _ in range(2):
        last = generator.integers(0, 256, (50, length), dtype=np.uint8)
        expected = prf.blocks(context, np.hstack([users, last]))
        np.testing.assert_array_equal(prf.finish(chain, last), expected)


def test_words_are_little_endian():
    prf = Prf(KEY)
    rows = np.arange(32, dtype=np.uint8).reshape(2, 16)
    context = prf.context("x")
    words = prf.words(context, rows)
    assert words.dtype == np.uint64
    for row, block in zip(words, prf.blocks(context, rows), strict=True):
        data = block.tobytes()
        assert row.tolist() == [
            int.from_bytes(data[:8], "little"),
            int.from_bytes(data[8:], "little"),
        ]


@pytest.mark.parametrize(
    "rows", [np.zeros((2, 0), np.uint8), np.zeros(16, np.uint8), np.zeros((2, 16), np.int64), b"a"]
)
def test_other_rows_are_refused(rows):
    prf = Prf(KEY)
    with pytest.raises(ParameterError):
        prf.blocks(prf.context("x"), rows)


def test_contexts_differ_wherever_their_parts_do():
    prf = Prf(KEY)
    arguments = [
        ("a",),
        ("a", ""),
        ("a", "", ""),
        ("a", b""),
        ("a", 0),
        ("a", "0"),
        ("a", b"0"),
        ("a", -1),
        ("a", 1),
        ("a", 2**70),
        ("a", "b", "c"),
        ("a", "bc", ""),
        ("a", "", "bc"),
        ("ab", "c"),
        ("abc",),
        ("a", "s\0\0\0\0\0\0\0\0"),
    ]
    blocks = [prf.context(*parts).block for parts in arguments]
    assert all(len(block) == 16 for block in blocks)
    assert len(set(blocks)) == len(blocks)


def test_context_does_not_depend_on_the_key_and_is_stable():
    block = Prf(KEY).context("coin", "default", 0).block
    assert Prf(RFC_KEY).context("coin", "default", 0).block == block
    # Fixed: a change would give every user of an existing key another column.
    assert block.hex() == "9fc1e8eb50c1f34a8a6c98abef35ebc5"


@pytest.mark.parametrize("part", [1.5, None, True])
def test_other_parts_are_refused(part):
    with pytest.raises(ParameterError):
        Prf(KEY).context("a", part)


@pytest.mark.parametrize("key", [b"CANARY", b"CANARY" * 4, b"", "CANARY" * 5 + "ab", None, 7])
def test_bad_keys_are_refused_without_their_content(key):
    with pytest.raises(ParameterError) as caught:
        Prf(key)
    assert "CANARY" not in str(caught.value)
    assert "16 or 32 bytes" in str(caught.value) or "must be bytes" in str(caught.value)


def test_the_key_does_not_show_and_does_not_travel():
    key = b"CANARY-key-of-32-bytes-for-tests"
    prf = Prf(key)
    assert "CANARY" not in repr(prf) + str(prf)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="KeyFile"):
            pickle.dumps(prf, protocol)
    for copier in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copier(prf)
