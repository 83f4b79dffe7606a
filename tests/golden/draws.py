"""Policies on many draws of the frozen worlds: any choice changes all later ones, so one draw of 60 jobs says little.

    python -m tests.golden.draws WORLD[,WORLD...] COUNT POLICY POLICY...

Prints, for each policy, mean jct and last end over those of the first one in the same draw, with standard errors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import isnan, sqrt
from statistics import mean, stdev
from typing import NamedTuple

from colane.lab.simulate.run import simulate
from colane.scheduling.registry import create

from .workloads import SIMULATED

APART = 100
"""Seeds of draws are so far apart, so that worlds share none."""


class Drawn(NamedTuple):
    """What came of one draw: mean jct and last end in seconds, starts beyond the first of each job."""

    jct_s: float
    last_s: float
    moves: int


def drawn(world: str, policy: str, number: int) -> Drawn:
    """Run a policy on a draw of a world; the one numbered 0 is frozen."""
    ledger = simulate(SIMULATED[world](create(policy), APART * number)).ledger
    rows = ledger.rows
    ended = [(s, e) for s, e in zip(rows.submit_s, rows.end_s, strict=True) if not isnan(e)]
    return Drawn(mean([e - s for s, e in ended]), max([e for _, e in ended]), len(ledger.stays) - len(rows))


def compare(world: str, count: int, policies: Sequence[str]) -> list[str]:
    """A line for each policy."""
    found = {policy: [drawn(world, policy, number) for number in range(count)] for policy in policies}
    base = found[policies[0]]
    return [f"{world} {policy}: {_against(ours, base)}" for policy, ours in found.items()]


def _against(ours: Sequence[Drawn], base: Sequence[Drawn]) -> str:
    jct = [a.jct_s / b.jct_s for a, b in zip(ours, base, strict=True)]
    last = [a.last_s / b.last_s for a, b in zip(ours, base, strict=True)]
    moves = mean([one.moves for one in ours])
    return f"mean jct {_with_error(jct)}, last end {_with_error(last)}, {moves:.1f} moves"


def _with_error(ratios: Sequence[float]) -> str:
    error = stdev(ratios) / sqrt(len(ratios)) if len(ratios) > 1 else 0.0
    return f"{mean(ratios):.4f} +- {error:.4f}"


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        sys.stdout.write("".join(f"{line}\n" for line in compare(name, int(sys.argv[2]), sys.argv[3:])))
