"""What came of quotes: how many held, how wide they were, how wrong the point was, by what they said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colane.foresee.said import METHODS, QuoteBounds, StartQuote
from colane.foresee.scale import FELT_S, HORIZONS_S, all_scaled

END: Final = "end"  # what ends are judged as, beside the methods of starts

MISS_COSTS: Final = 10.0
"""Winkler's score of an 80 % interval: a miss costs 2 / 0.2 times how far it is off (Winkler, 1972)."""


class Foretold(NamedTuple):
    """A quote, and what came of it."""

    quote: StartQuote  # what was said
    start_s: float  # in how many seconds it started; NaN where it has not
    end_s: float  # likewise, of its end


class SomeQuotes(NamedTuple):
    """Some of the quotes: how many, the part that held, and the median relative error; None of none."""

    quotes: int
    holds: float | None = None
    error: float | None = None


class JudgedQuotes(NamedTuple):
    """How good quotes were."""

    quotes: int  # how many
    holds: float  # SomeQuotes of them that held
    early: float  # SomeQuotes that came sooner than said
    late: float  # SomeQuotes that came later
    score: float  # winkler's interval score, of logarithms; less is better
    error: float  # median relative error of the point, of at least a minute
    width: float  # median of upper over lower bound
    by_horizon: tuple[SomeQuotes, ...]  # those of each horizon
    known: SomeQuotes  # those that were said to be known
    brier: float  # Brier's score of starts within a minute: mean square of what was said less what came
    base: float  # what saying the base rate each time would have


HORIZONS: Final = ("below 10 min", "to 1 h", "to 6 h", "to 1 day", "beyond")


def judged_rows(policy: str, judged_by_method: Mapping[str, JudgedQuotes]) -> list[dict[str, Any]]:
    """Return what is told of quotes under a policy, a row for each method; see `api.records.ForeseenObject`."""
    return [
        {
            "policy": policy, "method": method, "quotes": one.quotes, "holds": one.holds, "early": one.early,
            "late": one.late, "score": one.score, "median_error": one.error, "p90_over_p10": one.width,
            "horizons": [
                {"said": name, **part._asdict()} for name, part in zip(HORIZONS, one.by_horizon, strict=True)
            ],
            "known": {"said": "known", **one.known._asdict()}, "brier": one.brier, "brier_base": one.base,
        }
        for method, one in judged_by_method.items()
    ]  # fmt: skip


def judged(foretold: Sequence[Foretold]) -> dict[str, JudgedQuotes]:
    """Judge quotes of starts by method, and of ends; the first half is left out, as little had been seen by then."""
    half = foretold[len(foretold) // 2 :]
    found = {
        method: judge([(one.quote.starts[at], one.start_s) for one in half if isfinite(one.start_s)])
        for at, method in enumerate(METHODS)
    }
    found[END] = judge([(one.quote.end, one.end_s) for one in half if isfinite(one.end_s)])
    return {method: one for method, one in found.items() if one is not None}


def judge(quotes: Sequence[tuple[QuoteBounds, float]]) -> JudgedQuotes | None:
    """Judge quotes, each with what it took; None of none."""
    if not quotes:
        return None
    low, middle, high = (np.array([bounds[at] for bounds, _ in quotes]) for at in range(3))
    took = np.array([took_s for _, took_s in quotes])
    at_once = np.array([bounds.at_once for bounds, _ in quotes])
    known = np.array([bounds.is_known for bounds, _ in quotes])
    early, late = took < low - 1e-6, took > high + 1e-6
    held = ~(early | late)
    low_log, high_log, took_log = all_scaled(low), all_scaled(high), all_scaled(took)
    outside = np.maximum(low_log - took_log, 0.0) + np.maximum(took_log - high_log, 0.0)
    spread = high_log - low_log
    horizons = np.searchsorted(np.array(HORIZONS_S), middle, side="right") - 1
    errors = np.abs(took - middle) / np.maximum(took, FELT_S)

    def part(which: NDArray[np.bool_]) -> SomeQuotes:
        some = held[which]
        return (
            SomeQuotes(len(some), float(some.mean()), float(np.median(errors[which]))) if len(some) else SomeQuotes(0)
        )

    return JudgedQuotes(
        len(quotes), float(held.mean()), float(early.mean()), float(late.mean()),
        float((spread + MISS_COSTS * outside).mean()), float(np.median(errors)), float(np.exp(np.median(spread))),
        tuple([part(horizons == at) for at in range(len(HORIZONS_S))]), part(known),
        float(((at_once - (took <= FELT_S)) ** 2).mean()), float((took <= FELT_S).var()),
    )  # fmt: skip
