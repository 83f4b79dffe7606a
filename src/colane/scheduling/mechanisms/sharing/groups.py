"""GPUs in use, by all that decides what sharing them is worth; kept from one plan to the next.

Of jobs that are alike as co-runners one need be looked at, and so of GPUs on which such jobs are; of none that a job of
several GPUs has: no job may join it there, and it leaves for no other. What is decided in a plan is followed by what
its draft has touched, and read anew from the cluster in the next one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from heapq import merge
from typing import Any, Final, NamedTuple, final

from colane.core.cluster.contents import Kind
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import Booking, GpuLoad, Weight, weight_of
from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.model.profile import Memory, ProfileKey
from colane.perf.estimates import BelievedLoad, Estimates
from colane.perf.estimates import Kind as KindOfJob
from colane.scheduling.engine.contracts import Classes, ClassKey

COMPANIONS_MAX: Final = 1 << 16  # kinds of jobs that are told apart; then all begins anew


class CoRunner(NamedTuple):
    """All of a job that counts on a GPU it shares: its speed, that of others next to it, and which may join.

    `asked` is the GPU type it asked for, to which its speed is compared. `stays` until its end where it began, if it
    cannot be stopped. `latency_s` is the longest that an answer of it may take.
    """

    key: ProfileKey
    memory: Memory | None
    believed: BelievedLoad
    share: bool
    co_runners: str | None
    sharing_domain: str
    asked: str | None
    utility_min: float
    stays: bool
    latency_s: float | None = None


def co_runner(booking: Booking, spec: JobSpec) -> CoRunner:
    """A job as it counts on a GPU."""
    known = (
        booking.key,
        booking.memory,
        booking.believed,
        booking.share,
        booking.measurement_group,
        booking.sharing_domain,
    )
    return CoRunner(*known, spec.gpu_type, spec.utility_min, not spec.preemptible, spec.latency_s)


Members = tuple[int, ...]  # jobs by number, in order of their start


def others(members: Members, place: int) -> Members:
    """All but one of them."""
    return (*members[:place], *members[place + 1 :])


@final
class CoRunnerIndex:
    """Jobs as they count on a GPU that they share, by number.

    Attributes:
        specs: One description of each, by its number.
        known: Each, by its number.
        asked: Numbers of jobs that were asked for, see `SharingValues.number`.
    """

    def __init__(self) -> None:
        self.specs: list[JobSpec] = []
        self.known: list[CoRunner] = []
        self.asked: dict[tuple[NeedClass, float, bool, str], int] = {}
        self._numbers: dict[CoRunner, int] = {}
        self._updates: list[int] = []
        self._of_kind: dict[KindOfJob, set[int]] = {}

    def number(self, booking: Booking, spec: JobSpec) -> int:
        """Of a job by number."""
        known = co_runner(booking, spec)
        number = self._numbers.get(known)
        if number is None:
            number = self._numbers[known] = len(self.specs)
            self._of_kind.setdefault((known.key.family, known.key.batch_size), set()).add(number)
            self.specs.append(spec)
            self.known.append(known)
            self._updates.append(0)
        return number

    def stamp(self, members: Members) -> int:
        """What was worked out of these holds as long as this stays the same."""
        updates = self._updates
        return sum([updates[number] for number in members])

    def learn(self, kinds: Iterable[KindOfJob]) -> set[int]:
        """Something was learnt of these kinds: it concerns the numbers that are returned."""
        numbers = set[int]().union(*[self._of_kind.get(kind, ()) for kind in kinds])
        for number in numbers:
            self._updates[number] += 1
        for asked in [asked for asked, number in self.asked.items() if number in numbers]:
            del self.asked[asked]
        return numbers


Site = tuple[str, str]  # a GPU type and a way of sharing, on which speeds of co-runners depend


@final
class GpuGroup:
    """GPUs that are alike.

    Attributes:
        kind: Their pool and type.
        site: Their type and way of sharing.
        members: The jobs on each.
        load: Of one of them, as it was when the first came.
        left_bytes: Memory that these leave.
        sharing_domain: Whose jobs may join; None where none may.
        carried: Where the loads of the jobs on each are looked up.
        weight: Sums of these loads, and how many they are, as the group is filed.
        order: Of those of one weight.
        gpus: Those of which nothing was decided in the present plan, in order.
        fresh: Others that may be joined, in order.
        rises: By how much the sum of speeds rises by a job that joins; minus infinity where one is hurt.
        speeds: Of its jobs, where they were asked for.
        version: Changes with its GPUs.
        joins: What else follows of a job that joins, by its number.
        worked_out: The same, and of one for which some or all leave.
    """

    __slots__ = (
        "carried", "fresh", "gpus", "joins", "kind", "left_bytes", "load", "members", "order", "rises",
        "sharing_domain", "site", "speeds", "version", "weight", "worked_out",
    )  # fmt: skip

    def __init__(self, kind: Kind, members: Members, load: GpuLoad) -> None:
        self.kind: Final = kind
        self.load: Final = load
        self.site: Final[Site] = (kind[1], load.gpu.way)
        self.order: Final = (*[str(booking.key) for booking in load.bookings], str(load.left_bytes))
        self.carried: Final = load.carried
        self.weight: Weight = weight_of(self.carried)
        self.members: Final = members
        self.left_bytes: Final = load.left_bytes
        self.sharing_domain: Final = sharing_domain_of(load)
        self.gpus: list[GpuId] = []
        self.fresh: list[GpuId] = []
        self.rises: dict[int, float] = {}
        self.speeds: tuple[float, ...] | None = None
        self.version = 0
        self.joins: dict[int, Any] = {}
        self.worked_out: dict[int, Any] = {}

    def forget(self) -> None:
        """No value holds any more."""
        self.speeds = None
        self.rises.clear()
        self.joins.clear()
        self.worked_out.clear()

    @property
    def gpu_count(self) -> int:
        """How many GPUs are in it."""
        return len(self.gpus) + len(self.fresh)

    @property
    def joinable(self) -> Iterable[GpuId]:
        """Both, in order."""
        if not self.gpus:
            return self.fresh
        return merge(self.gpus, self.fresh) if self.fresh else self.gpus


def sharing_domain_of(load: GpuLoad) -> str | None:
    """The domain whose jobs may join."""
    sharing_domain = load.bookings[0].sharing_domain
    return sharing_domain if load.is_joinable and load.admits(sharing_domain) else None


GPU_GROUPS_MAX: Final = 1 << 14  # groups that are remembered at once though no GPU is in them

USUAL_MAX: Final = 256  # of more groups every second, third, ... is looked at to tell what is usual

_Key = tuple[Kind, str, Members, int, str | None]

_Entry = tuple[Weight, tuple[str, ...], GpuGroup]  # a group by its weight, then by the jobs in it


class Hopes:
    """Waiting classes of a pool for which there may be co-runners, told apart by their needs alone.

    With 1,000 families on 256 GPUs an end looks at none of them by this, where each took 50 calls (`tests/costs`).

    Attributes:
        found: Classes that are looked at one by one.
        tries: Others whose jobs may share a GPU, so that it may be tried with them where it was never measured.
        changed: Classes that came or went since; None before all were told apart.
    """

    __slots__ = ("changed", "found", "tries")

    def __init__(self) -> None:
        self.found: dict[ClassKey, Line] = {}
        self.tries: dict[ClassKey, Line] = {}
        self.changed: dict[ClassKey, None] | None = None

    def look(self, classes: Classes) -> None:
        """Follow what has changed of the classes that wait."""
        for key in classes if self.changed is None else self.changed:
            need, line = key[1], classes.get(key)
            known = self.found if need.home or (need.share and need.sizes) else self.tries
            if line is None:
                known.pop(key, None)
            elif known is self.found or (need.share and need.gpus == 1):
                known[key] = line
        self.changed = {}


class GpuGroupIndex:
    """An index of GPUs in use.

    Attributes:
        updates: So many were learnt when its values were worked out.
        changes: Grows with everything that may change an answer, but for time and what a plan decides.
        co_runners: The jobs on them.
        totals: Sums of speeds of co-runners, as in `SharingValues`, each with the stamp it holds for.
        known_sets: Whether anything is known of a set of co-runners (`SharingValues.is_known`), with stamps likewise.
        hopes: Waiting classes for which there are co-runners, by pool.
        stepping: Jobs on GPUs that make steps.
        tries: Whether there is sharing to be tried for a job, and for which version of the groups that holds.
        unjudged: Groups of several jobs that are new, or of which something was learnt (`SharingValues.burdened`).
        burdened: Those that a job burdens.
    """

    def __init__(self) -> None:
        self.changes = 0
        self.co_runners = CoRunnerIndex()
        self.totals: dict[tuple[Site, Members], tuple[int, float]] = {}
        self.hopes: dict[str, Hopes] = {}
        self.stepping: set[JobId] = set()
        self.known_sets: dict[tuple[Site, Members], tuple[int, bool]] = {}
        self.tries: dict[tuple[int, Kind], tuple[int, bool]] = {}
        self.unjudged: dict[GpuGroup, None] = {}
        self.burdened: dict[GpuGroup, None] = {}
        self._groups: dict[_Key, GpuGroup] = {}
        self._present: dict[Kind, dict[GpuGroup, None]] = {}
        self._lightest: dict[Kind, list[_Entry]] = {}
        self._versions: dict[Kind, int] = {}
        self._firsts: dict[tuple[Kind, int, int], tuple[int, list[GpuGroup]]] = {}
        self._waiting: dict[str, float] = {}
        self._usual: dict[Kind, tuple[int, float]] = {}
        self._sharing_values: dict[tuple[Kind, Members], int] = {}
        self._at: dict[GpuId, GpuGroup] = {}
        self._known: dict[GpuId, GpuLoad] = {}
        self._ids: dict[int, tuple[GpuId, ...]] = {}
        self._nodes: set[int] = set()
        self._changed: dict[GpuId, None] = {}
        self.updates = -1
        self._plan = 0
        self._followed = 0

    # -- told by the state

    def touched(self, node: int) -> None:
        self._nodes.add(node)

    def removed(self, node: int) -> None:
        self._nodes.discard(node)
        self.changes += 1
        for gpu in self._ids.pop(node, ()):
            self._drop(gpu)

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job that comes to a GPU or goes touches its node."""
        if new is not None and new.placement is not None and new.first_step_s is not None:
            self.stepping.add(new.id)
        elif old is not None:
            self.stepping.discard(old.id)
        for job in (old, new) if self.hopes else ():
            if job is not None and job.is_waiting and job.spec.pool in self.hopes:
                changed = self.hopes[job.spec.pool].changed
                if changed is not None:
                    changed[job.spec.priority, job.need] = None
        if old is None or new is None or new.placement is None:
            return
        self.changes += 1
        if old.is_leaving != new.is_leaving or old.effective is not new.effective:
            self._changed.update(dict.fromkeys(new.gpus_held))

    # -- asked by policies

    def look(self, draft: Draft) -> None:
        """Follow what has changed in the cluster, and what has been decided since."""
        if draft.worked_out.get(GpuGroupIndex) != self._plan or not self._plan:
            self._begin(draft)
        touched = draft.touched
        while self._followed < len(touched):
            gpu = touched[self._followed]
            self._followed += 1
            self._follow(draft, gpu, draft.load(gpu))

    def _follow(self, draft: Draft, gpu: GpuId, load: GpuLoad) -> None:
        """Something was decided about a GPU; one that a job of several has now is left out here."""
        gpu_group = self._group(draft.view, load) if load.bookings and gpu not in draft.held else None
        if gpu_group is None and gpu not in self._at:
            return
        self._changed[gpu] = None
        self._take_out(gpu)
        if gpu_group is not None:
            insort(gpu_group.fresh, gpu)
            self._enter(gpu, gpu_group)

    def wait(self, pool: str, jobs: float) -> None:
        """So many jobs wait for each GPU of a pool; what sharing is worth to them follows from it."""
        if self._waiting.get(pool, 0.0) != jobs:
            self._waiting[pool] = jobs
            self._renew([kind for kind in self._present if kind[0] == pool])

    def _renew(self, kinds: Iterable[Kind]) -> None:
        """Groups stay what they are, but no answer about all of a kind holds any more."""
        self.changes += 1
        for kind in kinds:
            self._versions[kind] = self._versions.get(kind, 0) + 1

    def usual(self, kind: Kind, total: Callable[[Site, Members], float]) -> float:
        """Mean of the sums of speeds on GPUs of a kind that are shared and may be joined; 0 where none is."""
        known = self._usual.get(kind)
        if known is None or known[0] != self.changes:
            entries = self._lightest.get(kind, ())
            looked_at = [entry[2] for entry in entries[:: len(entries) // USUAL_MAX + 1]]
            shared = [gpu_group for gpu_group in looked_at if len(gpu_group.members) > 1]
            sums = [gpu_group.gpu_count * total(gpu_group.site, gpu_group.members) for gpu_group in shared]
            known = self.changes, sum(sums) / max(1, sum([gpu_group.gpu_count for gpu_group in shared]))
            self._usual[kind] = known
        return known[1]

    def present(self, kind: Kind) -> dict[GpuGroup, None]:
        """Groups of a kind with any GPUs."""
        return self._present.get(kind, {})

    def is_there(self, kind: Kind, members: Members) -> bool:
        """Whether there is a GPU with just these jobs."""
        return bool(self._sharing_values.get((kind, tuple(sorted(members)))))

    def version(self, kind: Kind) -> int:
        """Changes with the groups of a kind that may be joined."""
        return self._versions.get(kind, 0)

    def lightest(self, kind: Kind, jobs_max: int, count: int) -> list[GpuGroup]:
        """The lightest groups of a kind that may be joined and have at most so many members."""
        asked, version = (kind, jobs_max, count), self.version(kind)
        known = self._firsts.get(asked)
        if known is None or known[0] != version:
            found: list[GpuGroup] = []
            for _, _, gpu_group in self._lightest.get(kind, ()):
                if len(gpu_group.members) <= jobs_max:
                    found.append(gpu_group)
                    if len(found) == count:
                        break
            known = self._firsts[asked] = version, found
        return known[1]

    def of(self, gpu: GpuId) -> GpuGroup | None:
        """The group of a GPU, None where it is in none."""
        return self._at.get(gpu)

    # -- following

    def _begin(self, draft: Draft) -> None:
        """A plan begins: what the last one decided has been carried out by now, or not."""
        self._plan += 1
        self._followed = 0
        draft.worked_out[GpuGroupIndex] = self._plan
        view = draft.view
        if self.updates != view.beliefs.updates:
            self._learn(view.beliefs)
        if len(self.co_runners.specs) > COMPANIONS_MAX:
            self._empty(view)
        for order in sorted(self._nodes):
            self._read_node(view, order)
        self._nodes.clear()
        changed, self._changed = self._changed, {}
        for gpu in changed:
            self._read(view, view.gpu(gpu))
        if len(self._groups) > GPU_GROUPS_MAX + len(self._at):
            self._groups = {key: gpu_group for key, gpu_group in self._groups.items() if gpu_group.gpus}

    def _learn(self, beliefs: Estimates) -> None:
        """Something was learnt: no value holds any more of the jobs it concerns, nor of any co-runner of theirs."""
        taught, self.updates = beliefs.taught(self.updates), beliefs.updates
        if taught is None:
            self._forget()
            return
        numbers = self.co_runners.learn(taught)
        for gpu_group in self._groups.values():
            self._unlearn(gpu_group, numbers)
        self._renew(self._present)

    def _unlearn(self, gpu_group: GpuGroup, numbers: AbstractSet[int]) -> None:
        if numbers.isdisjoint(gpu_group.members):
            for number in numbers:
                gpu_group.rises.pop(number, None)
                gpu_group.joins.pop(number, None)
                gpu_group.worked_out.pop(number, None)
        else:
            gpu_group.forget()
            self._doubt(gpu_group)
            self._weigh(gpu_group)

    def _weigh(self, gpu_group: GpuGroup) -> None:
        """File a group by what its members are believed to weigh now."""
        weight = weight_of(gpu_group.carried)
        if weight == gpu_group.weight:
            return
        is_there = gpu_group in self._present.get(gpu_group.kind, {})
        if is_there:
            self._list(gpu_group, is_new=False)
        gpu_group.weight = weight
        if is_there:
            self._list(gpu_group, is_new=True)

    def _doubt(self, gpu_group: GpuGroup) -> None:
        """What the members of a group do to each other is to be worked out anew."""
        if len(gpu_group.members) > 1 and gpu_group.gpus:
            self.unjudged[gpu_group] = None

    def _forget(self) -> None:
        """No value holds any more."""
        self.changes += 1
        self.co_runners.asked.clear()
        for known in (self.totals, self.known_sets, self.tries, self.hopes):
            known.clear()
        for gpu_group in self._groups.values():
            gpu_group.forget()
            self._doubt(gpu_group)
            self._weigh(gpu_group)

    def _empty(self, view: ClusterView) -> None:
        """Begin anew: jobs that came and went have used up their numbers."""
        self._forget()
        for known in (
            self._groups,
            self._present,
            self._lightest,
            self._firsts,
            self._sharing_values,
            self._at,
            self._known,
            self._ids,
            self._changed,
            self.unjudged,
            self.burdened,
        ):
            known.clear()
        self.co_runners = CoRunnerIndex()
        self._nodes.update([node.order for node in view.nodes.values()])

    def _read_node(self, view: ClusterView, order: int) -> None:
        self.changes += 1
        ids = tuple(view.node_at(order).ids.values())
        if self._ids.get(order) != ids:
            for gpu in set(self._ids.get(order, ())).difference(ids):
                self._drop(gpu)
            self._ids[order] = ids
        for gpu in ids:
            load = view.gpu(gpu)
            if load is not self._known.get(gpu):
                if self._changed:
                    self._changed.pop(gpu, None)
                self._read(view, load)

    def _drop(self, gpu: GpuId) -> None:
        self._take_out(gpu)
        self._known.pop(gpu, None)
        self._changed.pop(gpu, None)

    def _read(self, view: ClusterView, load: GpuLoad) -> None:
        gpu = load.id
        self._take_out(gpu)
        self._known[gpu] = load
        gpu_group = self._group(view, load) if load.bookings else None
        if gpu_group is not None:
            insort(gpu_group.gpus, gpu)
            self._enter(gpu, gpu_group)

    def _enter(self, gpu: GpuId, gpu_group: GpuGroup) -> None:
        self._at[gpu] = gpu_group
        gpu_group.version += 1
        self._count(gpu_group, 1)
        self._doubt(gpu_group)
        present = self._present.setdefault(gpu_group.kind, {})
        if gpu_group not in present:
            present[gpu_group] = None
            self._list(gpu_group, is_new=True)

    def _count(self, gpu_group: GpuGroup, change: int) -> None:
        asked = gpu_group.kind, tuple(sorted(gpu_group.members))
        count = self._sharing_values.pop(asked, 0) + change
        if count:
            self._sharing_values[asked] = count

    def _list(self, gpu_group: GpuGroup, *, is_new: bool) -> None:
        """Keep the list of groups that may be joined."""
        if gpu_group.sharing_domain is None:
            return
        lightest, entry = self._lightest.setdefault(gpu_group.kind, []), (gpu_group.weight, gpu_group.order, gpu_group)
        self._versions[gpu_group.kind] = self._versions.get(gpu_group.kind, 0) + 1
        if is_new:
            insort(lightest, entry, key=_place_of)
        else:
            place = bisect_left(lightest, entry[:2], key=_place_of)
            while lightest[place][2] is not gpu_group:
                place += 1
            del lightest[place]

    def _take_out(self, gpu: GpuId) -> None:
        gpu_group = self._at.pop(gpu, None)
        if gpu_group is None:
            return
        gpu_group.version += 1
        self._count(gpu_group, -1)
        for gpus in (gpu_group.gpus, gpu_group.fresh):
            place = bisect_left(gpus, gpu)
            if place < len(gpus) and gpus[place] == gpu:
                del gpus[place]
        if not gpu_group.gpus and not gpu_group.fresh:
            self.unjudged.pop(gpu_group, None)
            self.burdened.pop(gpu_group, None)
            del self._present[gpu_group.kind][gpu_group]
            self._list(gpu_group, is_new=False)

    def _group(self, view: ClusterView, load: GpuLoad) -> GpuGroup | None:
        """Of a GPU in use that remains as it is; None where a job is leaving or is to come back, or it is broken."""
        if load.returning or not load.is_usable or load.is_part_of_several:
            return None
        jobs = view.jobs
        if any(jobs[booking.job].is_leaving for booking in load.bookings):
            return None
        members = tuple([self.co_runners.number(booking, jobs[booking.job].effective) for booking in load.bookings])
        kind = view.nodes[load.id.node].node.pool, load.gpu.type
        key = kind, load.gpu.way, members, load.left_bytes, sharing_domain_of(load)
        gpu_group = self._groups.get(key)
        if gpu_group is None:
            gpu_group = self._groups[key] = GpuGroup(kind, members, load)
        return gpu_group


def by_weight(gpu_group: GpuGroup) -> tuple[Weight, tuple[str, ...]]:
    """The lightest first, as they are listed."""
    return gpu_group.weight, gpu_group.order


def _place_of(entry: _Entry) -> tuple[Weight, tuple[str, ...]]:
    return entry[:2]
