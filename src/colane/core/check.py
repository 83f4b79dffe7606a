"""The judge of plans. It knows no policy, only what may never be; it looks only at what the plan touches.

It runs after every policy call: in tests, in each simulated step, before each commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from colane.core.cluster.bookings import throttled
from colane.core.cluster.load import GpuLoad, booked_on, memory_held
from colane.core.cluster.seen import is_overfull
from colane.core.cluster.state import ClusterState
from colane.core.cluster.to_host import bytes_to_move, parking_refusal
from colane.core.events import Flaw
from colane.core.planners.drain import lets_go
from colane.core.planners.returning import returned
from colane.model.field_values import describe_sizes
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobState
from colane.model.job_spec import is_among
from colane.model.phases import MOVABLE, STEPPING, Throttle
from colane.model.placement import Placement, Slot
from colane.model.plan import Action, Move, Park, Plan, Resize, SetCores, SetThrottle, Start, Stop
from colane.model.progress import late_answers
from colane.model.resources import Resources, cores_used, host_needs
from colane.model.words import count

Flaws = tuple[Flaw, ...]
QUEUED: Final = JobState.QUEUED


def check(state: ClusterState, plan: Plan) -> tuple[Flaw, ...]:
    """All that is wrong with a plan; empty when it may be carried out.

    It is judged action by action, each on the cluster as the earlier ones leave it.
    """
    if plan.based_on != state.version:
        return (Flaw("stale-plan", f"based on version {plan.based_on}, the state is at {state.version}"),)
    judge = _Judge(state)
    flaws = judge.hold(plan) if plan.holds else ()
    for action in plan.actions[:-1]:
        flaws += judge.act(action)
    judge.is_last = True
    for action in plan.actions[-1:]:
        flaws += judge.act(action)
    return flaws


class _Judge:
    """Every method returns flaws; the common answer is the empty tuple, made without a list.

    Attributes:
        is_last: Whether no action comes behind the one that is judged, which would find what that books.
    """

    def __init__(self, state: ClusterState) -> None:
        self.is_last = False
        self._state = state
        self._loads: dict[GpuId, GpuLoad] = {}
        self._cores: dict[str, set[int]] = {}
        self._cores_unused: dict[str, int] = {}
        self._joined: dict[str, dict[JobId, bool]] = {}  # jobs that come to nodes, and whether they have them whole
        self._host_memory_bytes: dict[str, int] = {}
        self._host_bandwidth: dict[str, float] = {}
        self._decided: set[JobId] = set()
        self._placed: dict[JobId, Placement] = {}
        self._held: dict[GpuId, JobId] = {}
        self._allowance = None if state.limits is None else state.limits.allowance()

    def hold(self, plan: Plan) -> Flaws:
        """GPUs are held for one waiting job each."""
        flaws: Flaws = ()
        for job_id, gpus in plan.holds.items():
            job = self._state.jobs.get(job_id)
            if job is None or not job.is_waiting:
                flaws += (Flaw("holds-without-waiter", f"job {job_id} does not wait", (job_id,)),)
            for gpu in gpus:
                if gpu not in self._state.gpus:
                    flaws += (Flaw("no-such-gpu", f"{gpu} is unknown and cannot be held", (job_id,)),)
                if self._held.setdefault(gpu, job_id) != job_id:
                    flaws += (Flaw("held-twice", f"{gpu} is held for two jobs", (self._held[gpu], job_id)),)
        return flaws

    def act(self, action: Action) -> Flaws:
        if action.job in self._decided:
            return (Flaw("decided-twice", f"job {action.job} has two actions", (action.job,)),)
        self._decided.add(action.job)
        job = self._state.jobs.get(action.job)
        if job is None:
            return (Flaw("unknown-job", f"there is no live job {action.job}", (action.job,)),)
        if isinstance(action, Start):
            return self._start(job, action.placement)
        return (
            self._stop(job) + self._how_stopped(job, action) if isinstance(action, Stop) else self._change(job, action)
        )

    def _change(self, job: Job, action: Action) -> Flaws:
        """Of a job that lives on."""
        if isinstance(action, Park):
            return self._park(job) + self._isolates(job, isolate=action.isolate)
        if isinstance(action, Move):
            return self._move(job, action.placement)
        if isinstance(action, Resize):
            return self._resize(job, action.placement)
        if isinstance(action, SetThrottle):
            return self._set_throttle(job, action.throttle)
        return self._set_cores(job, action) if isinstance(action, SetCores) else self._remark(job)

    def _start(self, job: Job, placement: Placement) -> Flaws:
        if job.state is not QUEUED:
            return (Flaw("not-waiting", f"job {job.id} is {job.state}", (job.id,)),)
        if job.holds:
            return (Flaw("starts-a-held-job", f"job {job.id} is held: {job.holds[0].kind}", (job.id,)),)
        if self._allowance is not None and not self._allowance.take(job):
            return (Flaw("over-limit", f"job {job.id} exceeds a limit of {job.spec.user or 'its user'}", (job.id,)),)
        flaws = self._gang(job, placement)
        if flaws:
            return flaws
        shares = not placement.slots and self._state.nodes[placement.node].has_cpu_devices
        has_cores = not shares and (job.effective.cores or placement.cores or placement.cores_elsewhere)
        for name in placement.nodes if has_cores else ():
            flaws += self._take_cores(job, placement, name)
        for name in placement.nodes if job.spec.host_memory_bytes else ():
            flaws += self._take_memory(job, name, host_needs(job.effective, len(placement.slots_on(name))))
        return flaws + self._take_rest(job, placement)

    def _take_rest(self, job: Job, placement: Placement) -> Flaws:
        """Bandwidth, and a share of each GPU."""
        flaws: Flaws = ()
        for name in placement.nodes if job.spec.host_bandwidth_bytes_per_s else ():
            flaws += self._bandwidth(job, placement, name)
        return flaws + self._book(job, placement.slots, len(placement.slots))

    # -- parking and moving

    def _park(self, job: Job) -> Flaws:
        """It keeps its GPUs until its memory has left them, so nothing is free by it yet."""
        problem = parking_refusal(self._state, job)
        if problem is not None or job.placement is None:
            return (Flaw("cannot-park", problem or f"job {job.id} does not run", (job.id,)),)
        node = self._state.nodes[job.placement.node]
        need_bytes = bytes_to_move(self._state, job) if node.node.host_memory_bytes else 0
        return self._take_memory(job, node.node.name, Resources(host_memory_bytes=need_bytes)) if need_bytes else ()

    def _move(self, job: Job, placement: Placement) -> Flaws:
        if job.has_left_gpus and job.is_waiting:
            return self._come_back(job, placement)
        if job.is_returning:
            return self._return(job, placement)
        return self._change_lane(job, placement)

    def _come_back(self, job: Job, placement: Placement) -> Flaws:
        """A parked job has host memory already; cores and GPUs it must find anew, at home."""
        if job.placement is None or len(placement.slots) != len(job.placement.slots):
            return (Flaw("gang-not-whole", f"job {job.id} comes back with another number of GPUs", (job.id,)),)
        homes = {str(gpu) for gpu in placement.gpus} | set(placement.nodes)
        if job.home not in homes or placement.nodes != job.placement.nodes:
            return (Flaw("not-at-home", f"job {job.id} can go on at {job.home} alone", (job.id,)),)
        flaws = self._gang(job, placement)
        if flaws:
            return flaws
        if job.effective.cores or placement.cores:
            flaws += self._take_cores(job, placement, placement.node)
        return flaws + self._take_rest(job, placement)

    def _return(self, job: Job, placement: Placement) -> Flaws:
        """A resumed job goes on where its memory was, when those for which the GPU is kept before it are back."""
        if placement != job.placement:
            return (Flaw("not-at-home", f"job {job.id} can go on where it was alone", (job.id,)),)
        slot = placement.slots[0]
        load = self._loads.get(slot.gpu) or self._state.gpus.get(slot.gpu)
        back = None if load is None else returned(self._state, load, job, self._decided)
        if back is None:
            return (Flaw("no-room-to-return", f"{slot.gpu} has no room for job {job.id} yet", (job.id,)),)
        self._loads[slot.gpu] = back
        return ()

    def _change_lane(self, job: Job, placement: Placement) -> Flaws:
        """A stepping job of one GPU may go to another lane of it, if the GPU's jobs do not need more by that."""
        old = job.placement
        if job.state not in STEPPING or old is None or len(old.slots) > 1 or old.gpus != placement.gpus:
            return (Flaw("not-movable", f"job {job.id} is {job.state} and cannot go on there", (job.id,)),)
        if placement != replace(old, slots=placement.slots) or placement.slots == old.slots:
            return (Flaw("not-movable", f"job {job.id} would change more than its lane, or nothing", (job.id,)),)
        gpu, lane = old.gpus[0], placement.slots[0].lane
        load = self._loads.get(gpu) or self._state.gpus[gpu]
        moved = load.in_lane(job.id, lane)
        self._loads[gpu] = moved
        lane_mates = [self._state.jobs[b.job] for b in moved.bookings if b.lane == lane]
        if len(lane_mates) > 1 and not all(self._takes_turns(lane_mate) for lane_mate in lane_mates):
            return (Flaw("no-turns", f"not all jobs of lane {lane} of {gpu} reach step boundaries", moved.jobs),)
        before, after = load.needed_bytes, moved.needed_bytes
        if before is not None and after is not None and after > max(before, load.capacity_bytes):
            return (Flaw("unsafe-memory", f"the jobs on {gpu} would need {after} bytes", moved.jobs),)
        return ()

    def _takes_turns(self, job: Job) -> bool:
        return self._state.steps_unseen or job.first_step_s is not None

    # -- size and cores

    def _resize(self, job: Job, placement: Placement) -> Flaws:
        """Until its process is gone it books what it has and what it is to have."""
        flaws = self._stop(job)
        if job.state is not JobState.RUNNING or job.placement is None or job.placement == placement:
            flaws += (Flaw("not-resizable", f"job {job.id} is {job.state}, or has that place", (job.id,)),)
        flaws = flaws or self._gang(job, placement)
        if flaws or job.placement is None:
            return flaws
        own = {slot.gpu: slot for slot in job.placement.slots}
        for name in placement.nodes:
            flaws += self._take_cores(job, placement, name, frozenset(job.placement.cores_on(name)))
            flaws += self._take_memory(
                job, name, host_needs(job.effective, len(placement.slots_on(name))) - self._own(job, name)
            )
        for slot in placement.slots:
            if own.get(slot.gpu, slot) != slot:
                flaws += (Flaw("not-resizable", f"job {job.id} has another lane of {slot.gpu}", (job.id,)),)
        new = [slot for slot in placement.slots if slot.gpu not in own]
        return flaws + self._book(job, new, len(placement.slots))

    @staticmethod
    def _own(job: Job, name: str) -> Resources:
        ranks = len(job.placement.slots_on(name)) if job.placement is not None else 0
        return host_needs(job.effective, ranks)

    def _set_cores(self, job: Job, action: SetCores) -> Flaws:
        """Cores it gives up are free for later actions, as all changes of cores are made at once."""
        if job.state is not JobState.RUNNING or job.placement is None:
            return (Flaw("protected", f"job {job.id} is {job.state}; its cores may not change", (job.id,)),)
        flaws: Flaws = ()
        placement = replace(job.placement, cores=action.cores, cores_elsewhere=action.cores_elsewhere)
        strangers = {name for name, _ in action.cores_elsewhere} - set(placement.nodes[1:])
        if strangers:
            flaws += (Flaw("wrong-cores", f"job {job.id} is not on {', '.join(sorted(strangers))}", (job.id,)),)
        for name in placement.nodes:
            booked = placement.cores_on(name)
            own = frozenset(job.placement.cores_on(name))
            flaws += self._take_cores(job, placement, name, own, len(set(booked)))
            self._cores[name] -= own - set(booked)
            if len(booked) != len(set(booked)):
                flaws += (Flaw("core-booked-twice", f"job {job.id} has a core of {name} twice", (job.id,)),)
        return flaws

    def _set_throttle(self, job: Job, throttle: Throttle | None) -> Flaws:
        """It keeps a core at least, all of its own node; what it books is free, or was its own."""
        placement, spec = job.placement, job.effective
        if spec.gpus or spec.kind is JobKind.INFERENCE or job.state is not JobState.RUNNING or placement is None:
            return (Flaw("not-throttled", f"job {job.id} is {job.state}, or is never held back", (job.id,)),)
        cores = set(throttled(job, throttle).cores) if throttle is None else set(throttle.cores)
        has = set(self._state.nodes[placement.node].node.cores)
        is_bounded = throttle is None or (cores and 0 < throttle.bandwidth_ratio <= 1)
        if not is_bounded or not cores <= has:
            return (Flaw("wrong-cores", f"job {job.id} would be left no core of {placement.node}", (job.id,)),)
        if not placement.cores:
            return ()
        whole = {*placement.cores, *(job.throttle.withheld if job.throttle else ())}
        after = cores | set(throttle.withheld if throttle is not None else ())
        taken = self._cores.setdefault(placement.node, set(self._state.nodes[placement.node].cores_booked))
        if after != whole or (taken - set(placement.cores)) & cores:
            return (Flaw("core-booked-twice", f"cores of job {job.id} are taken, or others than it had", (job.id,)),)
        self._cores[placement.node] = (taken - set(placement.cores)) | cores
        return ()

    @staticmethod
    def _remark(job: Job) -> Flaws:
        if job.state in STEPPING:
            return ()
        return (Flaw("not-running", f"job {job.id} is {job.state}, of which nothing is remarked", (job.id,)),)

    # -- places

    def _gang(self, job: Job, placement: Placement) -> Flaws:
        """Every rank has a GPU of its own, of the asked type and pool, on one node unless it may span several."""
        spec, gpus = job.effective, placement.gpus
        flaws: Flaws = ()
        self._placed[job.id] = placement
        if not gpus and not spec.gpus:
            return self._without_gpus(job, placement)
        if not spec.can_run_on(len(gpus)):
            text = f"job {job.id} asks for {count(describe_sizes(spec.sizes or (spec.gpus,)), 'GPU')}, gets {len(gpus)}"
            flaws += (Flaw("gang-not-whole", text, (job.id,)),)
        if len(gpus) > 1:
            if len(set(gpus)) != len(gpus):
                flaws += (Flaw("gpu-twice-in-gang", f"job {job.id} has a GPU for two ranks", (job.id,)),)
            flaws += _spread(job, placement) + self._instances(job, placement)
        for gpu in gpus:
            flaws += self._rank(job, gpu)
        return flaws

    def _instances(self, job: Job, placement: Placement) -> Flaws:
        """CUDA shows a process one MIG instance, and no other GPU beside it."""
        for name in placement.nodes:
            loads = [self._state.gpus.get(slot.gpu) for slot in placement.slots_on(name)]
            if len(loads) > 1 and any(load is not None and load.gpu.is_mig_instance for load in loads):
                return (Flaw("several-instances", f"job {job.id} has a MIG instance and more on {name}", (job.id,)),)
        return ()

    def _without_gpus(self, job: Job, placement: Placement) -> Flaws:
        """It is on a node of its pool that has cores left for it, and on no core that is a device."""
        if (node := self._state.nodes.get(placement.node)) is None:
            return (Flaw("no-such-node", f"there is no node {placement.node!r}", (job.id,)),)
        if node.node.pool != job.spec.pool:
            return (Flaw("wrong-pool", f"{placement.node} is not in pool {job.spec.pool}", (job.id,)),)
        if not node.node.takes_jobs:
            return (Flaw("node-drained", f"{placement.node} is drained", (job.id,)),)
        flaws = self._may_use(job, placement.node)
        left = self._cores_unused.get(placement.node, node.cores_unused) - cores_used(job.spec)
        self._cores_unused[placement.node] = left
        if placement.cores and node.has_cpu_devices:
            flaws += (Flaw("wrong-cores", f"cores of job {job.id} on {placement.node} are cpu devices", (job.id,)),)
        elif left < 0:
            flaws += (Flaw("no-core-free", f"{placement.node} has no core left for job {job.id}", (job.id,)),)
        return flaws

    def _may_use(self, job: Job, name: str) -> Flaws:
        """It is among the nodes that it names, no other has it whole, and it has none whole where others are."""
        spec, node, joined = job.effective, self._state.nodes[name], self._joined.setdefault(name, {})
        joined[job.id] = spec.whole_node
        if not is_among(spec.nodes, name):
            return (Flaw("wrong-node", f"job {job.id} may run on {spec.nodes}, {name} is not among them", (job.id,)),)
        is_whole = spec.whole_node or node.whole not in (None, job.id) or True in joined.values()
        if is_whole and any(other != job.id for other in (*node.jobs, *joined)):
            return (Flaw("node-taken-whole", f"{name} is not for job {job.id} and others at once", (job.id,)),)
        return ()

    def _rank(self, job: Job, gpu: GpuId) -> Flaws:
        spec = job.effective
        load = self._state.gpus.get(gpu)
        if load is None or not load.gpu.healthy:
            return (Flaw("no-such-gpu", f"{gpu} is unknown or unhealthy", (job.id,)),)
        if spec.gpu_type is not None and spec.gpu_type != load.gpu.type:
            return (Flaw("wrong-gpu-type", f"job {job.id} asks for {spec.gpu_type}, {gpu} is not", (job.id,)),)
        if self._state.nodes[gpu.node].node.pool != spec.pool:
            return (Flaw("wrong-pool", f"{gpu} is not in pool {spec.pool}", (job.id,)),)
        is_new = job.placement is None or gpu.node not in job.placement.nodes
        if is_new and (flaws := self._may_use(job, gpu.node)):
            return flaws
        if load.closed and gpu not in job.gpus_held and (job.home == "" or job.placement is None):
            return (Flaw("node-drained", f"{gpu.node} is drained, and job {job.id} would be new there", (job.id,)),)
        return ()

    def _take_cores(
        self, job: Job, placement: Placement, name: str, own: frozenset[int] = frozenset(), asked: int | None = None
    ) -> Flaws:
        """Cores of one of its nodes: so many, else its part by ranks; free or its own, and of that node."""
        node = self._state.nodes[name]
        flaws: Flaws = ()
        cores = set(placement.cores_on(name))
        ranks = len(placement.slots_on(name))
        need = host_needs(job.effective, ranks).cores if asked is None else asked
        most = need + (job.effective.part(job.effective.cores_offered, ranks) if asked is None else 0)
        taken = self._cores.setdefault(name, set(node.cores_booked))
        if not need <= len(cores) <= most or not cores <= set(node.node.cores):
            flaws += (
                Flaw("wrong-cores", f"job {job.id} asks for {count(job.effective.cores, 'core')} of {name}", (job.id,)),
            )
        if job.effective.gpus and (cores - own) & node.cores_withheld.keys():
            flaws += (Flaw("core-withheld", f"job {job.id} takes cores that others get back", (job.id,)),)
        if (taken - own) & cores:
            flaws += (Flaw("core-booked-twice", f"cores of job {job.id} on {name} are taken", (job.id,)),)
        taken.update(cores)
        return flaws

    def _take_memory(self, job: Job, name: str, need: Resources) -> Flaws:
        """Host memory of one of its nodes that it needs besides what it has there."""
        need_bytes = max(0, need.host_memory_bytes)
        left = self._host_memory_bytes.get(name, self._state.nodes[name].host_memory_free_bytes) - need_bytes
        self._host_memory_bytes[name] = left
        if need_bytes and left < 0:
            return (Flaw("host-memory-overbooked", f"{name} lacks {-left} bytes for job {job.id}", (job.id,)),)
        return ()

    def _bandwidth(self, job: Job, placement: Placement, name: str) -> Flaws:
        need = host_needs(job.effective, len(placement.slots_on(name))).host_bandwidth_bytes_per_s
        left = self._host_bandwidth.get(name, self._state.nodes[name].host_bandwidth_free) - need
        self._host_bandwidth[name] = left
        if left >= 0:
            return ()
        return (Flaw("host-bandwidth-overbooked", f"{name} lacks {-left:.0f} bytes/s for job {job.id}", (job.id,)),)

    def _book(self, job: Job, slots: Sequence[Slot], gpus: int) -> Flaws:
        flaws: Flaws = ()
        loads = [self._loads.get(slot.gpu) or self._state.gpus[slot.gpu] for slot in slots]
        if self.is_last and not self._held:
            judged = self._fits_alone(job, loads, gpus)
            if judged is not None:
                return judged
        after = booked_on(job, self._state.beliefs, loads, [slot.lane for slot in slots], gpus)
        for load, booked in zip(loads, after, strict=True):
            self._loads[load.id] = booked
            flaws += self._judge_one(job, load, booked)
        return flaws

    def _fits_alone(self, job: Job, loads: Sequence[GpuLoad], gpus: int) -> Flaws | None:
        """On GPUs that no job has, and that no other comes to; None where a job has one."""
        flaws: Flaws = ()
        for load in loads:
            if load.bookings or load.returning:
                return None
            memory = memory_held(job, self._state.beliefs.terms(job.effective, load.gpu.type, gpus))
            if memory is not None and sum(memory) > load.capacity_bytes:
                detail = f"{load.id} has {load.capacity_bytes} bytes, its jobs need {sum(memory)}"
                flaws += (Flaw("unsafe-memory", detail, (job.id,)),)
        return flaws

    def _judge_one(self, job: Job, load: GpuLoad, booked: GpuLoad) -> Flaws:
        gpu, flaws = load.id, self._share(job, load, booked) if load.bookings else ()
        if self._held and self._held.get(gpu, job.id) != job.id:
            flaws += (Flaw("held-for-another", f"{gpu} is held for job {self._held[gpu]}", (job.id,)),)
        if load.returning:
            flaws += (Flaw("kept-for-return", f"{gpu} is kept for jobs whose memory is to come back", load.returning),)
        needed = booked.needed_bytes
        if needed is not None and needed > booked.capacity_bytes:
            detail = f"{gpu} has {booked.capacity_bytes} bytes, its jobs need {needed}"
            flaws += (Flaw("unsafe-memory", detail, booked.jobs),)
        return flaws

    def _share(self, job: Job, load: GpuLoad, booked: GpuLoad) -> Flaws:
        if not load.admits(job.effective.sharing_domain):
            return (Flaw("may-not-share", f"the jobs on {load.id} are of others than job {job.id}", booked.jobs),)
        together = {b.measurement_group for b in booked.bookings}
        if together == {job.spec.measurement_group} and job.spec.measurement_group is not None:
            return ()
        if not booked.is_shareable and not self._is_tried(job, load):
            return (Flaw("may-not-share", f"{load.id} cannot be shared with job {job.id}", booked.jobs),)
        return self._turns_agree(job, load, booked)

    def _turns_agree(self, job: Job, load: GpuLoad, booked: GpuLoad) -> Flaws:
        """A node hands out turns by itself: two jobs over the same nodes could each have one and wait for the other."""
        lane = booked.bookings[-1].lane
        lane_mates = [booking.job for booking in load.bookings if booking.lane == lane]
        if lane_mates and (self._spans(job) or any(self._spans(self._state.jobs[each]) for each in lane_mates)):
            return (Flaw("turns-over-nodes", f"jobs over several nodes would take turns on {load.id}", booked.jobs),)
        return ()

    def _spans(self, job: Job) -> bool:
        placement = self._placed.get(job.id, job.placement)
        return placement is not None and len(placement.nodes) > 1

    def _is_tried(self, job: Job, load: GpuLoad) -> bool:
        """Whether a job of unknown needs comes to servers: it is the first to leave, should there be no room for it."""
        serve = all(self._state.jobs[other].spec.kind is JobKind.INFERENCE for other in load.jobs)
        return serve and load.is_joinable and job.effective.share and job.spec.measurement_group is None

    def _how_stopped(self, job: Job, action: Stop) -> Flaws:
        """For good only if it borrows cores and was stopped for others before; unsaved only where there is no time."""
        flaws = self._isolates(job, isolate=action.isolate)
        if action.final and (job.effective.gpus or not job.spec.abortable or not job.totals.preemptions):
            flaws += (Flaw("not-to-end", f"job {job.id} was never stopped for others", (job.id,)),)
        if not action.save and job.effective.checkpoint is not None and not self._is_on_overfull(job):
            flaws += (Flaw("not-saved", f"job {job.id} would save what it has done if it was asked to", (job.id,)),)
        return flaws

    def _isolates(self, job: Job, *, isolate: bool) -> Flaws:
        """A job is kept alone from now on for what it was like beside others, so there must be others."""
        if not isolate or any(len(self._state.gpus[gpu].bookings) > 1 for gpu in job.gpus_held):
            return ()
        return (Flaw("isolates-a-job-alone", f"job {job.id} shares no GPU", (job.id,)),)

    def _is_on_overfull(self, job: Job) -> bool:
        """Whether jobs were seen to need more than a GPU of this one has."""
        loads = [self._state.gpus[gpu] for gpu in job.gpus_held if gpu in self._state.gpus]
        return any(is_overfull(self._state, load) for load in loads)

    def _delays_answers(self, job: Job) -> bool:
        """Whether a server beside a job that answers no requests misses its objective."""
        if job.spec.kind is JobKind.INFERENCE:
            return False
        loads = [self._state.gpus[gpu] for gpu in job.gpus_held if gpu in self._state.gpus]
        others = [self._state.jobs[other] for load in loads for other in load.jobs]
        samples = self._state.progress
        return any(late_answers(samples.get(other.id), other.effective.latency_s) is not None for other in others)

    def _stop(self, job: Job) -> Flaws:
        """It keeps its GPUs until its process is gone, so nothing is free by it yet.

        Where jobs were seen to need more than their GPU has, or a drained node's deadline is over, any job may go; so
        may one beside which a server misses its objective.
        """
        if lets_go(self._state, job):
            return ()
        is_protected = job.state not in MOVABLE
        borrows = job.spec.abortable and not job.spec.gpus and job.spec.kind is not JobKind.INFERENCE
        if not is_protected and (job.effective.preemptible or borrows):
            return ()
        if job.state is not JobState.STOPPING and self._is_on_overfull(job):
            return ()
        if job.state in STEPPING and self._delays_answers(job):
            return ()
        if is_protected:
            return (Flaw("protected", f"job {job.id} is {job.state} and may not be moved", (job.id,)),)
        return (Flaw("not-preemptible", f"job {job.id} would lose what it has done", (job.id,)),)


def _spread(job: Job, placement: Placement) -> Flaws:
    """On how many nodes a gang may lie."""
    nodes = placement.nodes
    if len(nodes) > 1 and not job.spec.multi_node:
        return (Flaw("gang-on-many-nodes", f"job {job.id} is spread over nodes", (job.id,)),)
    each = job.spec.gpus_per_node
    if each and any(len(placement.slots_on(node)) != each for node in nodes):
        return (Flaw("other-ranks-on-a-node", f"job {job.id} wants {count(each, 'rank')} on each node", (job.id,)),)
    if [node for node in nodes for _ in placement.slots_on(node)] != [gpu.node for gpu in placement.gpus]:
        return (Flaw("ranks-out-of-order", f"ranks of job {job.id} on one node do not follow one another", (job.id,)),)
    return ()
