"""What a simulation of a study is a function of, in words and digests: two that differ are never mixed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from colane.lab.simulate.generators import is_generator
from colane.lab.simulate.request import SAMPLE, Request
from colane.lab.studies.file import AS_THEY_ARE, CellKey, StudyPlan
from colane.lab.traces import clusters
from colane.lab.traces.clusters import PRESETS_DIR, preset_names
from colane.model.versions import own_version
from colane.policyfiles.load import is_file, path_of

FORMAT: Final = 1  # of the files that hold one simulation each


def inputs_of(plan: StudyPlan) -> dict[CellKey, dict[str, Any]]:
    """What each simulation of a study is a function of: values as they are, files by their content.

    Raises OSError: a file cannot be read. Raises ValueError: the cluster cannot be read.
    """
    same = {"version": own_version(), "format of the files": FORMAT, **_of_request(plan.request)}
    own = {
        name: {"policy file": _digest(path_of(text))} if is_file(text) else {} for name, text in plan.policies.items()
    }
    return {cell: {**cell._asdict(), **own[cell.policy], **same} for cell in plan.cells}


def digest_of(inputs: Mapping[str, Any]) -> str:
    """Equal for equal inputs."""
    return sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def changed(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Which inputs differ, by name."""
    return [name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]


def _of_request(request: Request) -> dict[str, Any]:
    is_made = request.trace == SAMPLE or is_generator(request.trace)
    return {
        "cluster": _cluster(request.cluster),
        "trace": request.trace if is_made else _digest(Path(request.trace)),
        "trace format": request.trace_format,
        "world": str(request.world),
        "tables": None if request.tables is None else _digest(request.tables),
        "measured": _digest(request.measured) if isinstance(request.measured, Path) else None,
        "belief": str(request.belief),
        "checkpoints": request.preemptible,
        "costs": dict(sorted(request.costs.items())),
        **{name: getattr(request, name) for name in AS_THEY_ARE if name != "belief"},
        **({"foreseen": True} if request.foresees else {}),
    }


def _cluster(name: str) -> str:
    """Of its file, and of the files that say how its nodes are wired."""
    loaded = clusters.load(name)
    path = PRESETS_DIR / f"{name}.yaml" if name in preset_names() else Path(name)
    wired = sorted({extras.topology for extras in loaded.extras.values()})
    return _of_files([path, *(Path(one) for one in wired if Path(one).is_file())])


def _digest(path: Path) -> str:
    """Of a file, or of all files of a directory."""
    return _of_files(sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path])


def _of_files(paths: list[Path]) -> str:
    found = sha256()
    for path in paths:
        found.update(sha256(path.read_bytes()).digest())
    return found.hexdigest()
