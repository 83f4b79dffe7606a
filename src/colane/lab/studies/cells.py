"""Files of a study, one for each simulation: written whole or not at all, and read without what they were made of."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from colane.foresee.judged import judged, judged_rows
from colane.lab.report.simulated import CURVES, ClusterCurves, SimulatedRun, file_word, slo_violations
from colane.lab.report.windowed import Measured
from colane.lab.simulate.generators import is_generator
from colane.lab.simulate.request import SAMPLE, Request
from colane.lab.studies.file import AS_THEY_ARE, CellKey, StudyPlan
from colane.lab.traces import clusters
from colane.lab.traces.clusters import PRESETS_DIR, preset_names
from colane.lab.traces.workload import Workload
from colane.model.job import JobState
from colane.model.versions import own_version
from colane.policyfiles.load import is_file
from colane.policyfiles.load import path_of as policy_path

CELLS: Final = "cells"  # folder of the files


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One simulation, as it is kept."""

    key: CellKey  # which
    inputs: Mapping[str, Any]  # what it is a function of
    jobs: int  # jobs of the workload
    refused: Sequence[str]  # those that were not submitted, one line each
    offered_load: float | None  # GPU-seconds asked for per GPU-second while jobs arrive; None without durations
    flaws: int  # plans that were refused
    lacks: Mapping[str, int]  # of how many jobs the policy did not know what it is defined by, by what that is
    stuck: str  # the first of the jobs that never ended, and why
    measured: Measured  # jobs as columns, and the cluster over time
    ids: NDArray[np.int64]  # of each job
    names: tuple[str, ...]  # what its trace calls it
    states: tuple[JobState, ...]  # how each ended
    start_s: NDArray[np.float64]  # start of its last attempt
    # times on GPUs: job, GPUs as `node/index` joined by blanks, start, end
    stays: tuple[tuple[int, str, float, float], ...]
    foreseen: Sequence[Mapping[str, Any]]  # how good quotes were, see `foresee.judged.judged_rows`


def path_of(folder: Path, key: CellKey) -> Path:
    """Where a simulation is kept."""
    return folder / CELLS / f"{file_word(key.policy)}_load{key.load:.12g}_seed{key.seed}.npz"


def decisions_of(folder: Path, key: CellKey) -> Path:
    """Where every decision of a simulation is kept, where the study asks for that."""
    return path_of(folder, key).with_suffix(".decisions.jsonl.gz")


def result_of(key: CellKey, inputs: Mapping[str, Any], run: SimulatedRun, workload: Workload) -> CellResult:
    """What is kept of a run; jobs by their place in the workload."""
    columns = run.columns
    places = {int(job.id): place for place, job in enumerate(workload.jobs)}
    place = np.fromiter((places[job] for job in columns.id.tolist()), dtype=np.int64, count=len(columns.id))
    order = np.argsort(place, kind="stable")
    jobs = [workload.jobs[at] for at in place[order].tolist()]
    missed = slo_violations(columns, {int(job.id): job for job in workload.jobs})
    ids = columns.id[order]
    return CellResult(
        key=key,
        inputs=inputs,
        jobs=run.jobs,
        refused=run.refused,
        offered_load=run.offered_load,
        flaws=len(run.flaws),
        lacks=run.lacks,
        stuck=run.stuck,
        measured=Measured(
            place=place[order],
            done=columns.succeeded[order],
            **{name: getattr(columns, name)[order] for name in _AS_REPORTED},
            gpus=np.fromiter((job.spec.gpus for job in jobs), dtype=np.int64, count=len(jobs)),
            slo_missed=np.fromiter((missed.get(job, -1) for job in ids.tolist()), dtype=np.int64, count=len(jobs)),
            curves=run.curves,
            cluster_gpus=len(run.gpus),
        ),
        ids=ids,
        names=tuple(job.spec.name for job in jobs),
        states=tuple(columns.state[at] for at in order.tolist()),
        start_s=columns.start_s[order],
        stays=tuple((s.job, " ".join(s.gpus), s.start_s, s.end_s) for s in run.stays),
        foreseen=tuple(judged_rows(key.policy, judged(run.foretold or ()))),
    )


