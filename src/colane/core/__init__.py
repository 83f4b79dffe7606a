"""The decision maker, free of I/O: `Core.step(events, now_s) -> Outcome`."""

from colane.core.core import Core
from colane.core.state import ClusterState

__all__ = ["ClusterState", "Core"]
