"""Whole lives of jobs under a policy, in a world simple enough to compute by hand.

Processes start and stop at once, run for the time given, go on from where they were stopped, and may be moved as soon
as they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Event, Launched, NodeRegistered, Outcome, ProfileDeclared, Submitted
from colane.core.policy import Policy
from colane.model.hardware import Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.perf.beliefs import Beliefs


@dataclass
class Coming:
    """A job to be submitted, and how long it truly runs."""

    at_s: float
    spec: JobSpec
    run_s: float


def job(at_s: float, run_s: float, **needs: object) -> Coming:
    """One job; its step takes a second wherever that is known."""
    return Coming(at_s, JobSpec(**{"name": "j", "family": "f", **needs}), run_s)  # type: ignore[arg-type]


def known(at_s: float, run_s: float, **needs: object) -> Coming:
    """A preemptible job whose length is known by its steps of one second."""
    return job(at_s, run_s, **{"steps_total": int(run_s), "preemptible": True, **needs})


def step_time(step_s: float, gpu_type: str = "V100", family: str = "f", gpus: int = 1) -> Profile:
    """A profile that says how long a step takes, and nothing else."""
    return Profile(key=ProfileKey(family, None, gpus, gpu_type), step_s=Value(step_s, ValueSource.DECLARED))


@dataclass
class Life:
    """Runs jobs, numbered from 1 in the order given, to their ends."""

    policy: Policy
    nodes: Iterable[Node]
    jobs: list[Coming]
    profiles: Iterable[Profile] = ()
    speed: Callable[[JobSpec, str], float] = lambda _spec, _gpu_type: 1.0
    on_step: Callable[[Core, float], None] = lambda _core, _now_s: None
    spans: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    nodes_used: dict[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Register nodes and profiles at time 0."""
        self.core = Core(self.policy, ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0))
        self._left_s = {k: coming.run_s for k, coming in enumerate(self.jobs, 1)}
        self._running: dict[JobId, tuple[Job, float, float]] = {}
        self._waiting = sorted((coming.at_s, k) for k, coming in enumerate(self.jobs, 1))
        self.outcomes: list[Outcome] = []
        self._step([NodeRegistered(node) for node in self.nodes], 0.0)
        self._step([ProfileDeclared(profile) for profile in self.profiles], 0.0)

    def run(self) -> Life:
        """Run until every job has ended."""
        wake_s: float | None = None
        for _ in range(100_000):
            ends = {self._end_s(job): job for job in reversed(self._running)}
            arrival_s = self._waiting[0][0] if self._waiting else inf
            now_s = min([arrival_s, inf if wake_s is None else wake_s, *ends])
            if now_s == inf:
                break
            wake_s = self._step([*self._ended(now_s), *self._submitted(now_s)], now_s)
        assert not self.core.state.jobs, "a job waits for ever"
        return self

    def starts(self, number: int) -> list[float]:
        """When a job was started, each time."""
        return [start_s for start_s, _ in self.spans[number]]

    @property
    def order(self) -> list[int]:
        """Jobs by their first start."""
        return sorted(self.spans, key=lambda number: (self.spans[number][0][0], number))

    def _step(self, events: list[Event], now_s: float) -> float | None:
        while True:
            outcome = self.core.step(events, now_s)
            assert outcome.rejected is None
            self.outcomes.append(outcome)
            self.on_step(self.core, now_s)
            events = [event for changed in outcome.jobs for event in self._react(changed, now_s)]
            if not events:
                return outcome.wake_s

    def _react(self, changed: Job, now_s: float) -> Iterable[Event]:
        if changed.state is JobState.ASSIGNED and changed.placement is not None:
            gpu_type = self.core.state.gpus[changed.placement.gpus[0]].gpu.type
            self._running[changed.id] = changed, now_s, self.speed(changed.spec, gpu_type)
            self.nodes_used.setdefault(changed.id, []).append(changed.placement.node)
            yield Launched(changed.id, changed.attempt, 1, now_s)
        elif changed.state is JobState.STOPPING:
            yield self._gone(changed.id, now_s, "signalled", Exit(None, 15))

    def _end_s(self, number: JobId) -> float:
        _, start_s, speed = self._running[number]
        return start_s + self._left_s[number] / speed

    def _ended(self, now_s: float) -> list[Event]:
        over = [number for number in sorted(self._running) if self._end_s(number) <= now_s]
        return [self._gone(number, now_s, "exited", Exit(0, None)) for number in over]

    def _gone(self, number: JobId, now_s: float, outcome: str, how: Exit) -> Event:
        started, start_s, speed = self._running.pop(number)
        self._left_s[number] -= (now_s - start_s) * speed
        self.spans.setdefault(number, []).append((start_s, now_s))
        return Ended(number, started.attempt, outcome, how, start_s, now_s)

    def _submitted(self, now_s: float) -> list[Event]:
        arrived: list[Event] = []
        while self._waiting and self._waiting[0][0] <= now_s:
            _, number = self._waiting.pop(0)
            arrived.append(Submitted(JobId(number), self.jobs[number - 1].spec))
        return arrived
