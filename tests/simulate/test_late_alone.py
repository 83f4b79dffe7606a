"""A simulated server is told, as a live one, that it cannot keep its objective even alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from colane.core.events import Outcome
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.world import Running
from colane.model.job import JobKind
from colane.model.reason import Why
from colane.scheduling.registry import create

from .scenes import cluster, job, workload
from .test_lanes import Halving


class Told:
    """What is said of it."""

    def __init__(self) -> None:
        self.facts: list[dict[str, str | int | float]] = []

    def outcome(self, outcome: Outcome, now_s: float) -> None:  # noqa: ARG002
        reasons = [decision.action.reason for decision in outcome.decisions]
        self.facts += [dict(reason.facts) for reason in reasons if reason.why is Why.LATE_ALONE]

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Not of interest."""


@pytest.mark.parametrize("policy", ["fifo", "pack", "colocate", "colane"])
@pytest.mark.parametrize(("latency_s", "is_told"), [(0.5, True), (2.0, False), (None, False)])
def test_a_simulated_server_is_told_once(policy: str, latency_s: float | None, *, is_told: bool) -> None:
    """An answer takes 1 s."""
    server = job(
        1, 0.0, None, steps=400, kind=JobKind.INFERENCE, latency_s=latency_s, family="net", batch_size=64
    )  # fmt: skip
    told = Told()
    given = Inputs(cluster=cluster(1), workload=workload(server), world=Halving(), policy=create(policy))
    simulate(given, watchers=lambda _: [told])
    assert told.facts == ([{"took": "1 s", "gpu_type": "v100", "latency_s": 0.5}] if is_told else [])
