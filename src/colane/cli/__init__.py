"""The command line: one file per noun. Commands import late, so that `colane` answers at once."""

from __future__ import annotations

import gc
from typing import Final

OBJECTS_PER_COLLECTION: Final = 10_000
"""Cycles are looked for after so many new objects, not Python's 700: what a start imports stays, and looking through it
again and again took a tenth of the start of a scheduler."""


def main() -> int:
    """Run the command that the command line names; the entry point of `colane`. Returns the exit code."""
    gc.set_threshold(OBJECTS_PER_COLLECTION, *gc.get_threshold()[1:])
    from colane.cli.app import run  # noqa: PLC0415 - importing the package itself costs nothing

    code = run()
    gc.freeze()  # the process ends: its objects need not be searched for cycles
    return code
