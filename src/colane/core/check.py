"""The judge of plans. It knows no policy, only what may never be; it looks only at what the plan touches.

It runs after every policy call: in tests, in each simulated step, before each commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from colane.core.events import Flaw
from colane.core.load import GpuLoad
from colane.core.state import ClusterState, NodeState
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobState
from colane.model.placement import Placement
from colane.model.plan import Plan, Start, Stop

MOVABLE = frozenset({JobState.RUNNING, JobState.PAUSED})
"""Only these may be taken off their GPUs by a plan; the others are protected or on their way."""


def check(state: ClusterState, plan: Plan) -> tuple[Flaw, ...]:
    """All that is wrong with a plan; empty when it may be carried out.

    It is judged action by action, each on the cluster as the earlier ones leave it.
    """
    if plan.based_on != state.version:
        return (Flaw("stale-plan", f"based on version {plan.based_on}, the state is at {state.version}"),)
    judge = _Judge(state)
    return tuple(flaw for action in plan.actions for flaw in judge.act(action))


class _Judge:
    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._loads: dict[GpuId, GpuLoad] = {}
        self._cores: dict[str, set[int]] = {}
        self._host_memory_bytes: dict[str, int] = {}
        self._decided: set[JobId] = set()

    def act(self, action: Start | Stop) -> Iterator[Flaw]:
        if action.job in self._decided:
            yield Flaw("decided-twice", f"job {action.job} has two actions", (action.job,))
            return
        self._decided.add(action.job)
        job = self._state.jobs.get(action.job)
        if job is None:
            yield Flaw("unknown-job", f"there is no live job {action.job}", (action.job,))
        elif isinstance(action, Start):
            yield from self._start(job, action.placement)
        else:
            yield from self._stop(job)

    def _start(self, job: Job, placement: Placement) -> Iterator[Flaw]:
        if job.state is not JobState.QUEUED:
            yield Flaw("not-waiting", f"job {job.id} is {job.state}", (job.id,))
            return
        flaws = [*self._gang(job, placement)]
        if flaws:
            yield from flaws
            return
        node = self._state.nodes[placement.node]
        yield from self._cores_and_memory(job, placement, node)
        for slot in placement.slots:
            yield from self._book(job, slot.gpu, slot.lane)

    def _gang(self, job: Job, placement: Placement) -> Iterator[Flaw]:
        """Every rank has a GPU of its own, of the asked type, on one node of the job's pool."""
        spec, gpus = job.spec, placement.gpus
        if len(gpus) != spec.gpus:
            yield Flaw("gang-not-whole", f"job {job.id} asks for {spec.gpus} GPUs, gets {len(gpus)}", (job.id,))
        if len(set(gpus)) != len(gpus):
            yield Flaw("gpu-twice-in-gang", f"job {job.id} has a GPU for two ranks", (job.id,))
        if len({gpu.node for gpu in gpus}) != 1:
            yield Flaw("gang-on-many-nodes", f"job {job.id} is spread over nodes", (job.id,))
        for gpu in gpus:
            load = self._state.gpus.get(gpu)
            if load is None or not load.gpu.healthy:
                yield Flaw("no-such-gpu", f"{gpu} is unknown or unhealthy", (job.id,))
            elif spec.gpu_type not in (None, load.gpu.type):
                yield Flaw("wrong-gpu-type", f"job {job.id} asks for {spec.gpu_type}, {gpu} is not", (job.id,))
            elif self._state.nodes[gpu.node].node.pool != spec.pool:
                yield Flaw("wrong-pool", f"{gpu} is not in pool {spec.pool}", (job.id,))

    def _cores_and_memory(self, job: Job, placement: Placement, node: NodeState) -> Iterator[Flaw]:
        name = node.node.name
        taken = self._cores.setdefault(name, set(node.cores_booked))
        if job.spec.cores != len(set(placement.cores)) or not set(placement.cores) <= set(node.node.cores):
            yield Flaw("wrong-cores", f"job {job.id} asks for {job.spec.cores} cores of {name}", (job.id,))
        if taken & set(placement.cores):
            yield Flaw("core-booked-twice", f"cores of job {job.id} on {name} are taken", (job.id,))
        taken.update(placement.cores)
        left = self._host_memory_bytes.get(name, node.host_memory_free_bytes) - job.spec.host_memory_bytes
        self._host_memory_bytes[name] = left
        if job.spec.host_memory_bytes and left < 0:
            yield Flaw("host-memory-overbooked", f"{name} lacks {-left} bytes for job {job.id}", (job.id,))

    def _book(self, job: Job, gpu: GpuId, lane: int) -> Iterator[Flaw]:
        load = self._loads.get(gpu) or self._state.gpus[gpu]
        booked = load.with_booking(self._state.booking(job, load.gpu.type, lane))
        self._loads[gpu] = booked
        yield from self._share(job, load, booked)
        needed = booked.needed_bytes
        if needed is not None and needed > booked.capacity_bytes:
            detail = f"{gpu} has {booked.capacity_bytes} bytes, its jobs need {needed}"
            yield Flaw("unsafe-memory", detail, booked.jobs)

    def _share(self, job: Job, load: GpuLoad, booked: GpuLoad) -> Iterator[Flaw]:
        if not load.bookings:
            return
        together = {b.company for b in booked.bookings}
        if together == {job.spec.company} and job.spec.company is not None:
            return
        if not booked.is_shareable:
            yield Flaw("may-not-share", f"{load.id} cannot be shared with job {job.id}", booked.jobs)

    @staticmethod
    def _stop(job: Job) -> Iterator[Flaw]:
        """It keeps its GPUs until its process is gone, so nothing is free by it yet."""
        if job.state not in MOVABLE:
            yield Flaw("protected", f"job {job.id} is {job.state} and may not be moved", (job.id,))
        elif not job.spec.preemptible:
            yield Flaw("not-preemptible", f"job {job.id} would lose what it has done", (job.id,))
