"""`ClusterState`: the one mutable thing, owned by the core, indexed so that an event costs what it changes.

Live jobs only: a job that has ended leaves the state with the outcome that ends it. Every number here can be derived
from nodes and jobs, so nothing is lost when the process dies; `restore` does just that.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from colane.core.cluster.arrays import ArrayBook
from colane.core.cluster.bookings import NodeState, books_host, nodes_booked, slots_booked
from colane.core.cluster.changes import Changes
from colane.core.cluster.connected import best_connected
from colane.core.cluster.contents import ClusterContents, ConnectedGpus, D, Derived, Kind, NodesMatterNot
from colane.core.cluster.free import FreeIndex, OpenGpus
from colane.core.cluster.load import Booking, GpuLoad, book, booked_on, memory_held
from colane.core.cluster.queue import PoolQueue
from colane.core.usage import UsageBook, UsedGpus
from colane.model.hardware import Gpu, GpuId, Node
from colane.model.job import ENDED, Job, JobId, JobSpec
from colane.model.placement import Placement
from colane.model.profile import Profile, ProfileKey
from colane.perf.estimates import BelievedLoad, Terms
from colane.perf.knowledge import Knowledge

Question = tuple[Callable[..., Any], tuple[Hashable, ...]]
"""What an index answers: its class, and the parameters it is made with."""

Moved = Callable[[Job | None, Job | None], None]  # tells an index of a job's old and new value

DERIVED_MAX: Final = 64  # more indexes than any policy has; settings that change all the time make no more of them


class Taking(Protocol):
    """What may still be taken in one plan."""

    def take(self, job: Job) -> bool:
        """Let a job use its limits, if it fits."""


class LimitAccounts(Protocol):
    """Keeps account of what jobs use: the core knows the implementation (`core.cluster.limits`)."""

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job has changed from one value to the other; None where it is not, or no more, live."""

    def in_groups(self, user: str, groups: tuple[str, ...], jobs: Iterable[Job]) -> None:
        """Of which groups of the system a user is by now."""

    def allowance(self) -> Taking:
        """What may be taken in a plan."""


