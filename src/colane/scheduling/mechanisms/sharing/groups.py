"""Groups of GPUs that are equal in all that decides what sharing them is worth."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from typing import Any, Final, final

from colane.core.cluster.contents import Kind
from colane.core.cluster.load import GpuLoad, Weight, weight_of
from colane.model.hardware import GpuId
from colane.scheduling.mechanisms.sharing.co_runner_index import Members

Site = tuple[str, str]
"""A GPU type and a way of sharing, on which speeds of co-runners depend."""


@final
class GpuGroup:
    """GPUs that are alike.

    Attributes:
        kind: Their pool and type.
        site: Their type and way of sharing.
        members: The jobs on each.
        left_bytes: Memory that these leave.
        sharing_domain: Whose jobs may join; None where none may.
        carried: Where the loads of the jobs on each are looked up.
        weight: Sums of these loads, and how many they are, as the group is filed.
        order: Of those of one weight.
        gpus: Those of which nothing was decided in the present plan, in order.
        fresh: Others that may be joined, in order.
        rises: By how much the sum of speeds rises by a job that joins; minus infinity where one is hurt.
        worked_out: What else follows of a job that comes, by its number.
    """

    __slots__ = (
        "carried",
        "fresh",
        "gpus",
        "kind",
        "left_bytes",
        "members",
        "order",
        "rises",
        "sharing_domain",
        "site",
        "weight",
        "worked_out",
    )

    def __init__(self, kind: Kind, members: Members, load: GpuLoad) -> None:
        self.kind: Final = kind
        self.site: Final[Site] = (kind[1], load.gpu.sharing)
        self.order: Final = (*[str(booking.key) for booking in load.bookings], str(load.left_bytes))
        self.carried: Final = load.carried
        self.weight: Weight = weight_of(self.carried)
        self.members: Final = members
        self.left_bytes: Final = load.left_bytes
        self.sharing_domain: Final = sharing_domain_of(load)
        self.gpus: list[GpuId] = []
        self.fresh: list[GpuId] = []
        self.rises: dict[int, float] = {}
        self.worked_out: dict[int, Any] = {}

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
    return sharing_domain if load.is_foreseeable and load.admits(sharing_domain) else None
