"""`colane demo --paper D`: cores found while a job runs, and a job without GPUs held back for training beside it."""

from __future__ import annotations

import csv
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from colane.api.jobs import JobObject, JobRequestObject
from colane.api.of_record import ProgressObject
from colane.cli import output
from colane.cli.service.command import node_name
from colane.engines.local import LocalConfig, LocalEngine
from colane.lab.demo.watch import HEARTBEAT_S, DemoWatch
from colane.lab.report.mixed import CoreSample

WINDOW: Final = "4s"  # each number of cores is tried so long; the paper's 90 s would make an hour of it
CONTENTION: Final = "2s"
SPEED_OVER_S: Final = 3.0  # a speed is the mean over so long
START_MAX_S: Final = 240.0
SEARCH_MAX_S: Final = 120.0
"""Longest wait for a first step (importing takes a minute where others are at work), and for each act after it."""

AFTER_S: Final = 4.0  # what came of each act is shown for so long
STEPS: Final = 10**6  # more than the demo waits for: a job that is known to end soon is not tuned
ROTATIONS: Final = 40  # of each sample, by a data worker: making a batch costs about twice as much as training on it
LOADING: Final = "loading-bound"
COMPUTING: Final = "compute-bound"
HOG: Final = "memory hog"


@dataclass
class Watching(DemoWatch):
    """Looks at cores and speeds."""

    seen: dict[str, list[CoreSample]] = field(default_factory=dict)  # looks, by name
    _steps: dict[int, list[tuple[float, int]]] = field(default_factory=dict)

    @property
    def tells(self) -> frozenset[str]:
        return TOLD

    def submit(self, name: str, request: JobRequestObject, **env: str) -> int:
        """Start a job."""
        self.seen[name] = []
        return super().submit(name, request, **env)

    def note(self, number: int, job: JobObject, now_s: float) -> None:
        cores = job["throttle"]["cores"] if job["throttle"] else job["booked_cores"]
        runs = job["state"] in {"launching", "running", "running-protected"}
        count = (len(cores) or len(os.sched_getaffinity(0))) if runs else 0
        self.seen[self.names[number]].append(CoreSample(now_s, count, self._speed(number, job["progress"])))

    def _speed(self, number: int, progress: ProgressObject | None) -> float | None:
        """Steps a second over the last while, by the job's own clock."""
        last_step_s = progress["last_step_s"] if progress else None
        if not progress or not progress["steps"] or not last_step_s:
            return None
        points = self._steps.setdefault(number, [])
        points.append((last_step_s, progress["steps"]))
        while len(points) > 2 and points[-1][0] - points[1][0] >= SPEED_OVER_S:
            points.pop(0)
        span_s = points[-1][0] - points[0][0]
        return (points[-1][1] - points[0][1]) / span_s if span_s > 0 else None


TOLD: Final = frozenset({"cores-changed", "cores-kept", "throttled", "let-go"})


def stack_config(state_dir: Path, devices: str | None) -> LocalConfig:
    """What the demo starts: cores are tuned, contention is looked for often; on cpu devices where nothing is said."""
    return LocalConfig.of(
        state_dir, node_name(), policy="fifo", devices=devices or "cpu:1", mps="off", heartbeat=HEARTBEAT_S,
        core_tuner="linear", core_window=WINDOW, contention=CONTENTION,
    )  # fmt: skip


def act(stack: LocalEngine) -> Watching:
    """Three acts: cores are given, cores are given back, a hog is held back and let go."""
    with stack.client() as client:
        watching = Watching(client)
        output.note("1. a job whose data takes longer to make than to train on starts with one core")
        loading = watching.submit(LOADING, training(workers=3, side=64))
        _tune(stack, watching, loading)
        client.cancel(loading)
        output.note("2. a job that computes in one thread starts with more than it has use for")
        request = {**training(workers=0, side=32), "core_hints": []}
        computing = watching.submit(COMPUTING, request, OMP_NUM_THREADS="1")
        _tune(stack, watching, computing)
        output.note("3. a job without GPUs that uses up memory bandwidth starts beside it")
        _contend(stack, watching, computing)
        return watching


