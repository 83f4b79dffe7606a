"""From what was simulated to what is reported: the two rooms do not know one another."""

from __future__ import annotations

from typing import Final

import numpy as np

from colane.lab.report.metrics import summarise
from colane.lab.report.records import JobTime
from colane.lab.report.simulated import CURVES, BeliefError, ClusterCurves, JobColumns, ReportedSpan, SimulatedRun
from colane.lab.simulate.ledger import STATES, Ledger, Rows
from colane.lab.simulate.request import Loaded
from colane.lab.simulate.run import Run
from colane.lab.traces.workload import gpu_types_asked
from colane.model.hardware import GpuId

NUMBERS: Final = ("id", "submit_s", "first_start_s", "start_s", "end_s", "attempts", "gpu_s", "alone_s")
"""Columns that the ledger and the report have alike."""


def simulated_run(run: Run, seed: int, loaded: Loaded) -> SimulatedRun:
    """A run as the report wants it."""
    ledger, errors = run.ledger, run.errors
    unknown = {"alone_unknown": errors.alone_unknown, "shared_unknown": errors.shared_unknown}
    judged = len(errors.alone) + len(errors.shared) + sum(unknown.values())
    belief_error = BeliefError(alone=summarise(errors.alone), shared=summarise(errors.shared), **unknown)
    return SimulatedRun(
        policy=run.policy,
        seed=seed,
        jobs=run.jobs,
        refused=tuple(str(refusal) for refusal in run.refused),
        columns=JobColumns(
            **{name: np.asarray(getattr(ledger.rows, name)) for name in NUMBERS},
            state=[STATES[code] for code in ledger.rows.state],
            gpus=[" ".join(map(str, gpus)) for gpus in ledger.rows.gpus],
        ),
        curves=ClusterCurves(**{name: np.asarray(getattr(ledger.curve, name)) for name in CURVES}),
        gpus=[f"{node.name}/{gpu.index}" for node in loaded.cluster.nodes for gpu in node.gpus],
        stays=()
        if ledger.stays_dropped
        else tuple(
            ReportedSpan(stay.job, tuple(map(str, stay.gpus)), stay.start_s, stay.end_s) for stay in ledger.stays
        ),
        offered_load=run.offered_load,
        belief_error=belief_error if judged else None,
        flaws=tuple(ledger.flaws),
        decisions=ledger.decisions,
        events=ledger.events,
        plan_s=np.asarray(ledger.plan_s),
        wall_s=run.wall_s,
        lacks=run.lacks,
        on_other_types=_on_other_types(ledger.rows, loaded),
        is_partial=ledger.interrupted,
        is_cut=ledger.is_cut,
        pause_s=ledger.paused_s,
        times=_times(ledger, loaded),
        stuck=run.stuck,
        guards={} if run.guards is None else run.guards._asdict(),
        is_as_published=run.is_as_published,
        foretold=run.foretold,
    )


def _on_other_types(rows: Rows, loaded: Loaded) -> tuple[int, int]:
    """Of the jobs that ran and may have one of several GPU types, those that last ran on another; and all of them."""
    asked = {int(job.id): types for job in loaded.workload.jobs if (types := gpu_types_asked(job))}
    if not asked:
        return 0, 0
    type_of = {GpuId(node.name, gpu.index): gpu.type for node in loaded.cluster.nodes for gpu in node.gpus}
    ran = [(asked[job], gpus) for job, gpus in zip(rows.id, rows.gpus, strict=True) if gpus and job in asked]
    return sum(any(type_of[gpu] not in types for gpu in gpus) for types, gpus in ran), len(ran)


def _times(ledger: Ledger, loaded: Loaded) -> dict[int, JobTime]:
    """By job; of too many jobs none, rather than of some."""
    if len(ledger.time_spent) < len(ledger.rows):
        return {}
    names = {int(job.id): job.spec.name for job in loaded.workload.jobs}
    lost_s = ledger.lost_s
    return {job: JobTime(names[job], spent, lost_s.get(job, 0.0)) for job, spent in sorted(ledger.time_spent.items())}
