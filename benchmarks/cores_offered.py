"""Cores as an offer: what the search for cores brings, or costs, where cores are short, by policy.

    python benchmarks/cores_offered.py --data DIR [--policies fifo,srtf,colane] [--seeds 2] [--worlds NAME,...]

Each world runs with the search off and on, the same jobs each time: a line says makespan and mean completion time
without it, and both with it as a ratio to that. Jobs are of the models whose speed by cores Synergy measured; those of
`recorded` worlds have recorded durations, which cores do not change: there the search can only be in the way. Those of
`unasked` worlds ask for none, of `mixed` worlds half do: they share what none has booked. Those of `measured` worlds
have the step times that Synergy measured, and steps for so long: nine models, some of which one core is enough for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from colane.cpu.config import TuningConfig  # noqa: E402
from colane.lab.simulate.ledger import Ledger  # noqa: E402
from colane.lab.simulate.run import Inputs, simulate  # noqa: E402
from colane.lab.simulate.table_files import SYNERGY, file_of, read_sources  # noqa: E402
from colane.lab.simulate.table_world import TableWorld  # noqa: E402
from colane.lab.traces.clusters import Cluster  # noqa: E402
from colane.lab.traces.tables.synergy import SynergyJob, read_matrix  # noqa: E402
from colane.lab.traces.workload import TraceJob, Workload  # noqa: E402
from colane.model.hardware import Gpu, Node  # noqa: E402
from colane.model.job import JobId, JobSpec  # noqa: E402
from colane.model.job_spec import Category  # noqa: E402
from colane.scheduling import registry  # noqa: E402

GIB: Final = 1 << 30
HOUR_S: Final = 3600.0
FAMILIES: Final = {
    "alexnet": Category.CV, "res18": Category.CV, "mobilenet": Category.CV, "res50": Category.CV,
    "gnmt": Category.NLP, "transformer": Category.NLP,
}  # fmt: skip


class Setting(NamedTuple):
    """One world.

    Attributes:
        cores: Of each of four nodes with eight GPUs.
        jobs: How many jobs.
        draw: Duration at the cores asked for, in seconds.
        gap_s: Mean time between two submissions; 0: all at once.
        families: Models, drawn alike; none: recorded durations.
        gpus: Numbers of GPUs, drawn alike.
        asked_per_gpu: Cores the jobs ask for, as Synergy's do the part of a GPU in its servers; 0: none.
        silent_ratio: Part of the jobs that ask for none.
        measured: Whether their steps take what Synergy measured, of all its models.
    """

    cores: int
    jobs: int
    draw: Callable[[Random], float]
    gap_s: float = 0.0
    families: tuple[str, ...] = ()
    gpus: tuple[int, ...] = (1,)
    asked_per_gpu: int = 3
    silent_ratio: float = 0.0
    measured: bool = False


def long(random: Random) -> float:
    """Half an hour to ten hours, alike by orders of magnitude."""
    return exp(random.uniform(log(0.5 * HOUR_S), log(10 * HOUR_S)))


def short(random: Random) -> float:
    """Two minutes to half an hour, likewise."""
    return exp(random.uniform(log(120.0), log(1800.0)))


def ten_minutes(_random: Random) -> float:
    """The same for all."""
    return 600.0


ALL: Final = tuple(FAMILIES)
MEASURED: Final = (*ALL, "deepspeech", "lstm", "shufflenet")
WORLDS: Final = {
    "recorded-32": Setting(32, 128, ten_minutes),
    "recorded-16": Setting(16, 128, ten_minutes),
    "static": Setting(24, 100, long, 0.0, ALL),
    "static-images": Setting(24, 100, long, 0.0, ALL[:4]),
    "static-16": Setting(16, 100, long, 0.0, ALL),
    "arriving": Setting(24, 200, long, 0.11 * HOUR_S, ALL),
    "idle": Setting(24, 60, long, 0.5 * HOUR_S, ALL),
    "short": Setting(24, 200, short, 12.0, ALL),
    "measured": Setting(24, 100, long, 0.0, MEASURED, measured=True),
    "measured-arriving": Setting(24, 200, long, 0.11 * HOUR_S, MEASURED, measured=True),
    "measured-16": Setting(16, 100, long, 0.0, MEASURED, measured=True),
    "gangs": Setting(24, 80, long, 0.0, ALL, (1, 1, 1, 2, 4)),
    "unasked": Setting(24, 100, long, 0.0, ALL, asked_per_gpu=0),
    "unasked-short": Setting(24, 200, short, 12.0, ALL, asked_per_gpu=0),
    "mixed": Setting(24, 100, long, 0.0, ALL, silent_ratio=0.5),
    "mixed-short": Setting(24, 200, short, 12.0, ALL, silent_ratio=0.5),
    "mixed-gangs": Setting(24, 80, long, 0.0, ALL, (1, 1, 1, 2, 4), silent_ratio=0.5),
}


def machines(setting: Setting) -> Cluster:
    """Four nodes with eight GPUs."""
    nodes = []
    for number in range(4):
        name = f"n{number}"
        gpus = tuple(
            Gpu(index=i, uuid=f"{name}-{i}", type="v100", memory_bytes=16 * GIB, socket=i // 4) for i in range(8)
        )
        nodes.append(
            Node(name=name, gpus=gpus, cores=tuple(range(setting.cores)), host_memory_bytes=512 * GIB, pool="default")
        )
    return Cluster("four", tuple(nodes))


def training(name: str, family: str, gpus: int, cores: int, steps: int) -> JobSpec:
    """A job that may be stopped."""
    return JobSpec(
        name=name, family=family, gpus=gpus, cores=cores, preemptible=True, steps_total=max(10, steps),
        category=FAMILIES.get(family, Category.UNKNOWN), gpu_memory_bytes=6 * GIB,
    )  # fmt: skip


def drawn(setting: Setting, seed: int, data: Path) -> Workload:
    """The jobs of a world; the same ones for a seed. They take about as long as drawn with the cores they ask for."""
    random, at_s, jobs = Random(seed), 0.0, []  # noqa: S311 - a sample, no secret
    table = read_matrix(file_of(data, SYNERGY)) if setting.measured else None
    for number in range(1, setting.jobs + 1):
        at_s += random.expovariate(1 / setting.gap_s) if setting.gap_s else 0.0
        family = random.choice(setting.families) if setting.families else "recorded"
        gpus, took_s = random.choice(setting.gpus), setting.draw(random)
        asked = 0 if setting.silent_ratio and random.random() < setting.silent_ratio else setting.asked_per_gpu
        step_s = 0.5 if table is None else table.matrices[SynergyJob(family, gpus)].step_s
        spec = training(f"job-{number}", family, gpus, asked * gpus, round(took_s / step_s))
        duration_s = took_s if table is None else None
        jobs.append(TraceJob(id=JobId(number), submit_s=at_s, spec=spec, duration_s=duration_s))
    return Workload(name="cores", jobs=tuple(jobs))


def ran(setting: Setting, jobs: Workload, policy: str, data: Path, *, tunes: bool) -> Ledger:
    """What came of a workload on the machines of a world; ends the program where not all ended, or a plan failed."""
    given = Inputs(
        cluster=machines(setting), workload=jobs, world=TableWorld(read_sources(data)), policy=registry.create(policy),
        tuning=TuningConfig() if tunes else None,
    )  # fmt: skip
    ledger = simulate(given).ledger
    if ledger.flaws:
        raise SystemExit(ledger.flaws[0])
    if len(ledger.rows.id) != len(jobs.jobs):
        raise SystemExit(f"{len(jobs.jobs) - len(ledger.rows.id)} jobs did not end")
    return ledger


class Took(NamedTuple):
    """What a run took, in hours."""

    makespan_h: float
    mean_h: float


def took(setting: Setting, seed: int, policy: str, data: Path, *, tunes: bool) -> Took:
    """Run a world once."""
    jobs = drawn(setting, seed, data)
    rows = ran(setting, jobs, policy, data, tunes=tunes).rows
    ends = dict(zip(rows.id, rows.end_s, strict=True))
    mean_s = fmean([ends[job.id] - job.submit_s for job in jobs.jobs])
    return Took(max(ends.values()) / HOUR_S, mean_s / HOUR_S)


def main() -> None:
    """Print a line as each world has run under a policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--policies", default="fifo,srtf,colane")
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--seeds", type=int, default=2)
    asked = parser.parse_args()
    print("| world | policy | makespan off, h | mean off, h | makespan on | mean on |\n|---|---|---|---|---|---|")
    for world in asked.worlds.split(","):
        for policy in asked.policies.split(","):
            runs = [
                (took(WORLDS[world], seed, policy, asked.data, tunes=False),
                 took(WORLDS[world], seed, policy, asked.data, tunes=True)) for seed in range(asked.seeds)
            ]  # fmt: skip
            off = Took(*(fmean(values) for values in zip(*(run[0] for run in runs), strict=True)))
            on = Took(*(fmean(values) for values in zip(*(run[1] for run in runs), strict=True)))
            ratios = f"{on.makespan_h / off.makespan_h:.3f} | {on.mean_h / off.mean_h:.3f}"
            print(f"| {world} | {policy} | {off.makespan_h:.2f} | {off.mean_h:.2f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
