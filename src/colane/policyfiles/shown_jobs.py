"""What a user's policy is shown is not its to change: jobs and their needs are compared once it has planned.

What it has written is put back, for others go by the same records. Nodes and GPUs let no attribute be set.
"""

from __future__ import annotations

import ast
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from colane.core.cluster.view import ClusterView
from colane.model.job import Job
from colane.model.job_spec import JobSpec

FIX: Final = "what it sees is not its to change: dataclasses.replace(job.spec, ...) makes a record of its own"

NAMES: Final = {kind: tuple(field.name for field in fields(kind)) for kind in (Job, JobSpec)}
VALUES: Final[dict[type, attrgetter[Any]]] = {kind: attrgetter(*names) for kind, names in NAMES.items()}


class _Record(NamedTuple):
    """One record: what it is called, and its values."""

    name: str
    record: Any
    values: tuple[Any, ...]


class ShownJobs:
    """What a view shows, as it is before a policy is asked."""

    def __init__(self, view: ClusterView) -> None:
        shown: dict[int, tuple[str, Any]] = {}
        for number, job in view.jobs.items():
            shown |= {id(job.spec): (f"job {number}.spec", job.spec), id(job): (f"job {number}", job)}
            shown.setdefault(id(job.effective), (f"job {number}.effective", job.effective))
        self._records = [_Record(name, one, VALUES[type(one)](one)) for name, one in shown.values()]

    def written(self, file: Path) -> str:
        """What has been written since, in one line that names where; empty where nothing was. It is put back."""
        told = ""
        for name, record, values in self._records:
            now = VALUES[type(record)](record)
            if now == values:
                continue
            for field, before, after in zip(NAMES[type(record)], values, now, strict=True):
                if before != after:
                    setattr(record, field, before)
                    told = told or f"{_line(file, field)} sets {name}.{field} to {after!r}: {FIX}"
        return told


def _line(file: Path, field: str) -> str:
    """Where a file writes an attribute of that name, as ` line 12`; empty where that is nowhere to be seen."""
    try:
        nodes = ast.walk(ast.parse(file.read_text()))
    except (OSError, SyntaxError, ValueError):
        return ""
    stores = [n for n in nodes if isinstance(n, ast.Attribute) and n.attr == field and isinstance(n.ctx, ast.Store)]
    return f" line {min(one.lineno for one in stores)}" if stores else ""
