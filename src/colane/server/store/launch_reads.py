"""What jobs are started with, read for all who ask at the same time in one go of one thread."""

from __future__ import annotations

import asyncio

from colane.server.store.store import LAUNCH_SPECS, Document, Store, StoreError
from colane.server.store.unreadable import get_readable


class LaunchReads:
    """Reads launch specs; whoever asks while others are read is served by the next reading.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted: dict[str, asyncio.Future[Document | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def get(self, key: str) -> Document | None:
        """Return one; None where it is not there, or cannot be read. Raises StoreError: the store cannot be read."""
        if key not in self._wanted:
            self._wanted[key] = asyncio.get_running_loop().create_future()
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._wanted[key])

    async def _read(self) -> None:
        try:
            while wanted := self._wanted:
                self._wanted = {}
                found = await asyncio.to_thread(self._found, list(wanted))
                for key, future in wanted.items():
                    result = found[key]
                    if isinstance(result, StoreError):
                        future.set_exception(result)
                        future.exception()  # looked at, whether or not its client is still there
                    else:
                        future.set_result(result)
        finally:
            self._reading = None

    def _found(self, keys: list[str]) -> dict[str, Document | StoreError | None]:
        found: dict[str, Document | StoreError | None] = {}
        for key in keys:
            try:
                found[key] = get_readable(self._store, LAUNCH_SPECS, key)
            except StoreError as error:
                found[key] = error
        return found
