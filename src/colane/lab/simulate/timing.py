"""How long a policy takes to decide."""

from __future__ import annotations

from time import perf_counter

from colane.core.cluster.view import ClusterView
from colane.core.policy import Planner, Policy
from colane.lab.simulate.ledger import Ledger
from colane.model.plan import Plan


class TimedAsking:
    """Asks planners, and notes how long the policy takes; it replaces none."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._policy = policy
        self._plan_s = ledger.plan_s

    def __call__(self, planner: Planner, view: ClusterView) -> Plan:
        """What the planner says."""
        if planner is not self._policy:
            return planner.plan(view)
        start_s = perf_counter()
        plan = planner.plan(view)
        self._plan_s.append(perf_counter() - start_s)
        return plan
