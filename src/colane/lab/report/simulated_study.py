"""Runs of a simulation that are reported together, each measured once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from colane.lab.report.simulated import SimulatedMetrics, SimulatedRun, measure_run
from colane.lab.traces.workload import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Runs that are reported together.

    Attributes:
        title: Heading.
        inputs: What the runs are a function of, for people and programs: cluster, trace, world, belief, and so on.
        runs: By policy, then by seed; the first policy is the one the others are compared with.
        jobs: The workload's jobs by id, by seed.
        notes: What a reader must know: what was left out, assumed, or given to the policy.
    """

    title: str
    inputs: Mapping[str, Any]
    runs: tuple[SimulatedRun, ...]
    jobs: Mapping[int, Mapping[int, TraceJob]]
    notes: tuple[str, ...] = ()
    runs_asked: int = 0
    metrics: tuple[SimulatedMetrics, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Measure every run once."""
        measured = tuple(measure_run(run, self.jobs[run.seed]) for run in self.runs)
        object.__setattr__(self, "metrics", measured)

    @property
    def policies(self) -> tuple[str, ...]:
        """In order of the runs."""
        return tuple(dict.fromkeys(run.policy for run in self.runs))

    @property
    def seeds(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted({run.seed for run in self.runs}))

    @property
    def is_partial(self) -> bool:
        """Whether it was stopped before all runs had ended."""
        return len(self.runs) < self.runs_asked or any(run.is_partial for run in self.runs)

    def of(self, policy: str) -> list[tuple[SimulatedRun, SimulatedMetrics]]:
        """Runs of a policy with their metrics, by seed."""
        pairs = zip(self.runs, self.metrics, strict=True)
        return sorted((pair for pair in pairs if pair[0].policy == policy), key=lambda pair: pair[0].seed)

    def first(self) -> dict[str, SimulatedRun]:
        """The run of each policy with the smallest seed: the one that is drawn."""
        return {policy: self.of(policy)[0][0] for policy in self.policies}
