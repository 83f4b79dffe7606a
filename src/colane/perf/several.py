"""A job beside several others that were never measured together: by its pairs, or by measured sets of one job less.

What each adds in a pair adds up. Where a set of one less was measured, that one says how far this is off for these very
jobs, so adding pairs has nothing more to tell: one more adds what each of the others added there on average, and by how
much its pair costs more than theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Final, NamedTuple

from colane.perf.encounters import Estimate

ADDING_VARIANCE: Final = 0.25**2
"""Of what is added up from pairs, beside what each of those may be off; see decision 32."""
ONE_MORE_VARIANCE: Final = 0.1**2
"""Of what follows from a set of three or more, beside what is not known of that set; see decision 32."""


class Smaller(NamedTuple):
    """A job in a set of one less than is asked for, as it was measured."""

    slowdown: float  # its own there
    variance: float  # of the log of that
    there: Sequence[Estimate]  # what it is expected to lose to each of those that were there, in a pair
    missing: Estimate  # the same to the one that was not


def of_several(pairs: Sequence[Estimate], smaller: Sequence[Smaller] = (), log_work: float = 0.0) -> Estimate:
    """Slowdown beside others.

    Args:
        pairs: Beside each of them alone.
        smaller: Sets of three and more that were measured, each of one of them less.
        log_work: Log of the least slowdown by the work of all, as far as pairs keep to theirs.
    """
    if len(pairs) == 1:
        return pairs[0]
    evidence = min([pair.evidence for pair in pairs])
    if not smaller:
        total = max(exp(log_work), 1.0 + sum([_added(pair) for pair in pairs]))
        off = [((1.0 + _added(pair)) / total) ** 2 * pair.variance for pair in pairs]
        return Estimate(log(total), ADDING_VARIANCE + sum(off), evidence)
    means = [log(_with_one_more(one)) for one in smaller]
    variance = ONE_MORE_VARIANCE + sum([one.variance for one in smaller]) / len(smaller)
    return Estimate(sum(means) / len(means), variance, evidence)


def _with_one_more(smaller: Smaller) -> float:
    """The slowdown once the missing job has come."""
    count = len(smaller.there)
    usual = sum([_added(pair) for pair in smaller.there]) / count
    return smaller.slowdown + max(0.0, (smaller.slowdown - 1.0) / count + _added(smaller.missing) - usual)


def _added(pair: Estimate) -> float:
    return exp(max(0.0, pair.log_slowdown)) - 1.0
