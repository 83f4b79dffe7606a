"""The source of well connected GPUs, by either search for a place on a node (paper C, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from colane.perf.utility import NEUTRAL, Measure, Weights
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.usual import UsualSource
from colane.scheduling.mechanisms.topology.connected import BoundConnected
from colane.scheduling.mechanisms.topology.drb import drb
from colane.scheduling.mechanisms.topology.free import any_free
from colane.scheduling.mechanisms.topology.node_fit import exact
from colane.scheduling.mechanisms.topology.utility_placer import Search


class PlacementSearch(StrEnum):
    """Which search maps a job onto a node."""

    EXACT = "exact"
    DRB = "drb"


SEARCHES: dict[PlacementSearch, Search] = {PlacementSearch.EXACT: exact, PlacementSearch.DRB: drb}


@dataclass(frozen=True, slots=True)
class Connected(UsualSource):
    """Free GPUs of highest utility."""

    # how a job is mapped onto a node: every set of GPUs, or dual recursive bipartitioning
    placer: PlacementSearch = PlacementSearch.EXACT
    weights: Weights = NEUTRAL  # of communication, interference and fragmentation
    measure: Measure = Measure.EXCESS  # how slowdowns by neighbours count
    # whether a job waits while the best utility is below its `utility_min`, or a running neighbour would fall below its
    # own. One that is overdue asks for no utility any more
    postpones: bool = False
    # whether neighbours count for that; the authors' code asks only for the newcomer's utility
    protects_neighbours: bool = True

    def bind(self, context: SchedulingContext) -> BoundConnected | None:
        """For one plan."""
        if not context.explains and not any_free(context):
            return None
        return BoundConnected(
            context, SEARCHES[self.placer], self.weights, self.measure,
            postpones=self.postpones, protects_neighbours=self.protects_neighbours,
        )  # fmt: skip
