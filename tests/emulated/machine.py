"""Emulated GPUs of a test, jobs that use them, and what the GPUs know of these: the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.emulated.job.emulated_cuda import device

JOB_SIDE = Path(__file__).with_name("job")
OTHERS = Path(__file__).with_name("others")
"""What uses GPUs there besides PyTorch."""


class Kernel(NamedTuple):
    """One kernel, by the machine's monotonic clock."""

    gpu: str
    launched_s: float
    began_s: float
    ended_s: float
    label: str


class Mark(NamedTuple):
    """Something that happened in a job's process; an event is of a GPU's stream."""

    at_s: float
    label: str
    gpu: str = "-"


class Wait(NamedTuple):
    """A wait for a turn, between two marks that enclose it.

    Attributes:
        waited_s: How long it lasted to the process itself; on a busy machine that may be kept from a core before it
            notes the one mark and after it has noted the other, which is its own time.
    """

    from_s: float
    to_s: float
    waited_s: float


@dataclass(frozen=True)
class Ran:
    """What one process had its GPUs do."""

    kernels: list[Kernel]
    marks: list[Mark]

    def counts(self) -> dict[str, int]:
        """How often it called what waits for its GPU, or records an event there."""
        told = next(mark.label for mark in reversed(self.marks) if mark.label.startswith("counts:"))
        pairs = (pair.split("=") for pair in told.removeprefix("counts:").split(",") if pair)
        return {name: int(number) for name, number in pairs}

    def waits(self) -> list[Wait]:
        """When it waited for its turn."""
        asked = [mark for mark in self.marks if mark.label.startswith("yield:")]
        went_on = [mark for mark in self.marks if mark.label.startswith("go:")]
        pairs = zip(asked, went_on, strict=False)
        return [Wait(one.at_s, other.at_s, float(other.label.split(":")[2])) for one, other in pairs]

    def turns(self) -> list[tuple[float, float]]:
        """When it had its turn: from the word to go on until it gave that up, with its GPU idle."""
        times = [(mark.label.split(":")[0], mark.at_s) for mark in self.marks]
        edges = [(label, at_s) for label, at_s in times if label in {"go", "yield", "leave"}]
        return [(from_s, to_s) for (label, from_s), (_, to_s) in pairwise(edges) if label == "go"]

    @cached_property
    def _events(self) -> list[Mark]:
        """Those of the GPU on which steps end, which is that of the last."""
        events = [mark for mark in self.marks if mark.label == "event"]
        return [event for event in events if event.gpu == events[-1].gpu]

    def _event_s(self, after_s: float) -> float:
        """When the first event behind that time was passed; without one, that time."""
        return min((event.at_s for event in self._events if event.at_s >= after_s), default=after_s)

    def _ended_s(self, kernels: Sequence[Kernel]) -> float:
        """When the last of them has ended that the events stand behind: another GPU may go on for longer."""
        gpus = {event.gpu for event in self._events} & {kernel.gpu for kernel in kernels}
        return max(kernel.ended_s for kernel in kernels if not gpus or kernel.gpu in gpus)

    def has_event_before(self, kernels: int) -> bool:
        """Whether an event stands between the last kernels, of that number, and those before: steps may share one."""
        before, first = self.kernels[-kernels - 1], self.kernels[-kernels]
        return before.ended_s <= self._event_s(before.ended_s) < first.ended_s

    def told_apart(self, steps: int, each: int) -> int:
        """How many of the last steps, of so many kernels each, begin with an event: at most these.

        A host that is kept from a core may end its first two steps within a millisecond: then they share one.
        """
        is_one_gpu = len({kernel.gpu for kernel in self.kernels}) == 1  # else the last to be launched may end earlier
        found = (few for few in range(steps, steps // 2, -1) if is_one_gpu and self.has_event_before(few * each))
        return next(found, steps)

    def mean_step_s(self, steps: int, kernels: int) -> float:
        """Device time of the last steps, of so many kernels, with what the device waited for, but for turns.

        A step ends with the first event behind all its kernels: a host that a busy machine holds up records it late,
        and where it launches on several GPUs at once the last kernel to be launched may not be the last to end.
        """
        began_s, ended_s = (self._event_s(self._ended_s(part)) for part in (self.kernels[:-kernels], self.kernels))
        waits = [wait for wait in self.waits() if began_s <= wait.to_s and wait.from_s <= ended_s]
        assert all(0 <= wait.waited_s <= wait.to_s - wait.from_s for wait in waits)
        waited_s = sum(wait.waited_s for wait in waits)
        return (ended_s - began_s - waited_s) / steps


class Machine:
    """GPUs in a directory."""

    def __init__(self, home: Path, *kinds: device.Kind) -> None:
        self.home = home
        self.kinds = kinds or (device.Kind("GPU-0"),)
        device.make(home, *self.kinds)

    @property
    def env(self) -> dict[str, str]:
        """What a job's environment has where GPUs are installed."""
        return {device.HOME_ENV: str(self.home), "PYTHONPATH": str(JOB_SIDE), "OMP_NUM_THREADS": "1"}

    def gpu(self, number: int = 0) -> device.Gpu:
        return device.Gpu(self.home, self.kinds[number])

    def ran(self, job: int | str = "") -> Ran:
        """What the process of a job that used them had them do, in the order of its launches."""
        (ran,) = self.all_ran(job)
        return ran

    def at_boundaries(self, job: int) -> int:
        """How many processes of a job have come to a boundary at which they wait for their turn."""
        return sum("yield:" in path.read_text() for path in self.home.glob(f"kernels.{job}.*"))

    def all_ran(self, job: int | str = "") -> list[Ran]:
        """The same of each process of a job that used them."""
        found = [_read(path) for path in sorted(self.home.glob(f"kernels.{job}.*")) if path.stat().st_size]
        return [ran for ran in found if ran.kernels]


def _read(path: Path) -> Ran:
    kernels, marks = [], []
    for line in path.read_text().splitlines():
        what, gpu, launched_s, began_s, ended_s, label = line.split()
        if what == "kernel":
            kernels.append(Kernel(gpu, float(launched_s), float(began_s), float(ended_s), label))
        else:
            marks.append(Mark(float(launched_s), label, gpu))
    return Ran(kernels, marks)


def told_mean_s(durations_s: Sequence[float]) -> float:
    """The mean over all steps that a job told, without its first."""
    return sum(durations_s[1:]) / (len(durations_s) - 1)
