"""Paper B's evaluation (Yu and Chowdhury, MLSys 2020: Salus) as far as a simulation can tell; the rest needs a GPU.

The 100-job trace was never published. The one used here was found by search so that FIFO, SRTF and FAIR match the
paper's table 2, and PACK's gain was tuned on it: its rows are a regression fixture of the mechanisms, not a
confirmation of the paper. Memory and step times are the authors' own measurements.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from colane.core.events import Outcome
from colane.lab.papers.claims import (
    FULL,
    Claim,
    Effort,
    Evaluation,
    Experiment,
    Figure,
    GpuResults,
    Origin,
    Sense,
    Trait,
    newest,
    on_gpu,
    ours,
    queue_s,
)
from colane.lab.papers.sharing_memory import Tables, memory_claims, read_tables, serving_claims, transfer_claim
from colane.lab.papers.sharing_scenes import (
    COLANE,
    FAIR,
    FIFO,
    NO_GAIN,
    PACK,
    PACK_TURNS,
    SHARING_BATCH,
    SRTF,
    Gain,
    Scene,
    admission_claim,
    admission_scene,
    experiment_of,
    fair_sharing,
    fair_slices,
    job_of,
    sharing_claim,
    slices_claim,
    snapshot_claim,
    snapshot_scene,
)
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Run
from colane.lab.simulate.table_files import DATA_VARIABLE
from colane.lab.simulate.world import Running
from colane.lab.traces import read
from colane.model.job import JobId
from colane.settings.input_file import InputFileError

PACK_GAIN = Gain(lanes=2, rho=1.1)  # tuned on the calibrated trace


class TableRow(NamedTuple):
    """A row of table 2, in minutes."""

    makespan: float
    queueing: float
    jct: float
    jct_p95: float

    def __str__(self) -> str:
        """As the table prints it."""
        return " / ".join(f"{value:.1f}" for value in self)


TABLE_2: Mapping[str, TableRow] = {
    "fifo": TableRow(303.4, 167.6, 170.6, 251.1),
    "srtf": TableRow(306.0, 28.6, 53.4, 217.0),
    "pack": TableRow(287.4, 129.9, 145.5, 266.1),
    "fair": TableRow(301.6, 58.5, 96.6, 281.2),
}

ORDERINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("queueing", ("srtf", "fair", "pack", "fifo")),
    ("jct", ("srtf", "fair", "pack", "fifo")),
    ("jct_p95", ("srtf", "fifo", "pack", "fair")),
)
"""By column of table 2, policies from the least."""

LOOP = "one loop of matrix products, not most CNNs"


def gpu_claims(results: GpuResults) -> tuple[Claim, ...]:
    """Claims only a real GPU can decide, with what was measured on one."""
    overhead, gap = results.number("lanes/overhead/overhead_ratio"), results.number("turns/pair/gap_p50_s")
    late = results.number("turns/pair/gap_p99_s")
    turns, slices = (results.number(f"turns/pair/{name}_speeds_ratio") for name in ("turns", "slicing"))
    switch = Trait(
        "takes less than a second", None if gap is None else gap < 1,
        "-" if gap is None or late is None else f"{1e3 * gap:.2f} ms, p99 {1e3 * late:.2f} ms between turns of 100 ms",
        "section 5.1.2",
    )  # fmt: skip
    alone = Figure(
        "more by", 10, None if overhead is None else 100 * overhead, "%", "section 5.4", printed="10%",
        bound=Sense.BELOW,
    )  # fmt: skip
    both = None if turns is None or slices is None else f"{turns:.1%} against {slices:.1%} of one job alone"
    beside = () if both is None else (ours("two jobs in turns against the driver's time slicing, both together", both),)
    return (
        Claim("B-e", "latency that sharing adds to those 42 models, mean", (
            Figure("", 5, None, "ms", "section 5.3", printed="5ms", bound=Sense.BELOW),
        )),
        Claim("B-h", "switching from one job to another", (switch,), results.where),
        Claim("B-i", "time per iteration over that of the framework alone, most CNNs", (alone,), results.where, LOOP),
        Claim("B-j", "two alexnet_25 for a minute", (
            on_gpu("Salus against static partitioning, MPS and plain sharing", "section 5.4"), *beside,
        ), results.where),
        Claim("B-n", "switching inside an iteration", (on_gpu("is not worth it", "section 3"),)),
    )  # fmt: skip


TRACE_WORLD = "calibrated_trace_100.csv on one P100, searched to match table 2"


@dataclass(frozen=True, slots=True)
class SharingEvaluation(Evaluation):
    """Claims and runs, with what the figures need besides."""

    # of three jobs that share fairly: (seconds, images per second from then on) by job
    images_per_s: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    # (P, E) of each training workload with its largest batch, most P + E first
    needs_bytes: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class Speeds:
    """Looks on and notes every change of a job's speed."""

    def __init__(self) -> None:
        self.steps_per_s: dict[str, list[tuple[float, float]]] = {}
        self._processes: dict[JobId, Process] = {}

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Follow a process from its start."""
        del co_runners
        self._processes[process.id] = process

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """Note the speeds that hold from now on."""
        ended = {job.id for job in outcome.jobs if job.has_ended}
        for id_, process in self._processes.items():
            steps_per_s = 0.0 if id_ in ended else process.steps_per_s
            points = self.steps_per_s.setdefault(process.running.job.spec.name, [])
            if not points or points[-1][1] != steps_per_s:
                points.append((now_s, steps_per_s))
        for id_ in ended:
            self._processes.pop(id_, None)


def evaluate(tables: Path | None, effort: Effort = FULL) -> SharingEvaluation:
    """Run everything. Raises InputFileError: there are no tables."""
    directory = _directory(tables)
    found = read_tables(directory)
    effort.tell("100 jobs on one P100")
    batch = experiment_of(_batch(directory), found)
    lanes = _rows(experiment_of(replace(_batch(directory), policies=COLANE), found))
    effort.tell("300 alike jobs")
    sweeps = [experiment_of(_sweep(*kind), found) for kind in SWEEPS]
    plain = [experiment_of(_sweep(id_, workload, NO_GAIN), found) for id_, workload, _ in SWEEPS]
    effort.tell("jobs that share fairly")
    speeds = Speeds()
    sharing = experiment_of(fair_sharing(found), found, speeds)
    scenes = snapshot_scene(found), fair_slices(found), admission_scene()
    snapshot, slices, admission = (experiment_of(scene, found) for scene in scenes)
    with_lanes = "those jobs under colane, without lanes as by default and with them (regression fixture)"
    claims = (
        *_table_claims(batch),
        Claim("B-a-colane", with_lanes, tuple(ours(name, str(row)) for name, row in lanes.items()), TRACE_WORLD),
        *serving_claims(found),
        *(_sweep_claim(*each) for each in zip(sweeps, plain, SWEEPS, strict=True)),
        sharing_claim(sharing),
        *memory_claims(found),
        transfer_claim(found),
        snapshot_claim(snapshot),
        slices_claim(slices),
        admission_claim(admission),
        *gpu_claims(newest()),
    )
    in_order = tuple(sorted(claims, key=lambda claim: claim.id))
    images_per_s = {
        name: [(at_s, steps_per_s * SHARING_BATCH) for at_s, steps_per_s in points]
        for name, points in speeds.steps_per_s.items()
    }
    experiments = (batch, *sweeps, sharing, snapshot, slices, admission)
    return SharingEvaluation(in_order, experiments, images_per_s, _needs_bytes(found))


def _needs_bytes(tables: Tables) -> dict[str, tuple[float, float]]:
    largest: dict[str, str] = {}
    for name in sorted(tables.geometry.geometry, key=lambda name: sum(tables.memory[name])):
        largest[name.rpartition("_")[0]] = name
    names = sorted(largest.values(), key=lambda name: -sum(tables.memory[name]))
    return {name: tables.memory[name] for name in names}


def _directory(tables: Path | None) -> Path:
    named = tables if tables is not None else Path(os.environ.get(DATA_VARIABLE, ""))
    if not (named / "B").is_dir():
        raise InputFileError(named, f"holds no tables of paper B; name a directory with B/, or set {DATA_VARIABLE}")
    return named


def row_of(run: Run) -> TableRow:
    """Makespan, mean queueing, mean JCT (end - submission) and its 95th percentile, in minutes."""
    rows = run.ledger.rows
    jct_s = np.subtract(rows.end_s, rows.submit_s)
    seconds = (max(rows.end_s) - min(rows.submit_s), queue_s(run).mean(), jct_s.mean(), np.percentile(jct_s, 95))
    return TableRow(*(float(value) / 60 for value in seconds))


def _rows(experiment: Experiment) -> dict[str, TableRow]:
    return {run.policy: row_of(run) for _, run in experiment.runs}


# -- B-a, B-b, B-c: 100 jobs on one GPU


def _batch(directory: Path) -> Scene:
    workload = read.read(str(directory / "B" / "calibrated_trace_100.csv"), "salus")
    note = (
        "REGRESSION FIXTURE: the trace was found by search to match table 2 of the paper (FIFO, SRTF, FAIR), and the "
        f"gain of two or more lanes, {PACK_GAIN.rho:g}, was tuned on it. `pack-turns` also lets jobs into lanes that "
        "are there (algorithm 1 as printed); the paper's numbers are of one job a lane."
    )
    policies = (FIFO, SRTF, PACK, FAIR, PACK_TURNS)
    return Scene("table-2", "Paper B, 100 jobs on one P100", workload.jobs, policies, PACK_GAIN, note)


COLUMNS: Mapping[str, str] = {
    "makespan": "makespan", "queueing": "mean queueing", "jct": "mean JCT", "jct_p95": "95 % of JCTs within",
}  # fmt: skip


def _table_claims(batch: Experiment) -> Iterator[Claim]:
    found = _rows(batch)
    for policy, published in TABLE_2.items():
        row = found[policy]
        stated = tuple(
            Figure(name, value := getattr(published, column), getattr(row, column), "min", "table 2",
                   printed=f"{value:.1f}")
            for column, name in COLUMNS.items()
        )  # fmt: skip
        note = PACK_NOTE if policy == "pack" else ""
        yield Claim(f"B-a-{policy}", f"{policy}, 100 jobs (regression fixture)", stated, TRACE_WORLD, note)
    claim = "pack with lanes joined as algorithm 1 is printed (the table's PACK is one job a lane)"
    joined, one = found["pack-turns"], found["pack"]
    told = f"{joined} min: mean JCT {joined.jct / one.jct - 1:+.0%}, makespan {joined.makespan / one.makespan - 1:+.0%}"
    yield Claim("B-a-pack-turns", claim, (ours("makespan / queueing / JCT / p95 JCT", told),), TRACE_WORLD)
    yield _orderings_claim(found)
    faster = Figure("", 3.19, found["fifo"].jct / found["srtf"].jct, "x", "section 5.1.1", digits=2)
    yield Claim("B-b", "mean JCT of FIFO over that of SRTF (regression fixture)", (faster,), TRACE_WORLD)
    over = tuple(
        Figure(f"{policy} over fifo", round(100 * (TABLE_2[policy].makespan / TABLE_2["fifo"].makespan - 1), 1),
               100 * (found[policy].makespan / found["fifo"].makespan - 1), "%", "table 2", Origin.DERIVED, slack=2.0)
        for policy in ("srtf", "fair", "pack")
    )  # fmt: skip
    claim = "taking turns costs no makespan, packing shortens it (regression fixture)"
    yield Claim("B-c", claim, over, TRACE_WORLD)


PACK_NOTE = (
    "The trace was searched on FIFO, SRTF and FAIR, and PACK's gain tuned on its makespan. Its 95 % lies below FIFO's "
    "here, where the paper has it above; the jobs of the paper were never published."
)


def _orderings_claim(found: Mapping[str, TableRow]) -> Claim:
    stated = []
    for column, policies in ORDERINGS:
        values = [getattr(found[policy], column) for policy in policies]
        told = " < ".join(sorted(policies, key=lambda policy: getattr(found[policy], column)))
        stated.append(Trait(f"{column}: {' < '.join(policies)}", values == sorted(values), told, "table 2"))
    return Claim("B-a-order", "orderings of table 2 (regression fixture)", tuple(stated), TRACE_WORLD, PACK_NOTE)


# -- B-f: 300 alike jobs

SWEEPS: tuple[tuple[str, str, Gain], ...] = (
    ("B-f", "resnet50_50", Gain(lanes=2, rho=1.07)),
    ("B-f-light", "superres_128", Gain(lanes=14, rho=2.38)),
)
"""The gain is the paper's own number; how many lanes there are follows from memory."""

