"""What stores over a network have in common: what is judged when one is opened, and what a commit's answer means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from colane.server.store.checksums import Noting, Record
from colane.server.store.store import Document, Durability, StoreError, StoreWriter, Unreadable, judge_writer
from colane.settings.store_address import StoreAddress

SCHEMA: Final = 1
ANSWER_MAX_S: Final = 10.0  # a commit that is not answered for so long has an unknown outcome
CONNECT_MAX_S: Final = 5.0

Row = tuple[Any, ...]


class NetworkStore(Noting):
    """A store over a network; see `colane.server.store.store.Store` for the methods."""

    copies: ClassVar[str] = "a replica or a copy"  # from where one that is gone can be brought back
    address: StoreAddress  # where its server is, and the name of the cluster there
    id: str  # made with it
    _durability: Durability

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, dict[Any, tuple[Row, Record]]] = {}

    def remember(self, *collections: str) -> None:
        self._known = {name: self._known.get(name, {}) for name in collections}

    def _all(
        self, collection: str, rows: Iterable[Row], decode: Callable[..., Record]
    ) -> Iterator[tuple[str, Document]]:
        """Return the records of a whole collection; of one that is remembered only what has changed is decoded.

        Args:
            collection: Its name.
            rows: As they lie there, the key first.
            decode: Returns the record of the collection's name and the fields of a row.
        """
        known = self._known.get(collection)
        if known is None:
            return self._noted(decode(collection, *row) for row in rows)
        read = {}
        for row in rows:
            before = known.get(row[0])
            read[row[0]] = before if before is not None and before[0] == row else (row, decode(collection, *row))
        if collection in self._known:
            self._known[collection] = read
        return self._noted([record for _, record in read.values()])

    def _judge_opened(self, found: tuple[int, str] | None, made_before: str | None) -> str:
        """Return the id of the store that was found. Raises StoreError: there is none, or it is a newer Colane's."""
        if found is None and made_before is None:
            raise StoreError(f"there is no store at {self.address}")
        if found is None:
            raise StoreError(
                f"the store {self.address} is empty, but there was one here: bring it back ({self.copies})"
            )
        schema, id_ = found
        if schema > SCHEMA:
            raise StoreError(
                f"the store {self.address} was written by a newer Colane (schema {schema}, this one knows {SCHEMA}); "
                "start that one, or name another: ?name=NAME"
            )
        return id_

    def _judge_other(self, made_before: str, copied: Document | None) -> None:
        """Refuse another store than the one that was here, unless what it says of itself is that it is a copy of that.

        Raises StoreError: it is not.
        """
        if copied is None or made_before not in copied["of"]:
            raise StoreError(
                f"the store {self.address} is not the one that was here before: bring that one back, or empty this one "
                "and put a copy there (colane store copy)"
            )

    def _judge_commit(self, word: str, number: int, writer: StoreWriter | None) -> None:
        """Raise what a commit's answer says: `made`, `gone`, or which number is another, and what it is."""
        if word == "gone":
            raise self._gone()
        if word != "made" and writer is not None:
            epoch = number if word == "epoch" else writer.epoch
            events = number if word == "events" else writer.events or 0
            judge_writer(writer, epoch, events, number)

    def _gone(self) -> StoreError:
        return StoreError(
            f"the store {self.address} was emptied or replaced by another while the scheduler runs, so nothing can be "
            f"kept: bring it back ({self.copies})"
        )

    def _note_fewer(self, counts: Mapping[str, int], found: Mapping[str, int]) -> None:
        for collection, counted in counts.items():
            if found.get(collection, 0) < counted:
                self._note(Unreadable.missing(collection, counted, found.get(collection, 0)))

    def check(self) -> None:
        """Each commit and each reading of the version does: here it would be a round trip before each turn."""

    def durability(self) -> Durability:
        return self._durability
