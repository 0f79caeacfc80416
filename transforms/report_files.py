"""From the rows of a file of reports to arrays, and who is refused on the way."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..mechanisms.oracle import Array, FrequencyOracle
from ..mechanisms.prf import Prf
from .encode import EncodedRecords
from .records import DeadLetter, Tally
from .report_form import ReportForm
from .reports import ReportArrays, keep_valid, unpack_row
from .rows import Rows
from .texts import to_text
from .windows import Windowing, are_starts


def _said(reports: int | None, columns: bytes | None) -> int:
    """How many reports a pack of another collection counts as: of a pack that is broken, one.

    What it says is believed only if it has as many columns; any number can be written there.
    """
    return reports if reports and len(columns or b"") == 4 * reports else 1


@dataclass
class ParsedReports:
    """What one block of a file gave.

    Attributes:
      reports: those that are counted as they are.
      identified: those with a sender or an id, which are counted once all over the input:
        ``users`` is made of the epoch and the sender (or id), ``values`` is twice the column
        plus the bit, ``times`` is the epoch.
      dead_letters: those that are refused.
      tally: ``records_read`` and the refused by reason; ``unchecked_columns`` and
        ``unchecked_duplicates`` tell of how many the column's owner, and repetition,
        could not be checked.
    """

    reports: list[ReportArrays] = field(default_factory=list)
    identified: EncodedRecords | None = None
    dead_letters: list[DeadLetter] = field(default_factory=list)
    tally: Tally = field(default_factory=dict)

    def add(self, name: str, number: int) -> None:
        """Adds to the tally."""
        if number:
            self.tally[name] = self.tally.get(name, 0) + number


class ReportParser:
    """Turns rows into reports of one collection. Threads may share it.

    Args:
      oracle: the mechanism; reports of another collection are refused.
      file: the file's name, for dead letters.
      form: how the file holds reports.
      prf: groups senders and ids; of the assignment key where there is one.
      assigned: whether ``prf`` is of the assignment key, so that a report whose column is
        not its sender's can be refused, and with it one that names no sender.
      windowing: the windows that the reports were made with, or None for none; those of other
        windows are refused.
      raw: whether dead letters carry the text of the row.
    """

    def __init__(
        self,
        oracle: FrequencyOracle,
        file: str,
        form: ReportForm,
        prf: Prf,
        assigned: bool = False,
        windowing: Windowing | None = None,
        raw: bool = False,
    ) -> None:
        self._oracle = oracle
        self._windowing = windowing
        self._file = file
        self._form = form
        self._prf = prf
        self._assigned = assigned
        self._raw = raw

    def __call__(self, rows: Rows) -> ParsedReports:
        """Parses the rows of one block."""
        found = ParsedReports()
        for row in range(len(rows.bad_positions)):
            self._refuse(found, "unparseable", rows, row, bad=True)
        columns = dict(zip(self._form.fields, rows.columns, strict=False))
        if not columns:
            found.add("records_read", len(rows.bad_positions))
        elif self._form.packed:
            self._packed(found, rows, columns)
        else:
            found.add("records_read", len(rows) + len(rows.bad_positions))
            self._plain(found, rows, columns)
        return found

    def _refuse(
        self, found: ParsedReports, reason: str, rows: Rows, row: int, bad: bool = False
    ) -> None:
        position = int((rows.bad_positions if bad else rows.positions)[row])
        text = rows.raw(row, bad) if self._raw else None
        found.add(reason, 1)
        found.dead_letters.append(DeadLetter(reason, self._file, position, text))

    def _packed(self, found: ParsedReports, rows: Rows, columns: dict[str, pa.Array]) -> None:
        """Rows of many reports; numbers are of reports, but a row that is broken counts as one."""
        found.add("records_read", len(rows.bad_positions))
        collections = to_text(columns["collection"])
        numbers = {name: whole_numbers(columns[name]) for name in ("epoch", "reports")}
        packs = {name: _bytes(columns[name]) for name in ("columns", "bits")}
        payload = _bytes(columns["payload"]) if "payload" in columns else [None] * len(rows)
        keys = to_text(columns["key"]) if "key" in columns else pa.nulls(len(rows), pa.string())
        for row in range(len(rows)):
            reports = unpack_row(
                {
                    **{name: column[row].as_py() for name, column in numbers.items()},
                    **{name: column[row] for name, column in packs.items()},
                    "payload": payload[row],
                    "key": keys[row].as_py(),
                },
                self._oracle.payload_bytes,
            )
            if collections[row].as_py() != self._oracle.collection_id:
                # Of another collection the payload has another width: nothing fits.
                n = _said(numbers["reports"][row].as_py(), packs["columns"][row])
                found.add("records_read", n)
                self._refuse(found, "wrong_collection", rows, row)
                found.add("wrong_collection", n - 1)
            elif reports is None:
                found.add("records_read", 1)
                self._refuse(found, "unparseable", rows, row)
            elif (reason := self._foreign(reports)) is not None:
                n = len(reports.column)
                found.add("records_read", n)
                self._refuse(found, reason, rows, row)
                found.add(reason, n - 1)
            else:
                n = len(reports.column)
                found.add("records_read", n)
                kept, refused = keep_valid(self._oracle, reports)
                found.add("wrong_column", refused)
                found.add("unchecked_columns", n - refused)
                found.add("unchecked_duplicates", n - refused)
                found.reports.append(kept)

    def _foreign(self, pack: ReportArrays) -> str | None:
        """Why none of the reports of a pack can count, or None."""
        if not are_starts(self._windowing, np.array([pack.epoch]))[0]:
            return "wrong_window"
        # A pack names no senders.
        return "missing_sender" if self._assigned else None

    def _plain(self, found: ParsedReports, rows: Rows, columns: dict[str, pa.Array]) -> None:
        n = len(rows)
        oracle = self._oracle
        numbers = {name: whole_numbers(columns[name]) for name in ("epoch", "column", "bit")}
        parsed = np.ones(n, bool)
        for column in numbers.values():
            parsed &= column.is_valid().to_numpy(zero_copy_only=False)
        payload, fits = self._payload(columns, n)
        mine = pc.fill_null(
            pc.equal(to_text(columns["collection"]), oracle.collection_id), False
        ).to_numpy(zero_copy_only=False)
        epoch, column, bit = (
            values.fill_null(0).to_numpy(zero_copy_only=False) for values in numbers.values()
        )
        valid = (column >= 0) & (column < 2**31) & (bit >= 0) & (bit <= 1)
        narrow = np.where(valid, column, 0).astype(np.int32), np.where(valid, bit, 0).astype("u1")
        valid &= oracle.valid(*narrow, payload)
        dated = are_starts(self._windowing, epoch)
        senders = to_text(columns["sender"]) if "sender" in columns else None
        owned = np.zeros(n, bool)
        if senders is not None and self._assigned:
            owned = senders.is_valid().to_numpy(zero_copy_only=False)
            users = self._prf.pseudonyms([text or "-" for text in senders.to_pylist()])
            valid &= ~owned | (oracle.assign(users, self._prf) == narrow[0])
        reasons = {
            # In this order: what is not of this collection need not make sense here.
            "wrong_collection": parsed & ~mine,
            "unparseable": ~parsed | (mine & ~fits),
            "wrong_window": parsed & mine & fits & ~dated,
            "missing_sender": parsed & mine & fits & dated & (self._assigned & ~owned),
        }
        refused = np.logical_or.reduce(list(reasons.values()))
        reasons["wrong_column"] = ~refused & ~valid
        for reason, mask in reasons.items():
            for row in np.flatnonzero(mask):
                self._refuse(found, reason, rows, int(row))
        good = ~refused & valid
        found.add("unchecked_columns", int(np.count_nonzero(good & ~owned)))
        names = self._identities(columns, senders, epoch)
        known = np.zeros(n, bool)
        if names is not None:
            known = names.is_valid().to_numpy(zero_copy_only=False)
        keys = to_text(columns["key"]) if "key" in columns else pa.nulls(n, pa.string())
        self._identified(found, good & known, names, epoch, narrow, keys, payload)
        alone = good & ~known
        found.add("unchecked_duplicates", int(np.count_nonzero(alone)))
        found.reports += _grouped(alone, epoch, keys, narrow, payload)

    def _payload(self, columns: dict[str, pa.Array], n: int) -> tuple[Array | None, Array]:
        """The payloads, and which rows have one of the oracle's width (or none, if it has none)."""
        width = self._oracle.payload_bytes
        found = _bytes(columns["payload"]) if "payload" in columns else [None] * n
        fits = np.array([len(row or b"") == width for row in found], bool)
        if not width:
            return None, fits
        filler = bytes(width)
        data = b"".join(
            row if fit and row else filler for row, fit in zip(found, fits, strict=True)
        )
        return np.frombuffer(data, np.uint8).reshape(n, width), fits

    @staticmethod
    def _identities(
        columns: dict[str, pa.Array], senders: pa.Array | None, epoch: Array
    ) -> pa.Array | None:
        """string[n]: what may be counted once: a sender in an epoch, or else a report's id."""
        names = []
        if senders is not None:
            epochs = pa.array(epoch).cast(pa.string())
            names.append(pc.binary_join_element_wise("sender", epochs, senders, " "))
        if "report_id" in columns:
            names.append(pc.binary_join_element_wise("id", to_text(columns["report_id"]), " "))
        return pc.coalesce(*names) if names else None

    def _identified(
        self,
        found: ParsedReports,
        rows: Array,
        names: pa.Array | None,
        epoch: Array,
        narrow: tuple[Array, Array],
        keys: pa.Array,
        payload: Array | None,
    ) -> None:
        if names is None or not rows.any():
            return
        encoded = keys.fill_null("").dictionary_encode()
        found.identified = EncodedRecords(
            self._prf.pseudonyms(names.filter(pa.array(rows)).to_pylist()),
            narrow[0][rows] * 2 + narrow[1][rows],
            epoch[rows],
            encoded.indices.to_numpy(zero_copy_only=False)[rows],
            tuple(encoded.dictionary.to_pylist()),
            None if payload is None else payload[rows],
        )