SWEEP_JOBS, SWEEP_ITERATIONS = 300, 500


def _sweep(id_: str, workload: str, gain: Gain) -> Scene:
    step_s = 0.2
    jobs = tuple(job_of(number, workload, SWEEP_ITERATIONS, step_s) for number in range(1, SWEEP_JOBS + 1))
    note = "The gain of lanes is the paper's; lanes by memory and the ragged end of the batch are simulated."
    return Scene(f"sweep-{workload}", f"Paper B, 300 x {workload}", jobs, (FIFO, PACK), gain, f"{id_}: {note}")


def _sweep_claim(sweep: Experiment, without: Experiment, kind: tuple[str, str, Gain]) -> Claim:
    id_, workload, gain = kind
    spans = {policy: row.makespan for policy, row in _rows(sweep).items()}
    lanes, plain = most_at_once(sweep, "pack"), {policy: row.makespan for policy, row in _rows(without).items()}
    stated = (
        Figure(
            "makespan of FIFO over PACK's", gain.rho, spans["fifo"] / spans["pack"], "x", "section 5.2", digits=2,
            given="the gain of so many lanes goes in",
        ),
        ours("lanes by memory", str(lanes)),
        ours("makespan of FIFO over PACK's, lanes that gain nothing", f"{plain['fifo'] / plain['pack']:.2f}x"),
        ours("all jobs are run", f"{SWEEP_JOBS} jobs"),
    )  # fmt: skip
    claim = f"300 x {workload}: makespan of FIFO over PACK's"
    note = (
        f"The same batch with lanes that gain nothing takes {plain['fifo'] / plain['pack']:.2f} times as long under "
        f"FIFO as under PACK: all of {gain.rho:g} is the gain that goes in. What is found is that {lanes} jobs fit by "
        "memory, which reaches it, and that the last jobs, which run in fewer lanes, cost "
        f"{100 * (1 - spans['fifo'] / spans['pack'] / gain.rho):.1f} % of it. How much lanes gain only a GPU can tell."
    )
    world = "Salus' memory table on one P100; the gain of lanes is the paper's own number"
    return Claim(id_, claim, stated, world, note)


def most_at_once(experiment: Experiment, policy: str) -> int:
    """Most jobs on the GPU at one time."""
    run = next(run for _, run in experiment.runs if run.policy == policy)
    return int(max(run.ledger.curve.running))