class ClusterState(ClusterContents):
    """Nodes, live jobs, bookings and beliefs, with their indexes.

    Where `steps_unseen` is set, running jobs are taken to step though no step was seen. `draining` has the nodes that
    are drained, each with whether its deadline is over. `dependents` has, for each job, the jobs that wait for it.
    `knowledge` is its beliefs, with what they are learnt from. `arrays` has the live ones and which of their elements
    are jobs. `roaming` has jobs that wait in several pools, each in the queue of one. `halted` has those that wait
    while an attempt of theirs stands halted. `limits` keeps account of what users and groups use, where they are
    bounded. `decided_by` has what was believed of each kind when policies were last asked for its sake. A job with GPUs
    that has waited for `cpu_only_passes_s` is left what it books of a host.
    """

    def __init__(self, beliefs: Knowledge, version: int = 0) -> None:
        super().__init__(beliefs, version)
        self.knowledge = beliefs
        self.closed: dict[str, None] = {}
        self.changed_pools = Changes()
        self.keys_in_use: dict[ProfileKey, set[GpuId]] = {}
        self.measurement_groups = 0
        self.cpu_only = 0
        self.returning: dict[JobId, None] = {}
        self.halted: dict[JobId, None] = {}
        self.roaming: dict[JobId, None] = {}
        self.draining: dict[str, bool] = {}
        self.reserved: dict[str, None] = {}
        self.dependents: dict[int, dict[JobId, None]] = {}
        self.arrays = ArrayBook()
        self._open: dict[tuple[Kind, int], OpenGpus] = {}
        self.limits: LimitAccounts | None = None
        self._derived: dict[Question, Derived] = {}
        self._told_of_nodes: dict[Question, Derived] = {}
        self._told_of_jobs: dict[Question, Moved] = {}
        self._told_of_cpu_jobs: dict[Question, Moved] = {}
        self._order_next = 0
        self._booked_by: dict[ProfileKey, int] = {}
        self.decided_by: dict[ProfileKey, Profile] = {}

    @classmethod
    def restore(
        cls,
        nodes: Iterable[tuple[Node, int]],
        jobs: Iterable[Job],
        beliefs: Knowledge,
        version: int = 0,
        used: Iterable[UsedGpus] = (),
    ) -> ClusterState:
        """Rebuild from records.

        Args:
            nodes: Nodes with their generations, in order of first registration.
            jobs: All live jobs.
            beliefs: Profiles and measured sets.
            version: Version the records were written at.
            used: What users have used.
        """
        state = cls(beliefs, version)
        state.usage = UsageBook(used)
        for node, generation in nodes:
            state.put_node(node)
            state.nodes[node.name].generation = generation
        for job in sorted(jobs, key=lambda job: job.id):
            state.put_job(job)
        return state

    # -- jobs

    def put_job(self, job: Job) -> None:
        """Take the new value of a job; queue and bookings follow its state."""
        old, new = self.jobs.get(job.id), None if job.state in ENDED else job
        was_waiting = old is not None and old.is_waiting
        if old is not None and old.on_host is not None and old.is_returning and not job.is_returning:
            self._await_return(old, returning=False)
        if old is not None and was_waiting:
            self._leave_queue(old, new)
        if new is not None and new.halted is not None:
            self.halted[job.id] = None
        elif self.halted:
            self.halted.pop(job.id, None)
        if new is None:
            self.jobs.pop(job.id, None)
            self.progress.pop(job.id, None)
        else:
            self.jobs[job.id] = job
            self._enter(job, is_new=not was_waiting)
        if job.element is not None or job.array is not None:
            self.arrays.moved(job)
        if self.limits is not None:
            self.limits.moved(old, new)
        for moved in (self._told_of_jobs if job.effective.gpus else self._told_of_cpu_jobs).values():
            moved(old, new)

    def _leave_queue(self, old: Job, new: Job | None) -> None:
        spec, roams = old.effective, old.id in self.roaming
        self.roaming.pop(old.id, None)
        self.measurement_groups -= spec.measurement_group is not None
        self.cpu_only -= not spec.gpus
        self.queues[spec.pool].remove(old)
        if roams and new is not None and new.is_waiting and new.spec.pool != spec.pool:
            return  # it is looked at in the other pool, and waits in this one, too
        if new is not None and new.placement is not None:  # what it takes is told with its GPUs
            self.changed_pools.on(spec.pool, ())
        else:
            self.changed_pools.add(spec.pool)
        if roams:
            self.changed_pools.update([way.pool for way in spec.pools if way.pool != spec.pool])

    def has_free(self, pool: str, gpu_type: str | None, gpus: int, multi_node: bool) -> bool:
        """Whether so many GPUs are free in a pool, of one type if that matters, and on one node or several."""
        nodes = [node.free for node in self.nodes.values() if node.node.pool == pool and node.node.takes_jobs]
        free = [sum([mask.bit_count() for kind, mask in some.items() if gpu_type in {None, kind}]) for some in nodes]
        return (sum(free) if multi_node else max(free, default=0)) >= gpus

    def _enter(self, job: Job, *, is_new: bool) -> None:
        if job.is_waiting:
            if job.spec.pools and job.may_roam:
                self.roaming[job.id] = None
                if is_new:
                    self.changed_pools.update([way.pool for way in job.spec.pools if way.pool != job.spec.pool])
            queue = self.queues.get(job.spec.pool)
            if queue is None:
                queue = self.queues[job.spec.pool] = PoolQueue()
            queue.add(job)
            self.measurement_groups += job.spec.measurement_group is not None
            self.cpu_only += not job.spec.gpus
            self.changed_pools.came(job)
        if job.placement is not None:
            for name in nodes_booked(job):
                node = self.nodes.get(name)
                if node is not None and job.id not in node.jobs:
                    self._book(job, node)
            if job.on_host is not None and job.is_returning:
                self._await_return(job, returning=True)

    def _await_return(self, job: Job, *, returning: bool) -> None:
        """Keep others off the GPUs that a job's memory left, or let them on again."""
        gpus = job.placement.gpus if job.placement is not None else ()
        if returning:
            self.returning[job.id] = None
        else:
            self.returning.pop(job.id, None)
        self.set_loads([self.gpus[gpu].awaited_by(job.id, returning=returning) for gpu in gpus if gpu in self.gpus])
        self.changed_pools.add(job.spec.pool)

    def _book(self, job: Job, node: NodeState) -> None:
        """Enter a placed job on one of its nodes and its GPUs there."""
        node.book(job)
        slots = slots_booked(job, node.node.name)
        loads, lanes = [self.gpus[slot.gpu] for slot in slots], [slot.lane for slot in slots]
        self.set_loads(booked_on(job, self.beliefs, loads, lanes, job.gpu_count))
        self.changed_pools.booked(node.node.pool, [slot.gpu for slot in slots])
        if not slots:
            self._touch(node)

    def change_lane(self, gpu: GpuId, job: JobId, lane: int) -> None:
        """Book a job of one GPU in another lane of it."""
        self.set_loads([self.gpus[gpu].in_lane(job, lane)])
        self.changed_pools.add(self.nodes[gpu.node].node.pool)

    def set_cores(self, old: Placement, new: Placement) -> None:
        """Book other cores for a job on its nodes."""
        for name in old.nodes:
            booked = self.nodes[name].cores_booked
            booked.difference_update(old.cores_on(name))
            booked.update(new.cores_on(name))
            self.nodes[name].cores_used += 0 if old.slots else len(new.cores_on(name)) - len(old.cores_on(name))
            self._touch(self.nodes[name])
            self.changed_pools.add(self.nodes[name].node.pool)

    def release(self, job: Job) -> None:
        """Take a job off its GPUs and its nodes, those that are still there."""
        for name in nodes_booked(job):
            self.release_from(job, name)

    def release_from(self, job: Job, name: str) -> None:
        """Take a job off one of its nodes and its GPUs there; nothing when it is not on it."""
        node = self.nodes.get(name)
        if node is None or job.id not in node.jobs:
            return
        node.release(job)
        slots = slots_booked(job, name)
        self.set_loads([self.gpus[slot.gpu].without(job.id) for slot in slots])
        if not slots:
            self._touch(node)
        # What it books of the host may be what a job lacked on another GPU there.
        gpus = node.ids.values() if books_host(job.effective) else [slot.gpu for slot in slots]
        self.changed_pools.on(node.node.pool, gpus)

    def booking(self, job: Job, gpu_type: str, lane: int, gpus: int | None = None) -> Booking:
        """What a job holds of a GPU of that type, by present beliefs of a job with so many GPUs."""
        return book(job, lane, self.terms_of(job, gpu_type, gpus))

    def terms_of(self, job: Job, gpu_type: str, gpus: int | None = None) -> Terms:
        """What is believed of a job with so many GPUs of that type, else as many as it has or asks for."""
        return self.beliefs.terms(job.effective, gpu_type, job.gpu_count if gpus is None else gpus)

    # -- nodes and GPUs

    def put_node(self, node: Node) -> None:
        """Add a node, or take its new description; its jobs are kept."""
        known = self.nodes.get(node.name)
        self._see_devices(() if known is None else known.node.gpus, node.gpus)
        if known is None:
            known = NodeState(node, self._order_next, self.version)
            self._order_next += 1
            self.nodes[node.name] = known
            self.by_order[known.order] = known
        else:
            self._forget_gpus(known)
            known.describe(node)
        if node.closed is not None:
            self.closed[node.name] = None
        else:
            self.closed.pop(node.name, None)
        self._enter_gpus(known)
        if node.drains:
            self.draining.setdefault(node.name, False)
        else:
            self.draining.pop(node.name, None)
        if node.reservations:
            self.reserved[node.name] = None
        else:
            self.reserved.pop(node.name, None)
        self._touch(known)
        self.changed_pools.add(node.pool)

    def _see_devices(self, old: Sequence[Gpu], new: Sequence[Gpu]) -> None:
        """Book anew what rests on how much memory GPUs of a type have."""
        changed = self.knowledge.see_devices(old, new)
        for key in list(self.keys_in_use) if changed else ():
            if key.gpu_type in changed:
                self.refresh_bookings(key)

    def remove_node(self, name: str) -> None:
        """Drop a node that carries no job any more."""
        node = self.nodes[name]
        self._forget_gpus(node)
        self._see_devices(node.node.gpus, ())
        self.draining.pop(name, None)
        self.reserved.pop(name, None)
        del self.nodes[name]
        self.closed.pop(name, None)
        del self.by_order[node.order]
        for index in self._told_of_nodes.values():
            index.removed(node.order)

    def set_loads(self, loads: Iterable[GpuLoad]) -> None:
        """Take the new values of GPUs and keep every index true."""
        touched: dict[str, None] = {}
        flipped: dict[tuple[str, str], int] = {}
        for load in loads:
            gpu = load.id
            name, number = gpu
            old = self.gpus[gpu]
            if old.bookings:
                self._unindex(old)
            self.gpus[gpu] = load
            if load.bookings:
                self._index(load)
            touched[name] = None
            if (not old.bookings and old.is_free) is not (not load.bookings and load.is_free):
                kind = name, load.gpu.type
                flipped[kind] = flipped.get(kind, 0) ^ 1 << number
        for (name, gpu_type), mask in flipped.items():
            node = self.nodes[name]
            self._set_free(node, gpu_type, node.free[gpu_type] ^ mask)
        for name in touched if self._told_of_nodes else ():
            self._touch(self.nodes[name])

    def believe_bookings(self, key: ProfileKey, *, is_news: bool) -> None:
        """Re-book the jobs of a kind whose profile changed, unless they were by beliefs that say the same."""
        if self._booked_by.get(key) != self.beliefs.terms_version:
            self.refresh_bookings(key)
            self._booked_by[key] = self.beliefs.terms_version
        if self.knowledge.loads_learnt:
            for believed in self._follow_loads():
                if is_news:
                    self._change_pools_of(believed.key)

    def _follow_loads(self) -> Iterable[BelievedLoad]:
        """Of some kinds another load is believed: their bookings tell it by themselves, what is sorted by it moves."""
        learnt, self.knowledge.loads_learnt = self.knowledge.loads_learnt, {}
        for open_gpus in self._open.values():
            open_gpus.learn(learnt)
        return learnt

    def _change_pools_of(self, key: ProfileKey) -> None:
        """Of pools with a queue that is done for every update of beliefs; of the others it is to be found out."""
        for pool in self.gpu_types:
            gpus = () if pool in self.queues else self.keys_in_use.get(key, ())
            if any(self.nodes[gpu.node].node.pool == pool for gpu in gpus):
                self.changed_pools.add(pool)

    def refresh_bookings(self, key: ProfileKey) -> None:
        """Re-book the jobs of a kind, with whatever number of GPUs, by present beliefs."""
        found = set(self.keys_in_use.get(key, ()))
        for other in self.knowledge.leaning(key):
            found |= self.keys_in_use.get(other, set())
        for gpu in sorted(found):
            load = self.gpus[gpu]
            if all(self._is_fresh(booking, load.gpu.type) for booking in load.bookings):
                continue
            fresh = (self.booking(self.jobs[b.job], load.gpu.type, b.lane) for b in load.bookings)
            self.set_loads([replace(load, bookings=tuple(fresh))])
            self.changed_pools.add(self.nodes[gpu.node].node.pool)

    def _is_fresh(self, booking: Booking, gpu_type: str) -> bool:
        """Whether a booking is what present beliefs say; its load says so by itself."""
        job = self.jobs[booking.job]
        terms = self.beliefs.terms(job.effective, gpu_type, booking.key.gpus)
        return booking.memory == memory_held(job, terms) and booking.believed is terms.believed

    def open_gpus(self, kind: Kind, jobs: int) -> OpenGpus:
        """Sort keys of the GPUs of a kind with that many jobs that may be joined, lightest first.

        They are sorted when first asked for, and kept so from then on.
        """
        if self.knowledge.loads_learnt:
            self._follow_loads()
        found = self._open.get((kind, jobs))
        if found is None:
            found = self._open[kind, jobs] = OpenGpus()
            for load in self.gpus.values():
                if len(load.bookings) == jobs and load.is_open and self.kind_of(load) == kind:
                    found.add(load)
        return found

    def best_connected(self, node: NodeState, spec: JobSpec, ranks: int, able: Sequence[GpuId]) -> ConnectedGpus:
        return best_connected(node.node, tuple(node.ids.values()), spec, ranks, able)

    def derived(self, make: Callable[..., D], *parameters: Hashable) -> D:
        """A policy's own index for these parameters, made when first asked for and told of every change from then on.

        Of more than `DERIVED_MAX`, the one that was made first is dropped; it is made anew when it is asked for again.
        """
        key = (make, parameters)
        index: D | None = self._derived.get(key)  # type: ignore[assignment]
        if index is None:
            if len(self._derived) >= DERIVED_MAX:
                dropped = next(iter(self._derived))
                del self._derived[dropped]
                self._told_of_nodes.pop(dropped, None)
                self._told_of_jobs.pop(dropped, None)
                self._told_of_cpu_jobs.pop(dropped, None)
            index = self._derived[key] = make(*parameters)
            if not isinstance(index, NodesMatterNot):
                self._told_of_nodes[key] = index
                for order in self.by_order:
                    index.touched(order)
            self._tell(key, getattr(index, "moved", None), self._told_of_jobs, cpu_only=False)
            self._tell(key, getattr(index, "cpu_only_moved", None), self._told_of_cpu_jobs, cpu_only=True)
        return index

    def forget_derived(self) -> None:
        """No policy asks for what was asked for so far any more."""
        for kept in (self._derived, self._told_of_nodes, self._told_of_jobs, self._told_of_cpu_jobs):
            kept.clear()

    def _tell(self, key: Question, moved: Moved | None, told: dict[Question, Moved], *, cpu_only: bool) -> None:
        """Tell an index of the live jobs it wants to know of, from now on."""
        if moved is not None:
            told[key] = moved
            for job in self.jobs.values():
                if cpu_only is not (job.spec.gpus > 0):
                    moved(None, job)

    def _touch(self, node: NodeState) -> None:
        for index in self._told_of_nodes.values():
            index.touched(node.order)

    def kind_of(self, load: GpuLoad) -> Kind:
        """Pool and type of a GPU."""
        return self.nodes[load.id.node].node.pool, load.gpu.type

    @property
    def running(self) -> Mapping[JobId, Job]:
        """Jobs that hold GPUs."""
        return {job.id: job for job in self.jobs.values() if job.placement is not None}

    def _enter_gpus(self, node: NodeState) -> None:
        closed = not node.node.takes_jobs
        for gpu in node.node.gpus:
            gpu_id = node.ids[gpu.index] = GpuId(node.node.name, gpu.index)
            self.gpus[gpu_id] = GpuLoad(gpu_id, gpu, closed=closed)
        for job_id in node.jobs:
            job = self.jobs[job_id]
            for slot in slots_booked(job, node.node.name):
                load = self.gpus[slot.gpu]
                self.gpus[slot.gpu] = load.with_booking(self.booking(job, load.gpu.type, slot.lane))
            for gpu_id in job.placement.gpus if job.is_returning and job.placement is not None else ():
                self.gpus[gpu_id] = self.gpus[gpu_id].awaited_by(job_id, returning=True)
        masks = {gpu.type: 0 for gpu in node.node.gpus}
        for gpu in node.node.gpus:
            load = self.gpus[node.ids[gpu.index]]
            self._index(load)
            masks[gpu.type] |= load.is_free << gpu.index
        for kind, mask in sorted(masks.items()):
            self._set_free(node, kind, mask)

    def _forget_gpus(self, node: NodeState) -> None:
        for gpu in node.node.gpus:
            self._unindex(self.gpus.pop(node.ids.pop(gpu.index)))
        for kind in node.free:
            self.free[node.node.pool, kind].set(node.order, 0)
        node.free.clear()

    def _set_free(self, node: NodeState, gpu_type: str, mask: int) -> None:
        node.free[gpu_type] = mask
        kind = (node.node.pool, gpu_type)
        if kind not in self.free:
            self.free[kind] = FreeIndex()
            insort(self.gpu_types.setdefault(node.node.pool, []), gpu_type)
        self.free[kind].set(node.order, mask.bit_count())

    def _index(self, load: GpuLoad) -> None:
        for booking in load.bookings:
            gpus = self.keys_in_use.get(booking.key)
            if gpus is None:
                gpus = self.keys_in_use[booking.key] = set()
            gpus.add(load.id)
        keys = self._open.get((self.kind_of(load), len(load.bookings))) if self._open else None
        if keys is not None and load.is_open:
            keys.add(load)

    def _unindex(self, load: GpuLoad) -> None:
        for booking in load.bookings:
            self.keys_in_use[booking.key].discard(load.id)
        keys = self._open.get((self.kind_of(load), len(load.bookings))) if self._open else None
        if keys is not None and load.is_open:
            keys.discard(load)
