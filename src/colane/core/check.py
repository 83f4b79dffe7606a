"""The judge of plans. It knows no policy, only what may never be; it looks only at what the plan touches.

It runs after every policy call: in tests, in each simulated step, before each commit.
"""

from __future__ import annotations

from colane.core.events import Flaw
from colane.core.load import GpuLoad
from colane.core.state import ClusterState
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobState
from colane.model.placement import Placement
from colane.model.plan import Plan, Start, Stop

Flaws = tuple[Flaw, ...]

MOVABLE = frozenset({JobState.RUNNING, JobState.PAUSED})
"""Only these may be taken off their GPUs by a plan; the others are protected or on their way."""


def check(state: ClusterState, plan: Plan) -> tuple[Flaw, ...]:
    """All that is wrong with a plan; empty when it may be carried out.

    It is judged action by action, each on the cluster as the earlier ones leave it.
    """
    if plan.based_on != state.version:
        return (Flaw("stale-plan", f"based on version {plan.based_on}, the state is at {state.version}"),)
    judge = _Judge(state)
    return tuple([flaw for action in plan.actions for flaw in judge.act(action)])


class _Judge:
    """Every method returns flaws; the common answer is the empty tuple, made without a list."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._loads: dict[GpuId, GpuLoad] = {}
        self._cores: dict[str, set[int]] = {}
        self._host_memory_bytes: dict[str, int] = {}
        self._host_bandwidth: dict[str, float] = {}
        self._decided: set[JobId] = set()

    def act(self, action: Start | Stop) -> Flaws:
        if action.job in self._decided:
            return (Flaw("decided-twice", f"job {action.job} has two actions", (action.job,)),)
        self._decided.add(action.job)
        job = self._state.jobs.get(action.job)
        if job is None:
            return (Flaw("unknown-job", f"there is no live job {action.job}", (action.job,)),)
        return self._start(job, action.placement) if isinstance(action, Start) else self._stop(job)

    def _start(self, job: Job, placement: Placement) -> Flaws:
        if job.state is not JobState.QUEUED:
            return (Flaw("not-waiting", f"job {job.id} is {job.state}", (job.id,)),)
        if job.suspended:
            return (Flaw("starts-a-held-job", f"job {job.id} is suspended", (job.id,)),)
        flaws = self._gang(job, placement)
        if flaws:
            return flaws
        if job.spec.cores or job.spec.host_memory_bytes or placement.cores or placement.cores_elsewhere:
            for name in placement.nodes:
                flaws += self._cores_and_memory(job, placement, name)
        if job.spec.host_bandwidth_bytes_per_s:
            for name in placement.nodes:
                flaws += self._bandwidth(job, placement, name)
        for slot in placement.slots:
            flaws += self._book(job, slot.gpu, slot.lane)
        return flaws

    def _gang(self, job: Job, placement: Placement) -> Flaws:
        """Every rank has a GPU of its own, of the asked type and pool, on one node unless it may span several."""
        spec, gpus = job.spec, placement.gpus
        flaws: Flaws = ()
        if len(gpus) != spec.gpus:
            text = f"job {job.id} asks for {spec.gpus} GPUs, gets {len(gpus)}"
            flaws += (Flaw("gang-not-whole", text, (job.id,)),)
        if len(set(gpus)) != len(gpus):
            flaws += (Flaw("gpu-twice-in-gang", f"job {job.id} has a GPU for two ranks", (job.id,)),)
        if len(gpus) > 1:
            flaws += _spread(job, placement)
        for gpu in gpus:
            flaws += self._rank(job, gpu)
        return flaws

    def _rank(self, job: Job, gpu: GpuId) -> Flaws:
        spec = job.spec
        load = self._state.gpus.get(gpu)
        if load is None or not load.gpu.healthy:
            return (Flaw("no-such-gpu", f"{gpu} is unknown or unhealthy", (job.id,)),)
        if spec.gpu_type is not None and spec.gpu_type != load.gpu.type:
            return (Flaw("wrong-gpu-type", f"job {job.id} asks for {spec.gpu_type}, {gpu} is not", (job.id,)),)
        if self._state.nodes[gpu.node].node.pool != spec.pool:
            return (Flaw("wrong-pool", f"{gpu} is not in pool {spec.pool}", (job.id,)),)
        return ()

    def _cores_and_memory(self, job: Job, placement: Placement, name: str) -> Flaws:
        """What the job books on one of its nodes: its part by ranks, free, and of that node."""
        node = self._state.nodes[name]
        flaws: Flaws = ()
        ranks, cores = len(placement.slots_on(name)), set(placement.cores_on(name))
        taken = self._cores.setdefault(name, set(node.cores_booked))
        if len(cores) != job.spec.part(job.spec.cores, ranks) or not cores <= set(node.node.cores):
            flaws += (Flaw("wrong-cores", f"job {job.id} asks for {job.spec.cores} cores of {name}", (job.id,)),)
        if taken & cores:
            flaws += (Flaw("core-booked-twice", f"cores of job {job.id} on {name} are taken", (job.id,)),)
        taken.update(cores)
        need_bytes = job.spec.part(job.spec.host_memory_bytes, ranks)
        left = self._host_memory_bytes.get(name, node.host_memory_free_bytes) - need_bytes
        self._host_memory_bytes[name] = left
        if need_bytes and left < 0:
            flaws += (Flaw("host-memory-overbooked", f"{name} lacks {-left} bytes for job {job.id}", (job.id,)),)
        return flaws

    def _bandwidth(self, job: Job, placement: Placement, name: str) -> Flaws:
        need = job.spec.part(job.spec.host_bandwidth_bytes_per_s, len(placement.slots_on(name)))
        left = self._host_bandwidth.get(name, self._state.nodes[name].host_bandwidth_free) - need
        self._host_bandwidth[name] = left
        if left >= 0:
            return ()
        return (Flaw("host-bandwidth-overbooked", f"{name} lacks {-left:.0f} bytes/s for job {job.id}", (job.id,)),)

    def _book(self, job: Job, gpu: GpuId, lane: int) -> Flaws:
        load = self._loads.get(gpu) or self._state.gpus[gpu]
        booked = load.with_booking(self._state.booking(job, load.gpu.type, lane))
        self._loads[gpu] = booked
        flaws = self._share(job, load, booked) if load.bookings else ()
        if load.returning:
            flaws += (Flaw("kept-for-return", f"{gpu} is kept for jobs whose memory is to come back", load.returning),)
        needed = booked.needed_bytes
        if needed is not None and needed > booked.capacity_bytes:
            detail = f"{gpu} has {booked.capacity_bytes} bytes, its jobs need {needed}"
            flaws += (Flaw("unsafe-memory", detail, booked.jobs),)
        return flaws

    @staticmethod
    def _share(job: Job, load: GpuLoad, booked: GpuLoad) -> Flaws:
        if not load.admits(job.spec.circle):
            return (Flaw("may-not-share", f"the jobs on {load.id} are of others than job {job.id}", booked.jobs),)
        together = {b.company for b in booked.bookings}
        if together == {job.spec.company} and job.spec.company is not None:
            return ()
        if not booked.is_shareable:
            return (Flaw("may-not-share", f"{load.id} cannot be shared with job {job.id}", booked.jobs),)
        return ()

    @staticmethod
    def _stop(job: Job) -> Flaws:
        """It keeps its GPUs until its process is gone, so nothing is free by it yet."""
        if job.state not in MOVABLE:
            return (Flaw("protected", f"job {job.id} is {job.state} and may not be moved", (job.id,)),)
        if not job.spec.preemptible:
            return (Flaw("not-preemptible", f"job {job.id} would lose what it has done", (job.id,)),)
        return ()


def _spread(job: Job, placement: Placement) -> Flaws:
    """On how many nodes a gang may lie."""
    nodes = placement.nodes
    if len(nodes) > 1 and not job.spec.multi_node:
        return (Flaw("gang-on-many-nodes", f"job {job.id} is spread over nodes", (job.id,)),)
    if job.spec.anti_collocation and len(nodes) != len(placement.slots):
        return (Flaw("ranks-on-one-node", f"job {job.id} wants a node for each rank", (job.id,)),)
    if [node for node in nodes for _ in placement.slots_on(node)] != [gpu.node for gpu in placement.gpus]:
        return (Flaw("ranks-out-of-order", f"ranks of job {job.id} on one node do not follow one another", (job.id,)),)
    return ()
