"""What an agent would report of a job: whole steps, when the last one ended, memory, occupancy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from colane.model.progress import Progress
from colane.simulate.process import Process
from colane.simulate.world import World

SAMPLE_AFTER_STEPS = (1, 12)
"""A company is sampled when its slowest job has made so many steps: the first lets it count as running, the second is
enough to learn from (paper A samples ten). Speeds do not change within an epoch, so more samples would say the same."""

ROUNDING_STEPS = 1e-6
"""Less work than this is rounding, not work."""


class Sampler:
    """Takes samples of processes.

    Args:
        world: Says what a probe on the GPU would see.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def waits_s(self, company: Iterable[Process]) -> Iterator[float]:
        """When to sample a company, in seconds from now."""
        speeds = [process.steps_per_s for process in company if process.is_stepping and process.lane_share > 0]
        if speeds and min(speeds) > 0:
            slowest_s = 1 / min(speeds)
            yield from (steps * slowest_s for steps in SAMPLE_AFTER_STEPS)

    def whole_steps(self, process: Process) -> int:
        """Steps of the job made so far, those of earlier attempts that were kept included."""
        return int(process.done_steps + ROUNDING_STEPS)

    def sample(self, process: Process, now_s: float) -> Progress:
        """A sample of a settled process; its step counter goes on where the attempt before saved it."""
        whole = self.whole_steps(process)
        running = process.running
        beyond = max(0.0, process.done_steps - whole)
        last_s = now_s - beyond / process.steps_per_s if process.steps_per_s > 0 else now_s
        memory = self._world.memory(running.job, running.gpu_type)
        return Progress(
            at_s=now_s,
            steps=whole,
            steps_total=running.job.spec.steps_total,
            first_step_s=process.first_step_s,
            last_step_s=last_s if whole else None,
            persistent_bytes=memory.persistent_bytes if memory else None,
            peak_bytes=sum(memory) if memory else None,
            occupancy_ratio=self._world.occupancy_ratio(running.job, running.gpu_type),
            occupancy_by="world",
        )
