"""`salloc`: refused."""

from __future__ import annotations

from collections.abc import Sequence

from colane.integrations.slurm.errors import SlurmError


def run(words: Sequence[str], shims: str) -> int:
    """Refuse.

    Raises:
        SlurmError: Always.
    """
    del words, shims
    raise SlurmError(
        "Colane gives no machines to keep: submit what is to run (sbatch, srun COMMAND), and follow it with "
        "'colane logs -f JOB'"
    )
