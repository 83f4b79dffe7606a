"""What a driver charges besides steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from colane.lab.simulate.world import BandwidthTruth, Running
from colane.lab.traces.costs import Costs, highest
from colane.lab.traces.node_events import NodeEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverConfig(Costs):
    """What living takes besides steps, on nodes that have no costs of their own, and what else a driver is told."""

    of_nodes: Mapping[str, Costs] = field(default_factory=dict, hash=False)  # costs of nodes that differ, by name
    node_events: tuple[NodeEvent, ...] = ()  # what happens to nodes, by time
    # the policy is asked at least this often while jobs live; None asks it only when something happened
    tick_s: float | None = None
    # which jobs use up memory bandwidth of nodes, and which that slows; None: none
    bandwidth: BandwidthTruth | None = None

    def on(self, node: str) -> Costs:
        """What a job on a node pays."""
        return self.of_nodes.get(node, self)

    def of(self, running: Running) -> Costs:
        """What a job pays where it runs."""
        return highest([self.on(node) for node in running.nodes or (running.host,)]) if self.of_nodes else self

    @property
    def launch_max_s(self) -> float:
        """Longest launch of all, of an attempt that is not the first."""
        return max(costs.launch_s + costs.restart_s for costs in (self, *self.of_nodes.values()))


def described(
    config: DriverConfig, said: Mapping[str, Mapping[str, float]], ordered: Mapping[str, float]
) -> DriverConfig:
    """A driver's costs where the description of a cluster says some of them.

    Costs that are ordered go before the description, on every node.
    """
    config = replace(config, **ordered)  # type: ignore[arg-type]  # fields of Costs, all of them numbers
    base = {name: getattr(config, name) for name in Costs.__dataclass_fields__}
    of_nodes = {node: Costs(**{**base, **fields, **ordered}) for node, fields in said.items()}
    return replace(config, of_nodes=of_nodes)
