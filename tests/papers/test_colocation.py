"""Paper A's claims that a simulation can judge, and the page that says which need a GPU."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from colane.cli import app
from colane.lab.commands import paper
from colane.lab.commands.paper import ELSEWHERE, PAPERS
from colane.lab.papers import sharing
from colane.lab.papers.claims import Claim, ClaimVerdict, Evaluation, GpuResults, Judgement, queue_s
from colane.lab.papers.colocation import GavelFifoPacked, evaluate
from colane.lab.traces.tables import SHIPPED
from tests.papers.documents import stale
from tests.papers.printed import not_printed, text_of


@pytest.fixture(scope="module")
def found(data: Path) -> Evaluation:
    return evaluate(data)


@pytest.fixture(scope="module")
def claims(found: Evaluation) -> dict[str, Claim]:
    return {claim.id: claim for claim in found.claims}


def test_every_claim_has_one_verdict(claims: dict[str, Claim], found: Evaluation) -> None:
    assert len(claims) == len(found.claims)
    assert {f"A-{letter}" for letter in "abcdefghij"} <= claims.keys()
    assert {letter for letter in "abcdfhi" if claims[f"A-{letter}"].verdict == ClaimVerdict.NEEDS_GPU} == set("abcdfhi")


def test_the_worst_case_does_not_queue_under_co_location(claims: dict[str, Claim], found: Evaluation) -> None:
    assert claims["A-e"].verdict == ClaimVerdict.SAME
    runs = {run.policy: run for _, run in found.experiments[0].runs}
    assert queue_s(runs["colocate"]).tolist() == [0.0] * 4
    assert sorted(queue_s(runs["fifo"]) > 0) == [False, False, True, True]


def test_the_pair_deltas_and_the_orderings_hold(claims: dict[str, Claim]) -> None:
    assert claims["A-g"].verdict == ClaimVerdict.SAME
    for name in ("A-g-batch", "A-g-worst"):
        assert claims[name].verdict == ClaimVerdict.ORDERING_HOLDS


def test_a_makespan_that_rises_leaves_a_claim_partly(claims: dict[str, Claim]) -> None:
    assert {one.judgement for one in claims["A-j"].stated} == {Judgement.MET}
    assert len(claims["A-j"].stated) == 9
    assert claims["A-j"].verdict == claims["A-j-colocate"].verdict == ClaimVerdict.ORDERING_HOLDS
    told = claims["A-j-colocate-oracle"]
    assert [one.judgement is Judgement.MET for one in told.stated] == [True, False]
    assert told.verdict == ClaimVerdict.PARTLY
    assert "of 3 seeds" in told.note
    for name in ("A-j", "A-j-colocate"):
        assert not claims[name].note  # a reason stands only where there is something to explain


def test_gavels_models_are_compared_with_beliefs_with_an_oracle_and_with_gavels_packing(
    claims: dict[str, Claim], found: Evaluation
) -> None:
    policies = {run.policy for _, run in found.experiments[2].runs}
    assert policies == {"fifo", "colocate", "colocate-profiled", "colocate-oracle", "gavel-fifo-packed"}
    assert all(not run.ledger.flaws for _, run in found.experiments[2].runs)
    assert claims["A-j-gavel-fifo-packed"].verdict == ClaimVerdict.ORDERING_HOLDS


def test_gavels_packing_joins_only_above_its_threshold(found: Evaluation) -> None:
    run = next(run for _, run in found.experiments[2].runs if run.policy == "gavel-fifo-packed")
    loaded = found.experiments[2].loaded[0]
    stays = run.ledger.stays
    packed = GavelFifoPacked(loaded.world, {})
    assert packed.threshold == 1.5
    together = [(a, b) for i, a in enumerate(stays) for b in stays[i + 1 :] if a.gpus == b.gpus]
    overlaps = [(a, b) for a, b in together if a.start_s < b.end_s and b.start_s < a.end_s]
    assert overlaps
    for a, _ in overlaps:
        crowd = [b for b in stays if b.gpus == a.gpus and b.start_s <= a.start_s < b.end_s]
        assert len(crowd) <= 2


def test_the_command_prints_the_claims_and_draws_them(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["paper", "a", "--data", str(data), "--out", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["claims"]
    assert all(
        set(claim) == {"id", "claim", "published", "ours", "verdict", "world", "note", "stated"} for claim in printed
    )
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == printed
    with (tmp_path / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(claim["stated"]) for claim in printed)
    assert {row["claim"] for row in rows} == {claim["id"] for claim in printed}
    for name in ("worst-case", "light-jobs", "gavel"):
        assert (tmp_path / name / "report.html").exists()
        assert (tmp_path / name / "jct_cdf.png").exists()


def test_an_unknown_paper_is_named_with_those_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["paper", "Z"]) == 2
    assert "known: A (Co-location" in capsys.readouterr().err


@pytest.mark.parametrize("letter", sorted(PAPERS))
def test_a_directory_without_the_tables_is_named_with_the_file_that_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, letter: str
) -> None:
    assert app.run(["paper", letter, "--data", str(tmp_path)]) == 2
    assert f"--data: {tmp_path} holds no {PAPERS[letter][2]}, which paper {letter} needs" in capsys.readouterr().err


def test_what_is_not_shipped_is_named_and_where_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLANE_DATA", raising=False)
    assert app.run(["paper", "D"]) == 2
    said = capsys.readouterr().err
    assert "traces/synergy-cpu/tput_matrix.csv, which is not shipped" in said
    assert "github.com/msr-fiddle/synergy" in said


def test_every_evaluation_but_those_named_reads_what_is_shipped() -> None:
    assert {letter for letter, (_, _, table) in PAPERS.items() if not (SHIPPED / table).is_file()} == set(ELSEWHERE)
    assert {table for table in SHIPPED.rglob("*.*") if table.stat().st_size > 50_000} == set()


def test_the_table_world_runs_on_what_is_shipped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLANE_DATA", raising=False)
    words = ["-c", "v100-36", "-t", "poisson:jobs=20,gap=100", "--world", "table", "-p", "fifo", "--json"]
    assert app.run(["simulate", *words]) == 0
    assert "Gavel" in json.loads(capsys.readouterr().out)["world"]


def test_shipped_tables_are_those_of_the_data(data: Path) -> None:
    shipped = [file.relative_to(SHIPPED) for file in SHIPPED.rglob("*.*") if file.name != "NOTICES.md"]
    assert [file for file in shipped if (SHIPPED / file).read_bytes() != (data / file).read_bytes()] == []
    assert len(shipped) > 12


def test_the_page_says_what_is_found(found: Evaluation) -> None:
    assert stale("A", found.claims) == []


def test_what_a_gpu_measured_is_a_row_with_gpu_driver_and_date(claims: dict[str, Claim]) -> None:
    told = claims["A-g-measured"]
    assert told.verdict == ClaimVerdict.ORDERING_HOLDS
    assert all(word in told.world for word in ("2026-11-28", "H100", "driver 580"))
    assert sorted(re.findall(r"\d\.\d\d", told.stated[0].found)) == ["1.37", "1.49", "1.64"]


def test_what_was_not_measured_stays_open() -> None:
    assert sharing.gpu_claims(GpuResults("nowhere", {}))[1].verdict == ClaimVerdict.NEEDS_GPU
    assert {claim.verdict for claim in sharing.gpu_claims(GpuResults("nowhere", {}))} == {ClaimVerdict.NEEDS_GPU}


def test_profiles_of_jobs_alone_decide_nothing_and_the_row_says_so(claims: dict[str, Claim]) -> None:
    assert claims["A-j-colocate-profiled"].ours == claims["A-j-colocate"].ours
    assert "Every job ends when it does under `colocate`" in claims["A-j-colocate-profiled"].note


@pytest.mark.parametrize("letter", ["all", "c"])
def test_a_quick_look_says_that_it_is_one(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    """Of all papers one is evaluated, and those without tables are named and left out."""
    papers = {each: row if each == "C" else (*row[:2], "not/there") for each, row in PAPERS.items()}
    monkeypatch.setattr(paper, "PAPERS", papers)
    assert app.run(["paper", letter, "--quick", "--data", str(data)]) == 0
    told = capsys.readouterr()
    assert "--quick: fewer jobs" in told.out
    assert "1000 jobs on 25 machines" in told.out
    assert told.err.count("is left out") == (4 if letter == "all" else 0)


def test_every_number_that_is_said_to_be_the_papers_is_in_it(found: Evaluation, papers: Path) -> None:
    assert not_printed(found.claims, text_of(papers, "A")) == []
