"""What is removed in time: deleted content, old answers, old jobs, old samples."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Final

from colane.server.ground.problems import RefusedError
from colane.server.parts import Parts
from colane.server.samples.keeper import FLUSH_PERIOD_S
from colane.server.store.retention import outdated
from colane.server.store.store import (
    StoreError,
    StoreWriter,
    SupersededError,
)
from colane.server.writer import changes
from colane.server.writer.idempotency import expired

SCRUBBING_PERIOD_S: Final = 60.0
"""So long at most what was deleted, as the environment of an ended job, can be read in the store's files."""

CLEANING_PERIOD_S: Final = 3600.0
"""How often answers to idempotency keys that will not be used again, and records of old jobs, are removed."""

SAMPLES_PRUNED_EACH: Final = 60
"""After so many flushes what is too old is removed."""

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
