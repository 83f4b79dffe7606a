"""What holds of a job, where that is not what its owner declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colane.api.jobs import JobObject


def in_force(job: JobObject, name: str) -> Any:  # noqa: ANN401 - JSON
    """Return one of a job's needs as it holds now: what it is held to, else what its owner declared."""
    needs: Mapping[str, Any] = job["needs"]
    constraints: Mapping[str, Any] = job.get("constraints", {})
    return constraints[name] if name in constraints else needs.get(name)
