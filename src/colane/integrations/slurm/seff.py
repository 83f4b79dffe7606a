"""`seff`: what a job has used of what it had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from colane.integrations.slurm import contact
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.rows import SlurmRow, long_duration, named_jobs, names
from colane.integrations.slurm.sacct import used_by
from colane.model.words import count

GIB: Final = 2**30


def run(words: Sequence[str], shims: str) -> int:
    """Tell what jobs have used; return the exit code. Raises SlurmError: no job is named, or it is not there."""
    del shims
    if not words or words[0].startswith("-"):
        raise SlurmError("name a job: seff 12")
    with contact.client() as scheduler:
        missing = list[int]()
        for job in named_jobs(scheduler, names(words), missing=missing):
            row = SlurmRow(job)
            row.used = used_by(scheduler, row)
            contact.print_lines(*_lines(row))
        if missing:
            raise SlurmError(f"there is no job {missing[0]}")
    return 0


def _lines(row: SlurmRow) -> list[str]:
    told = [
        f"Job ID: {row.name}", f"User: {row.job['user']}", f"State: {row.state} (exit code {row.exit})",
        f"Nodes: {row.node_count}", f"Cores: {row.cores}", f"Job Wall-clock time: {long_duration(row.elapsed_s)}",
    ]  # fmt: skip
    if (cores := row.used.get("cores")) is not None:
        told.append(f"CPU Utilized: {long_duration(cores * row.used['ran'])}")
        told.append(f"CPU Efficiency: {100 * cores / row.cores:.2f}% of {count(row.cores, 'core')}")
    if (memory_bytes := row.used.get("host-memory")) is not None:
        told.append(f"Memory Utilized: {memory_bytes / GIB:.2f} GB")
    if (gpus := row.used.get("gpu")) is not None:
        told.append(f"GPU Utilized: {gpus:.2f} of {row.need('gpus')}")
    return told
