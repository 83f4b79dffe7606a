"""Cells of a notebook: between them its kernel uses no device, so that its job can be parked as it stands.

IPython says when a cell begins and when it has ended. Where another thread may use a device meanwhile (a training in
the background), nothing is said: it would wait in the driver, unseen, while the job is parked.
"""

from __future__ import annotations

import sys

from . import recorder, side_threads

_watched: object = None


def attach(to: recorder.Recorder) -> None:
    """Follow the cells of the shell that this process runs, where it runs one; once, however often it is called."""
    global _watched  # noqa: PLW0603  # one for each process
    find = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = find() if find is not None else None
    if shell is None or shell is _watched:
        return
    _watched = shell

    def begins(_info: object = None) -> None:
        recorder.safely(to.stirs)

    def ended(_result: object = None) -> None:
        if not side_threads.is_one_beside():
            recorder.safely(to.stands_still)

    shell.events.register("pre_run_cell", begins)
    shell.events.register("post_run_cell", ended)
