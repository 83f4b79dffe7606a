"""How long a step takes on a GPU, by events that the GPU itself passes.

A script launches kernels and goes on before they have run, so the time between two ends of a step as the host sees
them says how fast it launches, not how fast the GPU computes: where a script waits for its GPU at every tenth step
only, nine steps seem to take nothing and one takes all. So an event is recorded in the stream where a step ends, and
asked at later boundaries whether it is passed; the time between two such events is that of the steps between them,
with everything in it that the GPU waited for. Nothing waits for an event here but training in a lane with a server, for
which a step that was launched ahead would be one more to wait for; while a graph is captured there is none: steps
share the next one.

Time in which the job waited for its turn lies between two events and is taken off: the GPU has nothing of this job
to do then (`turns` sees to it).
"""

from __future__ import annotations

import sys
import time
from collections import deque

from .capture import excluded

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from typing import Any

EVENT_GAP_S = 1e-3  # recording and asking cost some 10 us: steps that are shorter than this share an event
UNTIMED_MAX = 4096  # so many steps ahead of its GPU is no job whose events are ever passed


class DeviceClockError(Exception):
    """Events say nothing of this process."""


class _Mark:
    """An event that was recorded at a boundary.

    Attributes:
        event: The event.
        steps: Steps that ended since the mark before.
        waited_s: How long the job waited for its turn since then; None where that time is no step's at all.
        is_late: Whether it was recorded a while after the steps: what was done in between counts as theirs.
    """

    __slots__ = ("event", "is_late", "steps", "waited_s")

    def __init__(self, event: Any, steps: int, waited_s: float | None, *, is_late: bool = False) -> None:
        self.event, self.steps, self.waited_s, self.is_late = event, steps, waited_s, is_late


class DeviceClock:
    """Times the steps of a process on the GPU that it uses most.

    Attributes:
        waited_s: How long the job has waited for its turn since the last mark; the waiting code adds to it.
        untimed: Steps that were told and are not timed yet.
    """

    __slots__ = (
        "_cuda", "_device", "_free", "_is_cut", "_known_s", "_mark_s", "_marks", "_steps", "untimed", "waited_s"
    )  # fmt: skip

    def __init__(self, cuda: Any, device: int) -> None:
        """Begin with the step that begins now."""
        self._cuda = cuda
        self._device = device
        self._free: list[Any] = []
        self._steps = self.untimed = 0
        self._known_s = self.waited_s = 0.0
        self._is_cut = False
        self._mark_s = time.perf_counter()
        self._marks = deque((_Mark(self._record(), 0, 0.0),))

    def ended(self, steps: int) -> None:
        """Hear that so many more steps have ended.

        Raises:
            DeviceClockError: The GPU passes no event any more.
            RuntimeError: An error of CUDA.
        """
        self._steps += steps
        self.untimed += steps
        now_s = time.perf_counter()
        if now_s >= self._mark_s + EVENT_GAP_S:
            self._mark(now_s, self.waited_s)
        if self.untimed > UNTIMED_MAX:
            raise DeviceClockError("the GPU passes no event")

    def keep_up(self) -> None:
        """Wait until the steps that have ended for the host have for the GPU.

        Raises RuntimeError: an error of CUDA.
        """
        with excluded as may_wait:
            if may_wait:
                self._marks[-1].event.synchronize()

    def end(self) -> None:
        """Mark the end of the last steps, which share an event, at the end of the process.

        Raises RuntimeError: an error of CUDA.
        """
        if self._steps:
            self._mark(time.perf_counter(), self.waited_s, is_late=True)

    def begin_anew(self) -> None:
        """Let the time since the last boundary be no step's: a state was saved, a model evaluated.

        Raises RuntimeError: an error of CUDA.
        """
        self._mark(time.perf_counter(), None)

    def timed(self) -> list[tuple[int, float]]:
        """Give how many steps, the oldest first, took how long each, of those that the GPU is done with.

        Raises RuntimeError: an error of CUDA.
        """
        found = []
        with excluded as may_ask:
            while may_ask and len(self._marks) > 1 and self._marks[1].event.query():
                base, mark = self._marks.popleft(), self._marks[0]
                if mark.steps:
                    found.append((mark.steps, self._each_s(base, mark)))
                    self.untimed -= mark.steps
                self._free.append(base.event)
        return found

    def _each_s(self, base: _Mark, mark: _Mark) -> float:
        if mark.waited_s is not None:
            passed_s = base.event.elapsed_time(mark.event) * 1e-3
            each_s = max(0.0, passed_s - mark.waited_s) / mark.steps
            # Of steps that a script's end is counted with, those before tell more than that does.
            self._known_s = min(each_s, self._known_s or each_s) if mark.is_late else each_s
        return self._known_s

    def _mark(self, now_s: float, waited_s: float | None, *, is_late: bool = False) -> None:
        with excluded as may_record:
            if not may_record:
                self._is_cut |= waited_s is None
                return
            waited_s, last = None if self._is_cut else waited_s, self._marks[-1]
            if waited_s is last.waited_s is None and len(self._marks) > 1 and not self._steps:
                self._record(last.event)  # an event that was not passed yet is passed at its new place only
            else:
                self._marks.append(_Mark(self._record(), self._steps, waited_s, is_late=is_late))
        self._steps, self.waited_s, self._mark_s, self._is_cut = 0, 0.0, now_s, False

    def _record(self, event: Any = None) -> Any:
        if event is None:
            event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True, blocking=True)
        event.record(self._cuda.current_stream(self._device))
        return event


def of_process() -> DeviceClock | None:
    """Make the clock of a process that uses a GPU through PyTorch; None of any other.

    Raises RuntimeError: an error of CUDA.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    with excluded as may_record:
        if cuda is None or not cuda.is_initialized() or not may_record:
            return None
        used = devices_in_use(torch)
        return DeviceClock(cuda, _busiest(torch, used)) if used else None


def devices_in_use(torch: Any) -> list[int]:
    """Give the GPUs on which this process has a context: to ask anything of another would make one there."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)  # noqa: SLF001
    if has_context is None:
        return [int(torch.cuda.current_device())]
    return [device for device in range(torch.cuda.device_count()) if has_context(device)]


def _busiest(torch: Any, used: list[int]) -> int:
    """The GPU on which the process has most memory; the current one, or the first, where nothing tells."""

    def held(device: int) -> tuple[int, bool]:
        try:
            counters = torch._C._cuda_memoryStats(device)  # noqa: SLF001
            size = int(counters["allocated_bytes"]["all"]["current"])
        except (RuntimeError, LookupError, TypeError):
            size = 0
        return size, device == torch.cuda.current_device()

    return max(used, key=held) if len(used) > 1 else used[0]
