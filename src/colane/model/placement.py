"""Where a job runs. It leaves the agent nothing to choose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from colane.model.hardware import GpuId


class Slot(NamedTuple):
    """One rank's share of one GPU: jobs in different lanes run at once, jobs in one lane take turns."""

    gpu: GpuId
    lane: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Slots in rank order and the cores booked with them.

    Attributes:
        slots: One for each rank.
        cores: Core ids booked for this job alone; empty shares the cores near its GPUs.
        gpus: GPUs in rank order.
        node: Name of the node of rank 0.
    """

    slots: tuple[Slot, ...]
    cores: tuple[int, ...] = ()
    gpus: tuple[GpuId, ...] = field(init=False, repr=False, compare=False)
    node: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out once what every event asks for."""
        object.__setattr__(self, "gpus", tuple([slot.gpu for slot in self.slots]))
        object.__setattr__(self, "node", self.slots[0].gpu.node)
