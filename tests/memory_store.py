"""A store in memory: the double for tests, held to the same contract as the durable ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from itertools import islice

from colane.server.store.store import (
    COLLECTIONS,
    EPOCHS,
    AuditLine,
    Document,
    Durability,
    StoreError,
    StoreWriter,
    Transaction,
    Unreadable,
    judge_writer,
)


class MemoryStore:
    """Keeps JSON text, so that what cannot be stored on disk cannot be stored here either.

    Attributes:
        failure: While set, every commit fails with this message and changes nothing.
        vanished: While set, the store is taken to be gone, with this message.
    """

    def __init__(self) -> None:
        self.failure: str | None = None
        self.vanished: str | None = None
        self._lock = threading.Lock()
        self._unreadable: dict[tuple[str, str], Unreadable] = {}
        self._collections: dict[str, dict[str, str]] = {name: {} for name in COLLECTIONS}
        self._audit: list[tuple[float, str, str]] = []
        self._version = 0

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        puts = [(put.collection, put.key, json.dumps(put.document)) for put in transaction.puts]
        lines = [(entry.at_s, entry.kind, json.dumps(entry.body)) for entry in transaction.audit]
        with self._lock:
            if self.failure is not None:
                raise StoreError(self.failure)
            if writer is not None:
                judge_writer(writer, int(max(self._collections[EPOCHS], default="0")), len(self._audit), self._version)
                self._version += writer.version is not None
            for name in transaction.clears:
                self._collections[name].clear()
                self._unreadable = {place: one for place, one in self._unreadable.items() if place[0] != name}
            for delete in transaction.deletes:
                self._collections[delete.collection].pop(delete.key, None)
                self._unreadable.pop((delete.collection, delete.key), None)
            for collection, key, text in puts:
                self._collections[collection][key] = text
                self._unreadable.pop((collection, key), None)
            self._audit.extend(lines)
            return len(self._audit)

    def get(self, collection: str, key: str) -> Document | None:
        with self._lock:
            text = self._collections[collection].get(key)
        return None if text is None else json.loads(text)

    def remember(self, *collections: str) -> None:
        """Nothing: see `Store.remember`."""

    def count(self, collection: str) -> int:
        with self._lock:
            return len(self._collections[collection])

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        with self._lock:
            rows = sorted(self._collections[collection].items())
        return ((key, json.loads(text)) for key, text in rows)

    def page(self, collection: str, after: str, limit: int) -> list[tuple[str, Document]]:
        with self._lock:
            rows = sorted(row for row in self._collections[collection].items() if row[0] > after)
        return [(key, json.loads(text)) for key, text in rows[:limit]]

    def page_back(
        self, collection: str, before: str | None, limit: int, containing: Sequence[str] = ()
    ) -> list[tuple[str, Document]]:
        with self._lock:
            rows = sorted(self._collections[collection].items(), reverse=True)
        found = (
            row for row in rows if (before is None or row[0] < before) and all(one in row[1] for one in containing)
        )
        return [(key, json.loads(text)) for key, text in islice(found, limit)]

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        with self._lock:
            rows = self._audit[after : after + limit]
        numbered = enumerate(rows, start=after + 1)
        return [AuditLine(number, at_s, kind, json.loads(text)) for number, (at_s, kind, text) in numbered]

    def last_audit_number(self) -> int:
        with self._lock:
            return len(self._audit)

    def take_lines(self, lines: Sequence[AuditLine]) -> None:
        with self._lock:
            missing = lines[0].number - 1 - len(self._audit) if lines else 0
            self._audit += [(0.0, "trimmed", "{}")] * missing
            self._audit += [(line.at_s, line.kind, json.dumps(line.body)) for line in lines]

    def version(self) -> int:
        with self._lock:
            return self._version

    def unreadable(self) -> Sequence[Unreadable]:
        return list(self._unreadable.values())

    def note_unreadable(self, record: Unreadable) -> bool:
        is_news = (record.collection, record.key) not in self._unreadable
        self._unreadable.setdefault((record.collection, record.key), record)
        return is_news

    def note_missing(self) -> None:
        """Nothing: no other process has these."""

    def check(self) -> None:
        if self.vanished is not None:
            raise StoreError(self.vanished)

    def durability(self) -> Durability:
        return Durability("memory")

    def scrub(self) -> None:
        """Do nothing: there are no files."""

    def close(self) -> None:
        """Nothing to do."""
