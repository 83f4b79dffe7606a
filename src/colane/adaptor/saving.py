"""When a job that saves its state by itself is to do so: asked by Colane, or as often as it wants.

Colane asks by a signal. All ranks of a distributed job save at the same step: they agree on it at each call, as the
preemption callbacks of training frameworks do.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import threading
import time

SIGNAL_ENV = "COLANE_CHECKPOINT_SIGNAL"
"""Names the signal by which the job was submitted to be asked; SIGUSR1 where it is absent."""

SAVED, DONE = 75, 0  # exit codes that say: my state is saved. Launchers take every other code than 0 for a failure

LAUNCHERS = ("TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION")
"""Set by launchers that end with 1 where a process of theirs does not end with 0: torchrun, `accelerate launch`."""

NOT_DUE, DUE, ASKED = 0, 1, 2

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Occasions:
    """Knows when it is time to save.

    Attributes:
        is_asked: Whether the signal has come and is not answered yet, also while the state is being saved unasked.
    """

    __slots__ = ("_before", "_leaves", "_number", "_saved_s", "is_asked")

    def __init__(self) -> None:
        self.is_asked = self._leaves = False
        atexit.register(self._end)
        self._saved_s = time.monotonic()
        self._number = getattr(signal, os.environ.get(SIGNAL_ENV, ""), signal.SIGUSR1)
        self._before: object = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(self._number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_asked = True
        if callable(self._before) and self._before is not signal.default_int_handler:
            self._before(number, frame)

    def due(self, every_s: float | None) -> int:
        """Whether to save now, and whether because Colane asks; the same answer in every rank."""
        is_time = every_s is not None and time.monotonic() >= self._saved_s + every_s
        return agreed(ASKED if self.is_asked else DUE if is_time else NOT_DUE)

    def answered(self) -> None:
        """The state is saved now because Colane asks: a request from here on counts anew."""
        self.is_asked = False

    def leaves(self) -> None:
        """The process ends now, its state saved, to be started again: it does so quickly."""
        self._leaves = True

    def _end(self) -> None:
        """A request from here on comes too late: the interpreter's end takes its handlers away, and a signal kills.

        A process that had made all its steps, or saved its state because another rank was told first, would fail.
        """
        if self._before is not None and signal.getsignal(self._number) == self._note:
            signal.signal(self._number, signal.SIG_IGN)
        if self._leaves:
            end_uncollected()

    def tried(self) -> None:
        """There was an attempt to save."""
        self._saved_s = time.monotonic()


def agreed(mine: int) -> int:
    """The largest of all ranks' numbers; this one's own without others."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if torch is None or distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return mine
    if distributed.get_world_size() == 1:
        return mine
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    number = torch.tensor([mine], dtype=torch.int32, device=device)
    distributed.all_reduce(number, op=distributed.ReduceOp.MAX)
    return int(number.item())


def attempt(write: Callable[[int], object], steps: int) -> OSError | None:
    """Have a state written; what the disk has against it. Any other error is the job's own."""
    try:
        write(steps)
    except OSError as error:
        return error
    except RuntimeError as error:
        if "PytorchStreamWriter" not in str(error):
            raise
        return OSError(errno.EIO, str(error))  # torch.save hides the system's error number
    return None


def exit_code() -> int:
    """The code by which a process says that its state is saved."""
    return DONE if any(name in os.environ for name in LAUNCHERS) else SAVED


def end_uncollected() -> None:
    """Let the interpreter end without looking for cycles, which takes a process with PyTorch most of a second.

    What Python promises at the end stays: exit functions run, and files are flushed, those that only cycles hold as
    well. Destructors of what is still there then, which it does not promise, mostly do not run.
    """
    import gc
    import io

    if not hasattr(gc, "freeze"):
        return
    for thing in gc.get_objects():
        if issubclass(type(thing), io.IOBase):
            try:
                if not thing.closed and thing.writable():
                    thing.flush()
            except Exception:  # noqa: BLE001, S110 - as the interpreter, which would go on as well
                pass
    gc.disable()
    gc.freeze()
