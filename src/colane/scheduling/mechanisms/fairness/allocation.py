"""Gavel's linear program (Narayanan et al., OSDI 2020, section 4.1): what part of its time a job is to have which type.

Solved by SciPy's HiGHS, imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, util
from typing import Final

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

SUM_WEIGHT: Final = 1e-3
"""Weight of the sum of speeds beside the least of them: of all allocations that are as fair the quickest is taken."""


class NoSolverError(Exception):  # of few builtin classes can a compiled one be a subclass
    """SciPy is not there."""


def need_solver() -> None:
    """Refuse to go on without a solver. Raises NoSolverError: there is none."""
    if util.find_spec("scipy") is None:
        raise NoSolverError("policy: solver=lp needs SciPy; install it with: pip install 'colane[lp]'")


def max_min(speeds: Matrix, jobs: Sequence[int], gpus: Sequence[int], capacity: Sequence[int]) -> Matrix:
    """The allocation under which the slowest job is as fast as can be.

    Args:
        speeds: Classes of jobs x GPU types: speed there, comparable between classes; 0 where such a job cannot run.
        jobs: How many jobs each class has.
        gpus: How many GPUs each of them needs.
        capacity: GPUs of each type.

    Returns:
        Classes x types: part of its time that a job of the class is to spend there.
    """
    classes, types = speeds.shape
    count = np.asarray(jobs, float)
    gain = speeds * np.asarray(gpus, float)[:, None]
    cost = np.append(-SUM_WEIGHT * (gain * count[:, None]).ravel() / count.sum(), -1.0)
    times = np.kron(np.eye(classes), np.ones(types))
    taken = np.kron((count * np.asarray(gpus, float))[None, :], np.eye(types))
    fair = -np.kron(np.eye(classes), np.ones(types)) * gain.ravel()
    rows = np.vstack(
        [
            np.hstack([times, np.zeros((classes, 1))]),
            np.hstack([taken, np.zeros((types, 1))]),
            np.hstack([fair, np.ones((classes, 1))]),
        ]
    )
    limits = np.concatenate([np.ones(classes), np.asarray(capacity, float), np.zeros(classes)])
    bounds = [(0.0, 1.0 if speed > 0 else 0.0) for speed in speeds.ravel()] + [(0.0, None)]
    found = import_module("scipy.optimize").linprog(cost, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    part: Matrix = np.clip(found.x[:-1], 0.0, 1.0).reshape(classes, types)
    return part
