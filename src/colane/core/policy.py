"""What the core expects of a policy, and of the planners next to it."""

from __future__ import annotations

from typing import Protocol

from colane.core.cluster.view import ClusterView
from colane.model.placement import Turns
from colane.model.plan import Plan


class Planner(Protocol):
    """Changes what runs: `check` judges each plan, and each decision is recorded under its name."""

    @property
    def name(self) -> str:
        """Name its decisions are recorded by."""

    def plan(self, view: ClusterView) -> Plan:
        """Changes wanted now, and a reason for every job that still waits."""


class Policy(Planner, Protocol):
    """Decides what starts where. Stateless: what it knows is in the view."""

    @property
    def turns(self) -> Turns:
        """How the jobs of one lane take turns."""

    @property
    def min_runtime_before_preemption_s(self) -> float:
        """How long a job runs at least before it is stopped for another; infinite where none is."""


def ask(planner: Planner, view: ClusterView) -> Plan:
    """Ask a planner for a plan."""
    return planner.plan(view)
