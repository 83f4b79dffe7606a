"""The verdict on a claim follows from all that it states, and a number that is not a paper's is found out."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.lab.papers.claims import (
    Claim,
    ClaimVerdict,
    Figure,
    Judgement,
    Origin,
    Sense,
    Trait,
    ours,
    table,
    verdict_of,
)
from tests.papers.documents import OVERVIEW, overview
from tests.papers.printed import not_printed, plain

MET = Figure("met", 100, 105)
MISSED = Figure("missed", 100, 120)
INPUT = Figure("input", 100, 100, given="it goes in")
LACKS = Figure("lacks", 100, None, unjudged="no such table")
UNKNOWN = Figure("on a GPU", 100, None)
HOLDS = Trait("holds", holds=True)
OURS = ours("what", "3 s")


@pytest.mark.parametrize(
    ("stated", "verdict"),
    [
        ((MET,), ClaimVerdict.SAME),
        ((MET, HOLDS), ClaimVerdict.SAME),
        ((HOLDS,), ClaimVerdict.ORDERING_HOLDS),
        ((MET, MISSED), ClaimVerdict.PARTLY),
        ((HOLDS, MISSED), ClaimVerdict.PARTLY),
        ((MET, INPUT), ClaimVerdict.SAME),
        ((HOLDS, INPUT), ClaimVerdict.ORDERING_HOLDS),
        ((MISSED, INPUT), ClaimVerdict.DIFFERS),
        ((INPUT,), ClaimVerdict.NOT_JUDGED),
        ((INPUT, OURS), ClaimVerdict.NOT_JUDGED),
        ((LACKS,), ClaimVerdict.NOT_JUDGED),
        ((MET, LACKS), ClaimVerdict.PARTLY),
        ((INPUT, UNKNOWN), ClaimVerdict.NEEDS_GPU),
        ((MET, UNKNOWN), ClaimVerdict.PARTLY),
        ((MISSED, Trait("fails", holds=False)), ClaimVerdict.DIFFERS),
        ((UNKNOWN,), ClaimVerdict.NEEDS_GPU),
        ((UNKNOWN, OURS), ClaimVerdict.NEEDS_GPU),
        ((OURS,), ClaimVerdict.OURS),
        ((Figure("limit", 4, 5, source=Origin.OURS, bound=Sense.AT_MOST),), ClaimVerdict.DIFFERS),
    ],
)
def test_a_verdict_follows_from_every_row(stated: tuple[Figure | Trait, ...], verdict: ClaimVerdict) -> None:
    assert verdict_of(stated) == verdict
    assert Claim("X-a", "", tuple(reversed(stated))).verdict == verdict


@pytest.mark.parametrize(
    ("number", "judgement"),
    [
        (Figure("", 100, 110), Judgement.MET),
        (Figure("", 100, 110.1), Judgement.MISSED),
        (Figure("", -2.3, -2.4), Judgement.MET),
        (Figure("", 0, 0.5), Judgement.MISSED),
        (Figure("", 0, 0.5, slack=1.0), Judgement.MET),
        (Figure("", 5, 5, bound=Sense.BELOW), Judgement.MISSED),
        (Figure("", 5, 5, bound=Sense.AT_MOST), Judgement.MET),
        (Figure("", 5, 5.1, bound=Sense.AT_MOST), Judgement.MISSED),
        (Figure("", 5, 4.9, bound=Sense.AT_LEAST), Judgement.MISSED),
        (Figure("", 5, 5, bound=Sense.ABOVE), Judgement.MISSED),
        (Figure("", 5, None, unjudged="no such table"), Judgement.NOT_JUDGED),
    ],
)
def test_a_number_is_held_against_its_bound(number: Figure, judgement: Judgement) -> None:
    assert number.judgement == judgement


@given(st.lists(st.sampled_from([MET, MISSED, INPUT, LACKS, UNKNOWN, HOLDS]), min_size=1))
def test_no_claim_is_the_same_that_leaves_a_number_open(stated: list[Figure | Trait]) -> None:
    verdict, judged = verdict_of(stated), [one for one in stated if one is not INPUT]
    if any(one.judgement is not Judgement.MET for one in judged) or not judged:
        assert verdict not in {ClaimVerdict.SAME, ClaimVerdict.ORDERING_HOLDS}
    if all(one.judgement not in {Judgement.MET, Judgement.MISSED} for one in stated):
        assert verdict in {ClaimVerdict.NOT_JUDGED, ClaimVerdict.NEEDS_GPU}


def test_inputs_that_were_searched_to_match_are_said_in_the_verdict() -> None:
    assert Claim("X-a", "", (MET,), "a trace, searched to match table 2").told == "same, inputs searched to match"
    assert Claim("X-a", "", (OURS,), "a trace, searched to match table 2").told == "ours alone"
    assert Claim("X-a", "", (MET,), "measured").told == "same"


def test_a_table_has_what_was_published_and_what_was_found() -> None:
    claims = Claim("X-a", "two", (MET, INPUT, HOLDS)), Claim("X-b", "ours", (OURS,))
    assert table(claims).splitlines()[2:] == [
        "| X-a: two | met: 100; input: 100; holds | 105.0; 100.0 (input); holds | same |",
        "",
        "Of the numbers and orders published: 2 met, 1 input. 1 claim of ours alone.",
    ]


def test_the_overview_says_what_the_pages_say() -> None:
    assert OVERVIEW.read_text(encoding="utf-8") == overview(), "python -m tests.papers.documents DIR writes it"


def test_a_number_that_the_paper_does_not_have_is_found_out() -> None:
    text = plain("speedup  $\\approx 1.30\\text{x}$ and 138 images in\n42 GPUs; 81.95 s")
    there = Figure("batch 2", 1.30, 1.2, printed="1.30"), Figure("GPUs", 42, 42, printed="42 GPUs")
    absent = Figure("end", 81.9, 81.9), Figure("one", 1, 1, printed="1"), Figure("images", 38, 138)
    assert not_printed([Claim("X-a", "", there)], text) == []
    assert not_printed([Claim("X-a", "", absent)], text) == ["X-a end: 81.9", "X-a one: 1", "X-a images: 38"]


def test_what_the_papers_mechanisms_add_to_colane_is_what_was_measured() -> None:
    """Of each option a row: mean jct and makespan over those of `colane`, and what other owners get, by seed."""
    root = Path(__file__).parents[2]
    with (root / "benchmarks" / "results" / "options.csv").open(encoding="utf-8") as file:
        ran = {(row["policy"], row["seed"]): row for row in csv.DictReader(file)}
    table = (root / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
    seeds = sorted(seed for policy, seed in ran if policy == "colane")
    others = ", ".join(f"{float(ran['colane', seed]['others']):.2f}" for seed in seeds)
    assert f"({others} under `colane`)" in table
    for policy in sorted({policy for policy, _ in ran} - {"colane"}):
        assert sorted(seed for name, seed in ran if name == policy) == seeds
        option, cells = policy.removeprefix("colane:"), []
        for column in ("jct_h", "makespan_h"):
            ratios = [float(ran[policy, seed][column]) / float(ran["colane", seed][column]) for seed in seeds]
            cells.append(", ".join(f"{ratio:.3f}" for ratio in ratios))
        cells.append(", ".join(f"{float(ran[policy, seed]['others']):.2f}" for seed in seeds))
        is_on = policy in {"colane:jobs_per_gpu_max=1", "colane:consolidates=no,moves=no"}
        assert f"| `{option}` | {'on' if is_on else 'off'} | {' | '.join(cells)} |" in table
