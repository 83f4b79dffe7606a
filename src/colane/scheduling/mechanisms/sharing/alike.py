"""GPUs in use, by all that decides what company on them is worth; kept from one plan to the next.

Of GPUs that are alike one need be looked at, and none that a job of several GPUs has: nobody may join it there, and it
leaves for nobody's company. What is decided in a plan is followed by what its draft has touched, and
read anew from the cluster in the next one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad, Weight, weight_of
from colane.core.cluster.queue import Line
from colane.core.cluster.state import Kind
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId
from colane.perf.beliefs import Beliefs
from colane.scheduling.mechanisms.sharing.companions import COMPANIONS_MAX, Companions, Members
from colane.scheduling.mechanisms.sharing.groups import Alike, Leaver, Site, circle_of

ALIKES_MAX: Final = 1 << 14
"""Groups that are remembered at once though no GPU is in them."""

USUAL_MAX: Final = 256
"""Of more groups every second, third, ... is looked at to tell what is usual."""

_Key = tuple[Kind, str, Members, int, str | None]

_Entry = tuple[Weight, tuple[str, ...], Alike]
"""A group by its weight, then by who is in it."""


class GpusAlike:
    """See the module.

    Attributes:
        lessons: So many were learnt when its values were worked out.
        changes: Grows with everything that may change an answer, but for time and what a plan decides.
        companions: Who is on them.
        totals: Sums of speeds of companies, see `CompanyValues`, each with the stamp it holds for.
        known_sets: Whether anything is known of companies, see `CompanyValues.is_known`, with stamps likewise.
        hopes: Whether there is company for the first of a class, and for whom and which stamp that holds.
        tries: Whether there is company to be tried for a companion, and for which version of the groups that holds.
        tops: How much the sum of speeds rises at most by a companion, and for which version of the groups that holds,
            see `CompanyValues.top`.
        leavers: Who could go, with the changes it holds for, see `CompanyValues.leavers`.
        unjudged: Groups of several jobs that are new, or of whom something was learnt, see `CompanyValues.burdened`.
        burdened: Those that somebody burdens.
    """

    def __init__(self) -> None:
        self.changes = 0
        self.companions = Companions()
        self.totals: dict[tuple[Site, Members], tuple[int, float]] = {}
        self.hopes: dict[Line, tuple[JobId, int, bool]] = {}
        self.tops: dict[tuple[int, Kind, int], tuple[int, float]] = {}
        self.known_sets: dict[tuple[Site, Members], tuple[int, bool]] = {}
        self.tries: dict[tuple[int, Kind], tuple[int, bool]] = {}
        self.leavers: dict[tuple[Kind, int], tuple[int, list[Leaver]]] = {}
        self.unjudged: dict[Alike, None] = {}
        self.burdened: dict[Alike, None] = {}
        self._groups: dict[_Key, Alike] = {}
        self._present: dict[Kind, dict[Alike, None]] = {}
        self._lightest: dict[Kind, list[_Entry]] = {}
        self._versions: dict[Kind, int] = {}
        self._waiting: dict[str, float] = {}
        self._usual: dict[Kind, tuple[int, float]] = {}
        self._companies: dict[tuple[Kind, Members], int] = {}
        self._at: dict[GpuId, Alike] = {}
        self._known: dict[GpuId, GpuLoad] = {}
        self._ids: dict[int, tuple[GpuId, ...]] = {}
        self._nodes: set[int] = set()
        self._changed: dict[GpuId, None] = {}
        self.lessons = -1
        self._plan = 0
        self._followed = 0

    # -- told by the state

    def touched(self, node: int) -> None:
        """See `Derived`."""
        self._nodes.add(node)

    def removed(self, node: int) -> None:
        """See `Derived`."""
        self._nodes.discard(node)
        self.changes += 1
        for gpu in self._ids.pop(node, ()):
            self._drop(gpu)

    def moved(self, old: Job | None, new: Job | None) -> None:
        """See `DerivedOfJobs`; who comes to a GPU or goes touches its node."""
        if old is None or new is None or new.placement is None:
            return
        self.changes += 1
        if old.is_leaving != new.is_leaving or old.effective is not new.effective:
            self._changed.update(dict.fromkeys(new.gpus_held))

    # -- asked by policies

    def look(self, draft: Draft) -> None:
        """Follow what has changed in the cluster, and what has been decided since."""
        if draft.worked_out.get(GpusAlike) != self._plan or not self._plan:
            self._begin(draft)
        touched = draft.touched
        while self._followed < len(touched):
            gpu = touched[self._followed]
            self._followed += 1
            self._follow(draft, gpu, draft.load(gpu))

    def _follow(self, draft: Draft, gpu: GpuId, load: GpuLoad) -> None:
        """Something was decided about a GPU; that a job of several has it now concerns nobody here."""
        alike = self._group(draft.view, load) if load.bookings and gpu not in draft.held else None
        if alike is None and gpu not in self._at:
            return
        self._changed[gpu] = None
        self._take_out(gpu)
        if alike is not None:
            insort(alike.fresh, gpu)
            self._enter(gpu, alike)

    def wait(self, pool: str, jobs: float) -> None:
        """So many jobs wait for each GPU of a pool; what company is worth to them follows from it."""
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
            shared = [alike for alike in looked_at if len(alike.members) > 1]
            sums = [alike.gpu_count * total(alike.site, alike.members) for alike in shared]
            known = self.changes, sum(sums) / max(1, sum([alike.gpu_count for alike in shared]))
            self._usual[kind] = known
        return known[1]

    def present(self, kind: Kind) -> dict[Alike, None]:
        """Groups of a kind with any GPUs."""
        return self._present.get(kind, {})

    def is_there(self, kind: Kind, members: Members) -> bool:
        """Whether there is a GPU with just these companions."""
        return bool(self._companies.get((kind, tuple(sorted(members)))))

    def version(self, kind: Kind) -> int:
        """Changes with the groups of a kind that may be joined."""
        return self._versions.get(kind, 0)

    def lightest(self, kind: Kind, jobs_max: int, count: int) -> list[Alike]:
        """The lightest groups of a kind that may be joined and have at most so many members."""
        found: list[Alike] = []
        for _, _, alike in self._lightest.get(kind, ()):
            if len(alike.members) <= jobs_max:
                found.append(alike)
                if len(found) == count:
                    break
        return found

    def of(self, gpu: GpuId) -> Alike | None:
        """The group of a GPU, None where it is in none."""
        return self._at.get(gpu)

    # -- following

    def _begin(self, draft: Draft) -> None:
        """A plan begins: what the last one decided has been carried out by now, or not."""
        self._plan += 1
        self._followed = 0
        draft.worked_out[GpusAlike] = self._plan
        view = draft.view
        if self.lessons != view.beliefs.lessons:
            self._learn(view.beliefs)
        if len(self.companions.specs) > COMPANIONS_MAX:
            self._empty(view)
        for order in sorted(self._nodes):
            self._read_node(view, order)
        self._nodes.clear()
        changed, self._changed = self._changed, {}
        for gpu in changed:
            self._read(view, view.gpu(gpu))
        self._tidy()

    def _learn(self, beliefs: Beliefs) -> None:
        """Something was learnt: no value holds any more of those whom it concerns, nor of any in their company."""
        taught, self.lessons = beliefs.taught(self.lessons), beliefs.lessons
        if taught is None:
            self._forget()
            return
        numbers = self.companions.learn(taught)
        for alike in self._groups.values():
            self._unlearn(alike, numbers)
        self._renew(self._present)

    def _unlearn(self, alike: Alike, numbers: AbstractSet[int]) -> None:
        if numbers.isdisjoint(alike.members):
            for number in numbers & alike.rises.keys():
                del alike.rises[number]
        else:
            alike.rises.clear()
            self._doubt(alike)
            self._weigh(alike)

    def _weigh(self, alike: Alike) -> None:
        """File a group by what its members are believed to weigh now."""
        weight = weight_of(alike.carried)
        if weight == alike.weight:
            return
        is_there = alike in self._present.get(alike.kind, {})
        if is_there:
            self._list(alike, is_new=False)
        alike.weight = weight
        if is_there:
            self._list(alike, is_new=True)

    def _doubt(self, alike: Alike) -> None:
        """What the members of a group do to each other is to be worked out anew."""
        if len(alike.members) > 1 and alike.gpus:
            self.unjudged[alike] = None

    def _forget(self) -> None:
        """No value holds any more."""
        self.changes += 1
        self.companions.asked.clear()
        for known in (self.totals, self.leavers, self.tops, self.known_sets, self.tries, self.hopes):
            known.clear()
        for alike in self._groups.values():
            alike.rises.clear()
            self._doubt(alike)
            self._weigh(alike)

    def _empty(self, view: ClusterView) -> None:
        """Begin anew: companions that came and went have used up their numbers."""
        self._forget()
        for known in (
            self._groups,
            self._present,
            self._lightest,
            self._companies,
            self._at,
            self._known,
            self._ids,
            self._changed,
            self.unjudged,
            self.burdened,
        ):
            known.clear()
        self.companions = Companions()
        self._nodes.update([node.order for node in view.nodes.values()])

    def _tidy(self) -> None:
        if len(self.hopes) > ALIKES_MAX:
            self.hopes.clear()
        if len(self._groups) > ALIKES_MAX + len(self._at):
            self._groups = {key: alike for key, alike in self._groups.items() if alike.gpus}

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
        alike = self._group(view, load) if load.bookings else None
        if alike is not None:
            insort(alike.gpus, gpu)
            self._enter(gpu, alike)

    def _enter(self, gpu: GpuId, alike: Alike) -> None:
        self._at[gpu] = alike
        self._count(alike, 1)
        self._doubt(alike)
        present = self._present.setdefault(alike.kind, {})
        if alike not in present:
            present[alike] = None
            self._list(alike, is_new=True)

    def _count(self, alike: Alike, change: int) -> None:
        asked = alike.kind, tuple(sorted(alike.members))
        count = self._companies.pop(asked, 0) + change
        if count:
            self._companies[asked] = count

    def _list(self, alike: Alike, *, is_new: bool) -> None:
        """Keep the list of groups that may be joined."""
        if alike.circle is None:
            return
        lightest, entry = self._lightest.setdefault(alike.kind, []), (alike.weight, alike.order, alike)
        self._versions[alike.kind] = self._versions.get(alike.kind, 0) + 1
        if is_new:
            insort(lightest, entry, key=_place_of)
        else:
            place = bisect_left(lightest, entry[:2], key=_place_of)
            while lightest[place][2] is not alike:
                place += 1
            del lightest[place]

    def _take_out(self, gpu: GpuId) -> None:
        alike = self._at.pop(gpu, None)
        if alike is None:
            return
        self._count(alike, -1)
        for gpus in (alike.gpus, alike.fresh):
            place = bisect_left(gpus, gpu)
            if place < len(gpus) and gpus[place] == gpu:
                del gpus[place]
        if not alike.gpus and not alike.fresh:
            self.unjudged.pop(alike, None)
            self.burdened.pop(alike, None)
            del self._present[alike.kind][alike]
            self._list(alike, is_new=False)

    def _group(self, view: ClusterView, load: GpuLoad) -> Alike | None:
        """Of a GPU in use that stays as it is; None where somebody is leaving, is to come back, or it is broken."""
        if load.returning or not load.is_usable or load.is_part_of_several:
            return None
        jobs = view.jobs
        if any(jobs[booking.job].is_leaving for booking in load.bookings):
            return None
        members = tuple([self.companions.number(booking, jobs[booking.job].effective) for booking in load.bookings])
        kind = view.nodes[load.id.node].node.pool, load.gpu.type
        key = kind, load.gpu.sharing, members, load.left_bytes, circle_of(load)
        alike = self._groups.get(key)
        if alike is None:
            alike = self._groups[key] = Alike(kind, members, load)
        return alike


def _place_of(entry: _Entry) -> tuple[Weight, tuple[str, ...]]:
    return entry[:2]
