"""Deadlines of jobs that are submitted: each is promised, with the GPUs that keep it, or the job is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.events import Submitted
from colane.model.job import JobId, JobSpec
from colane.model.problem import Problem
from colane.perf.answers import answers_alone
from colane.scheduling.mechanisms.deadlines.seats import NEWCOMER, Allowed, ComingPromise, NoPromise, promise
from colane.server.board.submission import Admitted
from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError
from colane.server.ground.yielding import in_slices

# -- Whether the objective of a server could be kept at all: no policy answers sooner than the job does alone.


def demand_possible(state: ClusterState, specs: Iterable[JobSpec]) -> None:
    """Refuse servers that are known to answer later than they may on each GPU type that they may have.

    Raises RefusedError: 422, with what an answer takes and what to do.
    """
    for position, spec in enumerate(specs):
        problem = objective_problem(state, spec)
        if problem is not None:
            raise RefusedError(422, [problem._replace(field=f"jobs[{position}].{problem.field}")])


def objective_problem(state: ClusterState, spec: JobSpec) -> Problem | None:
    """What is wrong with a server's objective; None where it can be kept, or its answers are not known everywhere."""
    if spec.latency_s is None:
        return None
    nodes = [known.node for known in state.nodes.values() if known.node.pool == spec.pool]
    types = {gpu.type for node in nodes for gpu in node.gpus if spec.gpu_type in {None, gpu.type}}
    took = [(answers_alone(state.beliefs, spec, kind), kind) for kind in sorted(types)]
    late = [(one, kind) for one, kind in took if one is not None and one.beyond_s(spec.latency_s) is not None]
    if not late or len(late) < len(took):
        return None
    one, kind = min(late, key=lambda each: max(each[0].mean_s, each[0].p99_s or 0.0))
    return Problem(
        "latency_s",
        f"asks for answers within {spec.latency_s:.3g} s, but one of {spec.family} takes {one.text} alone on {kind}"
        f": ask for more, or leave it out; if that was learnt of something else, colane profile forget {spec.family}",
    )


STOP_S: Final = 30.0
"""From the decision to stop a job, beside its lead, until its GPUs are known to be free: agents' grace, and reports."""

LAUNCH_S: Final = 60.0  # from the start of a process to its first step, where a framework is loaded


async def promised_in_slices(core: Core, turn: Turn, jobs: Sequence[Admitted]) -> list[Admitted]:
    """Return what `with_promises` does of a large batch, while others go on: nothing else adds to the turn meanwhile.

    Raises RefusedError: see `with_promises`.
    """
    if all(job.spec.deadline_s is None for job in jobs):
        return list(jobs)
    promises, found = _Promises(core, turn, len(jobs)), list[Admitted]()
    async for part in in_slices(jobs, 1):
        found += [promises.given(job) for job in part]
    return found


def with_promises(core: Core, turn: Turn, jobs: Sequence[Admitted]) -> list[Admitted]:
    """Return the jobs, those with a deadline with the GPUs by which it is kept.

    Raises RefusedError: 422, one cannot be, with the earliest deadline that can.
    """
    promises = _Promises(core, turn, len(jobs))
    return [promises.given(job) for job in jobs]


class _Promises:
    """Promises jobs of one request their GPUs, one after the other: none takes those of the ones before."""

    def __init__(self, core: Core, turn: Turn, number: int) -> None:
        self._core, self._turn, self._number = core, turn, number
        self._position = 0
        self._coming: list[ComingPromise] | None = None
        settle_s = core.config.protection_factor * LAUNCH_S
        self._allowed = Allowed(stop_s=STOP_S, launch_s=LAUNCH_S, settle_s=settle_s)

    def given(self, job: Admitted) -> Admitted:
        """Return the next job, with its GPUs where it has a deadline. Raises RefusedError: 422, it cannot be kept."""
        position, self._position = self._position, self._position + 1
        if job.spec.deadline_s is None:
            return job
        if self._coming is None:
            self._coming = list(_coming(self._turn))
        core, is_held = self._core, bool(job.holds or job.is_singleton or job.array)
        view = ClusterView(core.state, self._turn.now_s)
        problems = dict[str, None]()
        specs = [job.spec.in_pool(way.pool) for way in job.spec.pools] or [job.spec]
        specs.sort(key=lambda spec: not core.state.has_free(spec.pool, spec.gpu_type, spec.gpus_min, False))
        for spec in specs:
            made = promise(view, spec, self._allowed, self._coming, core.limits, core.config.limits, is_held=is_held)
            if not isinstance(made, NoPromise):
                self._coming.append(ComingPromise(JobId(NEWCOMER + position - self._number), spec, made))
                return replace(job, spec=spec, promised=made)
            problems[f"in pool {spec.pool} it {made.problem}" if job.spec.pools else made.problem] = None
        raise RefusedError(422, [Problem(f"jobs[{position}].deadline_s", "; ".join(problems))])


def _coming(turn: Turn) -> Iterator[ComingPromise]:
    """What jobs are promised that are to enter the queue."""
    for part in (*turn.read_model.entering.values(), *turn.slices):
        for job_id, job in part.by_id:
            if job.promised is not None:
                yield ComingPromise(job_id, job.spec, job.promised)
    for event in turn.events:
        if isinstance(event, Submitted) and event.promised is not None:
            yield ComingPromise(event.job, event.spec, event.promised)
