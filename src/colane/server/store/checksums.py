"""Whether a record is as it was written, and note of those that are not: what all durable stores have in common."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from pydantic_core import to_json

from colane.server.store.store import FINISHED_JOBS, Document, Transaction, Unreadable

log = logging.getLogger(__name__)

ALTERED: Final = "it is not as it was written"


def checksum(*fields: str | bytes | float | None) -> int:
    """Return the checksum of a record's fields in their order, texts as they are or in UTF-8.

    CRC-32 finds every change of up to 32 bits in a row, and of others all but one in 4 billion. It is no protection
    against a person who may write the file.
    """
    return crc32(b"\0".join([each if isinstance(each, bytes) else _bytes(each) for each in fields]))


def text_checksum(*fields: str) -> int:
    """Return the checksum of fields that are all texts: the same as `checksum`, sooner."""
    return crc32("\0".join(fields).encode())


def _bytes(field: str | float | None) -> bytes:
    return (field if isinstance(field, str) else repr(field)).encode()


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


def decoded(collection: str, key: bytes, body: bytes) -> tuple[str, Document] | Unreadable:
    """Return one record as it is stored, and its key, or why it is none."""
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
