"""What the goodput objective rests on, checked on Pollux's measurements: how many more samples larger batches take.

A job that tells the noise of its gradient at one batch is foreseen at twice that, as when it is to get twice the GPUs
at a batch per GPU. The trainings were measured at both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from colane.lab.papers.claims import Claim, ours
from colane.lab.traces.tables.pollux import EpochNoise, PolluxTable
from colane.scheduling.engine.sized_rates import efficiency


class Foreseen(NamedTuple):
    """Iterations until the same progress at twice the batch, over those measured."""

    by_noise: float  # as foreseen by what the job tells of its gradient
    alike: float  # if every sample taught as much as any other


def evaluate(table: PolluxTable) -> tuple[Claim, ...]:
    """One claim; none where the files do not tell the noise."""
    found = [one for application in table.applications.values() for one in foreseen(application.noise)]
    if not found:
        return ()
    errors = np.abs(np.subtract(found, 1.0)).T
    noise, alike = (f"{np.mean(one):.1%} in the mean, {np.max(one):.1%} at most" for one in errors)
    claim = "goodput: iterations at twice the batch, by the noise of the gradient"
    told = f"off by {noise}; with all samples alike {alike}; {len(found)} doublings of six applications"
    return (Claim("E-g", claim, (ours("", told),), "Pollux's measured trainings"),)


def foreseen(curves: Mapping[int, Sequence[EpochNoise]]) -> list[Foreseen]:
    """Of each batch from the one before."""
    return [_from(curves[before], before, curves[batch], batch) for before, batch in pairwise(sorted(curves))]


def _from(known: Sequence[EpochNoise], before: int, measured: Sequence[EpochNoise], batch: int) -> Foreseen:
    steps = np.diff([0, *[epoch.iterations for epoch in known]])
    worth = [efficiency(epoch.noise_scale, before, batch) for epoch in known]
    there = measured[-1].iterations * batch / before
    return Foreseen(float(np.sum(steps / worth)) / there, float(np.sum(steps)) / there)
