"""Report a job's steps to Colane, in three lines:

    import colane.adaptor as colane
    steps = colane.attach(total_steps=1000)
    ...
        steps.step(loss=loss.item())      # at the end of every iteration

Outside Colane this does nothing, at next to no cost. It never breaks a job: on any doubt it steps aside, and
says so once on stderr when COLANE_DEBUG is set. It needs the standard library alone. Processes that the job
forks (data loader workers) do not report.
"""  # noqa: D415

from __future__ import annotations

import os
import sys
import time

from colane.adaptor import memory
from colane.adaptor.writer import STEPS_FILE_ENV, WireError, Writer

__all__ = ["Reporter", "attach"]

MEMORY_FIRST_STEPS = 10
"""Memory is read at each of the first steps, where it still grows ..."""
MEMORY_EVERY_STEPS = 64
"""... and then at every 64th: reading takes some 40 microseconds, less than one a step when spread out."""

_live: list[Reporter] = []


class Reporter:
    """Counts the steps of this process. Made by `attach`; use it from one thread."""

    __slots__ = ("_last_s", "_writer")

    def __init__(self, writer: Writer | None) -> None:
        self._writer = writer
        self._last_s = time.perf_counter()

    def step(self, loss: float | None = None) -> None:
        """Say that one more step is done.

        Args:
            loss: the step's loss as a number. A tensor works too, but reading one waits for its GPU.
        """
        writer = self._writer
        if writer is None:
            return
        try:
            self._publish(writer, loss)
        except Exception as error:  # noqa: BLE001  # whatever goes wrong here is not the job's fault
            self.disarm(f"no more steps are reported: {error!r}")

    def _publish(self, writer: Writer, loss: float | None) -> None:
        count = writer.steps + 1
        if count <= MEMORY_FIRST_STEPS or count % MEMORY_EVERY_STEPS == 0:
            sampled = memory.sample()
            if sampled:
                writer.set_memory(*sampled)
        now_s = time.perf_counter()
        writer.step(time.time(), now_s - self._last_s, None if loss is None else float(loss))
        self._last_s = now_s

    def disarm(self, reason: str | None = None) -> None:
        """Report nothing from now on."""
        self._writer = None
        if reason:
            _debug(reason)


def attach(total_steps: int | None = None) -> Reporter:
    """Begin to report this process's steps, if Colane runs it; call it once, before the training loop.

    Args:
        total_steps: how many steps there will be, for progress and time left; None when unknown.
    """
    path = os.environ.get(STEPS_FILE_ENV)
    if not path:
        return Reporter(None)
    try:
        reporter = Reporter(Writer(path, total_steps))
    except WireError as error:
        _debug(f"steps are not reported: {error}")
        return Reporter(None)
    except Exception as error:  # noqa: BLE001  # the job must start whatever is wrong with its arguments
        _debug(f"steps are not reported: {error!r}")
        return Reporter(None)
    _live.append(reporter)
    return reporter


def _debug(message: str) -> None:
    if os.environ.get("COLANE_DEBUG") and sys.stderr is not None:
        print(f"colane: {message}", file=sys.stderr, flush=True)  # noqa: T201


def _disarm_child() -> None:
    for reporter in _live:
        reporter.disarm()


os.register_at_fork(after_in_child=_disarm_child)
