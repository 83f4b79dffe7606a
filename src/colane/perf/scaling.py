"""How fast a job steps with numbers of GPUs it was not seen on, from those it was: f(n) of paper E for unmeasured n.

Step time = a / n + b + c n: the part of the work that is shared out, what every GPU does all the same, and what comes
with each further GPU (exchange of gradients), none of them negative. That is the form of Optimus (Peng et al., EuroSys
2018, section 3.2) for synchronous training. Fitted by least squares of the relative error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import inf
from typing import Final

TERMS: Final = 3
SINGULAR: Final = 1e-12


def fitted_step_s(steps_s: Mapping[int, float], gpus: int) -> float:
    """Step time with so many GPUs, by the curve through those that are known.

    Args:
        steps_s: Step time above 0 by number of GPUs, at least one. One alone is taken to be shared out without loss.
        gpus: For so many, at least 1.
    """
    best, least = (0.0, 0.0, 0.0), inf
    for count in range(1, min(TERMS, len(steps_s)) + 1):
        for terms in combinations(range(TERMS), count):
            found = _least_squares(steps_s, terms)
            error = inf if found is None or min(found) < 0 else _error(steps_s, found)
            if found is not None and error < least * (1 - SINGULAR):
                best, least = found, error
    return _value(best, gpus)


def _value(factors: Sequence[float], gpus: int) -> float:
    return factors[0] / gpus + factors[1] + factors[2] * gpus


def _error(steps_s: Mapping[int, float], factors: Sequence[float]) -> float:
    """Sum of the squared relative errors."""
    return sum([(_value(factors, gpus) / step_s - 1) ** 2 for gpus, step_s in steps_s.items()])


def _least_squares(steps_s: Mapping[int, float], terms: Sequence[int]) -> tuple[float, float, float] | None:
    """Factors of these terms, 0 for the others; None where the sizes do not tell them apart."""
    rows = [[term_of(term, gpus) / step_s for term in terms] for gpus, step_s in steps_s.items()]
    size = range(len(terms))
    matrix = [[sum([row[i] * row[j] for row in rows]) for j in size] + [sum([row[i] for row in rows])] for i in size]
    solved = _solve(matrix)
    if solved is None:
        return None
    found = [0.0] * TERMS
    for term, value in zip(terms, solved, strict=True):
        found[term] = value
    return found[0], found[1], found[2]


def term_of(term: int, gpus: int) -> float:
    """1 / n, 1 or n."""
    return (1 / gpus, 1.0, float(gpus))[term]


def _solve(matrix: list[list[float]]) -> list[float] | None:
    """Solve a few linear equations by elimination; the last column is the right side."""
    size = len(matrix)
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(matrix[row][i]))
        if abs(matrix[pivot][i]) < SINGULAR * max(1.0, abs(matrix[0][0])):
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for row in range(size):
            if row != i:
                part = matrix[row][i] / matrix[i][i]
                matrix[row] = [a - part * b for a, b in zip(matrix[row], matrix[i], strict=True)]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]
