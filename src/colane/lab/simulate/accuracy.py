"""How wrong the policy's beliefs were, judged at every start by the truth it cannot see."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from colane.core.events import Outcome
from colane.lab.simulate.process import Process
from colane.lab.simulate.world import Running, World
from colane.model.profile import SetMeasurement
from colane.perf.estimates import Estimates, profile_key
from colane.perf.rate import Situation
from colane.perf.speedup import delta
from colane.perf.utility import speedup


class BeliefErrors(NamedTuple):
    """Relative errors |predicted - true| / true, one for each start where something was predicted."""

    alone: array[float]  # of the job's own speed alone
    shared: array[float]  # of the speed-up (paper A, eq. 4.1) of the jobs it starts beside
    alone_unknown: int  # starts alone with no prediction
    shared_unknown: int  # starts beside others with no prediction


@dataclass(slots=True)
class Accuracy:
    """Compares predictions with the world, and gathers the sets that were measured on the way."""

    beliefs: Estimates
    world: World
    measurements: list[SetMeasurement] = field(default_factory=list)
    _alone: array[float] = field(default_factory=lambda: array("d"))
    _shared: array[float] = field(default_factory=lambda: array("d"))
    _alone_unknown: int = 0
    _shared_unknown: int = 0

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """Gather measured sets."""
        del now_s
        self.measurements.extend(outcome.measurements)

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Judge what was predicted for this start."""
        gpus = process.running.gpus
        if not gpus:
            return  # nothing is predicted of a job without GPUs
        sharing = [other for other in co_runners if not set(gpus).isdisjoint(other.gpus)]
        if sharing:
            self._judge_set([process.running, *sharing])
        else:
            self._judge_alone(process)

    def errors(self) -> BeliefErrors:
        """What was found."""
        return BeliefErrors(self._alone, self._shared, self._alone_unknown, self._shared_unknown)

    def _judge_alone(self, process: Process) -> None:
        running, true = process.running, process.alone_steps_per_s
        believed = self.beliefs.rate(running.job.spec, Situation(running.gpu_type)).steps_per_s
        if believed is None:
            self._alone_unknown += 1
        elif true > 0:
            self._alone.append(abs(believed - true) / true)

    def _judge_set(self, co_runners: Sequence[Running]) -> None:
        me, *others = co_runners
        beside = tuple([profile_key(other.job.spec, other.gpu_type) for other in others])
        situation = Situation(me.gpu_type, sharing=me.sharing, beside=beside)
        believed, true = speedup(self.beliefs.rate(me.job.spec, situation)), true_delta(self.world, co_runners)
        if believed is None or true is None:
            self._shared_unknown += 1
        else:
            self._shared.append(abs(believed - true) / true)


def true_delta(world: World, co_runners: Sequence[Running]) -> float | None:
    """Eq. 4.1 of paper A by the world's truth; None where one of them cannot run."""
    speeds = true_speeds(world, co_runners)
    if speeds is None:
        return None
    return delta([1 / alone for alone, _ in speeds], [1 / together for _, together in speeds])


def true_speeds(world: World, co_runners: Sequence[Running]) -> list[tuple[float, float]] | None:
    """Steps per second of each alone and together by the world's truth; None where one of them cannot run."""
    alone = [world.steps_per_s(running, ()) for running in co_runners]
    together = [
        world.steps_per_s(running, [*co_runners[:place], *co_runners[place + 1 :]])
        for place, running in enumerate(co_runners)
    ]
    return list(zip(alone, together, strict=True)) if all(alone) and all(together) else None
