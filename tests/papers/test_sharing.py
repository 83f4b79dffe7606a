"""Paper B's claims that a simulation can judge, with the published bounds, and those that need a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from colane.cli import app
from colane.lab.papers.claims import Claim, ClaimVerdict, Evaluation, Figure, Judgement, queue_s
from colane.lab.papers.sharing import TABLE_2, SharingEvaluation, evaluate, most_at_once, row_of
from colane.lab.papers.sharing_memory import MIB, SERVED, first_fit_bins, read_tables, serving_bytes
from colane.lab.papers.sharing_scenes import Gain, ends_s
from colane.lab.simulate.ledger import STATES
from colane.lab.simulate.run import Run
from colane.model.profile import Memory
from tests.papers.documents import stale
from tests.papers.printed import not_printed, text_of


@pytest.fixture(scope="module")
def found(data: Path) -> Evaluation:
    return evaluate(data)


@pytest.fixture(scope="module")
def claims(found: Evaluation) -> dict[str, Claim]:
    return {claim.id: claim for claim in found.claims}


def runs_of(found: Evaluation, name: str) -> dict[str, Run]:
    experiment = next(one for one in found.experiments if one.name == name)
    return {run.policy: run for _, run in experiment.runs}


def test_every_claim_has_one_verdict_and_no_plan_was_refused(claims: dict[str, Claim], found: Evaluation) -> None:
    assert len(claims) == len(found.claims)
    letters = {claim.id.split("-")[1] for claim in found.claims}
    assert letters == set("abcdefghijklmnop")
    needs = {claim.id for claim in found.claims if claim.verdict == ClaimVerdict.NEEDS_GPU}
    assert needs == {"B-e", "B-j", "B-n"}
    assert claims["B-h"].verdict == ClaimVerdict.ORDERING_HOLDS, "measured on an H100"
    assert claims["B-i"].verdict == ClaimVerdict.SAME
    for experiment in found.experiments:
        for _, run in experiment.runs:
            assert run.ledger.flaws == []
            assert run.refused == ()
            assert {STATES[code] for code in run.ledger.rows.state} == {"succeeded"}


@pytest.mark.parametrize("policy", TABLE_2)
def test_table_2_on_the_calibrated_trace(found: Evaluation, policy: str) -> None:
    """Cells within 10 %, PACK's 95th percentile within 15 %: a regression fixture, as the trace was made to match."""
    ours, published = row_of(runs_of(found, "table-2")[policy]), TABLE_2[policy]
    assert ours[:3] == pytest.approx(published[:3], rel=0.10)
    assert ours.jct_p95 == pytest.approx(published.jct_p95, rel=0.15 if policy == "pack" else 0.10)


def test_the_trace_is_said_to_be_a_fixture_wherever_it_is_reported(claims: dict[str, Claim]) -> None:
    for id_, claim in claims.items():
        if id_.startswith(("B-a", "B-b", "B-c")) and id_ != "B-a-pack-turns":
            assert "regression fixture" in claim.claim


def test_the_reference_simulation_gives_the_same_without_its_safety_factor(found: Evaluation, data: Path) -> None:
    """FIFO knows no memory and PACK has the same factors, so both must be those of the independent simulation."""
    expected = json.loads((data / "B" / "calibrated_trace_100.expected.json").read_text())["simulated"]
    runs = runs_of(found, "table-2")
    assert row_of(runs["fifo"]) == pytest.approx(expected["fifo"], rel=0.002)
    assert row_of(runs["pack"]) == pytest.approx(expected["pack_rho1.1"], rel=0.002)


def test_orderings_and_speed_ups_hold(claims: dict[str, Claim]) -> None:
    assert claims["B-a-order"].verdict == ClaimVerdict.PARTLY, "PACK's 95 % is published above FIFO's"
    assert claims["B-b"].verdict == ClaimVerdict.SAME
    assert claims["B-c"].verdict == ClaimVerdict.SAME
    judged = {one.what.partition(":")[0]: one.judgement for one in claims["B-a-order"].stated}
    assert judged == {"queueing": Judgement.MET, "jct": Judgement.MET, "jct_p95": Judgement.MISSED}


def test_fairness_delays_no_job_for_others_sake_but_shares_the_pain(found: Evaluation) -> None:
    runs = runs_of(found, "table-2")
    assert not runs["fifo"].ledger.paused_s
    assert not runs["pack"].ledger.paused_s
    for policy in ("srtf", "fair"):
        run = runs[policy]
        rows = run.ledger.rows
        in_all_s = np.subtract(rows.end_s, rows.submit_s).sum()
        paused_s, queued_s = sum(run.ledger.paused_s.values()), queue_s(run).sum()
        assert in_all_s == pytest.approx(sum(rows.gpu_s) + paused_s + queued_s, rel=1e-9)


