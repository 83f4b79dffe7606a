"""What an evaluation comes to: claims with what was published and what is found, and the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colane.simulate.request import Loaded
from colane.simulate.run import Run

Floats = NDArray[np.float64]


class ClaimVerdict(StrEnum):
    """What a claim came to."""

    SAME = "same"
    ORDERING_HOLDS = "ordering holds"
    NEEDS_GPU = "needs a GPU"


class Claim(NamedTuple):
    """One claim of the paper against ours."""

    id: str
    claim: str
    published: str
    ours: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Experiment:
    """Runs behind claims, for the plots.

    Attributes:
        name: Of its directory.
        title: Heading of its report.
        loaded: What was simulated, by seed.
        runs: By policy, then seed.
        note: How to read it.
    """

    name: str
    title: str
    loaded: dict[int, Loaded]
    runs: tuple[tuple[int, Run], ...]
    note: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything that came of it."""

    claims: tuple[Claim, ...]
    experiments: tuple[Experiment, ...]


def ordering(holds: bool) -> str:
    """Verdict on an order."""
    return ClaimVerdict.ORDERING_HOLDS if holds else "differs: see the numbers"


def said(values: Mapping[str, float], unit: str, digits: int = 1) -> str:
    """A value of each policy, for people."""
    return ", ".join(f"{policy} {value:.{digits}f} {unit}" for policy, value in values.items())


def queue_s(run: Run) -> Floats:
    """First start - submission of every job."""
    rows = run.ledger.rows
    return np.subtract(rows.first_start_s, rows.submit_s)


def span_s(run: Run) -> Floats:
    """End - first start of every job."""
    rows = run.ledger.rows
    return np.subtract(rows.end_s, rows.first_start_s)