def _grouped(
    rows: Array,
    epoch: Array,
    keys: pa.Array,
    narrow: tuple[Array, Array],
    payload: Array | None,
) -> list[ReportArrays]:
    """The chosen rows, for each epoch and key."""
    if not rows.any():
        return []
    encoded = keys.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    pairs = np.stack([epoch[rows], codes[rows]], axis=1)
    groups, member = np.unique(pairs, axis=0, return_inverse=True)
    member = member.ravel()
    found = []
    for number, (start, code) in enumerate(groups.tolist()):
        mine = np.flatnonzero(rows)[member == number]
        found.append(
            ReportArrays(
                start,
                encoded.dictionary[code].as_py(),
                narrow[0][mine],
                narrow[1][mine],
                None if payload is None else payload[mine],
            )
        )
    return found


def whole_numbers(column: pa.Array) -> pa.Array:
    """int64[n] of a column of whole numbers or their texts; null where it is none."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    texts = to_text(column)
    whole = pc.match_substring_regex(texts, r"^-?[0-9]{1,18}$")
    return pc.if_else(whole, texts, pa.scalar(None, pa.string())).cast(pa.int64())


def _bytes(column: pa.Array) -> list[bytes | None]:
    """The rows as bytes; text is base64, and what is neither is None."""
    return [_plain_bytes(value) for value in column.to_pylist()]


def _plain_bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return None
    return value if isinstance(value, bytes) else None
