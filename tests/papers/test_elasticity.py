"""Paper E's evaluation: totals against the fixture, sums of run times exactly, who is resized when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from colane.cli import app
from colane.lab.papers import elastic_workloads, elasticity
from colane.lab.papers.claims import Evaluation, Figure, Judgement, Origin
from colane.lab.simulate.table_files import pollux_table
from colane.settings.input_file import InputFileError
from tests.papers.documents import stale
from tests.papers.printed import not_printed, text_of


@pytest.fixture(scope="module", autouse=True)
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two small workloads stand for the ten, three jobs for each recorded hour."""
    folder = tmp_path_factory.mktemp("recorded")
    for number in elastic_workloads.RECORDED:
        head = "name,time,application,num_replicas,batch_size\n"
        rows = "cifar10-0,0,cifar10,6,2048\ndeepspeech2-1,10,deepspeech2,2,80\ncifar10-2,20,cifar10,1,512\n"
        (folder / f"workload-{number}.csv").write_text(head + rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elasticity, "SEEDS", 2)
        patch.setattr(elasticity, "POISSON_JOBS", 40)
        patch.setattr(elastic_workloads, "WORKLOADS", str(folder / "workload-{}.csv"))
        yield


@pytest.fixture(scope="module")
def found(data: Path) -> Evaluation:
    return elasticity.evaluate(data)


def test_totals_are_the_fixtures_within_two_percent(found: Evaluation) -> None:
    totals = [claim for claim in found.claims if claim.id.startswith("E-a-") and claim.id != "E-a-order"]
    assert len(totals) == 1 + len(elasticity.SLOTS)
    for claim in totals:
        assert [one.source for one in claim.stated] == [Origin.PAPER, Origin.OURS]
        assert all(isinstance(one, Figure) and one.ratio == 0.02 for one in claim.stated)
        assert {one.judgement for one in claim.stated} == {Judgement.MET}, claim


def test_identities_and_orderings(found: Evaluation) -> None:
    verdicts = {claim.id: str(claim.verdict) for claim in found.claims}
    assert verdicts["E-b"] == "same"
    assert verdicts["E-c"] == "ordering holds"
    assert verdicts["E-a-order"] == verdicts["E-f"] == "ordering holds"
    assert verdicts["E-v"] == "ordering holds", "0.5 is an input"
    assert verdicts["E-d"] == "needs a GPU"
    spent = next(claim for claim in found.claims if claim.id == "E-f").stated
    assert {one.judgement for one in spent if isinstance(one, Figure)} == {Judgement.MET}, "the fixture, within 2 %"


def test_chosen_sizes_beat_fifo_and_every_static_split(found: Evaluation) -> None:
    claims = [claim for claim in found.claims if claim.id.startswith("E-p")]
    assert len(claims) == 3 + len(elastic_workloads.SIZES) + 1
    assert claims[-1].verdict == "ours alone", "the workloads are of Pollux, not of the thesis"
    assert [one.judgement for one in claims[-1].stated] == [Judgement.MET]


def test_recorded_hours_are_simulated_with_chosen_and_with_asked_sizes(found: Evaluation) -> None:
    claims = [claim for claim in found.claims if claim.id.startswith("E-r-")]
    assert [claim.claim.partition(" of 1")[0] for claim in claims] == [
        f"Pollux's workload {number}, 3 jobs" for number in elastic_workloads.RECORDED
    ]
    for claim in claims:
        assert [one.what.rpartition(" ")[2] for one in claim.stated] == ["f-sched", "colane", "fifo"]
        assert len({one.found for one in claim.stated}) > 1


def test_the_part_of_time_above_a_level_never_grows_with_it(found: Evaluation) -> None:
    (work,) = [claim for claim in found.claims if claim.id == "E-d-work"]
    parts = [
        [float(each) for each in one.split()[1::2]] for one in work.stated[0].found.rpartition(" %")[0].split("; ")
    ]
    assert len(parts) == 1 + len(elasticity.SLOTS)
    assert all(each == sorted(each, reverse=True) and each[0] <= 100 for each in parts)
    assert [one.judgement for one in work.stated] == [Judgement.MISSED, Judgement.MET]


def test_which_jobs_come_depends_on_the_seed_alone(data: Path) -> None:
    table = pollux_table(data)
    assert table is not None
    rigid, elastic = (elastic_workloads.drawn(table, name, 3, 30) for name in ("static-2", "f-sched"))
    kept = [(job.submit_s, job.steps, job.model) for job in rigid.jobs]
    assert kept == [(job.submit_s, job.steps, job.model) for job in elastic.jobs]
    assert ({job.spec.gpus for job in rigid.jobs}, {job.spec.sizes for job in elastic.jobs}) == ({2}, {(1, 2, 3, 4)})


def test_jobs_are_resized_as_the_papers_states_have_it(found: Evaluation) -> None:
    """Seven times (SPEC E.4); a job's GPUs over its attempts, by its protection of three launches."""
    run = found.experiments[0].runs[0][1]
    assert elasticity.resizes(run) == 7
    sizes = {job: [len(span.gpus) for span in run.ledger.stays if span.job == job] for job in run.ledger.rows.id}
    assert sizes == {1: [6, 3, 2], 2: [3, 2, 3], 3: [1, 3], 4: [1, 2, 3]}
    assert not run.ledger.flaws


def test_the_command_writes_claims_and_where_the_time_of_jobs_went(data: Path, tmp_path: Path) -> None:
    assert app.run(["paper", "e", "--data", str(data), "--out", str(tmp_path), "--json"]) == 0
    assert (tmp_path / "claims.json").is_file()
    assert (tmp_path / "four-jobs" / "time_spent.png").is_file()


def test_without_tables_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="calibrated_f"):
        elasticity.evaluate(tmp_path)


def test_every_number_that_is_said_to_be_the_papers_is_in_it(found: Evaluation, papers: Path) -> None:
    assert not_printed(found.claims, text_of(papers, "E")) == []


def test_the_page_says_what_is_found(found: Evaluation) -> None:
    """Rows on workloads of Pollux's are of ours alone and not in it: tests draw fewer of these."""
    assert stale("E", found.claims) == []
