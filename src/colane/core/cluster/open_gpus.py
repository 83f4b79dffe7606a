"""GPUs that others may join by what they carry, lightest first.

They are kept in groups that carry the same: what is learnt of a load moves its groups, however many GPUs are in them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Final, final

from colane.core.cluster.load import GpuLoad, Weight, weight_of
from colane.model.hardware import GpuId
from colane.perf.estimates import BelievedLoad

SortKey = tuple[float, float, int, GpuId]
"""Sum of C, sum of M, number of jobs, id."""

_Carried = tuple[BelievedLoad, ...]


@final
class OpenGroup:
    """GPUs with the same loads, in order of their jobs; `weight` is what the group is filed by."""

    __slots__ = ("carried", "ids", "serial", "weight")

    def __init__(self, carried: _Carried, serial: int) -> None:
        self.carried: Final = carried
        self.serial: Final = serial
        self.weight: Weight = weight_of(carried)
        self.ids: list[GpuId] = []


@final
class OpenGpus:
    """See the module.

    Attributes:
        refiled: So many groups were moved as something was learnt.
    """

    def __init__(self) -> None:
        self.refiled = 0
        self._groups: dict[_Carried, OpenGroup] = {}
        self._with: dict[BelievedLoad, dict[_Carried, None]] = {}
        self._filed: list[tuple[Weight, int, OpenGroup]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._filed)

    def __iter__(self) -> Iterator[SortKey]:
        """All GPUs, lightest first; of those of one weight by their ids."""
        start, filed = 0, self._filed
        while start < len(filed):
            end, weight = start + 1, filed[start][0]
            while end < len(filed) and filed[end][0] == weight:
                end += 1
            ids = merge(*[group.ids for _, _, group in filed[start:end]]) if end > start + 1 else filed[start][2].ids
            for gpu in ids:
                yield (*weight, gpu)
            start = end

    def add(self, load: GpuLoad) -> None:
        """A GPU may be joined now."""
        carried = load.carried
        group = self._groups.get(carried)
        if group is None:
            self._serial += 1
            group = self._groups[carried] = OpenGroup(carried, self._serial)
            for believed in carried:
                self._with.setdefault(believed, {})[carried] = None
            self._file(group)
        insort(group.ids, load.id)

    def discard(self, load: GpuLoad) -> None:
        """A GPU that could be joined may be so no more."""
        carried = load.carried
        group = self._groups[carried]
        del group.ids[bisect_left(group.ids, load.id)]
        if group.ids:
            return
        del self._groups[carried]
        self._take_out(group)
        for believed in dict.fromkeys(carried):
            groups = self._with[believed]
            del groups[carried]
            if not groups:
                del self._with[believed]

    def learn(self, learnt: Iterable[BelievedLoad]) -> None:
        """These loads are believed to be others than before."""
        for carried in dict.fromkeys(carried for believed in learnt for carried in self._with.get(believed, ())):
            group = self._groups[carried]
            self._take_out(group)
            group.weight = weight_of(carried)
            self._file(group)
            self.refiled += 1

    def _file(self, group: OpenGroup) -> None:
        insort(self._filed, (group.weight, group.serial, group))

    def _take_out(self, group: OpenGroup) -> None:
        del self._filed[bisect_left(self._filed, (group.weight, group.serial))]
