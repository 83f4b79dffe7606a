"""What is removed in time: deleted content, old answers, old jobs, old samples."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from colane.server.ground.problems import RefusedError
from colane.server.parts import Parts
from colane.server.samples.keeper import FLUSH_PERIOD_S
from colane.server.store.store import FINISHED_JOBS, Delete, Store, StoreError, StoreWriter, SupersededError
from colane.server.store.unreadable import keyed
from colane.server.writer import changes
from colane.server.writer.idempotency import expired
from colane.settings.readers import Retention

# -- How long records of finished jobs are kept. Old ones are removed in turns of the driver, each with an audit line.

REMOVED_AT_ONCE: Final = 1_000
"""Records looked at, and at most removed, in one turn: bounds how long others wait for its commit."""


def outdated(store: Store, keep: Retention, now_s: float) -> Iterator[list[Delete]]:
    """Yield, in order of id, the records to remove, at most `REMOVED_AT_ONCE` at a time.

    Jobs end about in the order of their ids, so the search by age ends with the first page that holds nothing old: what
    is kept is never read as a whole, and a record that is passed over goes later.
    """
    surplus = max(0, store.count(FINISHED_JOBS) - keep.jobs) if keep.jobs is not None else 0
    after = ""
    while page := store.page(FINISHED_JOBS, after, REMOVED_AT_ONCE):
        if keep.jobs is not None:
            old = [key for key, _ in page[:surplus]]
            surplus -= len(old)
        else:
            ended = keyed(store, FINISHED_JOBS, page, lambda body: _end_s(body["job"]["end_s"]))
            before_s = -inf if keep.age_s is None else now_s - keep.age_s
            old = [key for key, end_s in ended if end_s is not None and end_s < before_s]
        if not old:
            return
        yield [Delete(FINISHED_JOBS, key) for key in old]
        after = page[-1][0]


def _end_s(known: float | None) -> float | None:
    return None if known is None else float(known)


SCRUBBING_PERIOD_S: Final = 60.0
"""So long at most what was deleted, as the environment of an ended job, can be read in the store's files."""

CLEANING_PERIOD_S: Final = 3600.0
"""How often answers to idempotency keys that will not be used again, and records of old jobs, are removed."""

SAMPLES_PRUNED_EACH: Final = 60  # after so many flushes what is too old is removed

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Cleaning:
    """Removes it."""

    parts: Parts  # what the scheduler consists of

    async def scrub(self) -> None:
        """Overwrite what was deleted in the store, until it is cancelled."""
        while True:
            await asyncio.sleep(SCRUBBING_PERIOD_S)
            try:
                await asyncio.to_thread(self.parts.store.scrub)
            except StoreError as error:
                log.warning("what was deleted may still be readable in the store's files: %s", error)

    async def clean(self) -> None:
        """Remove old answers and old jobs, until it is cancelled."""
        while True:
            try:
                for transaction in await asyncio.to_thread(expired, self.parts.store, self.parts.driver.now()):
                    await asyncio.to_thread(self.parts.store.commit, transaction, StoreWriter(self.parts.driver.epoch))
                await self.forget_old_jobs()
            except SupersededError:
                return  # the driver learns of it at its next turn, and ends
            except (StoreError, RefusedError) as error:
                log.warning("old idempotency keys and finished jobs were not all removed: %s", error)
            await asyncio.sleep(CLEANING_PERIOD_S)

    async def forget_old_jobs(self) -> None:
        """Remove records of finished jobs that need not be kept, in turns of the driver.

        Raises:
            StoreError: The store cannot be read.
            RefusedError: 503, it cannot be written.
        """
        keep = self.parts.config.keep_finished
        batches = outdated(self.parts.store, keep, self.parts.driver.now())
        while records := await asyncio.to_thread(next, batches, None):
            await self.parts.driver.change(partial(changes.forget, records=records, keep=keep))

    async def keep_samples(self) -> None:
        """Write samples down, and remove old ones, until it is cancelled."""
        flushes = 0
        while True:
            if flushes % SAMPLES_PRUNED_EACH == 0:
                await self.parts.samples.prune(self.parts.driver.now())
            flushes += 1
            await asyncio.sleep(FLUSH_PERIOD_S)
            await self.parts.samples.flush(self.parts.driver.now())
