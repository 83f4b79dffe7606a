"""Places that fall free by themselves, as those who have them are expected to end.

Whoever takes another's place only moves the wait to that other where both would have had one soon: of two jobs and a
place that falls free before the first could be through, one waits for it, whichever that is. Stopping costs its time
and brings nothing then. It brings something where others wait, too, who then come sooner.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Final

from colane.core.draft import Draft
from colane.core.load import GpuLoad
from colane.core.situations import situation_in
from colane.core.state import NodeState
from colane.model.hardware import GpuId
from colane.model.job import Job, JobSpec
from colane.perf.situation import Situation
from colane.policies.indexes.live import LiveJobs
from colane.policies.means import is_leaving
from colane.policies.parts import Queue

NODES_MAX: Final = 512
"""Of more nodes every second, third, ... is looked at."""

Ends = dict[str, list[float]]


class Openings:
    """See the module; for one plan.

    Args:
        draft: Where decisions are made.
        pool: Where.
        queue: Says what jobs have left, and whether they wait at all.
    """

    def __init__(self, draft: Draft, pool: str, queue: Queue) -> None:
        self._draft = draft
        self._pool = pool
        self._queue = queue
        self._ends: dict[str, Ends] = {}

    def suffice(self, job: Job, spec: JobSpec, there: GpuLoad) -> bool:
        """Whether, before a job would be through, as many places for such as it fall free as there are who wait.

        Args:
            job: Who waits.
            spec: As large as it would be.
            there: A GPU it could have at once; others count where it is as fast.
        """
        queue, view = self._queue, self._draft.view
        within_s = queue.left_s(job) if queue.awaits and spec.gpus == 1 else None
        lacking = view.queue(self._pool).count
        if within_s is None or lacking > sum(view.derived(LiveJobs).gpus(view, self._pool).values()):
            return False
        kinds = self._as_fast(spec, there.gpu.type)
        for node in self._nodes():
            ends = self._of(node)
            for kind in kinds:
                lacking -= sum([end_s <= within_s for end_s in ends.get(kind, ())]) // spec.gpus
            if lacking <= 0:
                return True
        return False

    def _as_fast(self, spec: JobSpec, gpu_type: str) -> list[str]:
        """GPU types on which a job is no slower than on that one."""
        kinds = self._draft.view.gpu_types(self._pool, spec.gpu_type)
        ratios = {kind: self._draft.beliefs.rate(spec, Situation(kind, spec.gpus)).ratio for kind in kinds}
        return [kind for kind in kinds if ratios[kind] >= ratios.get(gpu_type, inf)]

    def _nodes(self) -> list[NodeState]:
        """Of the pool, evenly spread where there are many."""
        nodes = [node for node in self._draft.view.nodes.values() if node.node.pool == self._pool]
        return nodes[:: max(1, ceil(len(nodes) / NODES_MAX))]

    def _of(self, node: NodeState) -> Ends:
        """When the GPUs of a node fall free, in seconds from now, by type."""
        found = self._ends.get(node.node.name)
        if found is None:
            found = self._ends[node.node.name] = {}
            for gpu in node.node.gpus:
                load = self._draft.load(GpuId(node.node.name, gpu.index))
                found.setdefault(gpu.type, []).append(self._end_s(load))
        return found

    def _end_s(self, load: GpuLoad) -> float:
        """When all who are on a GPU are through; never where it is kept, or somebody leaves it for another."""
        draft, jobs = self._draft, self._draft.view.jobs
        if not load.is_usable or load.returning or load.id in draft.held:
            return inf
        ends_s = [0.0]
        for booking in load.bookings:
            job = jobs[booking.job]
            left_s = None if is_leaving(job) or not draft.is_undecided(job.id) else self._queue.left_s(job)
            ratio = draft.beliefs.rate(job.spec, situation_in(load, job.id, jobs)).ratio
            ends_s.append(inf if left_s is None or ratio <= 0 else left_s / ratio)
        return max(ends_s)
