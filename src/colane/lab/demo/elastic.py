"""`colane demo --paper E`: two elastic jobs and a newcomer on four cpu devices, resized while they train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

from colane.api.jobs import JobObject, JobRequestObject
from colane.api.of_record import ProfileObject
from colane.cli import output
from colane.cli.service.command import node_name
from colane.engines.local import LocalConfig, LocalEngine
from colane.lab.demo.watch import HEARTBEAT_S, DemoWatch
from colane.lab.report.measured import ThroughputCurve
from colane.lab.report.mixed import DeviceSpan, LossPoint
from colane.model.words import count
from colane.perf.scaling import fitted_step_s

DEVICES: Final = 4
BATCH: Final = 48
ACT_MAX_S: Final = 240.0  # longest wait for each act, on a machine that is busy with other things
JOBS: Final = {"wide": (4.0, 500), "narrow": (1.0, 1500), "newcomer": (1.0, 500)}
"""What a device takes for a sample (ms), and steps, by job."""

FAMILIES: Final = {"wide": "demo-wide", "narrow": "demo-narrow", "newcomer": "demo-narrow"}
ALONE_STEPS, TOGETHER_STEPS = 60, 150
"""Steps of the first job before the second comes, and of the second before the newcomer does."""

POLICY: Final = "f-sched:rise_ratio_min=0"
TOLD: Final = frozenset({"started", "shrunk", "grown", "preempting", "exited"})


@dataclass
class SizeWatch(DemoWatch):
    """Looks at how many devices each job has."""

    seen: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # time and devices of each look, by name
    # steps, the time of the last one by the job's own clock, attempt and devices of each look, by name
    steps: dict[str, list[tuple[int, float, int, int]]] = field(default_factory=dict)
    ended: dict[str, JobObject] = field(default_factory=dict)  # jobs that have ended, by name

    @property
    def tells(self) -> frozenset[str]:
        return TOLD

    def note(self, number: int, job: JobObject, now_s: float) -> None:
        name, sample = self.names[number], job["progress"]
        self.seen.setdefault(name, []).append((now_s, len(job["gpus"])))
        if sample and sample["steps"] and sample["last_step_s"]:
            look = sample["steps"], sample["last_step_s"], job["attempt"], len(job["gpus"])
            self.steps.setdefault(name, []).append(look)

    def have_ended(self, live: dict[int, JobObject]) -> bool:
        """Whether all jobs have, and succeeded or not."""
        for number, name in self.names.items():
            if number not in live and name not in self.ended:
                self.ended[name] = self.client.job(number)
        return len(self.ended) == len(self.names)

    def steps_s(self) -> dict[str, dict[int, float]]:
        """Step time by devices as the looks show it, by family: the median of those between two looks."""
        found: dict[str, dict[int, list[float]]] = {}
        for name, looks in self.steps.items():
            for before, after in pairwise(looks):
                if before[2:] == after[2:] and after[0] > before[0]:
                    times = found.setdefault(FAMILIES[name], {}).setdefault(after[3], [])
                    times.append((after[1] - before[1]) / (after[0] - before[0]))
        return {family: {n: median(times) for n, times in sizes.items()} for family, sizes in found.items()}

    def spans(self) -> dict[str, list[DeviceSpan]]:
        """Devices of each job from look to look; the last look at a job that has ended is its end."""
        return {
            name: [DeviceSpan(n, at_s, end_s) for (at_s, n), (end_s, _) in pairwise([*looks, looks[-1]])]
            for name, looks in self.seen.items()
        }


def stack_config(state_dir: Path, devices: str | None) -> LocalConfig:
    """What the demo starts: four devices, which share cores where the machine has fewer."""
    return LocalConfig.of(
        state_dir, node_name(), policy=POLICY, devices=devices or f"cpu:{DEVICES}", mps="off",
        topology="minsky" if devices is None and len(os.sched_getaffinity(0)) < DEVICES else None,
        heartbeat=HEARTBEAT_S,
    )  # fmt: skip


def act(stack: LocalEngine, folder: Path) -> tuple[SizeWatch, dict[str, ThroughputCurve], int]:
    """Two jobs, then a newcomer, until all have ended; what was seen, f(n) as it is believed then, and devices."""
    devices = len(stack.node()["gpus"])
    with stack.client() as client:
        watch = SizeWatch(client)
        output.note(f"1. a job that runs on 1 to {devices} devices has all; then a second comes")
        first = watch.submit("wide", request("wide", folder, devices))
        watch.until(stack, lambda live: _steps(live, first) > ALONE_STEPS, ACT_MAX_S)
        second = watch.submit("narrow", request("narrow", folder, devices))
        watch.until(stack, lambda live: _steps(live, second) > TOGETHER_STEPS, ACT_MAX_S)
        output.note("2. a newcomer: they shrink for it, and grow when it has gone")
        watch.submit("newcomer", request("newcomer", folder, devices))
        if not watch.until(stack, watch.have_ended, ACT_MAX_S):
            output.note("not all jobs have ended within their time: this machine is busy")
        return watch, _curves(watch.steps_s(), client.profiles(), devices), devices


def request(name: str, folder: Path, devices: int) -> JobRequestObject:
    """A job of the demo."""
    words = _words(name, "--state", str(folder / f"{name}.state"), "--losses", str(folder / f"{name}.losses"))
    return {"command": words, "gpus": f"1..{devices}", "family": FAMILIES[name], "workdir": str(folder)}


def _words(name: str, *more: str, sample_ms: float | None = None) -> list[str]:
    own_ms, steps = JOBS[name]
    takes_ms = own_ms if sample_ms is None else sample_ms
    seed = list(JOBS).index(name) + 1
    options = ("--steps", str(steps), "--batch", str(BATCH), "--sample-ms", str(takes_ms), "--seed", str(seed))
    return [sys.executable, "-m", "colane.workloads", "data-parallel", *options, *more]


def _steps(live: dict[int, JobObject], number: int) -> float:
    """Steps of a job; of one that has ended more than is ever waited for."""
    return live[number]["steps"] if number in live else float("inf")


def _curves(
    steps_s: dict[str, dict[int, float]], profiles: Iterable[ProfileObject], devices: int
) -> dict[str, ThroughputCurve]:
    """f(n) of each family and the fit through it: as it was seen, and better as the scheduler has learnt it.

    It learns nothing while other work uses the machine.
    """
    for profile in profiles:
        if profile["step_s"] is not None:
            key = profile["key"]
            steps_s.setdefault(key["family"], {})[key["gpus"]] = profile["step_s"]["value"]
    sizes = range(1, devices + 1)
    return {
        family: ThroughputCurve.of(known, {n: fitted_step_s(known, n) for n in sizes})
        for family, known in sorted(steps_s.items(), reverse=True)
    }


def undisturbed(name: str, folder: Path) -> list[float]:
    """Losses of a job when it runs alone on one device from beginning to end, without waiting for devices."""
    path = folder / f"{name}.undisturbed"
    env = {key: value for key, value in os.environ.items() if key != "NPROC_PER_NODE"}
    subprocess.run(_words(name, "--losses", str(path), sample_ms=0.0), check=True, env=env, stdout=subprocess.DEVNULL)
    return [point.loss for point in read_losses(path)]


def read_losses(path: Path) -> list[LossPoint]:
    """Steps as a job wrote them, in the order they were made."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [LossPoint(int(step), int(devices), float(loss)) for step, devices, loss in map(str.split, lines)]


