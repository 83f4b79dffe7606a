"""What the core expects of a policy."""

from __future__ import annotations

from typing import Protocol

from colane.core.view import ClusterView
from colane.model.plan import Plan


class Policy(Protocol):
    """Decides who starts where. Stateless: what it knows is in the view."""

    @property
    def name(self) -> str:
        """Name it is registered by."""

    def plan(self, view: ClusterView) -> Plan:
        """Changes wanted now, and a reason for every job that still waits."""
