"""A scheduler that waits to lead: it keeps the board warm from the store, and leads once the one that does is silent.

It looks at the store's version, which grows with everything that the leader writes (`lead`). What it shows is read by
the tail of the audit log, and whole every so often, as not every change has a line there. To lead it reads all anew.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from colane.model.job import Job, JobId
from colane.server.board.clock import CLOCK_MARK
from colane.server.board.read_model import (
    CLOCK_KEY,
    COUNTERS,
    COUNTERS_KEY,
    TOKEN,
    LiveMemo,
    ReadModel,
    decode_live,
    decode_record,
    read_board,
)
from colane.server.handlers.leading import Leadership
from colane.server.nodes.liveness import DRIFT_RATIO
from colane.server.parts import Parts
from colane.server.store.attempts import AttemptRecord
from colane.server.store.identity import LEADER, LEADER_KEY, History, Leader, begin_epoch, read_history
from colane.server.store.store import (
    ASSIGNED_JOBS,
    META,
    NODES,
    SUBMITTED_JOBS,
    TOKENS,
    AuditLine,
    Store,
    StoreError,
    SupersededError,
    UnreadableError,
    job_key,
)
from colane.server.store.unreadable import read_one, readable

LOOKS_EACH_LEASE: Final = 50
LOOK_MIN_S: Final = 0.05
LOOK_MAX_S: Final = 0.1  # so late at most it sees what is new, and that it is handed over to
HANDED_MAX_S: Final = 2.0
"""A leader that was seen to lead so long ago, and has released since, hands over to its reader: too short for another
to have led and the store to have gone back to before that. Else agents are heard first."""
LINES_MAX: Final = 200  # with more lines than these the board is read whole: that takes less
WHOLE_EACH_S: Final = 10.0
WHOLE_SHARE: Final = 0.1
"""Reading the board whole takes at most this part of the time, so that a large one is read less often."""

FOR_EVER: Final = (
    "the scheduler that leads was started with --leader-lease off, so this standby does not take over: start it with a "
    "lease"
)

log = logging.getLogger(__name__)


class StoreLook(NamedTuple):
    """What a look at the store finds."""

    version: int
    leader: Leader | None
    history: History | None
    clock_s: float | None


@dataclass(slots=True)
class Standby:
    """Waits until it leads; see the module's docstring."""

    leading: Leadership  # it leads in the end
    own: Leader  # what is written of this scheduler once it leads
    leader: Leader | None = None  # the one that leads, as far as is known
    _version: int = -1
    _shown_version: int = -1
    _since_s: float = 0.0
    _events: int = 0
    _whole_at_s: float = 0.0
    _is_behind: bool = True
    _led: tuple[int, float] = (0, -math.inf)  # epoch of the one that was seen to lead last, and when that was asked
    _memo: LiveMemo = field(default_factory=LiveMemo)

    @property
    def _parts(self) -> Parts:
        return self.leading.parts

    @property
    def _lease_s(self) -> float:
        return (self.leader.lease_s if self.leader is not None else 0.0) or self.own.lease_s

    @property
    def _is_for_ever(self) -> bool:
        """Whether no other may take over from the leader while it has not ended by itself."""
        return self.leader is not None and not self.leader.lease_s and not self.leader.released

    @property
    def _store(self) -> Store:
        return self._parts.store

    def __post_init__(self) -> None:
        self._parts.driver.decode = self._memo
        self._store.remember(SUBMITTED_JOBS, ASSIGNED_JOBS)

    async def run(self) -> bool:
        """Return once it leads; False where it is to stop first."""
        while not self._parts.stopping.is_set():
            try:
                await self._look()
                if self._is_due() and await self._begin():
                    return True
                await self._show()
                self._parts.driver.problem = FOR_EVER if self._is_for_ever else None
            except SupersededError:
                log.warning("another standby leads now")
                self._version = -1
            except StoreError as error:
                self._parts.driver.store_failed(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_MAX_S, max(LOOK_MIN_S, self._lease_s / LOOKS_EACH_LEASE))):
                    await self._parts.stopping.wait()
        return False

    async def _look(self) -> None:
        driver, asked_s = self._parts.driver, self._parts.driver.lead.now_s()
        seen = await asyncio.to_thread(self._see)
        if seen.version < self._version:
            raise StoreError(
                f"the store has gone back from version {self._version} to {seen.version} (a copy was put back, or a "
                "replica that lagged has taken over): bring back the one that is ahead, or start a scheduler on what "
                "is there"
            )
        self.leader = seen.leader
        if seen.leader is not None and not seen.leader.released:
            self._led = (seen.leader.epoch, asked_s)
        if seen.version != self._version or self._since_s == 0.0:
            self._version, self._since_s, self._is_behind = seen.version, driver.lead.now_s(), True
            self._parts.history = seen.history or self._parts.history
            if seen.clock_s is not None:
                driver.timing.clock.go_on(seen.clock_s)

    def _see(self) -> StoreLook:
        version = self._store.version()
        if version == self._version:  # by which its leader's record is the same, too
            return StoreLook(version, self.leader, None, None)
        leader = read_one(self._store, META, LEADER_KEY, LEADER.read)
        mark = read_one(self._store, META, CLOCK_KEY, CLOCK_MARK.read)
        known = leader is not None and leader.epoch == self._parts.history.current.number
        history = None if known else read_history(self._store)
        return StoreLook(version, leader, history, None if mark is None else mark.now_s)

    def _is_due(self) -> bool:
        """Whether none leads any more: it has said so, or its lease has run out by its own clock as well as by ours."""
        if self.leader is not None and self.leader.released:
            return True
        if self._is_for_ever:
            return False
        return self._parts.driver.lead.now_s() >= self._since_s + self._lease_s * (1 + DRIFT_RATIO)

    async def _begin(self) -> bool:
        """Lead, unless the leader has written meanwhile.

        Raises:
            StoreError: The store fails; also where it has changed.
            SupersededError: Another standby was quicker.
        """
        driver, is_handed = self._parts.driver, self._is_handed()
        found = await asyncio.to_thread(driver.read_back)
        if found.version != self._version:
            return False
        asked_s, now_s = driver.lead.now_s(), driver.now()
        lease_s = self._parts.config.lease_max_s
        history = await asyncio.to_thread(begin_epoch, self._store, now_s, self.own, found.version, lease_s)
        driver.lead.begin(
            history.current.number, found.version + 1, asked_s, self.own._replace(epoch=history.current.number)
        )
        driver.decode = None
        self._store.remember()
        self.leading.begin(history, found, now_s, hears=not is_handed)
        return True

    def _is_handed(self) -> bool:
        """Whether this standby has seen the leader lead, and hand over: nothing that agents may know can be missing."""
        epoch, led_s = self._led
        is_seen = self.leader is not None and self.leader.released and self.leader.epoch == epoch
        return is_seen and self._parts.driver.lead.now_s() <= led_s + HANDED_MAX_S

    async def _show(self) -> None:
        """Bring the board up to what the store has."""
        driver, now_s, version = self._parts.driver, self._parts.driver.lead.now_s(), self._version
        if now_s >= self._whole_at_s and self._is_behind:
            events, board = await asyncio.to_thread(self._read_whole)
            driver.read_model = board
            took_s = driver.lead.now_s() - now_s
            self._whole_at_s = now_s + max(WHOLE_EACH_S, took_s / WHOLE_SHARE)
            self._is_behind = False
        elif version != self._shown_version:
            lines = await asyncio.to_thread(self._store.audit, self._events, LINES_MAX)
            if len(lines) == LINES_MAX:
                self._whole_at_s, version = min(self._whole_at_s, now_s + self._lease_s), self._shown_version
            if lines:
                news = await asyncio.to_thread(_read_news, self._store, lines)
                _apply(driver.read_model, news)
            events = lines[-1].number if lines else self._events
        else:
            return
        self._events, self._shown_version = events, version
        self._parts.feed.catch_up(events)

    def _read_whole(self) -> tuple[int, ReadModel]:
        events = self._store.last_audit_number()
        board = read_board(self._store, self._memo)
        self._memo.forget_others()
        return events, board


