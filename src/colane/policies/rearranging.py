"""Moving jobs that run: to GPUs, or into company, where all together go faster, if that pays what moving costs.

A job that saves its state is stopped and started there; until it is gone its new place is booked for it. A move must
raise the sum of speeds by more than a margin, so that planning again at once changes nothing. Jobs of several GPUs, who
have no company, go to free GPUs of a faster type, or to better connected ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from colane.core.load import GpuLoad
from colane.model.hardware import GpuId
from colane.model.job import Job, JobState
from colane.model.reason import Reason, Why
from colane.policies.companies import CompanyValues, Kinds, has_room_beside, is_settled, kinds_on
from colane.policies.expected import Expected, had_s
from colane.policies.indexes.live import LiveJobs
from colane.policies.means import launch_s
from colane.policies.parts import Desk
from colane.policies.placing.nodes import on_node
from colane.policies.shares import kept_times
from colane.policies.sources.fastest import FastestFinder, speed_on


@dataclass(frozen=True, slots=True)
class Rearranging:
    """See the module.

    Attributes:
        moves: Whether running jobs are moved at all.
        company_max: Jobs on one GPU at most.
        rise_min: The sum of speeds must rise by so much, costs taken off.
        moves_max: In one plan at most.
    """

    moves: bool = True
    company_max: int = 2
    rise_min: float = 0.1
    moves_max: int = 8

    @property
    def goes_first(self) -> bool:
        """Those that wait are served before."""
        return False

    def plan(self, desk: Desk) -> None:
        """Move whom it pays to move, the most worthwhile first."""
        if not self.moves:
            return
        desk.draft.watch(desk.pool)
        mover = _Mover(self, desk)
        for _ in range(self.moves_max):
            best = mover.best()
            if best is None:
                return
            mover.move(best)


MOST: Final = 1.0
"""The sum of speeds rises by no more than the speed of who comes, which is 1 at most."""


class _Better(NamedTuple):
    """A better place for a job that runs, and by how much the sum of speeds rises, costs taken off."""

    rise: float
    left_s: float
    job: Job
    gpus: tuple[GpuLoad, ...]


class _Mover:
    def __init__(self, settings: Rearranging, desk: Desk) -> None:
        self._settings = settings
        self._draft = desk.draft
        self._pool = desk.pool
        self._quantum_s = desk.queue.quantum_s
        self._values = CompanyValues(desk.draft)
        self._fastest = FastestFinder(desk)
        self._closed: set[GpuId] = set()
        self._live = desk.draft.view.derived(LiveJobs).pool(desk.pool)
        self._expected = Expected(desk.draft, kept_times(desk.draft, desk.pool))

    def best(self) -> _Better | None:
        """The move that pays most."""
        best: _Better | None = None
        for job in self._movable():
            for better in self._better(job) if job.spec.gpus == 1 else self._elsewhere(job):
                if best is None or better[:2] > best[:2]:
                    best = better
        return best

    def move(self, better: _Better) -> None:
        """Do so."""
        job, gpus = better.job, better.gpus
        had, beside = str(job.gpus_held[0]), gpus[0].jobs
        facts: dict[str, str | int | float] = {"had": had, "gpu": str(gpus[0].id), "rise": better.rise}
        self._closed |= {*[load.id for load in gpus], *job.gpus_held}
        self._draft.resize(job, gpus, Reason(Why.MOVED, facts, beside))
        self._fastest.changed(gpus)

    def _movable(self) -> Iterator[Job]:
        """Jobs that save their state and have run for a quantum, on GPUs of which nothing was decided."""
        draft = self._draft
        for job_id in self._live.ripe(draft.now_s, self._quantum_s):
            job = draft.view.job(job_id)
            if job.state is not JobState.RUNNING or not job.spec.preemptible:
                continue
            if len(job.gpus_held) == job.spec.gpus and all(self._is_open(draft.load(gpu)) for gpu in job.gpus_held):
                yield job

    def _is_open(self, load: GpuLoad) -> bool:
        """Whether nothing was decided about a GPU, nor is about to happen there."""
        draft = self._draft
        untouched = load is draft.view.gpu(load.id) and load.id not in draft.held and load.id not in self._closed
        return untouched and is_settled(draft, load)

    def _better(self, job: Job) -> Iterator[_Better]:
        draft, values, spec = self._draft, self._values, job.spec
        here = draft.load(job.gpus_held[0])
        rest = here.without(job.id)
        loss = values.total(here, here.bookings) - values.total(here, rest.bookings)
        if self._settings.rise_min >= MOST - loss:
            return
        left_s = self._left_s(job)
        cost = self._cost(job, left_s)
        for kind in draft.view.gpu_types(self._pool, spec.gpu_type):
            for load in self._places(job, kind):
                mine = values.booking(job, spec, load)
                rise = values.total(load, (*load.bookings, mine)) - values.total(load, load.bookings)
                gain = rise - loss - cost
                if gain > self._settings.rise_min and not values.hurts(spec, load, load.bookings, mine):
                    yield _Better(gain, left_s, job, (load,))

    def _elsewhere(self, job: Job) -> Iterator[_Better]:
        """For a job of several GPUs: free ones of each type."""
        left_s = self._left_s(job)
        has = speed_on(self._draft, job.spec, [self._draft.load(gpu) for gpu in job.gpus_held])
        least = has + self._cost(job, left_s) + self._settings.rise_min
        for offer in self._fastest.offers(job, job.spec) if least < MOST else ():
            if offer.ratio > least:
                yield _Better(offer.ratio - least + self._settings.rise_min, left_s, job, offer.gpus)

    @staticmethod
    def _cost(job: Job, left_s: float) -> float:
        """Part of what is left of it that a move would take."""
        return launch_s(job) / left_s if left_s > 0 else 1.0

    def _left_s(self, job: Job) -> float:
        left_s = self._expected.left_s(job)
        return had_s(job, self._draft.now_s) if left_s is None else left_s

    def _places(self, job: Job, kind: str) -> Iterator[GpuLoad]:
        """A free GPU of a type, and those whose jobs it could join."""
        draft, spec = self._draft, job.spec
        for order in draft.free((self._pool, kind)).nodes_with(1):
            gpus = on_node(draft, spec, kind, draft.view.node_at(order), None)
            if gpus is not None:
                yield gpus[0]
                break
        terms = draft.beliefs.terms(spec, kind)
        if not spec.share or terms.memory is None or terms.load is None:
            return
        need_bytes = sum(terms.memory)
        seen: set[Kinds] = set()
        for load in draft.open_gpus((self._pool, kind), self._settings.company_max - 1):
            kinds = kinds_on(load)
            if kinds in seen:
                continue
            if load.id != job.gpus_held[0] and self._is_open(load) and has_room_beside(draft, spec, load, need_bytes):
                seen.add(kinds)
                yield load
