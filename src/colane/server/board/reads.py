"""What requests of a turn read of the store: read in a thread between two attempts to put the request into the turn.

A store over the network takes as long to answer as the network does, and the event loop serves all other requests. So a
request that asks for what has not been read is put off: what it wants is read in a thread, and it is asked again, which
costs nothing, as requests add to a turn only once they have all they need. The writer commits nothing meanwhile, so
what was read holds until the turn's own commit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from colane.server.store.store import Document, Store, StoreError, Unreadable

Answer = TypeVar("Answer")


class NotReadError(Exception):
    """Wanted by a request, and not read yet.

    Attributes:
        read: Reads it; to be called in a thread.
    """

    def __init__(self, read: Callable[[], None]) -> None:
        super().__init__("this is read in a thread before the turn goes on")
        self.read = read


class Reads:
    """A store as one turn reads it; see `colane.server.store.store.Readable`.

    Args:
        store: None for a turn that is only tried and reads nothing.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._known: dict[Hashable, Any] = {}
        self._may_read = False

    def fetch(self, wanted: Sequence[tuple[str, str]]) -> None:
        """Read documents by collection and key, in a thread, for requests that are known to want them."""
        for collection, key in wanted:
            self._read("get", (collection, key))

    def at_once(self, ask: Callable[[], Answer]) -> Answer:
        """Return what is asked for, in a thread: what was not read is read meanwhile."""
        self._may_read = True
        try:
            return ask()
        finally:
            self._may_read = False

    def get(self, collection: str, key: str) -> Document | None:
        found: Document | None = self._of("get", collection, key)
        return found

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        return iter(self._of("read_all", collection))

    def page(self, collection: str, after: str, limit: int) -> list[tuple[str, Document]]:
        return list(self._of("page", collection, after, limit))

    def page_back(
        self, collection: str, before: str | None, limit: int, containing: Sequence[str] = ()
    ) -> list[tuple[str, Document]]:
        return list(self._of("page_back", collection, before, limit, tuple(containing)))

    def note_unreadable(self, record: Unreadable) -> bool:
        return self._store is not None and self._store.note_unreadable(record)

    def _of(self, method: str, *values: Any) -> Any:  # noqa: ANN401 - as the store's method has it
        if self._may_read:
            self._read(method, values)
        elif (method, values) not in self._known:
            raise NotReadError(lambda: self._read(method, values))
        found = self._known[method, values]
        if isinstance(found, StoreError):
            raise found
        return found

    def _read(self, method: str, values: tuple[Any, ...]) -> None:
        if (method, values) in self._known:
            return
        try:
            found = getattr(self._store, method)(*values)
            self._known[method, values] = list(found) if method == "read_all" else found
        except StoreError as error:
            self._known[method, values] = error
