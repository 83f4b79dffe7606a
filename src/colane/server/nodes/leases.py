"""How long jobs of a node may run without word from here."""

from __future__ import annotations

from typing import Final

from colane.server.board.read_model import NodeRecord, ReadModel

DRIFT_RATIO: Final = 0.01  # two machines' clocks run at rates that differ by less; crystals keep to a hundredth of that


FAREWELL_S: Final = 180.0
"""A scheduler that ends by order grants this, so that jobs run on until it, or another, is started."""
FAREWELL_MAX_S: Final = 2.0  # so long it waits for agents to ask, before it ends


def lease_s(read_model: ReadModel, record: NodeRecord, node_timeout_s: float) -> float | None:
    """How long after its report all processes of a node must be gone if no other is answered; None: never."""
    if not record.leased and stands_alone(read_model, record.node.name):
        return None
    return node_timeout_s / (1 + DRIFT_RATIO)


def stands_alone(read_model: ReadModel, name: str) -> bool:
    """Whether no other node could run a node's jobs: then they wait for it, however long it is silent."""
    known = read_model.nodes.get(name)
    pool = None if known is None else known.node.pool
    return (known is None or not known.replaced) and not any(
        other.node.pool == pool and not other.lost and other.node.name != name for other in read_model.nodes.values()
    )
