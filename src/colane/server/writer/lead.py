"""Who leads: the one scheduler that writes to a store, and for how long it may speak for it without having written.

Each commit names the leader's epoch and the store's version, and adds one to that: a version that has grown says that
the leader lives. A standby that has seen none grow for a lease draws the next epoch, naming the version that it saw, so
that a leader which has written after all refuses it. A leader that has not written for a lease less what two clocks may
differ by says nothing any more: by its own clock it is silent before any standby begins. No clock is compared with
another machine's.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from colane.listening.seldom import Seldom
from colane.server.board.clock import since_boot_s
from colane.server.nodes.liveness import DRIFT_RATIO
from colane.server.store.identity import LEADER, LEADER_KEY, Leader
from colane.server.store.store import (
    META,
    ConflictError,
    Put,
    Store,
    StoreError,
    StoreWriter,
    SupersededError,
    Transaction,
)

RENEWED_BEFORE: Final = 0.25  # a leader that has nothing to write writes that it leads after this part of its lease
HANGS_S: Final = 60.0  # a scheduler whose loop has not come round for so long does not say that it lives

log = logging.getLogger(__name__)


class Lead:
    """This scheduler as the writer of its store.

    Args:
        store: Where it writes.
        lease_s: How long it leads without having written; None where it need not fear another: it leads for ever.
        clock: Seconds that go on while the machine sleeps.

    Attributes:
        epoch: Of this start; 0 before it leads.
        version: The store's, as it knows it.
        record: What is written of it, where it has a lease.
    """

    def __init__(self, store: Store, lease_s: float | None = None, clock: Callable[[], float] = since_boot_s) -> None:
        self.epoch = 0
        self.version = 0
        self.record: Leader | None = None
        self._store = store
        self._lease_s = lease_s
        self._clock = clock
        self._renewed_s = self._alive_s = clock()
        self._superseded: SupersededError | None = None
        self._seldom = Seldom()
        self._lock = threading.Lock()
        self._ends = threading.Event()

    @property
    def renewed_before_s(self) -> float:
        """It writes at least this often."""
        return math.inf if self._lease_s is None else self._lease_s * RENEWED_BEFORE

    @property
    def is_held(self) -> bool:
        """Whether no other scheduler can lead at this moment."""
        if self._lease_s is None:
            return True
        return self._clock() < self._renewed_s + self._lease_s / (1 + DRIFT_RATIO)

    def begin(self, epoch: int, version: int, asked_s: float, record: Leader | None = None) -> None:
        """Lead from a moment on, by this object's clock, before its epoch was drawn."""
        self.epoch, self.version, self.record = epoch, version, record
        self._renewed_s = asked_s
        self.lives()

    def now_s(self) -> float:
        """The time by the clock of the lease."""
        return self._clock()

    def lives(self) -> None:
        """The loop has come round. Raises SupersededError: a renewal has found that another scheduler leads."""
        self._alive_s = self._clock()
        if self._superseded is not None:
            raise self._superseded

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Write nothing meanwhile: what is read is of one version."""
        with self._lock:
            yield

    def commit(self, transaction: Transaction, events: int) -> int:
        """Commit as the leader that knows the newest event; see `Store.commit`."""
        with self._lock:
            return self._commit(transaction, events)

    def _commit(self, transaction: Transaction, events: int | None) -> int:
        asked_s = self._clock()
        try:
            last = self._store.commit(transaction, StoreWriter(self.epoch, events, self.version))
        except SupersededError:
            self._renewed_s = -math.inf
            raise
        self.version += 1
        self._renewed_s = asked_s
        return last

    def renew(self) -> None:
        """Write that it leads, where nothing else was written of late and the scheduler comes round.

        What prevents it is for the driver to find: by its next commit.
        """
        with self._lock:
            now_s = self._clock()
            if self.record is None or now_s < self._renewed_s + self.renewed_before_s:
                return
            if now_s > self._alive_s + HANGS_S:
                return
            try:
                self._commit(Transaction([_put(self.record)]), None)
            except SupersededError as error:
                self._superseded = error
            except ConflictError as error:
                log.info("%s", error)
            except StoreError as error:
                if (line := self._seldom.due(f"that this scheduler leads could not be written: {error}")) is not None:
                    log.warning("%s", line)

    def release(self) -> None:
        """Let another scheduler lead at once; this one says nothing any more.

        Raises:
            StoreError: It could not be written: another leads once the lease has run out.
            SupersededError: Another leads already.
        """
        with self._lock:
            if self.record is None:
                return
            self._ends.set()
            self._commit(Transaction([_put(self.record._replace(released=True))]), None)
            self._renewed_s = -math.inf

    def keep(self) -> None:
        """Renew it in a thread until `end`: the loop may decide for longer than a lease lasts."""
        if self._lease_s is None:
            return
        threading.Thread(target=self._keep, name="colane-lead", daemon=True).start()

    def _keep(self) -> None:
        while not self._ends.wait(self.renewed_before_s / 2):
            self.renew()

    def end(self) -> None:
        """Renew it no longer."""
        self._ends.set()


def _put(record: Leader) -> Put:
    return Put(META, LEADER_KEY, LEADER.write(record))
