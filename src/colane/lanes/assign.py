"""Which lane of a GPU a job goes to (paper B: Yu and Chowdhury, MLSys 2020, algorithm 1, corrected).

A GPU is safe while sum of P + sum of lane sizes <= capacity, a lane being as large as the largest E in it. A job gets a
lane of its own if there is room, else joins the smallest lane that is large enough, else a lane grows for it; the jobs
of one lane take turns. The corrections to the printed algorithm are in `docs/papers/sharing.md`.

`salus_find` is the rule of the authors' released code: a lane is as large as P + E of its first job and never grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from colane.model.profile import Memory
from colane.model.resources import needed_bytes

MIB = 1 << 20
RESERVE_BYTES = 300 * MIB
"""What the released code leaves free on every GPU."""


class How(StrEnum):
    """What is done for a newcomer."""

    NEW = "new"
    JOIN = "join"
    GROW = "grow"


class LaneSpot(NamedTuple):
    """A lane for a newcomer, and how large the lane is with it."""

    how: How
    lane: int
    size_bytes: int


class LaneMember(NamedTuple):
    """A job in a lane."""

    job: int
    lane: int
    memory: Memory


class Layout(NamedTuple):
    """A GPU's capacity, and its members in order of their coming."""

    capacity_bytes: int
    members: tuple[LaneMember, ...] = ()

    @property
    def sizes_bytes(self) -> dict[int, int]:
        """Size of each lane, the largest E in it, in order of lane number."""
        sizes: dict[int, int] = {}
        for _, lane, memory in self.members:
            sizes[lane] = max(sizes.get(lane, 0), memory.ephemeral_bytes)
        return dict(sorted(sizes.items()))

    @property
    def needed_bytes(self) -> int:
        """Sum of P + sum of lane sizes."""
        return needed_bytes((lane, memory) for _, lane, memory in self.members)

    @property
    def left_bytes(self) -> int:
        """Capacity that is not needed; below 0 the layout is not safe."""
        return self.capacity_bytes - self.needed_bytes

    @property
    def next_lane(self) -> int:
        """Lowest lane number in no use."""
        used = {lane for _, lane, _ in self.members}
        return next(lane for lane in range(len(used) + 1) if lane not in used)


def find(layout: Layout, memory: Memory) -> LaneSpot | None:
    """The lane a job goes to, None when it has to wait."""
    sizes, left = layout.sizes_bytes, layout.left_bytes - memory.persistent_bytes
    if left >= memory.ephemeral_bytes:
        return LaneSpot(How.NEW, layout.next_lane, memory.ephemeral_bytes)
    if left < 0 or not sizes:
        return None
    return _join(layout, sizes, memory) or _grow(sizes, left, memory)


def find_single(layout: Layout, memory: Memory) -> LaneSpot | None:
    """The same on a GPU whose jobs all take turns in one lane (Salus's SRTF and FAIR)."""
    sizes, left = layout.sizes_bytes, layout.left_bytes - memory.persistent_bytes
    if not sizes:
        return LaneSpot(How.NEW, 0, memory.ephemeral_bytes) if left >= memory.ephemeral_bytes else None
    return (_join(layout, sizes, memory) if left >= 0 else None) or _grow(sizes, left, memory)


def place(layout: Layout, job: int, memory: Memory, lane: int) -> Layout:
    """The layout with a job more."""
    return layout._replace(members=(*layout.members, LaneMember(job, lane, memory)))


def remove(layout: Layout, job: int) -> Layout:
    """The layout without a job: an empty lane is gone, any other shrinks to the largest E of the rest."""
    return layout._replace(members=tuple([one for one in layout.members if one.job != job]))


def resize(layout: Layout, job: int, memory: Memory) -> Layout:
    """The layout with a member's need as it was seen to be; it may no longer be safe (see `outgrown`)."""
    members = tuple([one._replace(memory=memory) if one.job == job else one for one in layout.members])
    return layout._replace(members=members)


def admit(layout: Layout, queue: Iterable[tuple[int, Memory]]) -> tuple[Layout, tuple[tuple[int, LaneSpot], ...]]:
    """Place all of a queue that can run now, in its order; later ones may pass earlier ones.

    To be asked after every arrival and every end, also when the lane stays: P was freed even then.

    Returns:
        The layout with them, and where each was placed.
    """
    placed = []
    for job, memory in queue:
        spot = find(layout, memory)
        if spot is not None:
            layout = place(layout, job, memory, spot.lane)
            placed.append((job, spot))
    return layout, tuple(placed)


