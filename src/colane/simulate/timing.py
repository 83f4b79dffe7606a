"""How long a policy takes to decide."""

from __future__ import annotations

from time import perf_counter

from colane.core.policy import Policy
from colane.core.view import ClusterView
from colane.model.plan import Plan
from colane.simulate.ledger import Ledger


class TimedPolicy:
    """A policy whose calls are timed."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self.name = policy.name
        self._plan = policy.plan
        self._plan_s = ledger.plan_s

    def plan(self, view: ClusterView) -> Plan:
        """What the policy says."""
        start_s = perf_counter()
        plan = self._plan(view)
        self._plan_s.append(perf_counter() - start_s)
        return plan
