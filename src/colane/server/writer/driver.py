"""The real-time driver and only writer: it gathers what waits, asks the core once, commits once, then tells.

Nothing leaves before it is durable: answers, nudges, events and the board all come after the commit. When a commit
fails, every request that waited gets 503 and the core is rebuilt from the store, so it never runs ahead.

A request that nothing here was written for costs itself alone: where preparing it raises, it is answered 500; where
the core raises, the core is rebuilt and the turn's requests are asked again, each in a turn of its own.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from colane.core.cluster.co_runners import Pacing
from colane.core.cluster.state import ClusterState
from colane.core.config import CoreConfig
from colane.core.core import Core
from colane.core.events import NodeLost, Outcome, Tick
from colane.core.policy import Policy
from colane.core.reducers.sharing_domains import in_sharing_domain
from colane.foresee.said import Shown
from colane.listening.seldom import Seldom
from colane.model.job import JobId
from colane.model.placement import Turns
from colane.model.profile import Memory
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.perf.config import PerfConfig
from colane.policyfiles.guard import GuardedPolicy
from colane.scheduling.foresight import Foresight, policy_problem
from colane.server.board.clock import ServiceClock, since_boot_s
from colane.server.board.read_model import LiveMemo, ReadModel, read_board
from colane.server.board.reads import NotReadError, Reads
from colane.server.board.slices import BatchSlice
from colane.server.board.submission import launch_key
from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError
from colane.server.nodes.behind import WAITS
from colane.server.nodes.liveness import Liveness
from colane.server.store import documents
from colane.server.store.store import (
    LAUNCH_SPECS,
    MEASUREMENTS,
    PROFILES,
    RUN_TIMES,
    USED,
    ConflictError,
    Document,
    Store,
    StoreError,
    Transaction,
)
from colane.server.store.unreadable import get_readable, judge, readable, refusal_of
from colane.server.writer import changes
from colane.server.writer.boundary import FaultLog
from colane.server.writer.feed import Feed
from colane.server.writer.lead import Lead
from colane.server.writer.ledger import LedgerEntry, compose, put_clock
from colane.server.writer.meters import Meters
from colane.server.writer.notifier import Notifier
from colane.server.writer.quotas import QuotaKeeper

READ_APART_MAX: Final = 3
"""So often a request is put off for what it reads of the store before it is put into the turn where it may read."""

AGAIN_MIN_S: Final = 0.1  # a core that wants to be asked again at the very instant it was asked waits so long

EVENTS_PER_TURN_MAX: Final = 4_000
"""A turn takes requests until it has this many events: bounds how long the others wait for one commit."""
LINE_EVENTS_PER_TURN_MAX: Final = 512
"""The same for those that may wait, each of some 0.06 ms: what comes meanwhile goes before the rest of them. Of more
the half is taken: were it no more than this however many wait, a scheduler that fell behind once would stay behind."""
GPUS_PER_TURN_MAX: Final = 512
"""The same for GPUs that come free or come in: a job may start on each, at ten times the cost of an event, and what is
heard of no agent meanwhile must be less than a lease."""
PAUSE_RATIO: Final = 2.0
PAUSE_MAX_S: Final = 0.05
"""Requests that may wait are gathered for so many times as long as the last turn with such took, and no longer than
this: a turn of many costs little more than of one."""
TIMERS_EARLY_S: Final = 0.002  # so much at most the loop's timers end early
NODES_LOST_PER_TURN_MAX: Final = 64  # the same for nodes that are lost: all their jobs are queued again

COMPOSED_ON_THE_LOOP_MAX: Final = 100
"""What a turn writes of more jobs, at 20 us each, is composed in the thread that commits it, beside the event loop."""

WAIT_LOOK_S: Final = 0.02

FORETOLD_KEPT: Final = 2000  # so many quotes are kept with what came of them

PROBE_S: Final = 10.0
"""The store is written to at least this often, so that health tells of a full disk before a request meets it."""

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
Prepare = Callable[[Turn], Answer | Awaitable[Answer]]
"""Adds what a request asks for to a turn; where it is long, while other things than turns go on."""
Demand = Callable[[Turn], Awaitable[None]]
"""Judges a turn that has one request alone, before anything is done; raises what that request is refused with."""


@dataclass(slots=True)
class _Waiting:
    """A request in the queue."""

    prepare: Prepare[Any]  # what it changes; asked again where the turn came to nothing, so it alters the turn alone
    future: asyncio.Future[Any]  # where its answer is waited for
    reads: Sequence[tuple[str, str]] = ()
    answer: Any = None  # what it is told once the turn is durable
    is_suspect: bool = False  # it was in a turn that raised: it gets a turn of its own
    demand: Demand | None = None  # what must hold in its turn; it gets one of its own
    # it is only tried: this is asked of the turn it would be in, and nothing is done
    ask: Callable[[Turn], Any] | None = None


@dataclass(slots=True)
class _Line:
    """Requests that may wait, in order of arrival, and from when on a turn is taken for them (the loop's time)."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    from_s: float = 0.0
    is_taken: bool = False

    def is_due(self, now_s: float, *, beside_others: bool) -> bool:
        """Whether a turn takes them; one that others do not wait for so much longer."""
        return bool(self.waiting) and now_s >= self.from_s - TIMERS_EARLY_S + beside_others * PAUSE_MAX_S

    def rest(self, began_s: float, now_s: float) -> None:
        """A turn with some of them has ended: the next one waits for more, where none are left."""
        self.is_taken = False
        self.from_s = now_s if self.waiting else now_s + min(PAUSE_MAX_S, PAUSE_RATIO * (now_s - began_s))


class _CoreError(Exception):
    """The core raised, or what it decided cannot be written down."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ReadBack(NamedTuple):
    """What the store holds: its version, its newest event, the board, and the core's state made from it."""

    version: int
    last_number: int
    read_model: ReadModel
    state: ClusterState


class MemoryView(NamedTuple):
    """What an agent is told of the memory of its GPUs."""

    tight: frozenset[int] = frozenset()  # indexes of GPUs whose jobs give cached memory back when they yield
    # p and E that a job books of each of its GPUs there, of those of which they are known
    booked: Mapping[JobId, Memory] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Periods and clocks of the driver."""

    tick_s: float  # the core is asked at least this often
    clock: ServiceClock  # the service's time
    lead_clock: Callable[[], float] = since_boot_s  # by which it is known how long this scheduler leads


@dataclass(slots=True)
class LiveDriver:
    """Owns the core; see the module's docstring."""

    store: Store  # where everything is made durable
    decider: Policy  # the policy that decides
    timing: Timing  # periods and clocks
    liveness: Liveness  # which agents to take for lost
    feed: Feed  # where changes are published
    notifier: Notifier  # how agents are nudged
    read_model: ReadModel = field(default_factory=ReadModel)  # what is durable, for readers
    config: CoreConfig = field(default_factory=CoreConfig)  # settings of the core
    keeper: QuotaKeeper = field(default_factory=QuotaKeeper)  # refuses what users submit beyond their limits
    lead: Lead = field(init=False)  # by which the store knows the only writer
    lease_s: float | None = None  # how long it leads without having written; None where no other may take over
    waits_for: Callable[[], str] = str  # says why nothing may be changed yet; empty where all may
    decode: LiveMemo | None = None  # of live jobs, where it is other than the board's own
    _core: Core | None = None
    _queue: deque[_Waiting] = field(default_factory=deque)
    _line: _Line = field(default_factory=_Line)
    _taken: list[_Waiting] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str | None = None  # why nothing can be written at present, None while all is well
    _seldom: Seldom = field(init=False, default_factory=Seldom)
    _stopping: bool = False
    _written_steady_s: float = 0.0
    _next_tick_steady_s: float = 0.0
    _timer_s: float | None = None
    _knows_groups: bool = False
    faults: FaultLog = field(default_factory=FaultLog)  # of the scheduler itself, met by requests
    meters: Meters = field(default_factory=Meters)  # what is counted of its work
    # what is learnt of starts and ends; it is told of all that becomes of jobs
    foresight: Foresight = field(init=False)
    shown: dict[int, Shown] = field(default_factory=dict)  # what was last foreseen of each
    # the store's version as agents are told of it: with the last change, not with what only says that this scheduler
    # leads
    version_told: int = 0
    # nodes that are lost once the turn under way is durable: their jobs may start elsewhere then, so until then their
    # agents are not told to go on
    losing: frozenset[str] = frozenset()
    # parts of batches that the core raised on, by the id of their first job: they are dropped
    refused: dict[JobId, RefusedError] = field(default_factory=dict)
    _entered: dict[JobId, asyncio.Future[None]] = field(default_factory=dict)
    _slice: BatchSlice | None = None
    _is_held_up: bool = False

    def __post_init__(self) -> None:
        self.lead = Lead(self.store, self.lease_s, self.timing.lead_clock)
        self.foresight = Foresight(self.decider, keeps=FORETOLD_KEPT)

    @property
    def epoch(self) -> int:
        """Of this start."""
        return self.lead.epoch

    def load(self) -> None:
        """Read everything back from the store.

        Raises StoreError: the store cannot be read, or lacks what the service may not do without.
        """
        self._core = None
        self.take_over(self.read_back())

    def read_back(self) -> ReadBack:
        """Read everything, for `take_over`; to be called in a thread where the loop runs.

        Raises StoreError: the store cannot be read, has gone back, or changes meanwhile.
        """
        with self.lead.reading():
            found = self._read_back()
            self.lead.version = found.version
            return found

    def _read_back(self) -> ReadBack:
        version = self._judged_version()
        judge(self.store)
        last_number = self.store.last_audit_number()
        read_model = read_board(self.store, self.decode)
        state = restore_state(self.store, read_model, self.config)
        judge(self.store)
        if self._judged_version() != version:  # what was read may be of two moments
            raise ConflictError("the store has changed while it was read: it is read anew")
        return ReadBack(version, last_number, read_model, state)

    def take_over(self, found: ReadBack) -> None:
        """Go on from what was read."""
        self.feed.catch_up(found.last_number)
        self.version_told = found.version
        self.read_model = found.read_model
        self._core = Core(self.decider, found.state, self.config)
        self.keeper.forget_told()
        self._knows_groups = False
        self._timer_s = None

    def _judged_version(self) -> int:
        """The store's version, which never goes back."""
        version = self.store.version()
        if version < self.lead.version:
            raise StoreError(
                f"the store has gone back from version {self.lead.version} to {version} (a copy was put back, or a "
                "replica that lagged has taken over): bring back the one that is ahead; or restart the "
                "scheduler on what is there, which ends jobs that it does not know"
            )
        return version

    @property
    def core(self) -> Core:
        """The core, for reading. Raises RefusedError: 503 while the store cannot be read."""
        if self._core is None:
            raise RefusedError.because(503, "the store cannot be read; see the scheduler's log")
        return self._core

    @property
    def is_ready(self) -> bool:
        """Whether the core is in step with the store."""
        return self._core is not None

    @property
    def policy_problem(self) -> str:
        """Why a user's policy decides nothing now; empty while it does, and for those that come with Colane."""
        return policy_problem(self.decider)

    @property
    def progress(self) -> dict[JobId, Progress]:
        """Latest samples of running jobs."""
        return {} if self._core is None else self._core.state.progress

    @property
    def turns(self) -> Turns:
        """How jobs of one lane take turns, as set, else as the policy says."""
        return Turns() if self._core is None else self._core.turns

    def memory_of(self, node: str) -> MemoryView:
        """What a node's agent is told of the memory of its GPUs."""
        known = None if self._core is None else self._core.state.nodes.get(node)
        if self._core is None or known is None:
            return MemoryView()
        state = self._core.state
        loads = [state.gpus[gpu] for gpu in known.ids.values()]
        booked = [(b.job, state.terms_of(state.jobs[b.job], load.gpu.type)) for load in loads for b in load.bookings]
        return MemoryView(
            frozenset(load.gpu.index for load in loads if load.is_tight),
            {job: terms.memory for job, terms in booked if terms.memory is not None},
        )

    def pacing(self, job: JobId) -> Pacing | None:
        """How fast a job is believed to go, and how it shares its GPUs; None when it is not live."""
        return None if self._core is None or job not in self._core.state.jobs else self._core.pacing(job)

    def now(self) -> float:
        """Return the service's time; it never goes back."""
        return self.timing.clock.now()

    async def change(
        self,
        prepare: Prepare[Answer],
        reads: Sequence[tuple[str, str]] = (),
        demand: Demand | None = None,
        *,
        may_wait: bool = False,
    ) -> Answer:
        """Put a request into the next turn and return its answer once everything of it is durable.

        Args:
            prepare: Adds what it asks for to a turn.
            reads: Documents, by collection and key, that it is known to ask the store for.
            demand: What must hold in its turn, of which it is the only request then.
            may_wait: Others go first, and it may wait for more like it.

        Raises:
            RefusedError: What `prepare` or `demand` refuses, and 503 when the store cannot be written.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._put(_Waiting(prepare, future, reads, demand=demand), self._line.waiting if may_wait else self._queue)
        return await future

    async def entered(self, ids: Sequence[int]) -> None:
        """Wait until all jobs of a batch are in the queue, or the scheduler can write nothing: they are durable then.

        Raises RefusedError: 500, the core has a fault that some of them met; they are dropped.
        """
        slices = self.read_model.entering.values() if ids else ()
        last = next((part.first for part in slices if part.first <= ids[-1] < part.end), None)
        if last is not None:
            await asyncio.shield(self._entered.setdefault(last, asyncio.get_running_loop().create_future()))

    async def trial(self, prepare: Prepare[Any], ask: Callable[[Turn], Answer]) -> Answer:
        """Let a request add to a turn that is never taken, and return what is asked of it.

        It is asked between two steps of the core, when core and board are in step; it must not wait for anything.
        Raises RefusedError: what `prepare` refuses, and 503 when the store cannot be read.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._put(_Waiting(prepare, future, ask=ask), self._queue)
        return await future

    def _put(self, waiting: _Waiting, line: deque[_Waiting]) -> None:
        if self._stopping:
            raise RefusedError.because(503, "the scheduler is stopping")
        line.append(waiting)
        self._wake.set()

    async def run(self) -> None:
        """Take turns until `stop`; another exception from here is a bug that no request brought: the process ends.

        Raises SupersededError: a newer scheduler writes to the store.
        """
        loop = asyncio.get_running_loop()
        self._written_steady_s = loop.time()
        with ThreadPoolExecutor(1, "colane-commit") as committer:
            self.notifier.nudge(record.door for record in self.read_model.nodes.values())
            try:
                while not self._stopping or self._queue or self._line.waiting:
                    began_s = loop.time()
                    await self._turn(loop, committer)
                    gc.collect(0)  # of its own objects alone: in a step it would be of all that those before it made
                    if self._line.is_taken:
                        self._line.rest(began_s, loop.time())
                    while not (
                        self._queue or self._stopping or (bool(self.read_model.entering) and not self._is_held_up)
                    ) and not await self._rest(loop):
                        pass
            finally:
                self._stopping = True
                self._fail_all("the scheduler is stopping")

    def stop(self) -> None:
        """Let the turns that wait end, then end `run`."""
        self._stopping = True
        self._wake.set()

    async def _rest(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Wait until a turn is due, or something has come; whether one is due."""
        rest_s = self._next_tick_steady_s - loop.time()
        if self._timer_s is not None:
            rest_s = min(rest_s, self._timer_s - self.now())
        if self._line.waiting:
            rest_s = min(rest_s, self._line.from_s - loop.time())
        is_due = False
        try:
            async with asyncio.timeout(max(0.0, rest_s)):
                await self._wake.wait()
        except TimeoutError:
            is_due = True
        self._wake.clear()
        return is_due

    async def _turn(self, loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor) -> None:
        self.lead.lives()
        if waits := self.waits_for():
            await self._wait(loop, waits)
            return
        if not await self._is_usable(loop, committer):
            self._fail_all(self.problem or "the store cannot be read; see the scheduler's log")
            self._pass_over(loop)
            return
        self._is_held_up = False
        try:
            turn = await self._part_of_batch(loop, committer) or await self._gather(loop, committer)
            outcome = self._decide(turn)
            launches = await self._launches(turn, outcome, loop, committer)
            entry = await self._composed(turn, outcome, launches, loop, committer)
            transaction = entry.transaction or self._probe(turn, loop.time())
            if transaction:
                began_s = loop.time()
                last = await loop.run_in_executor(committer, self.lead.commit, transaction, self.feed.last_number)
                self.meters.commits.add(loop.time() - began_s)
                self._written_steady_s, self.problem = loop.time(), None
            if entry.transaction:
                self.version_told = self.lead.version
                self._tell(entry, outcome, last)
        except _CoreError as error:
            await self._suspect(error.cause, loop, committer)
            return
        except StoreError as error:
            self.store_failed(error)
            await self._read_anew(loop, committer)
            _fail(self._taken, str(error))  # once they hear of it, nothing shows what they asked for
            if self._slice is not None:  # it is tried again with the next tick, or request
                self._answer_batches()
                self._pass_over(loop)
            return
        finally:
            self.losing = frozenset()
        self.keeper.count(turn)
        for waiting in self._taken:
            _resolve(waiting)
        for part in turn.entered:
            self._tell_entered(part)

    async def _part_of_batch(self, loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor) -> Turn | None:
        """A turn in which a part of a batch enters the queue; every other one is of what else waits, where it does.

        Raises StoreError: what its jobs wait for cannot be read.
        """
        was_one, self._slice = self._slice is not None, None
        if not self.read_model.entering or self._stopping:
            return None
        now_s = loop.time()
        is_due = now_s >= self._next_tick_steady_s or (self._timer_s is not None and self.now() >= self._timer_s)
        if was_one and (is_due or self._queue or self._line.is_due(now_s, beside_others=False)):
            return None
        turn, self._slice = self._new_turn(), next(iter(self.read_model.entering.values()))
        if self._slice.first not in self.refused:
            await _prepared(turn, partial(changes.enter, part=self._slice), loop, committer)
            return turn
        turn.entered.append(self._slice)
        lost = [job_id for job_id, _ in self._slice.by_id]
        turn.record("jobs-dropped", jobs=lost, problem=str(self.refused[self._slice.first]))
        return turn

    def _tell_entered(self, part: BatchSlice) -> None:
        """Answer those that wait for a batch with its last part, and of a dropped part at once."""
        refused, waited = self.refused.pop(part.first, None), self._entered.pop(part.first, None)
        if refused is not None:  # the last part is the next that is one
            last = next((each.first for each in self.read_model.entering.values() if each.is_last), part.first)
            waited = waited or self._entered.pop(last, None)
        if waited is not None and not waited.done():
            if refused is None:
                waited.set_result(None)
            else:
                waited.set_exception(refused)

    def _decide(self, turn: Turn) -> Outcome:
        try:
            began_s, began_cpu_s = time.perf_counter(), time.thread_time()
            outcome = self.core.step(turn.events, turn.now_s, decides=not self._has_more_to_come())
            self.meters.decisions.add(time.perf_counter() - began_s)
            longest_s = max(self.meters.longest_decision_cpu_s, time.thread_time() - began_cpu_s)
            self.meters.longest_decision_cpu_s = longest_s
            self._timer_s = outcome.wake_s
            if outcome.wake_s is not None and outcome.wake_s <= turn.now_s:  # or the service would do nothing else
                self._timer_s = turn.now_s + (0.0 if self.core.goes_on else AGAIN_MIN_S)
            if isinstance(self.decider, GuardedPolicy):
                self.decider.settle(outcome.rejected)
        except Exception as error:
            raise _CoreError(error) from error
        return outcome

    def _has_more_to_come(self) -> bool:
        """Whether deciding is left to a later turn.

        A batch is decided on as a whole, and nothing may start on GPUs promised to jobs that have not entered yet.
        """
        if self._slice is not None and not self._slice.is_last:
            return True
        return any(part.has_promises for part in self.read_model.entering.values() if part is not self._slice)

    async def _composed(
        self, turn: Turn, outcome: Outcome, launches: Mapping[str, Document | None], loop: asyncio.AbstractEventLoop,
        committer: ThreadPoolExecutor,
    ) -> LedgerEntry:  # fmt: skip
        """What a turn writes. Only this driver changes what it is made of, and the driver waits for it."""

        def composed() -> LedgerEntry:
            try:
                hardware, policy = {name: self.core.state.nodes[name].node for name in outcome.nodes}, self.decider.name
                return compose(turn, outcome, hardware, policy, lambda job: launches[launch_key(job)])
            except Exception as error:
                raise _CoreError(error) from error

        if len(outcome.jobs) <= COMPOSED_ON_THE_LOOP_MAX and not turn.slices:
            return composed()
        return await loop.run_in_executor(committer, composed)

    async def _launches(
        self, turn: Turn, outcome: Outcome, loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor
    ) -> Mapping[str, Document | None]:
        """What is kept for the launch of the jobs that end; without it they end all the same."""
        keys = dict.fromkeys(launch_key(job) for job in outcome.jobs if job.has_ended and job.id not in turn.admitted)
        if not keys:
            return {}

        def read() -> Mapping[str, Document | None]:
            return {key: get_readable(self.store, LAUNCH_SPECS, key) for key in keys}

        return await loop.run_in_executor(committer, read)

    async def _suspect(self, error: Exception, loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor) -> None:
        """What the core did is undone; the only request of a turn is to blame, any of several may be.

        Raises Exception: it comes without any request as well: the process ends, and its requests get 503.
        """
        if not await self._read_anew(loop, committer):
            self._timer_s = None
            return  # they get 503 in the next turn
        is_refused = self._slice is None or self._slice.first in self.refused
        if not self._taken and is_refused:
            raise error
        self.core.step([Tick()], self.now())
        await self._read_anew(loop, committer)
        if self._slice is not None:
            first, end, fault = self._slice.first, self._slice.end, self.faults.refuse(error)
            text = f"of this batch jobs {first} to {end - 1} were left out, the others were taken: {fault}"
            self.refused[first] = RefusedError.because(fault.status, text)
        elif len(self._taken) == 1:
            _refuse(self._taken[0], self.faults.refuse(error))
        else:
            for waiting in self._taken:
                waiting.is_suspect = True
            self._queue.extendleft(reversed(self._taken))
        self._taken = []

    def _new_turn(self) -> Turn:
        now_s, next_id = self.now(), self.read_model.counters.next_job_id
        self._taken = []
        clock, reads = self.timing.clock.mark(now_s), Reads(self.store)
        return Turn(self.read_model, now_s, next_id, self.progress, clock, reads)

    async def _wait(self, loop: asyncio.AbstractEventLoop, why: str) -> None:
        """Take no turn yet; the caller waits a little for what will soon be, and is refused what may take long."""
        if why == WAITS and not self._stopping:
            await asyncio.sleep(WAIT_LOOK_S)
            return
        self._fail_all(why)
        self._pass_over(loop)

    def _pass_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take no turn before the next tick; nor at a timer, which may be over and would be so again at once."""
        self._next_tick_steady_s, self._timer_s, self._is_held_up = loop.time() + self.timing.tick_s, None, True

    async def _gather(self, loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor) -> Turn:
        turn = self._new_turn()
        if wanted := [each for waiting in self._queue for each in waiting.reads]:
            await loop.run_in_executor(committer, turn.reads.fetch, wanted)
        while self._queue and len(turn.events) < EVENTS_PER_TURN_MAX and turn.gpus_coming < GPUS_PER_TURN_MAX:
            if self._queue[0].is_suspect and self._taken:
                break
            if self._queue[0].demand is not None and (self._taken or self._is_behind(loop)):
                break
            turn = await self._take(turn, self._queue.popleft(), loop, committer)
            if self._taken and (self._taken[-1].is_suspect or self._taken[-1].demand is not None):
                return turn  # without time and groups: what raises now, or was judged, is the request's own doing
        if self._stopping or self._line.is_due(loop.time(), beside_others=bool(self._taken)):
            turn = await self._take_line(turn, loop, committer)
        if not self._knows_groups:
            self._knows_groups = True
            self.keeper.tell_limits(turn)
            self.keeper.tell_groups(turn, {job.spec.user for job in self.read_model.jobs.values()})
        steady_s = loop.time()
        if steady_s >= self._next_tick_steady_s:
            self._next_tick_steady_s = steady_s + (0.0 if self._add_time(turn) else self.timing.tick_s)
        return turn

    async def _take_line(self, turn: Turn, loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor) -> Turn:
        """Put requests that may wait into a turn."""
        self._line.is_taken, waiting = True, self._line.waiting
        most, left = len(turn.events) + LINE_EVENTS_PER_TURN_MAX, len(waiting) // 2
        while waiting and len(turn.events) < EVENTS_PER_TURN_MAX:
            if len(turn.events) >= most and len(waiting) <= left:
                break
            turn = await self._take(turn, waiting.popleft(), loop, committer)
        return turn

    def _is_behind(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the core is to be told of time or groups first: what is judged then stands alone in its turn."""
        return not self._knows_groups or loop.time() >= self._next_tick_steady_s

    async def _take(
        self, turn: Turn, waiting: _Waiting, loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor
    ) -> Turn:
        """Put a request into a turn, and return it, or the turn to go on with in its place.

        One that no client waits for any more is passed over.
        """
        if waiting.future.cancelled():
            return turn
        if waiting.ask is not None:
            turn_tried = Turn(self.read_model, turn.now_s, self.read_model.counters.next_job_id, self.progress)
            turn_tried.reads = turn.reads
            await self._try(turn_tried, waiting, waiting.ask, loop, committer)
            return turn
        before = turn.size
        try:
            waiting.answer = await _prepared(turn, waiting.prepare, loop, committer)
            if waiting.demand is not None:
                await waiting.demand(turn)
        except RefusedError as refused:
            _refuse(waiting, refused)
            if waiting.demand is not None:  # what it has added stays undone; nothing else is in its turn
                return self._new_turn()
        except StoreError as error:
            _refuse(waiting, refusal_of(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this request's alone
            _refuse(waiting, self.faults.refuse(error))
            if turn.size != before:  # half of it is in the turn: the others are asked again for another
                self._queue.extendleft(reversed(self._taken))
                return self._new_turn()
        else:
            self._taken.append(waiting)
        return turn

    async def _try(
        self, turn: Turn, waiting: _Waiting, ask: Callable[[Turn], Any], loop: asyncio.AbstractEventLoop,
        committer: ThreadPoolExecutor,
    ) -> None:  # fmt: skip
        """Answer a request that is only tried."""
        try:
            await _prepared(turn, waiting.prepare, loop, committer)
            waiting.answer = ask(turn)
        except RefusedError as refused:
            _refuse(waiting, refused)
        except StoreError as error:
            _refuse(waiting, refusal_of(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this request's alone
            _refuse(waiting, self.faults.refuse(error))
        else:
            _resolve(waiting)

    def _add_time(self, turn: Turn) -> bool:
        """Add that time has passed; whether more nodes are silent than are lost in one turn."""
        there = {name: record for name, record in self.read_model.nodes.items() if not record.lost}
        leased = [name for name, record in there.items() if record.leased]
        pools = {name: record.node.pool for name, record in there.items() if not record.replaced}
        silent = [name for name in self.liveness.silent(leased, pools) if name not in turn.agents]
        self.losing = frozenset(silent[:NODES_LOST_PER_TURN_MAX])
        halting = [record for record in self.read_model.nodes.values() if silent and record.halts]
        names = frozenset(one.node.name for one in halting)
        told = frozenset(one.node.name for one in halting if one.halts_told)
        turn.events.extend(NodeLost(name, names, told) for name in silent[:NODES_LOST_PER_TURN_MAX])
        turn.events.append(Tick())
        return len(silent) > NODES_LOST_PER_TURN_MAX

    def _tell(self, entry: LedgerEntry, outcome: Outcome, last_number: int) -> None:
        self.meters.count(entry.jobs, self.read_model.jobs)
        entry.apply(self.read_model)
        now_s = self.now()
        try:
            for job in outcome.jobs:
                self.foresight.take(job, now_s)
        except Exception:  # what is decided stands
            log.exception("a fault in foreseeing: what was learnt of starts is begun anew")
            self.foresight = Foresight(self.decider, keeps=FORETOLD_KEPT)
        self.feed.publish(last_number, entry.transaction.audit)
        nodes = (self.read_model.nodes.get(name) for name in outcome.nodes)
        self.notifier.nudge(record.door for record in nodes if record is not None)

    def _probe(self, turn: Turn, steady_s: float) -> Transaction:
        """What is written where nothing was for a while: whether the store takes it is news."""
        due = self.problem is not None or steady_s >= self._written_steady_s + PROBE_S
        return Transaction([put_clock(turn.clock)] if due and turn.clock is not None else [])

    async def _is_usable(self, loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor) -> bool:
        """Whether the core is in step with a store that is there."""
        try:
            self.store.check()
        except StoreError as error:
            self.store_failed(error)
            self._core = None
            return False
        return self._core is not None or await self._read_anew(loop, committer)

    async def _read_anew(self, loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor) -> bool:
        self._core = None
        try:
            found = await loop.run_in_executor(committer, self.read_back)
        except StoreError as error:
            self.store_failed(error)
            return False
        self.take_over(found)
        return True

    def store_failed(self, error: StoreError) -> None:
        """Say what is wrong with the store, in the log once a minute."""
        if (line := self._seldom.due(str(error))) is not None:
            log.error("%s", line)  # the operator needs the line, not where it was raised
        self.problem = str(error)

    def _fail_all(self, message: str) -> None:
        _fail([*self._taken, *self._queue, *self._line.waiting], message)
        self._queue.clear()
        self._line.waiting.clear()
        self._answer_batches()

    def _answer_batches(self) -> None:
        """Answer those that wait for batches to enter: their jobs are durable, and do so once it can write again."""
        for waited in self._entered.values():
            if not waited.done():
                waited.set_result(None)
        self._entered.clear()


async def _prepared(
    turn: Turn, prepare: Prepare[Any], loop: asyncio.AbstractEventLoop, committer: ThreadPoolExecutor
) -> object:
    """Let a request add to a turn, once all that it reads of the store has been read."""
    for _ in range(READ_APART_MAX):
        try:
            answer = prepare(turn)
            return await answer if isinstance(answer, Awaitable) else answer
        except NotReadError as wanted:
            await loop.run_in_executor(committer, wanted.read)
    # It reads one thing after another, as a batch does whose jobs wait for others: it is put into the turn in the
    # thread. Nothing else adds to the turn, or changes what it looks at, while it is waited for.
    return await loop.run_in_executor(committer, turn.reads.at_once, lambda: prepare(turn))


def restore_state(store: Store, read_model: ReadModel, config: CoreConfig) -> ClusterState:
    """Return what the core had when the board was written, made anew from the records.

    Raises StoreError: the store cannot be read.
    """
    persistent_factor, total_factor = config.memory_factors
    beliefs = Beliefs(
        PerfConfig(persistent_factor=persistent_factor, total_factor=total_factor),
        profiles=readable(store, PROFILES, store.read_all(PROFILES), documents.decode_profile),
        measurements=readable(store, MEASUREMENTS, store.read_all(MEASUREMENTS), documents.decode_measurement),
        lengths=readable(store, RUN_TIMES, store.read_all(RUN_TIMES), documents.RUN_TIME.read),
    )
    nodes = [(record.node, record.generation) for record in read_model.nodes.values() if not record.lost]
    jobs = [in_sharing_domain(job, config.share_between) for job in read_model.jobs.values()]
    used = readable(store, USED, store.read_all(USED), documents.USED.read)
    return ClusterState.restore(nodes, jobs, beliefs, read_model.counters.version, used)


def _fail(requests: list[_Waiting], message: str) -> None:
    for waiting in requests:
        _refuse(waiting, RefusedError.because(503, message))


def _refuse(waiting: _Waiting, refused: RefusedError) -> None:
    if not waiting.future.done():
        waiting.future.set_exception(refused)


def _resolve(waiting: _Waiting) -> None:
    if not waiting.future.done():
        waiting.future.set_result(waiting.answer)
