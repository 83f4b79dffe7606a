"""The demo's mixed batch: what a shared machine really sees, under FIFO and under `colane`, looked at while it runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

from colane.api.jobs import JobObject, JobRequestObject
from colane.api.nodes import NodeObject
from colane.cli.errors import MisuseError
from colane.cli.service.command import node_name
from colane.devices import DeviceSpecError, discover
from colane.engines.local import LocalConfig
from colane.lab.demo.plan import CPU_BATCH, CPU_WIDTH, GPUS_MAX, LABEL, PAPER_BATCH, DemoPhase, job_env
from colane.lab.report.mixed import JobLook, MixedJob, MixedRole, MixedRun
from colane.model.hardware import Gpu
from colane.model.profile import SetMeasurement

FIFO: Final = DemoPhase("FIFO", "fifo", "mixed batch: one job at a time on a device, each with what it asked for")
OURS: Final = DemoPhase(
    "colane", "colane:quantum_s=2,move_s=2", "mixed batch: shared, tuned and moved where that pays",
    settings={"core_tuner": "linear", "core_window": "1s", "contention": "2s"},
)  # fmt: skip
"""Its times are those of jobs of half a minute: with those of jobs of hours nothing would happen in a demo."""

LOADING: Final = "loading"
URGENT: Final = "urgent"
URGENT_AFTER: Final = 0.5
"""Part of the steps of the longest job after which the urgent one comes: no job is parked soon after its start."""

URGENT_AFTER_ALL: Final = 0.6
"""Or part of all steps: where sharing is impossible, the longest job gives way to the shorter ones until the end."""

CPU_SECONDS: Final = 15
SMALL_ITERS: Final = 250
LOADING_ITERS: Final = 300  # on a core of 2024 about five and fifteen seconds
ROTATIONS: Final = 40
"""Of each sample, by the data workers of the job that waits for its data: its speed grows with its cores."""

CORES_OF_TWO_MIN: Final = 4
"""With fewer cores a second device would leave one core to each, where no other job could share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPlan:
    """The mixed batch on this machine."""

    devices: str | None  # for `LocalConfig`
    device_count: int  # how many there are
    cores: int  # of the machine
    common: dict[str, Any]  # fields that all training jobs have in common
    words: tuple[str, ...]  # what is about to happen, line by line
    states: Path  # where the elastic job saves
    scale: float = 1.0  # of the numbers of steps
    agent_env: dict[str, str] = field(default_factory=dict)  # variables of the agent
    phases: tuple[DemoPhase, ...] = (FIFO, OURS)  # runs in order; the first is the baseline
    title: str = "Colane demo: a mixed batch"  # heading of the report

    def jobs(self, phase: DemoPhase) -> list[JobRequestObject]:
        """Return what is submitted at once."""
        labels = {"labels": {LABEL: phase.name}}
        small = [self._small(f"small-{place}", model) for place, model in enumerate(("vgg11", "resnet18", "vgg11"), 1)]
        loading = {
            **self.common, "name": LOADING, "family": LOADING, "model_name": "resnet18", "dataset": "synthetic",
            "iters": self._steps(LOADING_ITERS), "workers": 3, "image_size": 64, "batch_size": 4, "width": 0.0625,
            "augment": ROTATIONS,
        }  # fmt: skip
        made = [small[0], loading, *small[1:], self._elastic(phase), self._without_device()]
        return [{**job, **labels} for job in made]

    def arrivals(self, phase: DemoPhase, batch: Sequence[JobObject]) -> list[JobRequestObject]:
        """Return what is submitted now: the urgent job, in the middle."""
        names = {job["name"]: job for job in batch}
        longest, counted = names[LOADING], [job for job in batch if job.get("steps_total")]
        made, total = sum(job["steps"] or 0 for job in counted), sum(job["steps_total"] or 0 for job in counted)
        is_half_done = (longest["steps"] or 0) >= URGENT_AFTER * (longest["steps_total"] or inf)
        if URGENT in names or not (is_half_done or made >= URGENT_AFTER_ALL * total or longest["end_s"]):
            return []
        return [{**self._small(URGENT, "vgg11"), "priority": 10, "labels": {LABEL: phase.name}}]

    def stack_config(self, phase: DemoPhase, state_dir: Path, heartbeat_s: float) -> LocalConfig:
        """Return what to start for a phase."""
        return LocalConfig.of(
            state_dir, node_name(), policy=phase.policy, devices=self.devices, mps=phase.mps, heartbeat=heartbeat_s,
            env=self.agent_env, **phase.settings,
        )  # fmt: skip

    def _steps(self, steps: int) -> int:
        return max(1, round(steps * self.scale))

    def _small(self, name: str, model: str) -> JobRequestObject:
        return {**self.common, "name": name, "family": model, "model_name": model, "iters": self._steps(SMALL_ITERS)}

    def _elastic(self, phase: DemoPhase) -> JobRequestObject:
        sizes = {"gpus": list(range(1, self.device_count + 1))} if self.device_count > 1 else {}
        saves = {"checkpoint_dir": str(self.states / phase.name), "preemptible": True}
        return {**self._small("elastic", "resnet18"), "family": "elastic", **saves, **sizes}

    def _without_device(self) -> JobRequestObject:
        command = [sys.executable, "-m", "colane.workloads", "stream", "--threads", "1", "--seconds", str(CPU_SECONDS)]
        shared = {name: self.common[name] for name in ("workdir", "env")}
        return {**shared, "name": "cpu-only", "command": command, "gpus": 0}