def test_forty_two_models_are_served_by_one_gpu_six_or_forty_two(claims: dict[str, Claim], data: Path) -> None:
    assert claims["B-d"].ours.startswith("GPUs: 1; memory: 14169 MiB of 16084")
    assert claims["B-d-mps"].ours.startswith("GPUs: 6;")
    assert claims["B-d-none"].ours.startswith("GPUs: 42;")
    assert all(claims[name].verdict == ClaimVerdict.SAME for name in ("B-d", "B-d-mps", "B-d-none"))
    assert claims["B-d-over-mps"].verdict == ClaimVerdict.DIFFERS, "6 GPUs over 1 are not the 7 times of the text"
    memory = read_tables(data).memory
    assert len(SERVED) == 14
    assert serving_bytes([memory[name] for name in SERVED]) / MIB == pytest.approx(14_169, abs=1)


def test_first_fit_takes_the_first_bin_with_room() -> None:
    assert first_fit_bins([6, 5, 4, 5], 10) == 2
    assert first_fit_bins([], 10) == 0
    assert serving_bytes([Memory(10, 100), Memory(20, 40)]) == pytest.approx(3 * 30 * 1.1 + 100 * 1.05)


def test_three_jobs_that_come_one_after_another_share_halves_and_thirds(found: Evaluation) -> None:
    ends = ends_s(runs_of(found, "fair-sharing")["fair"])
    assert [ends[3], ends[2], ends[1]] == pytest.approx([68.0, 81.9, 92.2], abs=0.1)


def test_the_figure_of_fair_sharing_shows_halves_and_thirds_of_a_constant_total(found: Evaluation) -> None:
    assert isinstance(found, SharingEvaluation)
    rates = list(found.images_per_s.values())
    whole = 50 / 0.36181
    assert [rate for _, rate in rates[0]] == pytest.approx([whole, whole / 2, whole / 3, whole / 2, whole, 0])
    assert [at_s for at_s, _ in rates[0]] == pytest.approx([0, 15, 30, 68.0, 81.9, 92.3], abs=0.1)
    assert [rate for _, rate in rates[2]] == pytest.approx([whole / 3, 0])
    assert next(iter(found.needs_bytes)) == "resnet152_75"


def test_the_shortest_goes_first(claims: dict[str, Claim], found: Evaluation) -> None:
    assert claims["B-m"].ours.endswith(": 1, 3, 2, 5, 4, 0")
    assert claims["B-m"].verdict == ClaimVerdict.ORDERING_HOLDS
    ends = ends_s(runs_of(found, "snapshot")["srtf"])
    assert [ends[k] for k in sorted(ends)] == pytest.approx([193, 15, 43, 23, 98, 68], abs=0.1)


def test_sweeps_gain_what_their_lanes_gain(claims: dict[str, Claim], found: Evaluation) -> None:
    for id_, gain in (("B-f", 1.07), ("B-f-light", 2.38)):
        (number,) = [one for one in claims[id_].stated if isinstance(one, Figure)]
        assert number.ours == pytest.approx(gain, rel=0.1)
        assert number.judgement == Judgement.INPUT
        assert claims[id_].verdict == ClaimVerdict.NOT_JUDGED
    lanes = {one.name: most_at_once(one, "pack") for one in found.experiments if one.name.startswith("sweep")}
    assert lanes == {"sweep-resnet50_50": 2, "sweep-superres_128": 14}


def test_gain_grows_with_lanes_up_to_its_own() -> None:
    gain = Gain(lanes=14, rho=2.38)
    assert [gain.of(lanes) for lanes in (1, 14, 20)] == pytest.approx([1, 2.38, 2.38])
    assert 1 < gain.of(7) < 2.38


def test_unlike_jobs_have_equal_time(claims: dict[str, Claim]) -> None:
    assert claims["B-o"].verdict == ClaimVerdict.ORDERING_HOLDS


def test_the_one_number_of_the_text_that_the_authors_table_does_not_have_is_told(claims: dict[str, Claim]) -> None:
    assert claims["B-k"].verdict == claims["B-k-peak"].verdict == claims["B-k-vae"].verdict == ClaimVerdict.SAME
    assert claims["B-k-least"].verdict.startswith("differs")


def test_the_command_prints_the_claims_and_draws_them(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["paper", "B", "--data", str(data), "--out", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["paper"] == "B"
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == printed["claims"]
    assert (tmp_path / "fair-sharing" / "throughput.png").exists()
    assert (tmp_path / "memory.png").exists()
    for name in ("table-2", "fair-sharing", "snapshot", "sweep-superres_128"):
        assert (tmp_path / name / "report.html").exists()


def test_every_number_that_is_said_to_be_the_papers_is_in_it(found: Evaluation, papers: Path) -> None:
    assert not_printed(found.claims, text_of(papers, "B")) == []


def test_the_page_says_what_is_found(found: Evaluation) -> None:
    assert stale("B", found.claims) == []


def test_a_short_job_is_admitted_beside_a_paused_one_that_memory_does_not_hold(claims: dict[str, Claim]) -> None:
    told = claims["B-p"]
    assert told.verdict == ClaimVerdict.ORDERING_HOLDS
    assert "4,900 s" in told.stated[1].found
