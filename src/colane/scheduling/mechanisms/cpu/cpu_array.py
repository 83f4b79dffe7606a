"""What places jobs without GPUs: the core, with every policy, or the CPU array of CODA (paper D, section V)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.free import FreeIndex
from colane.core.cluster.queue import Line
from colane.core.planners.cpu_only import CpuOnlyPlacer
from colane.model.job import Job, NeedClass
from colane.model.reason import Reason, Why
from colane.model.words import count
from colane.scheduling.engine.contracts import ClassKey
from colane.scheduling.engine.user_weights import ALL_ALIKE, UserWeights
from colane.scheduling.mechanisms.cpu.arrays import ABORTS_MAX, AtCap, may_borrow
from colane.scheduling.mechanisms.cpu.cpu_lines import CpuLines
from colane.scheduling.mechanisms.cpu.free_cores import DraftCores, FreeCores
from colane.scheduling.mechanisms.fairness.least_share import UserLine
from colane.scheduling.mechanisms.topology.array_demand import ArrayDemand


@dataclass(frozen=True, slots=True)
class CpuArray:
    """Dominant resource fairness by cores; idle ones kept for jobs with GPUs go to jobs that may be aborted.

    The next core goes to the user whose jobs without GPUs hold the fewest, but first to jobs aborted for others.
    """

    aborts_max: int = ABORTS_MAX  # see `ABORTS_MAX`
    at_cap: AtCap = AtCap.ENDS  # whether a job aborted so often still borrows, and ends by the next time
    user_weights: UserWeights = ALL_ALIKE  # a user's cores count divided by the user's weight

    @property
    def is_idle(self) -> bool:
        return False

    @property
    def makes_room(self) -> bool:
        return True

    def place(self, draft: Draft, pool: str) -> None:
        draft.serves_cpu_only = True
        classes = draft.view.queue(pool).cpu_only
        if classes:
            ArrayPlacer(draft, pool, self).place(classes)


class ArrayPlacer(CpuOnlyPlacer):
    """`CpuArray` for one plan."""

    def __init__(self, draft: Draft, pool: str, array: CpuArray) -> None:
        super().__init__(draft, pool, in_order=False)
        self._demand = draft.view.derived(ArrayDemand)
        self._waiting = draft.view.derived(CpuLines)
        self._cores = DraftCores(FreeIndex())
        self._array = array
        self._started: Counter[str] = Counter()
        self._full_for_all: set[ClassKey] = set()
        self._full_for_own: set[ClassKey] = set()

    def place(self, classes: dict[ClassKey, Line]) -> None:
        """Serve jobs that were aborted, in order of arrival, then always the user whose jobs hold the fewest cores.

        Before all of them a job that has waited too long, where room was kept for it, whichever array has the cores.
        """
        view = self._draft.view
        self._serve_overdue()
        self._cores = view.derived(FreeCores).in_draft(self._draft, self._pool)
        if view.explain is None:
            self._full_for_all = {key for key in classes if not self._is_any(key[1])}
        if len(self._full_for_all) < len(classes):
            for job_id in self._waiting.returned(self._pool):
                self._serve(view.job(job_id))
            self._serve_users()

    def _serve_overdue(self) -> None:
        held = self._draft.release_host(self._pool)
        if held is None:
            return
        if self._draft.has_room(held.node, held.job.effective):
            self._start(held.job, held.node)
        else:
            self._draft.hold_host(held.job, held.node)

    def _serve_users(self) -> None:
        """Serve a job of the user with least, of equals the first to come; classes without room are left."""
        lines = {user: UserLine(lines) for user, lines in self._waiting.lines(self._pool).items()}
        turns = [(self._held(user), line.first, user) for user, line in lines.items()]
        heapify(turns)
        while turns:
            user = turns[0][2]
            line = lines[user]
            job = self._draft.view.job(line.first)
            self._serve(job)
            if (job.spec.priority, job.need) in self._full_for_all:
                line.skip_class()
            else:
                line.step()
            if line:
                heapreplace(turns, (self._held(user), line.first, user))
            else:
                heappop(turns)

    def _held(self, user: str) -> float:
        """Cores that a user's jobs without GPUs will hold, over the user's weight."""
        cores = self._waiting.cores(self._pool, user) + self._started[user]
        return cores / self._array.user_weights.of(user)

    def _may_borrow(self, job: Job) -> bool:
        return may_borrow(job, self._array.aborts_max, self._array.at_cap)

    def _serve(self, job: Job) -> None:
        """Start a job where there is room."""
        key, borrows = (job.spec.priority, job.need), self._may_borrow(job)
        full = self._full_for_all if borrows else self._full_for_own
        if key in full or key in self._full_for_all or not self._draft.is_undecided(job.id):
            return
        node = self.node_for(job)
        if node is None:
            full.add(key)
            if self._draft.view.explain is None and not self._is_any(job.need):
                self._full_for_all.add(key)
            self._refuse(job)
            return
        self._start(job, node)

    def _start(self, job: Job, node: NodeState) -> None:
        self._draft.start_on_node(job, node, Reason(Why.FREE_CORES, {"node": node.node.name}))
        self._started[job.spec.user] += job.effective.cores
        self._cores.set(node.order, self._draft.cpu_only_free(node).cores)

    def in_order(self, need: NeedClass) -> Iterator[int]:
        """Those with the fewest cores free first: large jobs find the others."""
        return self._cores.fullest_first(need.cores, self._room.nodes(need))

    def _is_any(self, need: NeedClass) -> bool:
        """Whether a node may have room for jobs of a class."""
        return self._cores.is_any(need.cores, self._room.nodes(need))

    def may_take(self, node: NodeState, job: Job) -> bool:
        if self._may_borrow(job) or node.has_cpu_devices:  # where devices are cores, they are shared, not lent
            return True
        own = len(node.node.cores) - self._demand.kept_cores(self._draft.view, node)
        return self._draft.cpu_only_taken(node).cores + job.effective.cores <= own

    def _refuse(self, job: Job) -> None:
        """Where there is room that it may not borrow, it is told why not."""
        draft, spec = self._draft, job.effective
        if draft.view.explain is None or self._may_borrow(job):
            super()._refuse(job)
            return
        free = [draft.cpu_only_free(node).cores for node in draft.view.nodes.values() if draft.has_room(node, spec)]
        if not free:
            super()._refuse(job)
            return
        often = f"it was stopped for others {count(job.totals.preemptions, 'time')}"
        because = often if spec.abortable else "it may not begin anew (--abortable)"
        draft.wait(job.id, Reason(Why.BORROWS_NOTHING, {"have": max(free), "because": because}))