ROLES: Final[Mapping[str, MixedRole]] = {
    LOADING: MixedRole.CORES,
    URGENT: MixedRole.URGENT,
    "elastic": MixedRole.ELASTIC,
    "cpu-only": MixedRole.WITHOUT_DEVICE,
}


def make_mixed_plan(devices: str | None, states: Path, scale: float = 1.0) -> MixedPlan:
    """Return the mixed batch for this machine. Raises MisuseError: there are no such devices."""
    try:
        found = discover(devices).observe()
    except DeviceSpecError as error:
        raise MisuseError(str(error)) from error
    cores = len(os.sched_getaffinity(0))
    common = {
        "dataset": "digits", "workers": 0, "seed": 1, "python": sys.executable, "workdir": str(Path.cwd()),
        "cores": 1, "category": "cv", "core_hints": ["pipelined", "many-weights"],
    }  # fmt: skip
    if found[0].is_cpu_device:
        return _on_cpu(found, devices, cores, common, states, scale)
    chosen = [gpu for gpu in found if gpu.healthy][:GPUS_MAX] or list(found[:1])
    return MixedPlan(
        devices=devices or "gpu", device_count=len(chosen), cores=cores, states=states, scale=4 * scale,
        common={**common, "batch_size": PAPER_BATCH, "env": job_env()}, words=_words(len(chosen), chosen[0].type),
        agent_env={"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in chosen)},
    )  # fmt: skip


def _on_cpu(
    found: Sequence[Gpu], devices: str | None, cores: int, common: dict[str, Any], states: Path, scale: float
) -> MixedPlan:
    count = len(found) if devices else min(GPUS_MAX, max(1, cores // (CORES_OF_TWO_MIN // 2)))
    env = job_env() | {"OMP_NUM_THREADS": "1"}
    return MixedPlan(
        devices=devices or f"cpu:{count}", device_count=count, cores=cores, states=states, scale=scale,
        common={**common, "batch_size": CPU_BATCH, "width": CPU_WIDTH, "env": env},
        words=_words(count, f"cpu device, {cores} cores in all"),
    )  # fmt: skip


def _words(count: int, kind: str) -> tuple[str, ...]:
    said = f"a mixed batch on {count} x {kind}: three small jobs, one that waits for its data, an elastic one, "
    return (said + "one without a device, and in the middle an urgent one",)


class MixedWatcher:
    """Looks at the jobs of a run while it goes on."""

    def __init__(self, plan: MixedPlan) -> None:
        self._plan = plan
        self._began_s = time.time()
        self._looks: dict[str, list[JobLook]] = {}

    def begin(self) -> None:
        """Count from now."""
        self._began_s, self._looks = time.time(), {}

    def look(self, batch: Sequence[JobObject]) -> None:
        """Note where each job is that has a process."""
        for job in batch:
            if job["state"] in RUNS:
                before = self._looks.setdefault(job["name"], [])
                before.append(self._look(job, before[-1] if before else None))

    def _look(self, job: JobObject, last: JobLook | None) -> JobLook:
        is_parked = job["state"] == "paused"
        devices, lanes = tuple(job["gpus"]), tuple(job["lanes"])
        if is_parked and not devices and last is not None:
            devices, lanes = last.devices, last.lanes
        throttle, progress = job["throttle"], job["progress"]
        cores = (throttle["cores"] if throttle else None) or job["booked_cores"]
        count = len(cores) or self._plan.cores
        return JobLook(
            time.time() - self._began_s, devices, lanes, count, is_parked, job["steps"],
            progress["last_step_s"] if progress else None,
        )  # fmt: skip

    def run(
        self, phase: DemoPhase, node: NodeObject, ended: Sequence[JobObject], sets: Sequence[SetMeasurement]
    ) -> MixedRun:
        """Return what was seen."""
        devices = tuple(f"{node['name']}/{gpu['index']}" for gpu in node["gpus"])
        deltas = {" + ".join(sorted(key.family for key in one.keys)): one.delta for one in sets}
        jobs = {job["name"]: self._job(job) for job in ended}
        samples = [sample["others_ratio"] for job in ended if (sample := job["progress"])]
        known = [ratio for ratio in samples if ratio is not None]
        return MixedRun(
            name=phase.name, devices=devices, cores=self._plan.cores, jobs=jobs, deltas=deltas,
            others_ratio=sum(known) / len(known) if known else None,
        )  # fmt: skip

    def _job(self, job: JobObject) -> MixedJob:
        name, first_s = job["name"], job["first_start_s"]
        told = [line for line in job["story"] if line["why"] in {"cores-changed", "cores-kept"}]
        return MixedJob(
            name=name, role=ROLES.get(name, MixedRole.SHARING), submit_s=job["submit_s"] - self._began_s,
            start_s=None if first_s is None else first_s - self._began_s,
            end_s=(job["end_s"] or time.time()) - self._began_s,
            looks=tuple(self._looks.get(name, ())), cores_told=told[-1]["sentence"] if told else "",
            held_back=sum(line["why"] == "throttled" for line in job["story"]),
        )  # fmt: skip


RUNS: Final = frozenset({"launching", "running", "running-protected", "paused", "checkpointing", "stopping"})