class _News(NamedTuple):
    """Jobs that lines tell of, None where they have ended, and all of what is small."""

    jobs: dict[JobId, tuple[Job, str | None, tuple[AttemptRecord, ...]] | None]
    board: ReadModel


def _read_news(store: Store, lines: Sequence[AuditLine]) -> _News:
    ids = dict.fromkeys(int(line.body["job"]) for line in lines if isinstance(line.body.get("job"), int))
    jobs: dict[JobId, tuple[Job, str | None, tuple[AttemptRecord, ...]] | None] = {}
    for number in ids:
        found = None
        for collection in (SUBMITTED_JOBS, ASSIGNED_JOBS):
            with suppress(UnreadableError):
                found = found or read_one(store, collection, job_key(number), decode_live)
        jobs[JobId(number)] = found
    board = ReadModel()
    board.counters = read_one(store, META, COUNTERS_KEY, COUNTERS.read) or board.counters
    records = readable(store, NODES, store.read_all(NODES), decode_record)
    board.put_nodes(sorted(records, key=lambda known: known.order))
    board.tokens.update((token.digest, token) for token in readable(store, TOKENS, store.read_all(TOKENS), TOKEN.read))
    return _News(jobs, board)


def _apply(shown: ReadModel, news: _News) -> None:
    for number, found in news.jobs.items():
        if found is None:
            shown.drop_job(number)
            continue
        job, model_name, attempts = found
        shown.put_job(job)
        shown.attempts[job.id] = attempts
        if model_name is not None:
            shown.model_names[job.id] = model_name
    shown.counters = news.board.counters
    shown.put_nodes(news.board.nodes.values(), shown.nodes.keys() - news.board.nodes.keys())
    shown.put_tokens({**dict.fromkeys(shown.tokens.keys() - news.board.tokens.keys()), **news.board.tokens})
