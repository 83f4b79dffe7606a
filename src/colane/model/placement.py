"""Where a job runs, which leaves the agent nothing to choose, and how the jobs of one lane there take turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, final

from colane.model.hardware import GpuId


@final
@dataclass(unsafe_hash=True, slots=True)
class Slot:
    """One rank's share of one GPU: jobs in different lanes run at once, jobs in one lane take turns."""

    gpu: Final[GpuId]
    lane: Final[int]


@final
@dataclass(unsafe_hash=True, slots=True)
class Placement:
    """Slots in rank order and the cores booked with them; a job without GPUs has a node and no slots."""

    slots: Final[tuple[Slot, ...]]  # one for each rank; ranks of one node follow one another
    # core ids booked for this job alone on the node of rank 0; empty shares the cores near its GPUs
    cores: Final[tuple[int, ...]] = ()
    # the same for the other nodes of a job that spans several, as (name, core ids)
    cores_elsewhere: Final[tuple[tuple[str, tuple[int, ...]], ...]] = ()
    port: Final[int] = 0  # where rank 0 of a job that spans several nodes waits for the others; 0 for all other jobs
    node: str = ""  # name of the node of rank 0, or of a job without GPUs
    gpus: tuple[GpuId, ...] = field(init=False, repr=False, compare=False)  # GPUs in rank order
    nodes: tuple[str, ...] = field(init=False, repr=False, compare=False)  # names of all its nodes, in rank order

    def __post_init__(self) -> None:
        """Work out once what every event asks for."""
        slots = self.slots
        first = slots[0].gpu.node if slots else self.node
        spans = len(slots) > 1 and slots[-1].gpu.node != first
        self.gpus = tuple([slot.gpu for slot in slots])
        self.node = first
        self.nodes = tuple(dict.fromkeys([slot.gpu.node for slot in slots])) if spans else (first,)

    @property
    def cores_booked(self) -> int:
        """Cores booked on all its nodes."""
        elsewhere = sum([len(cores) for _, cores in self.cores_elsewhere]) if self.cores_elsewhere else 0
        return len(self.cores) + elsewhere

    def cores_on(self, node: str) -> tuple[int, ...]:
        """Core ids booked on one of its nodes."""
        return self.cores if node == self.node else dict(self.cores_elsewhere).get(node, ())

    def slots_on(self, node: str) -> tuple[Slot, ...]:
        """Slots of the ranks on a node."""
        if len(self.nodes) == 1:
            return self.slots if node == self.node else ()
        return tuple([slot for slot in self.slots if slot.gpu.node == node])


# -- turns (paper B, section 3.4)


class TurnRule(StrEnum):
    """Which job of a lane runs the next step."""

    FIFO = "fifo"
    SRTF = "srtf"
    FAIR = "fair"
    RR = "rr"
    PRIORITY = "priority"


class Turns(NamedTuple):
    """How a lane's turns are handed out."""

    rule: TurnRule = TurnRule.FAIR  # which job has the next turn
    # a turn lasts this long, rounded up to whole steps; 0 is one step. None is as long as it takes for passing turns on
    # to cost 1 % of the time at most (`lanes.turns.quantum_s`)
    quantum_s: float | None = None
