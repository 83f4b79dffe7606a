"""What one does not need to run a service: simulations and studies, traces, the papers, reports, the demo.

It may know the service's rooms; they do not know it. In notebooks (`pip install 'colane[lab]'`):

    from colane import lab

    found = lab.study("study.toml")
    found.cells.groupby(["policy", "load"])["jct_mean_s"].mean()

In a script, where processes are started anew from its file, call it below `if __name__ == "__main__":`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from colane.lab.notebooks import StudyFrames, study

__all__ = ["StudyFrames", "study"]


def __getattr__(name: str) -> object:
    """Import what notebooks use where it is used: commands import rooms of this package, and nothing else of it.

    Raises AttributeError: there is none of that name.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from colane.lab import notebooks  # noqa: PLC0415 - see above

    return getattr(notebooks, name)
