"""Speed by number of GPUs, f(n), for F-scheduling (Seo, 2020): `calibrated_f.json`.

Not measured: found by search so that a simulation of the paper's state machine gives its Table 2. A report that uses it
must say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from colane.traces.errors import TraceError
from colane.traces.readers.assemble import load_json
from colane.traces.sheet import read_text


@dataclass(frozen=True, slots=True)
class ScalingTable:
    """f(n) of each model, and what a change of resources costs.

    Attributes:
        steps_per_s: By model, then by number of GPUs from 0; 0 cannot run.
        launch_s: From resources to the first step.
        checkpoint_and_stop_s: From the order to stop to free GPUs.
        note: What the file says of itself.
    """

    steps_per_s: Mapping[str, tuple[float, ...]]
    launch_s: float
    checkpoint_and_stop_s: float
    note: str

    def speed(self, model: str, gpus: int) -> float | None:
        """Steps per second using all of so many GPUs; None for an unknown model or more GPUs than the table has."""
        speeds = self.steps_per_s.get(model)
        return speeds[gpus] if speeds is not None and 0 <= gpus < len(speeds) else None

    def envelope(self, model: str) -> tuple[float, ...]:
        """The best speed with at most n GPUs, by n: the monotone f the plan needs."""
        return tuple(accumulate(self.steps_per_s[model], max))


def read(path: Path) -> ScalingTable:
    """Read the table.

    Raises:
        TraceError: It is not of that form, or a speed is negative.
    """
    document = load_json(path, read_text(path))
    try:
        table = ScalingTable(
            {model: tuple(map(float, speeds)) for model, speeds in document["f"].items()},
            float(document["launch_s"]),
            float(document["checkpoint_plus_stop_s"]),
            str(document.get("note", "")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(path, f"is not a table of speeds by number of GPUs: {error!r}") from error
    for model, speeds in table.steps_per_s.items():
        if not speeds or not all(speed >= 0 for speed in speeds):
            raise TraceError(path, "speeds must be numbers from 0 GPUs on, none negative", column=model)
    return table