def write_cell(folder: Path, result: CellResult) -> Path:
    """Keep a simulation: its file is there whole, or not at all. Raises OSError: it cannot be written."""
    m, stays = result.measured, result.stays
    meta = {
        "digest": digest_of(result.inputs), "inputs": dict(result.inputs), "key": result.key,
        "cluster_gpus": m.cluster_gpus, **{name: getattr(result, name) for name in _TOLD},
    }  # fmt: skip
    texts = {"meta": meta, "names": result.names, "states": result.states, "stay_gpus": [stay[1] for stay in stays]}
    arrays = {
        **{name: np.frombuffer(json.dumps(one, sort_keys=True).encode(), np.uint8) for name, one in texts.items()},
        "ids": result.ids, "start_s": result.start_s,
        **{name: getattr(m, name) for name in _COLUMNS},
        **{f"curve_{name}": getattr(m.curves, name) for name in CURVES},
        "stay_job": np.asarray([stay[0] for stay in stays], dtype=np.int64),
        "stay_start_s": np.asarray([stay[2] for stay in stays], dtype=float),
        "stay_end_s": np.asarray([stay[3] for stay in stays], dtype=float),
    }  # fmt: skip
    path = path_of(folder, result.key)
    with whole(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


_AS_REPORTED: Final = ("submit_s", "first_start_s", "end_s", "attempts", "gpu_s", "alone_s")
_TOLD: Final = ("jobs", "refused", "offered_load", "flaws", "lacks", "stuck", "foreseen")
_COLUMNS: Final = ("place", "done", *_AS_REPORTED, "gpus", "slo_missed")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a draft to write, which is put in the place of a file once it is written: no reader ever sees a part of it.

    Raises OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def inputs_kept(folder: Path, key: CellKey) -> dict[str, Any] | None:
    """What a kept simulation is a function of; None where there is none, its file is damaged, or lacks a part."""
    try:
        with path_of(folder, key).open("rb") as file, np.load(file) as kept:
            meta = _json(kept["meta"])
            found: dict[str, Any] = meta["inputs"]
            return found if "lacks" in meta else None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
        return None


def read_cell(folder: Path, key: CellKey) -> CellResult:
    """Read a simulation that was kept. Raises OSError: it cannot be read."""
    with path_of(folder, key).open("rb") as file, np.load(file) as kept:
        meta, names = _json(kept["meta"]), _json(kept["names"])
        curves = ClusterCurves(**{name: kept[f"curve_{name}"] for name in CURVES})
        columns = {name: kept[name] for name in _COLUMNS}
        stays = zip(
            kept["stay_job"].tolist(), _json(kept["stay_gpus"]), kept["stay_start_s"].tolist(),
            kept["stay_end_s"].tolist(), strict=True,
        )  # fmt: skip
        return CellResult(
            key=key,
            inputs=meta["inputs"],
            **{name: meta.get(name, ()) for name in _TOLD},
            measured=Measured(**columns, curves=curves, cluster_gpus=meta["cluster_gpus"]),
            ids=kept["ids"],
            names=tuple(names),
            states=tuple(map(JobState, _json(kept["states"]))),
            start_s=kept["start_s"],
            stays=tuple(stays),
        )


def _json(array: NDArray[np.uint8]) -> Any:  # noqa: ANN401 - as JSON is
    return json.loads(array.tobytes())


FORMAT: Final = 1  # of the files that hold one simulation each


def inputs_of(plan: StudyPlan) -> dict[CellKey, dict[str, Any]]:
    """What each simulation of a study is a function of: values as they are, files by their content.

    Raises OSError: a file cannot be read. Raises ValueError: the cluster cannot be read.
    """
    same = {"version": own_version(), "format of the files": FORMAT, **_of_request(plan.request)}
    own = {
        name: {"policy file": _digest(policy_path(text))} if is_file(text) else {}
        for name, text in plan.policies.items()
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
