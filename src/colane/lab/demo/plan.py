"""What the demo runs: paper A's best case (section 6.2), in full on GPUs, scaled down on CPU cores."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from colane.api.jobs import JobObject, JobRequestObject
from colane.cli.errors import MisuseError
from colane.cli.service.command import node_name
from colane.devices import DeviceSpecError, discover
from colane.engines.local import LocalConfig
from colane.model.hardware import Gpu
from colane.model.words import count
from colane.workloads import cifar10

MODELS: Final = ("vgg19", "vgg11", "resnet18")
COPIES: Final = 2
LABEL: Final = "run"
GPUS_MAX: Final = 2  # paper A's cluster has two
PAPER_BATCH: Final = 64
PAPER_ITERS: Final = 1000
PAPER_WORKERS: Final = 2
CPU_BATCH: Final = 8
CPU_WIDTH: Final = 0.125
CPU_ITERS: Final = 400  # so that a job trains for six to eight seconds on a core of 2024
MPS_CONTROL: Final = "nvidia-cuda-mps-control"
ENV_NAMES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class DemoPhase:
    """One run of the batch."""

    name: str  # shown in the report
    policy: str  # registered name
    words: str  # what it does, for the screen
    mps: str = "off"  # as `AgentConfig.mps`
    settings: Mapping[str, str] = field(default_factory=dict)  # further settings of the scheduler


class BatchPlan(Protocol):
    """A batch that is run once in each phase."""

    @property
    def phases(self) -> tuple[DemoPhase, ...]:
        """Runs in order; the first is the baseline."""

    @property
    def words(self) -> tuple[str, ...]:
        """What is about to happen, line by line."""

    def jobs(self, phase: DemoPhase) -> list[JobRequestObject]:
        """What is submitted at once."""

    def arrivals(self, phase: DemoPhase, batch: Sequence[JobObject]) -> list[JobRequestObject]:
        """What is submitted now, while the batch runs; never twice."""

    def stack_config(self, phase: DemoPhase, state_dir: Path, heartbeat_s: float) -> LocalConfig:
        """What is started for a phase."""


FIFO: Final = DemoPhase("FIFO", "fifo", "one job at a time on a device")
COLOCATION: Final = DemoPhase("co-location", "colocate", "jobs share a device where it pays")
WITH_MPS: Final = DemoPhase("co-location, MPS", "colocate", "they share it through NVIDIA MPS", mps="on")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """The whole demo."""

    phases: tuple[DemoPhase, ...]  # runs in order; the first is the baseline
    devices: str | None  # for `LocalConfig`
    job: JobRequestObject  # fields all jobs have in common
    env: dict[str, str]  # variables of all jobs
    title: str  # heading of the report
    words: tuple[str, ...]  # what is about to happen, line by line
    agent_env: dict[str, str] = field(default_factory=dict)  # variables of the agent

    def jobs(self, phase: DemoPhase) -> list[JobRequestObject]:
        """Return the batch of a phase."""
        own = {"workdir": str(Path.cwd()), "env": self.env, "python": sys.executable, "labels": {LABEL: phase.name}}
        names = [(model, copy) for copy in range(1, COPIES + 1) for model in MODELS]
        return [
            {**self.job, **own, "model_name": model, "family": model, "name": f"{model}-{copy}"}
            for model, copy in names
        ]

    def arrivals(self, _phase: DemoPhase, _batch: Sequence[JobObject]) -> list[JobRequestObject]:
        """Return what is submitted while the batch runs: nothing."""
        return []

    def stack_config(self, phase: DemoPhase, state_dir: Path, heartbeat_s: float) -> LocalConfig:
        """Return what to start for a phase."""
        return LocalConfig.of(
            state_dir, node_name(), policy=phase.policy, devices=self.devices, mps=phase.mps, heartbeat=heartbeat_s,
            env=self.agent_env,
        )  # fmt: skip


def make_plan(devices: str | None, dataset_path: Path, iters: int | None) -> DemoPlan:
    """Return the demo for this machine. Raises MisuseError: there are no such devices."""
    try:
        found = discover(devices).observe()
    except DeviceSpecError as error:
        raise MisuseError(str(error)) from error
    path, data = dataset_path.expanduser().absolute(), {"dataset": "digits"}  # those that come with scikit-learn
    with suppress(cifar10.DatasetError, OSError):
        cifar10.locate(path)
        data = {"dataset": "cifar10", "dataset_path": str(path)}
    if found[0].is_cpu_device:
        return _cpu_plan(found, devices or "cpu:1", data, iters or CPU_ITERS)
    return _gpu_plan(found, devices, data, iters or PAPER_ITERS)


def _cpu_plan(devices: Sequence[Gpu], spec: str, data: dict[str, Any], iters: int) -> DemoPlan:
    """Scale the models down until a run takes about a minute on two cores.

    Their convolutions are then too small for two threads to gain anything, so each job uses one and leaves the
    device's other cores idle: as the paper's small batches leave much of a GPU idle.
    """
    cores = len({core for device in devices for core in device.cores})
    devices_told = f"{count(len(devices), 'cpu device')} of {count(cores, 'core')} in all"
    return DemoPlan(
        phases=(FIFO, COLOCATION),
        devices=spec,
        job={**data, "batch_size": CPU_BATCH, "width": CPU_WIDTH, "iters": iters, "workers": 0, "seed": 1},
        env=job_env() | {"OMP_NUM_THREADS": "1"},
        title="Colane demo: paper A's best case, scaled down for a CPU",
        words=(
            f"{_batch_words(data, CPU_BATCH, iters)}, at {CPU_WIDTH:g} of their width",
            f"on {devices_told} (no GPU here): each job uses one core",
        ),
    )


def _gpu_plan(devices: Sequence[Gpu], spec: str | None, data: dict[str, Any], iters: int) -> DemoPlan:
    """Run the paper's sizes on two GPUs, or on one where there is no second."""
    chosen = [gpu for gpu in devices if gpu.healthy][:GPUS_MAX] or list(devices[:1])
    mps = (WITH_MPS,) if shutil.which(MPS_CONTROL) else ()
    no_mps = () if mps else (f"{MPS_CONTROL} is not installed, so MPS is left out",)
    return DemoPlan(
        phases=(FIFO, COLOCATION, *mps),
        devices=spec or "gpu",
        job={**data, "batch_size": PAPER_BATCH, "iters": iters, "workers": PAPER_WORKERS, "seed": 1},
        env=job_env(),
        agent_env={"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in chosen)},
        title="Colane demo: paper A's best case",
        words=(
            _batch_words(data, PAPER_BATCH, iters),
            f"on {len(chosen)} x {chosen[0].type}, {PAPER_WORKERS} data workers a job",
            *no_mps,
        ),
    )


def _batch_words(data: dict[str, Any], batch: int, iters: int) -> str:
    return f"{COPIES} each of VGG-19, VGG-11 and ResNet-18, batch {batch}, {iters} steps, on {data['dataset']}"


def job_env() -> dict[str, str]:
    """Give the jobs what a shell would: a search path, a home, where Python finds things."""
    return {name: value for name, value in os.environ.items() if name in ENV_NAMES}
