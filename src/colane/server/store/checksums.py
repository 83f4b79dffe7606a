"""What durable stores have in common: whether a record is as it was written, and reading by SQL."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final
from zlib import crc32

from pydantic_core import to_json

from colane.server.store.store import (
    AUDIT,
    FINISHED_JOBS,
    UNREADABLE_LINE,
    AuditLine,
    Document,
    Transaction,
    Unreadable,
    UnreadableError,
)

log = logging.getLogger(__name__)

ALTERED: Final = "it is not as it was written"
Record = tuple[str, Document] | Unreadable


def checksum(*fields: str | bytes | float | None) -> int:
    """Return the checksum of a record's fields in their order, texts as they are or in UTF-8.

    CRC-32 finds every change of up to 32 bits in a row, and of others all but one in 4 billion. It is no protection
    against a person who may write the file.
    """
    return crc32(b"\0".join(map(as_bytes, fields)))


def text_checksum(*fields: str) -> int:
    """Return the checksum of fields that are all texts: the same as `checksum`, sooner."""
    return crc32("\0".join(fields).encode())


def as_bytes(field: str | bytes | float | None) -> bytes:
    """Return a field as it is counted."""
    return field if isinstance(field, bytes) else (field if isinstance(field, str) else repr(field)).encode()


def document_text(collection: str, document: Document) -> str:
    """Return a document as JSON in ASCII; of a collection that is searched for texts, with the spaces these have."""
    return json.dumps(document) if collection == FINISHED_JOBS else json_text(document)


def json_text(body: object) -> str:
    """Return a body of plain values as JSON in ASCII, sooner than `json` does: a commit writes thousands."""
    try:
        text = to_json(body)
    except ValueError:  # a text that is no UTF-8, which `json` knows how to write
        return json.dumps(body)
    return text.decode("ascii") if text.isascii() else json.dumps(body)


def decoded(collection: str, key: bytes, body: bytes, *, is_whole: bool = True) -> Record:
    """Return one record as it is stored, and its key, or why it is none."""
    if not is_whole:
        return Unreadable(collection, shown(key), ALTERED)
    try:
        document = json.loads(body)
        if isinstance(document, dict):
            return key.decode(), document
        problem = "it is no JSON object"
    except (ValueError, RecursionError) as error:
        problem = f"it is no JSON: {error}"
    return Unreadable(collection, shown(key), problem)


def shown(data: bytes | str | None) -> str:
    """A text that may have been altered, as it can be shown."""
    text = data.decode(errors="replace") if isinstance(data, bytes) else str(data)
    return "".join(sign if sign.isprintable() else "?" for sign in text)[:200]


class Noting:
    """Takes note of the records of a store that cannot be read; see `colane.server.store.store.Store`."""

    def __init__(self) -> None:
        self._unreadable: dict[tuple[str, str], Unreadable] = {}

    def unreadable(self) -> Sequence[Unreadable]:
        return list(self._unreadable.values())

    def note_unreadable(self, record: Unreadable) -> bool:
        is_news = (record.collection, record.key) not in self._unreadable
        if is_news:
            self._unreadable[record.collection, record.key] = record
        return is_news

    def _note(self, record: Unreadable) -> None:
        if self.note_unreadable(record):
            log.error("%s", record)

    def _noted(self, records: Iterable[Record]) -> Iterator[tuple[str, Document]]:
        """Those that can be read; of the others it takes note."""
        for record in records:
            if isinstance(record, Unreadable):
                self._note(record)
            else:
                yield record

    def _document(self, record: Record) -> Document:
        if isinstance(record, Unreadable):
            self._note(record)
            raise UnreadableError(str(record))
        return record[1]

    def _altered_line(self, number: int) -> AuditLine:
        """What stands in the place of a line that is not as it was written; it takes note of it."""
        record = Unreadable(AUDIT, str(number), ALTERED)
        self._note(record)
        return AuditLine(number, 0.0, UNREADABLE_LINE, {"problem": record.problem})

    def _forget_unreadable(self, transaction: Transaction) -> None:
        """What has been written anew, or removed, is unreadable no more."""
        if not self._unreadable:
            return
        gone = {(put.collection, put.key) for put in transaction.puts} | {
            (d.collection, d.key) for d in transaction.deletes
        }
        for place in list(self._unreadable):
            if place in gone or place[0] in transaction.clears:
                self._unreadable.pop(place, None)


class SqlReading(Noting):
    """Reads the table `documents`, in the words of each database."""

    VALUE: ClassVar[str]  # what stands for a value in a query
    CONTAINS: ClassVar[str]  # whether a body has a text

    def _read(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _where(self, condition: str) -> str:
        return f"SELECT key, body, checksum FROM documents WHERE {condition}".replace("?", self.VALUE)  # noqa: S608

    def count(self, collection: str) -> int:
        return int(self._read(f"SELECT count(*) FROM documents WHERE collection = {self.VALUE}", collection)[0][0])  # noqa: S608

    def page(self, collection: str, after: str, limit: int) -> list[tuple[str, Document]]:
        return self._page(collection, "collection = ? AND key > ? ORDER BY key", [collection, after], limit)

    def page_back(
        self, collection: str, before: str | None, limit: int, containing: Sequence[str] = ()
    ) -> list[tuple[str, Document]]:
        values, condition = [collection], "collection = ?"
        if before is not None:
            condition, values = f"{condition} AND key < ?", [*values, before]
        condition += f" AND {self.CONTAINS}" * len(containing) + " ORDER BY key DESC"
        return self._page(collection, condition, [*values, *containing], limit)

    def _page(self, collection: str, condition: str, values: list[str], limit: int) -> list[tuple[str, Document]]:
        """An empty page is the end: one on which nothing can be read is passed over."""
        offset, query = 0, self._where(f"{condition} LIMIT ? OFFSET ?")
        while rows := self._read(query, *values, limit, offset):
            if page := list(self._noted(self._decoded(collection, *row) for row in rows)):
                return page
            offset += limit
        return []

    @staticmethod
    def _decoded(collection: str, key: str | bytes, body: str | bytes, known: int) -> Record:
        """One record and its key, or what is wrong with it."""
        is_whole = checksum(collection, key, body) == known
        return decoded(collection, as_bytes(key), as_bytes(body), is_whole=is_whole)
