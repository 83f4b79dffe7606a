"""Indexes of the GPUs that jobs can be given: free ones by node, and those that others may join, lightest first.

Free ones are one bit per node in one integer per count: bit operations on Python's integers find the first node with
enough free GPUs among 10,000 in a microsecond, and since integers never change, a draft copies the whole index for the
price of a short list. Those to be joined are in groups that carry the same: what is learnt of a load moves its groups,
however many GPUs are in them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Final, final

from colane.core.cluster.load import GpuLoad, Weight, weight_of
from colane.model.hardware import GpuId
from colane.perf.estimates import BelievedLoad


class FreeIndex:
    """Nodes of one pool and GPU type, by their order numbers.

    `masks[k]` has the nodes with at least k free GPUs; but for `masks[0]`, which is unused, none is empty at the end.
    """

    __slots__ = ("masks",)

    def __init__(self, masks: list[int] | None = None) -> None:
        self.masks = masks if masks is not None else [0]

    def copy(self) -> FreeIndex:
        """An independent copy."""
        return FreeIndex(self.masks.copy())

    def set(self, node: int, free: int) -> None:
        """Node has this many free GPUs."""
        masks = self.masks
        bit, count, counts = 1 << node, free, len(masks)
        if free >= counts:
            masks.extend([0] * (free + 1 - counts))
            counts = free + 1
        while count and not masks[count] & bit:
            masks[count] |= bit
            count -= 1
        count = free + 1
        while count < counts and masks[count] & bit:
            masks[count] ^= bit
            count += 1
        while counts > 1 and not masks[-1]:
            masks.pop()
            counts -= 1

    @property
    def most_free(self) -> int:
        """Largest number of free GPUs on any node."""
        return len(self.masks) - 1

    @property
    def count(self) -> int:
        """Free GPUs of all nodes."""
        return sum([mask.bit_count() for mask in self.masks[1:]])

    def nodes_with(self, count: int) -> Iterator[int]:
        """Nodes with at least `count` free GPUs, lowest order number first."""
        return bits(self.masks[count]) if count < len(self.masks) else iter(())

    def nodes_with_exactly(self, count: int) -> Iterator[int]:
        """Nodes with just that many free GPUs, lowest order number first."""
        masks = self.masks
        if count >= len(masks):
            return iter(())
        return bits(masks[count] & ~masks[count + 1] if count + 1 < len(masks) else masks[count])

    def nodes_emptiest_first(self, among: int, enough: int | None = None) -> Iterator[int]:
        """Of the nodes with these bits all, those with the most free GPUs first; more than enough is enough."""
        for mask in reversed(self.masks[1 : None if enough is None else enough + 1]):
            yield from bits(mask & among)
            among &= ~mask
        yield from bits(among)

    def nodes_fullest_first(self, count: int) -> Iterator[int]:
        """Nodes with at least `count` free GPUs, those with the fewest free first."""
        for exact in range(count, len(self.masks)):
            yield from self.nodes_with_exactly(exact)


def bits(mask: int) -> Iterator[int]:
    """Numbers of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# -- GPUs that others may join

SortKey = tuple[float, float, int, GpuId]  # sum of C, sum of M, number of jobs, id

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
    """GPUs that others may join, lightest first.

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
