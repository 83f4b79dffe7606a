"""`salloc`: a shell, or another command, at a terminal on the machine of a job, in which `srun` starts steps."""

from __future__ import annotations

import os
from collections.abc import Sequence

from colane.integrations.slurm.options import parse
from colane.integrations.slurm.srun import at_terminal


def run(words: Sequence[str], shims: str) -> int:
    """Run it; return its exit code. Raises SlurmError: something of it cannot be."""
    options = parse("srun", words)
    shell = os.environ.get("SHELL") or "/bin/sh"
    return at_terminal("salloc", options._replace(rest=options.rest or [shell]), shims)
