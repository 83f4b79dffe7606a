"""The decision maker, free of I/O: `Core.step(events, now_s) -> Outcome`."""

from colane.core.cluster.state import ClusterState
from colane.core.core import Core

__all__ = ["ClusterState", "Core"]