def publish(
    watch: SizeWatch, curves: dict[str, ThroughputCurve], devices: int, folder: Path, out: Path, *, as_json: bool
) -> int:
    """Draw, and say what came of it; how many jobs did not do as they should."""
    from colane.lab.report import elastic_plots, style  # noqa: PLC0415 - matplotlib takes a second

    losses = {name: read_losses(folder / f"{name}.losses") for name in JOBS}
    alone = {name: undisturbed(name, folder) for name in JOBS}
    figure = elastic_plots.elastic_jobs(watch.spans(), devices, curves, losses, alone)
    path = style.save(figure, out / "elastic.png")
    summary = {name: _summary(watch, name, losses[name], alone[name]) for name in JOBS}
    (out / "elastic.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if as_json:
        output.say(json.dumps({"jobs": summary, "figure": str(path)}))
    else:
        for name, said in summary.items():
            output.say(f"{name}: {_told(said)}")
        output.say(f"each of the {devices} cpu devices stands for an accelerator: what a sample takes is waited for")
        output.say(f"figure: {path}")
    return sum(not said["is_unbroken"] for said in summary.values())


def _summary(watch: SizeWatch, name: str, losses: Sequence[LossPoint], alone: Sequence[float]) -> dict[str, Any]:
    job = watch.ended.get(name)
    apart = max([abs(p.loss - own) / abs(own) for p, own in zip(losses, alone, strict=False)], default=0.0)
    each_once = [point.step for point in losses] == list(range(1, JOBS[name][1] + 1))
    return {
        "state": job["state"] if job else "unfinished",
        "devices": [devices for devices, _ in groupby(point.devices for point in losses)],
        "attempts": job["attempt"] if job else 0,
        "steps": len(losses),
        "loss_apart_ratio": apart,
        "is_unbroken": bool(each_once and apart < LOSS_APART_MAX),
    }


LOSS_APART_MAX: Final = 1e-6  # sums over devices round differently; more than that is another training


def _told(said: Mapping[str, Any]) -> str:
    curve = "each step once, its loss as if never resized" if said["is_unbroken"] else "its loss curve is broken"
    return f"{said['state']}; devices {' -> '.join(map(str, said['devices']))}; {count(said['steps'], 'step')}: {curve}"
