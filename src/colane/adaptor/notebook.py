"""Cells of a notebook: between them its kernel uses no device, so that its job can be parked as it stands.

IPython says when a cell begins and when it has ended. Where another thread may use a device meanwhile (a training in
the background), nothing is said: it would wait in the driver, unseen, while the job is parked.
"""

from __future__ import annotations

import sys

from . import side_threads
from .aside import safely

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable

_watched: object = None


def attach(stirs: Callable[[], None], stands_still: Callable[[], None]) -> None:
    """Tell of the cells of the shell that this process runs, where it runs one; once, however often it is called."""
    global _watched  # noqa: PLW0603  # one for each process
    find = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = find() if find is not None else None
    if shell is None or shell is _watched:
        return
    _watched = shell

    def begins(_info: object = None) -> None:
        safely(stirs)

    def ended(_result: object = None) -> None:
        if not side_threads.is_one_beside():
            safely(stands_still)

    shell.events.register("pre_run_cell", begins)
    shell.events.register("post_run_cell", ended)
