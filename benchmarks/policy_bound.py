"""What no policy can do better on one-GPU jobs of which up to two share a GPU: lower bounds by linear programs.

Time is cut into intervals. In each of them GPUs are shared out among jobs alone and pairs of kinds of jobs, as parts of
them may be, and jobs get work of what their kind does; moving is free, and all that is to come is known. A job does its
work no faster than alone, so it ends no sooner than half of its run time after the mean moment of its work.

Bounds of the mean from such moments: Goemans et al., SIAM J. Discrete Math. 15 (2002); of all ends: Gavel's
throughputs of pairs (Narayanan et al., OSDI 2020, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import numpy as np
from benchmarks.policy_greedy import Speeds
from numpy.typing import NDArray

Floats = NDArray[np.float64]

linprog: Final[Any] = import_module("scipy.optimize").linprog
coo_matrix: Final[Any] = import_module("scipy.sparse").coo_matrix

INTERVALS = 48
"""Of the mean: more take longer and are little nearer."""


class Bound(NamedTuple):
    """No sooner ends.

    Attributes:
        mean_jct_s: From submission to end.
        end_s: Of all jobs.
    """

    mean_jct_s: float
    end_s: float


class Ways(NamedTuple):
    """Ways to use a GPU: by one kind of jobs or by two.

    Attributes:
        kinds: Of each job.
        speeds: Work in a second by kind (row) and way (column), over that alone.
    """

    kinds: NDArray[np.int64]
    speeds: Floats


def ways(names: Sequence[object], speeds: Speeds) -> Ways:
    """Of jobs of these kinds, whose speeds together are known of any two jobs of them."""
    first = {name: job for job, name in reversed(list(enumerate(names)))}
    order = {name: kind for kind, name in enumerate(first)}
    columns = list(np.eye(len(first)))
    for one, first_one in zip(order.values(), first.values(), strict=True):
        for other, first_other in zip(order.values(), first.values(), strict=True):
            pair = speeds(first_one, first_other) if one <= other else (0.0, 0.0)
            if sum(pair) > 1.0:  # else taking turns is as good
                column = np.zeros(len(first))
                column[one] += min(1.0, pair[0])
                column[other] += min(1.0, pair[1])
                columns.append(column)
    return Ways(np.array([order[name] for name in names]), np.array(columns).T)


def bound(
    submit_s: Sequence[float], alone_s: Sequence[float], names: Sequence[object], speeds: Speeds, gpus: int
) -> Bound:
    """Of jobs of these kinds that come then and run so long alone, on so many GPUs."""
    came, work, used = np.array(submit_s), np.array(alone_s), ways(names, speeds)
    return Bound(_mean_s(came, work, used, gpus), _end_s(came, work, used, gpus))


def _end_s(came: Floats, work: Floats, used: Ways, gpus: int) -> float:
    """The latest of what those need that come from some moment on: GPU time for all of them, and each for itself."""
    latest = float(np.max(came + work))
    for moment in np.quantile(came, np.linspace(0.0, 0.9, 10)):
        rest = came >= moment
        need = np.bincount(used.kinds[rest], work[rest], minlength=len(used.speeds))
        found = linprog(np.ones(used.speeds.shape[1]), A_ub=-used.speeds, b_ub=-need, method="highs")
        latest = max(latest, float(came[rest].min()) + found.fun / gpus)
    return latest


def _mean_s(came: Floats, work: Floats, used: Ways, gpus: int) -> float:
    """Least mean time to the end: variables are work by job and interval, then GPU time by way and interval."""
    jobs, (kinds, count) = len(came), used.speeds.shape
    last_s = float(came.max() + work.sum() / gpus + work.max())
    edges = np.concatenate([[0.0], np.geomspace(last_s / 200, last_s, INTERVALS)])
    begins = np.maximum(edges[None, :-1], came[:, None])
    room = np.maximum(0.0, edges[None, 1:] - begins)
    spans = np.diff(edges)
    work_at = np.arange(jobs * INTERVALS).reshape(jobs, INTERVALS)
    way_at = jobs * INTERVALS + np.arange(count * INTERVALS).reshape(count, INTERVALS)
    ends_at = jobs * INTERVALS + count * INTERVALS + np.arange(jobs)
    size = int(ends_at[-1]) + 1
    each, cut = np.arange(jobs).repeat(INTERVALS), np.tile(np.arange(INTERVALS), jobs)
    by_kind = (used.kinds[each] * INTERVALS + cut, work_at.ravel(), np.ones(jobs * INTERVALS))
    kind, way = np.nonzero(used.speeds)
    done = (
        (kind[:, None] * INTERVALS + np.arange(INTERVALS)).ravel(), way_at[way].ravel(),
        -used.speeds[kind, way].repeat(INTERVALS),
    )  # fmt: skip
    full = (kinds * INTERVALS + np.tile(np.arange(INTERVALS), count), way_at.ravel(), np.ones(count * INTERVALS))
    after = kinds * INTERVALS + INTERVALS
    moments = (after + each, work_at.ravel(), (begins / work[:, None]).ravel())
    ends = (after + np.arange(jobs), ends_at, -np.ones(jobs))
    rows, columns, values = (np.concatenate(parts) for parts in zip(by_kind, done, full, moments, ends, strict=True))
    upper = coo_matrix((values, (rows, columns)), shape=(after + jobs, size)).tocsr()
    limits = np.concatenate([np.zeros(kinds * INTERVALS), gpus * spans, -work / 2])
    whole = coo_matrix((np.ones(jobs * INTERVALS), (each, work_at.ravel())), shape=(jobs, size)).tocsr()
    lower = np.concatenate([np.zeros(size - jobs), came + work])
    most = np.concatenate([room.ravel(), np.full(count * INTERVALS + jobs, np.inf)])
    costs = np.concatenate([np.zeros(size - jobs), np.ones(jobs)])
    found = linprog(
        costs, A_ub=upper, b_ub=limits, A_eq=whole, b_eq=work, bounds=np.stack([lower, most], axis=1), method="highs"
    )
    return float(found.fun - came.sum()) / jobs
