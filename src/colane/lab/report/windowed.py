"""What a run achieved for a window of its jobs: those before fill the cluster, those after keep it full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from colane.lab.report.metrics import Summary, mean_of, summarise
from colane.lab.report.simulated import ClusterCurves, Floats, slowdowns

Value = float | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Jobs of one run as plain columns, with what is needed to measure them; times that did not come are NaN."""

    place: NDArray[np.int64]  # of each job in its workload, by submission, from 0
    done: NDArray[np.bool_]  # which of them succeeded
    submit_s: Floats  # submission
    first_start_s: Floats  # start of the first attempt
    end_s: Floats  # end
    attempts: NDArray[np.int64]  # starts
    gpu_s: Floats  # GPU-seconds it was given
    alone_s: Floats  # run time alone where it last ran
    gpus: NDArray[np.int64]  # how many it asked for
    slo_missed: NDArray[np.int64]  # 1 where it missed its objective, 0 where it met it, -1 without one
    curves: ClusterCurves  # the cluster over time
    cluster_gpus: int  # GPUs of the cluster


METRICS: Final[Mapping[str, str]] = {
    "jct_mean_s": "mean JCT",
    "jct_p50_s": "median JCT",
    "jct_p95_s": "p95 of JCT",
    "jct_p99_s": "p99 of JCT",
    "queue_mean_s": "mean time in the queue",
    "queue_p95_s": "p95 of the time in the queue",
    "makespan_s": "makespan",
    "slowdown_mean_ratio": "mean slowdown",
    "rho_mean_ratio": "mean finish-time rho",
    "rho_p95_ratio": "p95 of finish-time rho",
    "rho_max_ratio": "largest finish-time rho",
    "rho_jain_ratio": "Jain's index of finish-time rho",
    "gpu_active_ratio": "part of the GPUs with a job",
    "gpu_utilization_ratio": "part of the GPUs' worth that is used",
    "fragmentation_ratio": "part of the GPUs without a job while jobs wait",
    "given_gpu_h": "GPU-hours given",
    "slo_violations": "missed objectives",
    "restarts": "restarts",
}
"""Metrics of a window that two policies may be compared by, and what each is called in a sentence."""


def measure_window(run: Measured, window: tuple[int, int] | None) -> dict[str, Value]:
    """All metrics of the jobs whose place in the workload is in a half-open window, of all without one.

    JCT, queueing, slowdown and rho are over the jobs of the window that succeeded; counts are over all of them. Ratios
    of use are of the whole cluster from the first submission to the last end among these jobs.
    """
    chosen = _chosen(run, window)
    done = chosen & run.done
    jct_s, queue_s = summarise((run.end_s - run.submit_s)[done]), summarise((run.first_start_s - run.submit_s)[done])
    rho = finish_time_rho(run)[done]
    rho = rho[np.isfinite(rho)]
    rhos = summarise(rho)
    ran = chosen & np.isfinite(run.first_start_s) & np.isfinite(run.end_s)
    span_s = (float(run.submit_s[ran].min()), float(run.end_s[ran].max())) if ran.any() else None
    return {
        "jobs": int(chosen.sum()),
        "finished": int(done.sum()),
        "unfinished": int((chosen & ~np.isfinite(run.end_s)).sum()),
        **_spread("jct", "s", jct_s, "mean", "p50", "p95", "p99"),
        **_spread("queue", "s", queue_s, "mean", "p95"),
        "makespan_s": None if span_s is None else span_s[1] - span_s[0],
        "slowdown_mean_ratio": mean_of(summarise(slowdowns((run.end_s - run.submit_s)[done], run.alone_s[done]))),
        **_spread("rho", "ratio", rhos, "mean", "p95"),
        "rho_max_ratio": float(rho.max()) if rho.size else None,
        "rho_jain_ratio": jain_index(rho),
        "gpu_active_ratio": run.curves.ratio(run.curves.active_gpus, span_s, run.cluster_gpus),
        "gpu_utilization_ratio": run.curves.ratio(run.curves.utilized_gpus, span_s, run.cluster_gpus),
        "fragmentation_ratio": run.curves.ratio(run.curves.stranded_gpus, span_s, run.cluster_gpus),
        "given_gpu_h": float(run.gpu_s[chosen].sum()) / 3600,
        "slo_violations": int((run.slo_missed[chosen] == 1).sum()),
        "restarts": int(np.maximum(run.attempts[chosen] - 1, 0).sum()),
    }


def _spread(name: str, unit: str, found: Summary | None, *parts: str) -> dict[str, Value]:
    return {f"{name}_{part}_{unit}": None if found is None else getattr(found, part) for part in parts}


def jct_s_of(run: Measured, window: tuple[int, int] | None) -> Floats:
    """JCT of each job of a window that succeeded."""
    return (run.end_s - run.submit_s)[_chosen(run, window) & run.done]


def _chosen(run: Measured, window: tuple[int, int] | None) -> NDArray[np.bool_]:
    if window is None:
        return np.ones(len(run.place), dtype=bool)
    return (run.place >= window[0]) & (run.place < window[1])


def finish_time_rho(run: Measured) -> Floats:
    """Finish-time fairness of each job: its JCT over its JCT alone on 1/N of the GPUs (Themis, NSDI 2020, section 3).

    N is the mean number of jobs waiting or running while it was there. On its share of G / N GPUs a job that asks for
    g runs at its speed alone where g is not more, else slower in proportion. At most 1 is fair. NaN for jobs without
    GPUs, for those that did not end, and where the time alone is not known.
    """
    known = (run.gpus > 0) & np.isfinite(run.end_s) & (run.end_s > run.submit_s) & (run.alone_s > 0)
    found = np.full(len(run.place), np.nan)
    if not known.any() or not run.cluster_gpus or not run.curves.at_s.size:
        return found
    submit_s, end_s = run.submit_s[known], run.end_s[known]
    contending = np.maximum(_mean_between(run.curves, submit_s, end_s), 1.0)
    alone_s = run.alone_s[known] * np.maximum(run.gpus[known] * contending / run.cluster_gpus, 1.0)
    found[known] = (end_s - submit_s) / alone_s
    return found


def jain_index(values: Floats) -> float | None:
    """Jain's index (Jain, Chiu and Hawe, 1984): (sum x)^2 / (n sum x^2); 1 where all are equal, 1/n at the least."""
    squares = float(np.dot(values, values))
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else None


def _mean_between(curves: ClusterCurves, from_s: Floats, to_s: Floats) -> Floats:
    """Mean number of jobs there between two times each."""
    there = curves.waiting + curves.running
    so_far = np.concatenate(([0.0], np.cumsum(there[:-1] * np.diff(curves.at_s))))
    return np.asarray((np.interp(to_s, curves.at_s, so_far) - np.interp(from_s, curves.at_s, so_far)) / (to_s - from_s))
