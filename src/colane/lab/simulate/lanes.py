"""Lanes in virtual time: jobs in different lanes of a GPU run at once, jobs of one lane share its time.

Turns are far shorter than the time between events, so a lane is treated as a fluid: each member goes at its share of
the lane (`lanes.turns.shares`), which is what the gate's grants give it in the long run: tests play both. Order changes
only at events: under the shortest-first rule the one that runs only gets shorter in between. Beside a lane, a job meets
each of its members for that member's part of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, inf, prod

from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.process import Process
from colane.lab.simulate.world import Running, World
from colane.lanes.turns import SHARED, Contender, quantum_s, shares
from colane.model.job import JobId, JobKind
from colane.model.placement import Turns

COMBINATIONS_MAX = 64
"""Where lanes have so many members that more combinations are possible, the largest share of a lane stands for all."""

IDLE_MIN = 1e-9  # a lane that idles less than this is taken not to
Lane = tuple[tuple[str, int], int]  # a GPU and the number of its lane


@dataclass(slots=True, eq=False)
class LaneTurns:
    """Divides lanes among processes."""

    _turns: Turns  # how the jobs of a lane take turns
    _config: DriverConfig  # what passing the turn on costs a lane, by node
    _world: World  # the truth about speed alone and with co-runners
    _arrived: int = 0
    is_used: bool = False

    def rule(self, turns: Turns) -> None:
        """The jobs of a lane take turns in this way from now on."""
        self._turns = turns

    def enter(self, process: Process, co_runners: Mapping[JobId, Process]) -> None:
        """A process comes to its GPU; `co_runners` are the processes there."""
        self._arrived += 1
        process.arrived = self._arrived
        if len(co_runners) > 1:
            self.moved(process, co_runners)

    def moved(self, process: Process, co_runners: Mapping[JobId, Process]) -> None:
        """A process is in another lane of its GPU."""
        if not self.is_used:
            self.is_used = any(are_lane_mates(process, other) for other in co_runners.values())

    def divide(self, concerned: Iterable[Process]) -> None:
        """Set the share of its lanes that each of these settled processes has; lanes come whole."""
        lanes: dict[Lane, list[Process]] = {}
        for process in concerned:
            process.lane_share = process.turn_efficiency = 1.0
            for lane in _lanes(process):
                lanes.setdefault(lane, []).append(process)
        on_gpu: dict[tuple[str, int], int] = {}
        for gpu, _ in lanes:
            on_gpu[gpu] = on_gpu.get(gpu, 0) + 1
        # A job over several GPUs holds its lanes at once, so it has the least it gets of any; others get the rest.
        for (gpu, _), members in sorted(lanes.items(), key=lambda lane: -len(lane[1])):
            self._divide_lane(members, 1.0 / on_gpu[gpu])

    def speed(self, process: Process, others: Sequence[Process]) -> float:
        """Steps per second of a stepping process beside these stepping ones of its scope."""
        if process.lane_share <= 0:
            return 0.0
        beside: dict[Lane, list[Process]] = {}
        for other in others:
            if other.lane_share > 0 and not are_lane_mates(process, other):
                beside.setdefault(_lanes(other)[0], []).append(other)
        mean = sum(part * self._world.steps_per_s(process.running, them) for part, them in _sharing_beliefs(beside))
        return mean * process.lane_pace * process.turn_efficiency

    def _divide_lane(self, members: Sequence[Process], lane_part: float) -> None:
        ready = [process for process in members if process.is_stepping]
        given = shares(self._turns.rule, [self._member(process) for process in ready]) if len(members) > 1 else {}
        total = sum(given.values())
        for process in members:
            process.lane_share = min(process.lane_share, given.get(process.id, 1.0))
            process.lane_pace = min(1.0, process.lane_share / _demand_ratio(process))
            process.lane_part = lane_part * (given.get(process.id, 0.0) / total if total else 1.0 / len(members))
            process.turn_efficiency = min(process.turn_efficiency, self._efficiency(process, given))

    def _member(self, process: Process) -> Contender:
        """As the gate sees it: how long it still takes is known where its steps were declared."""
        spec, step_s = process.running.job.spec, self._step_s(process) * _demand_ratio(process)
        known = step_s < inf and spec.steps_total is not None
        whole = spec.steps_total or 0 if self._world.counts_steps else process.work_steps
        left_s = max(0.0, whole - process.done_steps) * step_s if known else None
        return Contender(
            id=process.id, arrived=process.arrived, weight=spec.weight, priority=spec.priority, remaining_s=left_s,
            step_s=step_s if step_s < inf else None, serves=_serves(process),
            demand_ratio=min(_demand_ratio(process), process.lane_share),
        )  # fmt: skip

    def _step_s(self, process: Process) -> float:
        speed = self._world.steps_per_s(process.running, ())
        return 1 / speed if speed > 0 else inf

    def _efficiency(self, process: Process, given: dict[int, float]) -> float:
        """Part of its turns that is not spent on passing them on."""
        switch_s = self._config.on(process.running.gpus[0].node).switch_s if process.running.gpus else 0.0
        if not switch_s or self._turns.rule not in SHARED or sum(part > 0 for part in given.values()) < 2:
            return 1.0
        step_s, lasts_s = self._step_s(process) * _demand_ratio(process), quantum_s(self._turns, switch_s)
        turn_s = step_s * max(1, ceil(lasts_s / step_s)) if 0 < step_s < inf else lasts_s
        return turn_s / (turn_s + switch_s)


def are_lane_mates(one: Process, other: Process) -> bool:
    """Whether two processes are in one lane."""
    return one is not other and not set(_lanes(one)).isdisjoint(_lanes(other))


def _lanes(process: Process) -> list[Lane]:
    return list(zip(process.running.gpus, process.lanes, strict=True))


def _serves(process: Process) -> bool:
    return process.running.job.spec.kind is JobKind.INFERENCE


def _demand_ratio(process: Process) -> float:
    """Part of a lane's time it has work for: a server waits for requests in between."""
    return process.running.job.gpu_ratio if _serves(process) else 1.0


def _sharing_beliefs(lanes: dict[Lane, list[Process]]) -> Iterator[tuple[float, list[Running]]]:
    """Jobs that may run in the other lanes at one time, with the part of the time they do."""
    choices = [_choices(members) for members in lanes.values()]
    if prod(map(len, choices)) > COMBINATIONS_MAX:
        largest = (max(members, key=lambda one: (one.lane_share, -one.id)) for members in lanes.values())
        choices = [[(1.0, one.running)] for one in largest]
    for co_runners in product(*choices):
        yield prod(part for part, _ in co_runners), [running for _, running in co_runners if running is not None]


def _choices(members: Sequence[Process]) -> list[tuple[float, Running | None]]:
    """The job that runs in one lane, or none, each with the part of the time."""
    found: list[tuple[float, Running | None]] = [(one.lane_share, one.running) for one in members]
    idle = 1.0 - sum(part for part, _ in found)
    return [*found, (idle, None)] if idle > IDLE_MIN else found
