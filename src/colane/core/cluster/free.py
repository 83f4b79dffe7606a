"""Which nodes have how many free GPUs: one bit per node in one integer per count.

Bit operations on Python's integers find the first node with enough free GPUs among 10,000 in a microsecond, and since
integers never change, a draft copies the whole index for the price of a short list.
"""

from __future__ import annotations

from collections.abc import Iterator


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
        if free >= len(masks):
            masks.extend([0] * (free + 1 - len(masks)))
        bit, count, counts = 1 << node, free, len(masks)
        while count and not masks[count] & bit:
            masks[count] |= bit
            count -= 1
        count = free + 1
        while count < counts and masks[count] & bit:
            masks[count] ^= bit
            count += 1
        while len(masks) > 1 and not masks[-1]:
            masks.pop()

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
