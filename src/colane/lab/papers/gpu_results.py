"""What `gpu/run` measured on a GPU, for claims that no simulation can judge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "measured"  # a file for each machine, named by date; the newest counts


class GpuResults(NamedTuple):
    """Results of one machine."""

    where: str  # GPU, driver and date
    parts: dict[str, Any]  # by script, then part, as `results.json` of `gpu/run` has them

    def number(self, path: str) -> float | None:
        """A number by script, part and name; None where it was not measured."""
        found = self._at(path)
        return float(found) if isinstance(found, int | float) else None

    def rows(self, path: str) -> Sequence[dict[str, Any]]:
        """What a part lists under a name."""
        return self._at(path) or ()

    def _at(self, path: str) -> Any:  # noqa: ANN401 - of any script
        found: Any = self.parts
        for name in path.split("/"):
            found = found.get(name) if isinstance(found, dict) else None
        return found


def newest() -> GpuResults:
    """Return what was measured last."""
    body = json.loads(max(FOLDER.glob("*.json")).read_text(encoding="utf-8"))
    return GpuResults(f"measured {body['date']} on {body['machine']}", body["parts"])
