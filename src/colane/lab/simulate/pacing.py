"""How fast processes go beside each other, and when that brings them to an end: found anew where co-runners changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from colane.lab.simulate.agenda import Agenda
from colane.lab.simulate.process import GpuUse, Process
from colane.lab.simulate.whereabouts import Whereabouts
from colane.model.job import JobId


class DueHandlers(NamedTuple):
    """What is called with a process and its agenda entry's serial number when its time has come."""

    complete: Callable[[Process, int], None]  # all its steps are made
    loaded: Callable[[Process, int], None]  # it has launched
    does_not_fit: Callable[[Process, int], None]  # it is to step beside others and cannot


@dataclass(slots=True, eq=False)
class ProcessSpeeds:
    """Keeps the speed of every process, and its completion on the agenda."""

    _here: Whereabouts  # which processes are where, in what world
    _agenda: Agenda  # where completions stand; they are moved, never polled
    _due: DueHandlers  # told of them

    def change_co_runners(self, touched: dict[GpuUse, None], now_s: float) -> dict[JobId, Process]:
        """The jobs on these GPUs changed: settle, find new speeds, and move the completions.

        Returns:
            The processes whose speeds were found anew.
        """
        concerned, lanes = self._here.concerned(touched), self._here.lanes
        if lanes.is_used:
            for process in concerned.values():
                process.settle(now_s)
            lanes.divide(concerned.values())
        for process in concerned.values():
            process.settle(now_s)
            process.gpu_share = self._share(process)
            if process.is_loading:
                self._set_loading(process, now_s)
            else:
                self._set_speed(process, now_s)
            for use in process.uses:
                touched[use] = None
        for use in touched:
            self._here.meter.refresh(use)
        return concerned

    def pace_in_place(self, process: Process) -> None:
        """Find how fast a process goes alone where it is, with the cores it has."""
        world, running = self._here.world, process.running
        process.alone_steps_per_s = world.steps_per_s(running, ())
        process.occupancy_ratio = world.occupancy_ratio(running.job, running.gpu_type, running.cores_had)

    def pace_alone(self, process: Process, now_s: float) -> None:
        """A job without GPUs has no co-runners whose change would find its speed."""
        if not process.running.gpus:
            self._set_speed(process, now_s)

    def _share(self, process: Process) -> float:
        """GPUs it is given: of one that carries k jobs each is given 1/k; of k lanes its share of its lane / k."""
        if len(process.uses) == 1 and self._here.lanes.is_used:
            return process.lane_part
        share = 0.0
        for use in process.uses:
            share += 1.0 / len(use.processes)
        return share

    def _set_loading(self, process: Process, now_s: float) -> None:
        """What is work of loading is slowed by co-runners as steps are; what does not fit is found out at the first."""
        before, beside = process.loading_ratio, self._beside(process)
        slowdown = process.alone_steps_per_s / beside if beside > 0 else 1.0
        process.loading_ratio = 1.0 / (1.0 + process.loading_work_ratio * (slowdown - 1.0))
        if not process.serial or process.loading_ratio != before:
            due_s = now_s + process.loading_left_s / process.loading_ratio
            process.serial = self._agenda.at(due_s, self._due.loaded, process)

    def _set_speed(self, process: Process, now_s: float) -> None:
        before = process.steps_per_s
        process.steps_per_s = self._beside(process) if process.is_stepping else 0.0
        if process.is_stopping or (process.serial and process.steps_per_s == before):
            return
        if process.steps_per_s > 0:
            due_s = now_s + process.left_steps / process.steps_per_s
            process.serial = self._agenda.at(due_s, self._due.complete, process)
        elif process.is_stepping and process.lane_share > 0:
            process.serial = self._agenda.at(now_s, self._due.does_not_fit, process)
        else:
            process.serial = 0

    def _beside(self, process: Process) -> float:
        """Steps per second beside those that work on devices in its scope, with what bandwidth is left on its node."""
        here, speed = self._here, process.alone_steps_per_s
        others = here.others(process, stepping=True)
        if here.lanes.is_used:
            speed = here.lanes.speed(process, others)
        elif others:
            speed = here.world.steps_per_s(process.running, [other.running for other in others])
        return speed if here.bandwidth is None else speed / here.bandwidth.slowdown(process.running)
