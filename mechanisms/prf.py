"""A keyed pseudorandom function, AES-CMAC, evaluated for whole arrays of users.

CMAC (RFC 4493, NIST SP 800-38B) chains AES over the 16-byte blocks of a message and
masks the last block with a subkey. Every message here starts with a *context* of one
block that is the same for all users, so the chain after it is one constant, and an id
of up to 16 bytes costs one AES block. Arrays of blocks go through AES in one call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.cmac import CMAC

from .errors import ParameterError

Array = np.ndarray[Any, Any]

BLOCK = 16
#: Ids per internal chunk: what a chunk needs stays within a core's cache.
CHUNK = 1 << 14
#: Messages beyond this many bytes are rare, and each takes a CMAC object of its own.
LONG = 1024


@dataclass(frozen=True)
class Context:
    """What a pseudorandom value is for (public): the first block of every message.

    Attributes:
      block: 16 bytes, a digest of the purpose and its parts.
    """

    block: bytes


def _encode_part(part: bytes | str | int) -> bytes:
    """The kind, the length and the bytes of one part, so that no two lists encode alike."""
    if isinstance(part, str):
        kind, body = b"s", part.encode("utf-8", "surrogatepass")
    elif isinstance(part, bytes):
        kind, body = b"b", part
    elif isinstance(part, int) and not isinstance(part, bool):
        kind, body = b"i", b"%d" % part
    else:
        raise ParameterError(
            f"a context is made of text, bytes and whole numbers, not {type(part).__name__}"
        )
    return kind + len(body).to_bytes(8, "little") + body


def _double(block: bytes) -> bytes:
    """Multiplication by x in GF(2**128), as RFC 4493 derives its subkeys."""
    number = int.from_bytes(block, "big") << 1
    if number >> 128:
        number ^= (1 << 128) | 0x87
    return number.to_bytes(BLOCK, "big")


def _pair(block: bytes) -> Array:
    """A block as two little-endian words, uint64[2]."""
    return np.frombuffer(block, dtype="<u8").astype(np.uint64)


class Prf:
    """AES-CMAC under one key, for arrays.

    It is cheap to make, and belongs on the worker that uses it: it cannot be pickled,
    so that a key never travels in a pipeline. Share a
    :class:`~hadabeam.mechanisms.keys.KeyFile` instead.

    Args:
      key: 16 or 32 bytes (secret).

    Raises:
      ParameterError: if ``key`` is no bytes of that length.
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes):
            raise ParameterError(f"a key must be bytes, not {type(key).__name__}")
        if len(key) not in (16, 32):
            raise ParameterError(
                f"a key must be 16 or 32 bytes long, not {len(key)}; make one with hadabeam keygen"
            )
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())
        self._algorithm = algorithms.AES(key)
        zero = self._cipher.encryptor().update(bytes(BLOCK))
        self._full = _double(zero)
        self._padded = _double(self._full)
        # Row l of the tables masks what follows an id of l bytes, and adds its padding
        # and subkey. Row 16 keeps all bytes.
        masks = np.zeros((BLOCK + 1, BLOCK), dtype=np.uint8)
        tails = np.zeros((BLOCK + 1, BLOCK), dtype=np.uint8)
        for length in range(BLOCK + 1):
            masks[length, :length] = 0xFF
            if length < BLOCK:
                tails[length] = np.frombuffer(self._padded, dtype=np.uint8)
                tails[length, length] ^= 0x80
            else:
                tails[length] = np.frombuffer(self._full, dtype=np.uint8)
        self._masks = masks.view(np.complex128)[:, 0]
        self._tails = tails.view(np.uint64)

    def __repr__(self) -> str:
        return "Prf(key=<hidden>)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Prf holds a key and cannot be pickled or copied; share a KeyFile")

    def context(self, purpose: str, *parts: bytes | str | int) -> Context:
        """The context of a purpose and its parts; different arguments, different contexts."""
        text = b"".join(_encode_part(part) for part in (purpose, *parts))
        return Context(hashlib.sha256(b"hadabeam context\0" + text).digest()[:BLOCK])

    def cmac(self, message: bytes) -> bytes:
        """The plain AES-CMAC of one message, 16 bytes."""
        code = CMAC(self._algorithm)
        code.update(message)
        return code.finalize()

    def pseudonyms(self, ids: Iterable[str | bytes]) -> Array:
        """The users' pseudonyms: ``cmac(context("user").block + id)``.

        Args:
          ids: texts (taken as UTF-8) or bytes. An empty id is a missing user: callers
            drop those records first.

        Returns:
          uint8[n, 16].
        """
        encoded = [
            item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item for item in ids
        ]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
        return self.pseudonyms_arrow_buffers(
            offsets, np.frombuffer(b"".join(encoded), dtype=np.uint8)
        )

    def pseudonyms_arrow_buffers(self, offsets: Array, data: Array) -> Array:
        """As :meth:`pseudonyms`, for ids laid out as Arrow does.

        Args:
          offsets: int32[n + 1] or int64[n + 1]; id i is ``data[offsets[i]:offsets[i + 1]]``.
          data: uint8, the ids' bytes.

        Returns:
          uint8[n, 16].

        Raises:
          ParameterError: if the offsets decrease or leave ``data``.
        """
        return self._variable(self.context("user"), offsets, data)

    def blocks(self, context: Context, rows: Array) -> Array:
        """``cmac(context.block + row)`` for rows of one length.

        Args:
          context: what the values are for.
          rows: uint8[n, L], L >= 1. Up to 16 bytes cost one AES block each.

        Returns:
          uint8[n, 16].

        Raises:
          ParameterError: if ``rows`` has another type or shape.
        """
        rows = _checked_rows(rows)
        length = rows.shape[1]
        head = (length - 1) // BLOCK * BLOCK
        chain = self.absorb(context, rows[:, :head]) if head else None
        return self._last(self._state(context), chain, rows[:, head:])

    def absorb(self, context: Context, rows: Array) -> Array:
        """The chain after whole blocks, to finish it several times (:meth:`finish`).

        Args:
          context: what the values are for.
          rows: uint8[n, 16 m], m >= 1.

        Returns:
          uint8[n, 16]. It is an intermediate value of CMAC and must not be published.
        """
        rows = _checked_rows(rows)
        if rows.shape[1] % BLOCK:
            raise ParameterError("only whole blocks of 16 bytes can be absorbed")
        chain = np.empty((rows.shape[0], BLOCK), dtype=np.uint8)
        chain[:] = np.frombuffer(self._state(context), dtype=np.uint8)
        for start in range(0, rows.shape[1], BLOCK):
            chain = self._encrypt(chain ^ rows[:, start : start + BLOCK])
        return chain

    def finish(self, chain: Array, rows: Array) -> Array:
        """``cmac(context.block + absorbed + row)``, from :meth:`absorb` and rows of 1 to 16 bytes.

        Args:
          chain: uint8[n, 16] from :meth:`absorb`.
          rows: uint8[n, L], L from 1 to 16.

        Returns:
          uint8[n, 16].
        """
        rows = _checked_rows(rows)
        if rows.shape[1] > BLOCK:
            raise ParameterError("the last row has at most 16 bytes")
        return self._last(None, chain, rows)

    def words(self, context: Context, rows: Array) -> Array:
        """:meth:`blocks` as uint64[n, 2]: bytes 0-7 and 8-15, each read little-endian."""
        return as_words(self.blocks(context, rows))

    def _state(self, context: Context) -> bytes:
        """The chain after the context's block."""
        return self._cipher.encryptor().update(context.block)

    def _encrypt(self, blocks: Array, out: Array | None = None) -> Array:
        """AES of uint8[n, 16]. ``out``, if given, is flat and 15 bytes longer than the result."""
        if out is None:
            out = np.empty(blocks.size + BLOCK - 1, dtype=np.uint8)
        if blocks.size:
            # A fresh encryptor for each call, as threads may share this object.
            self._cipher.encryptor().update_into(blocks.reshape(-1), out)  # type: ignore[arg-type]
        return out[: blocks.size].reshape(-1, BLOCK)

    def _last(self, state: bytes | None, chain: Array | None, rows: Array) -> Array:
        """Masks the last block and encrypts it, a chunk at a time."""
        count, length = rows.shape
        tail = self._tails[length].copy()
        if chain is None and state is not None:
            tail ^= _pair(state)
        flat = np.empty(count * BLOCK + BLOCK - 1, dtype=np.uint8)
        block = np.zeros((min(count, CHUNK), BLOCK), dtype=np.uint8)
        words = block.view(np.uint64)
        for low in range(0, count, CHUNK):
            high = min(low + CHUNK, count)
            size = high - low
            block[:size, :length] = rows[low:high]
            block[:size, length:] = 0
            words[:size] ^= tail
            if chain is not None:
                block[:size] ^= chain[low:high]
            self._encrypt(block[:size], flat[low * BLOCK : high * BLOCK + BLOCK - 1])
        return flat[: count * BLOCK].reshape(count, BLOCK)

    def _variable(self, context: Context, offsets: Array, data: Array) -> Array:
        """``cmac(context.block + id)`` of ids of any length."""
        if offsets.ndim != 1 or offsets.size < 1 or offsets.dtype.kind != "i":
            raise ParameterError("offsets must be int32 or int64, one more than there are ids")
        if data.ndim != 1 or data.dtype != np.uint8:
            raise ParameterError("the ids' bytes must be uint8 in one dimension")
        count = offsets.size - 1
        if int(offsets[0]) < 0 or int(offsets[-1]) > data.size:
            raise ParameterError("the offsets point outside the ids' bytes")
        state = self._state(context)
        tails = self._tails ^ _pair(state)
        flat = np.empty(count * BLOCK + BLOCK - 1, dtype=np.uint8)
        for low in range(0, count, CHUNK):
            high = min(low + CHUNK, count)
            starts = offsets[low : high + 1].astype(np.int64)
            lengths = np.diff(starts)
            if lengths.size and int(lengths.min()) < 0:
                raise ParameterError("the offsets must not decrease")
            first, last = int(starts[0]), int(starts[-1])
            starts -= first
            piece = data[first : last + BLOCK]
            if piece.size < last - first + BLOCK or not piece.flags.c_contiguous:
                # 16 bytes are read from each start, so the last id needs bytes after it.
                piece = np.zeros(last - first + BLOCK, dtype=np.uint8)
                piece[: last - first] = data[first:last]
            out = flat[low * BLOCK : high * BLOCK + BLOCK - 1]
            self._chunk(context, state, tails, starts[:-1], lengths, piece, out)
        return flat[: count * BLOCK].reshape(count, BLOCK)

    def _chunk(
        self,
        context: Context,
        state: bytes,
        tails: Array,
        starts: Array,
        lengths: Array,
        piece: Array,
        out: Array,
    ) -> None:
        """One chunk of :meth:`_variable`: short ids at once, longer ones block by block."""
        longest = int(lengths.max())
        shown = lengths if longest <= BLOCK else np.minimum(lengths, BLOCK)
        # All 16-byte windows of the piece, as items that can be gathered by their start.
        windows: Array = np.ndarray(
            (piece.size - BLOCK + 1,), dtype="V16", buffer=piece, strides=(1,)
        )
        words = windows[starts].view(np.uint64).reshape(-1, 2)
        words &= self._masks[shown].view(np.uint64).reshape(-1, 2)
        words ^= tails.view(np.complex128)[:, 0][shown].view(np.uint64).reshape(-1, 2)
        self._encrypt(words.view(np.uint8), out)
        empty = np.flatnonzero(lengths == 0) if int(lengths.min()) == 0 else ()
        rows = out[: lengths.size * BLOCK].reshape(-1, BLOCK)
        if len(empty):
            rows[empty] = np.frombuffer(self.cmac(context.block), dtype=np.uint8)
        if longest > BLOCK:
            longer = np.flatnonzero((lengths > BLOCK) & (lengths <= LONG))
            if longer.size:
                rows[longer] = self._longer(state, windows, starts[longer], lengths[longer])
            for row in np.flatnonzero(lengths > LONG):
                start = int(starts[row])
                message = piece[start : start + int(lengths[row])].tobytes()
                rows[row] = np.frombuffer(self.cmac(context.block + message), dtype=np.uint8)

    def _longer(self, state: bytes, windows: Array, starts: Array, lengths: Array) -> Array:
        """Ids of more than one block: a loop over block numbers, the longest ids first."""
        order = np.argsort(-lengths, kind="stable")
        starts, lengths = starts[order], lengths[order]
        chain = np.empty((lengths.size, 2), dtype=np.uint64)
        chain[:] = _pair(state)
        ends = -((-lengths) // BLOCK) - 1  # the number of each id's last block
        masks, tails = self._masks, self._tails.view(np.complex128)[:, 0]
        for number in range(int(ends[0]) + 1):
            active = int(np.searchsorted(-ends, -number, side="right"))
            words = windows[starts[:active] + number * BLOCK].view(np.uint64).reshape(-1, 2)
            final = int(np.searchsorted(-ends, -number, side="left"))
            if final < active:
                rest = lengths[final:active] - number * BLOCK
                words[final:] &= masks[rest].view(np.uint64).reshape(-1, 2)
                words[final:] ^= tails[rest].view(np.uint64).reshape(-1, 2)
            words ^= chain[:active]
            chain[:active] = self._encrypt(words.view(np.uint8)).view(np.uint64)
        result = np.empty((lengths.size, BLOCK), dtype=np.uint8)
        result[order] = chain.view(np.uint8)
        return result


def as_words(blocks: Array) -> Array:
    """uint8[n, 16] as uint64[n, 2], each word little-endian."""
    return np.ascontiguousarray(blocks).view("<u8").astype(np.uint64, copy=False)


def _checked_rows(rows: Array) -> Array:
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype != np.uint8:
        raise ParameterError("rows must be uint8 in two dimensions")
    if rows.shape[1] < 1:
        raise ParameterError("rows must have at least one byte")
    return rows