class MemoryRelief(NamedTuple):
    """How a GPU is made safe again."""

    moves: tuple[tuple[int, int], ...]  # jobs that go to another lane, and which
    gone: tuple[int, ...]  # jobs that leave the GPU


def squeeze(layout: Layout, may_meet: Callable[[int, Sequence[int]], bool]) -> MemoryRelief:
    """Jobs to move to another lane of a GPU, or off it, so that the rest is safe again: the youngest that do not fit.

    A job that takes turns needs only what its E exceeds theirs, so that is tried before any job has to leave.

    Args:
        layout: The GPU; oldest members first.
        may_meet: Whether a job may come to a lane with these members.
    """
    kept, moves, gone = Layout(layout.capacity_bytes), [], []
    for job, lane, memory in layout.members:
        tried = place(kept, job, memory, lane)
        spot = None if tried.left_bytes >= 0 or not kept.members else find(kept, memory)
        if tried.left_bytes >= 0 or not kept.members:
            kept = tried
        elif spot is not None and may_meet(job, [one.job for one in kept.members if one.lane == spot.lane]):
            kept = place(kept, job, memory, spot.lane)
            moves.append((job, spot.lane))
        else:
            gone.append(job)
    return MemoryRelief(tuple(moves), tuple(gone))


def outgrown(layout: Layout) -> tuple[int, ...]:
    """Jobs to take off a GPU so that the rest is safe again, where none may change its lane."""
    return squeeze(layout, lambda _job, _members: False).gone


def _join(layout: Layout, sizes: dict[int, int], memory: Memory) -> LaneSpot | None:
    """The smallest lane that is large enough; of equal ones that with the fewest jobs, then the lowest number."""
    jobs = dict.fromkeys(sizes, 0)
    for _, lane, _ in layout.members:
        jobs[lane] += 1
    enough = [(size, jobs[lane], lane) for lane, size in sizes.items() if size >= memory.ephemeral_bytes]
    if not enough:
        return None
    size, _, lane = min(enough)
    return LaneSpot(How.JOIN, lane, size)


def _grow(sizes: dict[int, int], left_bytes: int, memory: Memory) -> LaneSpot | None:
    """The smallest lane that may grow to E; `left_bytes` is what is left beside the newcomer's P."""
    need = memory.ephemeral_bytes
    for lane, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        larger = max(size, need)
        if larger - size <= left_bytes:
            return LaneSpot(How.GROW, lane, larger)
    return None


# -- the released code's rule


class SalusRule(NamedTuple):
    """Constants of the released code (`lanemgr.cpp`, `tfinstance.cpp`)."""

    persistent_factor: float = 1.1  # safety factor on P
    total_factor: float = 1.05  # safety factor on P so raised + E
    reserve_bytes: int = RESERVE_BYTES  # left free on every GPU

    def request(self, memory: Memory) -> Memory:
        """P and E with the safety factors on them."""
        persistent = memory.persistent_bytes * self.persistent_factor
        total = (persistent + memory.ephemeral_bytes) * self.total_factor
        return Memory(int(persistent), int(total - persistent))


def salus_find(layout: Layout, memory: Memory, rule: SalusRule) -> LaneSpot | None:
    """The lane the released code gives a job: the first with room, else a new one as large as its P + E.

    The members' memory has to be what `rule.request` made of it. A lane's size outlives its first job only as far as
    the jobs left in it show it.
    """
    capacity = layout.capacity_bytes - rule.reserve_bytes
    request = rule.request(memory)
    lanes = _salus_lanes(layout)
    size = min(sum(request), capacity)
    if size <= capacity - sum(lanes.values()):
        return LaneSpot(How.NEW, layout.next_lane, size)
    for lane, lane_size in sorted(lanes.items(), key=lambda item: (item[1], item[0])):
        inside = [one.memory for one in layout.members if one.lane == lane]
        if needed_bytes((0, each) for each in (*inside, request)) <= lane_size:
            return LaneSpot(How.JOIN, lane, lane_size)
    return None


def _salus_lanes(layout: Layout) -> dict[int, int]:
    """Size of each lane: P + E of the job that opened it, which no later one exceeds.

    A job that outgrew its GPU may have come from another lane (`squeeze`): then it is what all there need.
    """
    inside: dict[int, list[Memory]] = {}
    for _, lane, memory in layout.members:
        inside.setdefault(lane, []).append(memory)
    return {
        lane: max(*map(sum, memories), needed_bytes((lane, each) for each in memories))
        for lane, memories in inside.items()
    }
