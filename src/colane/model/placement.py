"""Where a job runs. It leaves the agent nothing to choose."""

from __future__ import annotations

from dataclasses import dataclass
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
    """

    slots: tuple[Slot, ...]
    cores: tuple[int, ...] = ()

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        """GPUs in rank order."""
        return tuple(slot.gpu for slot in self.slots)

    @property
    def node(self) -> str:
        """Name of the node of rank 0."""
        return self.slots[0].gpu.node
