"""Speed by number of GPUs, f(n), for F-scheduling (Seo, 2020): `calibrated_f.json`.

Not measured: found by search so that a simulation of the paper's state machine gives its Table 2. A report that uses it
must say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from colane.lab.traces import cells
from colane.lab.traces.readers.assemble import load_json
from colane.model.words import count
from colane.settings.input_file import InputFileError, read_text


@dataclass(frozen=True, slots=True)
class ScalingTable:
    """f(n) of each model, and what a change of resources costs."""

    steps_per_s: Mapping[str, tuple[float, ...]]  # by model, then by number of GPUs from 0; 0 cannot run
    launch_s: float  # from resources to the first step
    checkpoint_and_stop_s: float  # from the order to stop to free GPUs
    note: str  # what the file says of itself

    def speed(self, model: str, gpus: int) -> float | None:
        """Steps per second using all of so many GPUs; None for an unknown model or more GPUs than the table has."""
        speeds = self.steps_per_s.get(model)
        return speeds[gpus] if speeds is not None and 0 <= gpus < len(speeds) else None


def read(path: Path) -> ScalingTable:
    """Read the table.

    Raises InputFileError: it is not of that form, or an entry is no speed; the message names the entry.
    """
    document = load_json(path, read_text(path))
    try:
        costs = float(document["launch_s"]), float(document["checkpoint_plus_stop_s"])
        given, note = dict(document["f"]), str(document.get("note", ""))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputFileError(path, f"is not a table of speeds by number of GPUs: {error!r}") from error
    if not all(isfinite(cost_s) and cost_s >= 0 for cost_s in costs):
        raise InputFileError(path, "launch_s and checkpoint_plus_stop_s must be seconds from 0 up")
    return ScalingTable({model: _speeds(path, model, speeds) for model, speeds in given.items()}, *costs, note)


def _speeds(path: Path, model: str, given: Any) -> tuple[float, ...]:  # noqa: ANN401 - JSON is what its file says
    """Speeds by number of GPUs from 0, where it cannot run."""
    if not isinstance(given, list) or len(given) < 2:
        wanted = "must be a list of speeds: 0 for no GPU, then of 1, 2, ... GPUs"
        raise InputFileError(path, wanted, column=f"f.{model}")
    for gpus, value in enumerate(given):
        try:
            speed = cells.json_number(value)
        except ValueError as error:
            wanted = f"{error}; name the speed with {count(gpus, 'GPU')}"
            raise InputFileError(path, wanted, column=f"f.{model}[{gpus}]") from error
        if (speed <= 0) if gpus else (speed != 0):
            wanted = "must be more than 0: leave sizes that cannot run out of the job's" if gpus else "must be 0"
            raise InputFileError(path, f"{wanted}, got {value!r}", column=f"f.{model}[{gpus}]")
    return tuple(map(float, given))