def training(*, workers: int, side: int) -> JobRequestObject:
    """A built-in model, small enough for a core; the hints of paper D make it start with one.

    With data workers it waits for its data (`ROTATIONS`).
    """
    return {
        "model_name": "resnet18", "dataset": "synthetic", "batch_size": 4, "width": 0.0625, "iters": STEPS,
        "workers": workers, "image_size": side, "augment": ROTATIONS if workers else 0, "seed": 1,
        "python": sys.executable, "category": "cv", "cores": 1,
        "core_hints": ["pipelined", "many-weights"], "family": f"demo-{workers}",
    }  # fmt: skip


def _tune(stack: LocalEngine, watching: Watching, number: int) -> None:
    """Until its cores are found, and a little longer."""
    watching.until(stack, lambda live: number not in live or live[number]["steps"] > 0, START_MAX_S)
    if not watching.until(stack, lambda live: number not in live or has_settled(live[number]), SEARCH_MAX_S):
        output.note("the search has not ended within its time: this machine is busy")
    watching.until(stack, lambda _: False, AFTER_S)


def has_settled(job: JobObject) -> bool:
    """Whether the search for its cores has ended: the last word on them is no further try."""
    said = [line for line in job["story"] if line["why"] in {"cores-changed", "cores-kept"}]
    return bool(said) and "; tries" not in said[-1]["sentence"]


def _contend(stack: LocalEngine, watching: Watching, training_job: int) -> None:
    threads = str(len(os.sched_getaffinity(0)))
    command = [sys.executable, "-m", "colane.workloads", "stream", "--threads", threads]
    hog = watching.submit(HOG, {"command": command, "gpus": 0})
    if not watching.until(stack, lambda live: _is_held(live, hog), SEARCH_MAX_S):
        output.note("it has slowed no training job, so it was left alone")
    watching.until(stack, lambda _: False, 2 * AFTER_S)
    watching.client.cancel(training_job)
    watching.until(stack, lambda live: not _is_held(live, hog), SEARCH_MAX_S)
    watching.until(stack, lambda _: False, AFTER_S)
    watching.client.cancel(hog)


def _is_held(live: dict[int, JobObject], hog: int) -> bool:
    return hog in live and live[hog]["throttle"] is not None


def publish(watching: Watching, out: Path, *, as_json: bool) -> None:
    """Write the looks and the figure, and say what came of it."""
    from colane.lab.report import style  # noqa: PLC0415 - matplotlib takes a second
    from colane.lab.report.elastic_plots import speed_and_cores  # noqa: PLC0415

    with (out / "cores.csv").open("w", newline="", encoding="utf-8") as file:
        rows = ((name, *one) for name, looks in watching.seen.items() for one in looks)
        csv.writer(file).writerows([("job", *CoreSample._fields), *rows])
    figure = style.save(speed_and_cores(watching.seen), out / "cores.png")
    summary = {name: _summary(looks) for name, looks in watching.seen.items()}
    if as_json:
        output.say(json.dumps({"jobs": summary, "figure": str(figure)}))
        return
    for name, said in summary.items():
        output.say(f"{name}: cores {' -> '.join(map(str, said['cores']))}")
    output.say(f"figure: {figure}")


def _summary(looks: list[CoreSample]) -> dict[str, Any]:
    """The cores it had, one after another, and its best speed with each number."""
    cores: list[int] = []
    speeds: dict[int, float] = {}
    for one in looks:
        if one.cores and (not cores or cores[-1] != one.cores):
            cores.append(one.cores)
        if one.cores and one.steps_per_s is not None:
            speeds[one.cores] = max(speeds.get(one.cores, 0.0), one.steps_per_s)
    return {"cores": cores, "best_steps_per_s": speeds}
