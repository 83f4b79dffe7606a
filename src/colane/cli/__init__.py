"""The command line: one file per noun. Commands import late, so that `colane` answers at once."""

from __future__ import annotations

import gc


def main() -> int:
    """Run the command that the command line names; the entry point of `colane`. Returns the exit code."""
    from colane.cli.app import run  # noqa: PLC0415 - importing the package itself costs nothing

    code = run()
    gc.freeze()  # the process ends: its objects need not be searched for cycles
    return code
