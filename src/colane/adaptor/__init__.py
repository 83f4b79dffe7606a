"""Report a job's steps to Colane, in three lines:

    import colane.adaptor as colane
    steps = colane.attach(total_steps=1000)
    ...
        steps.step(loss=loss.item())      # at the end of every iteration

Three more let it be stopped for others, resized and moved, and go on where it was:

    done = steps.restore(load)    # before the loop: load() reads the newest state, returns the steps in it
    ...
        steps.save(write, every_s=600)    # after step(): write(steps) saves the state when it is asked for, or time

A server says when a request comes, so that others have their turns while it waits for one:

    with steps.request():             # in the place of step()
        answer = model(inputs)

A script of PyTorch or Keras need not: its steps are found by themselves. Where it does, what it reports counts.
Outside Colane this does nothing, at next to no cost. It never breaks a job: on any doubt it steps aside, and
says so once on stderr when COLANE_DEBUG is set. It needs the standard library alone. Processes that the job
forks (data loader workers) do not report.
"""  # noqa: D415

from __future__ import annotations

import sys

from colane.adaptor import reporter
from colane.adaptor.reporter import Reporter

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Reporter", "attach"]


def attach(total_steps: int | None = None) -> Reporter:
    """Begin to report this process's steps, if Colane runs it; call it once, before the training loop.

    From then on steps are those that the script reports; none is found by hooks.

    Args:
        total_steps: how many steps there will be, for progress and time left; None when unknown.
    """
    return _attach()(total_steps)


def _attach() -> Callable[[int | None], Reporter]:
    """Prefer the copy that the agent put into this process: it holds the hooks, and is of the agent's version."""
    if "_colane_adaptor" in sys.modules:
        try:
            from _colane_adaptor.reporter import attach as injected  # type: ignore[import-not-found]
        except ImportError:
            return reporter.attach
        return injected  # type: ignore[no-any-return]
    return reporter.attach
