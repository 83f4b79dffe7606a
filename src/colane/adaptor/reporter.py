"""The explicit interface, for loops whose steps no hook can see; `colane.adaptor` shows it."""

from __future__ import annotations

from . import recorder
from .writer import WireError


class Reporter:
    """Counts the steps of this process. Made by `attach`."""

    __slots__ = ("_recorder",)

    def __init__(self, to: recorder.Recorder | None) -> None:
        self._recorder = to

    def step(self, loss: float | None = None) -> None:
        """Say that one more step is done.

        Args:
            loss: the step's loss as a number. A tensor works too, but reading one waits for its GPU.
        """
        to = self._recorder
        if to is None:
            return
        try:
            number = None if loss is None else float(loss)
        except Exception as error:  # noqa: BLE001  # the job must go on whatever it passed
            to.disarm(f"no more steps are reported: {error!r}")
            return
        to.boundary(1, number)

    def disarm(self, reason: str | None = None) -> None:
        """Report nothing from now on."""
        if self._recorder is not None:
            self._recorder.disarm(reason)


def attach(total_steps: int | None = None) -> Reporter:
    """Begin to report this process's steps, if Colane runs it; call it once, before the training loop.

    From then on steps are those that the script reports; none is found by hooks.

    Args:
        total_steps: how many steps there will be, for progress and time left; None when unknown.
    """
    to = recorder.current()
    if to is None:
        return Reporter(None)
    to.rank = recorder.EXPLICIT
    try:
        to.register()
        to.set_total(total_steps)
    except WireError as error:
        recorder.debug(f"steps are not reported: {error}")
        return Reporter(None)
    except Exception as error:  # noqa: BLE001  # the job must start whatever is wrong with its arguments
        recorder.debug(f"steps are not reported: {error!r}")
        return Reporter(None)
    return Reporter(to)
