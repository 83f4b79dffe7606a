"""Paper D's claims that a simulation can judge."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from colane.cli import app
from colane.cpu.tuner import EPSILON_RATIO, STEPS_MAX, TunerName
from colane.lab.papers import cpu_side
from colane.lab.papers.claims import ClaimVerdict, Judgement, table
from colane.lab.papers.cpu_month import (
    CODA,
    COLANE,
    DRF,
    FIFO,
    MAIN,
    NO_ELIMINATOR,
    MonthNumbers,
    month,
    numbers_of,
    run_month,
)
from colane.lab.papers.cpu_side import CpuEvaluation, cpu_jobs_within, evaluate, loss_percent
from colane.lab.papers.cpu_tuning import PUBLISHED_STEPS, slower_gpu, stated_curve
from colane.lab.papers.cpu_world import CpuMonthWorld, best_cores
from colane.lab.simulate.table_files import SYNERGY
from colane.lab.traces.tables import synergy
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec
from tests.papers.documents import parts, stale
from tests.papers.printed import not_printed, text_of

SETUPS = (*MAIN, NO_ELIMINATOR, COLANE)


@pytest.fixture(scope="module")
def found(data: Path) -> CpuEvaluation:
    return evaluate(data, jobs=2000, names=SETUPS)


def test_linear_reaches_the_best_speed_of_every_curve_in_four_steps(found: CpuEvaluation) -> None:
    runs = [run for run in found.tuning if run.tuner is TunerName.LINEAR and not run.noise_ratio]
    assert len({(run.model, run.gpus) for run in runs}) == 33
    assert max(run.steps for run in runs) <= STEPS_MAX
    assert max(run.off_ratio for run in runs) <= EPSILON_RATIO
    assert max(run.cores - run.fewest for run in runs) <= 1


def test_step_needs_more_than_four_from_the_papers_own_start(found: CpuEvaluation) -> None:
    """AlexNet needs 12 cores on Synergy's server, 9 more than the paper's start for its category."""
    exact = [run for run in found.tuning if run.tuner is TunerName.STEP and not run.noise_ratio]
    runs = {(run.model, run.gpus, run.start): run for run in exact}
    assert runs["alexnet", 1, 3].cores == 12
    assert runs["alexnet", 1, 3].steps > STEPS_MAX
    assert (runs["res50", 1, 3].cores, runs["res50", 1, 3].steps) == (4, 3)


@pytest.mark.parametrize(("noise", "within"), [(0.05, 0.95), (0.1, 0.9)])
def test_noise_costs_linear_little(found: CpuEvaluation, noise: float, within: float) -> None:
    runs = [run for run in found.tuning if (run.tuner, run.noise_ratio) == (TunerName.LINEAR, noise)]
    assert max(run.steps for run in runs) <= STEPS_MAX
    assert sum(run.off_ratio <= EPSILON_RATIO for run in runs) / len(runs) >= within


def test_the_command_prints_and_writes_every_search(
    data: Path, tmp_path: Path, found: CpuEvaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_side, "MONTH_JOBS", 300)
    assert app.run(["paper", "D", "--data", str(data), "--out", str(tmp_path)]) == 0
    with (tmp_path / "tuning.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(found.tuning)


def test_without_tables_it_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["paper", "D", "--data", str(tmp_path)]) == 2
    assert "tput_matrix.csv" in capsys.readouterr().err


@pytest.fixture(scope="module")
def numbers(found: CpuEvaluation) -> dict[str, MonthNumbers]:
    (month,) = found.experiments
    workload = month.loaded[1].workload
    return {name: numbers_of(run, workload, {}) for name, (_, run) in zip(SETUPS, month.runs, strict=True)}


def test_the_month_keeps_the_papers_orderings(numbers: dict[str, MonthNumbers], found: CpuEvaluation) -> None:
    """On its first fiftieth, which is too short for long lines; the whole month is `benchmarks/cpu_month.py`."""
    assert numbers[CODA].used_active >= numbers[FIFO].used_active + 10
    assert numbers[CODA].fragmented < 2 < min(numbers[FIFO].fragmented, numbers[DRF].fragmented)
    assert numbers[CODA].gpu_over_10min <= min(numbers[FIFO].gpu_over_10min, numbers[DRF].gpu_over_10min)
    for name in (CODA, COLANE):
        assert numbers[name].cpu_in_3min >= 94.0
        assert numbers[name].gpu_at_once >= 92.1
    for _, run in found.experiments[0].runs:
        assert run.ledger.flaws == []
        assert run.refused == ()


def test_every_claim_is_there_once_and_says_what_was_published(found: CpuEvaluation) -> None:
    ids = [claim.id for claim in found.claims]
    assert len(ids) == len(set(ids))
    assert {"D-a", "D-b", "D-c", "D-d", "D-e", "D-f", "D-i", "D-j", "D-l", "D-m", "D-n"} <= set(ids)
    assert all(claim.published and claim.ours and claim.verdict for claim in found.claims)


def test_the_made_up_curves_say_what_the_paper_says(found: CpuEvaluation) -> None:
    """Linear up to the optimum, flat beyond; of the paper's jobs on one GPU only Transformer is best at two cores."""
    world = CpuMonthWorld()
    jobs = {job.model: job for job in found.experiments[0].loaded[1].workload.jobs if job.spec.gpus == 1}
    assert [name for name in sorted(jobs) if best_cores(name, 1) <= 2] == ["transformer"]
    alexnet = jobs["alexnet"]
    speeds = [world.speed(alexnet, cores) for cores in range(1, 9)]
    assert speeds[3] - speeds[2] == pytest.approx(speeds[1] - speeds[0])
    assert speeds[4:] == [1.0] * 4


def test_in_one_pool_a_cpu_job_waits_for_cores_alone_and_never_for_its_turn() -> None:
    def job(number: int, submit_s: float, cores: int, duration_s: float, gpus: int = 0) -> TraceJob:
        spec = JobSpec(name="j", family="transformer" if gpus else "c", gpus=gpus, cores=cores)
        return TraceJob(id=JobId(number), submit_s=submit_s, spec=spec, duration_s=duration_s)

    # Four cores: training takes two for 100 s; the second job needs four, the third two at once.
    jobs = job(1, 0, 1, 100, gpus=1), job(2, 1, 4, 10), job(3, 2, 2, 10), job(4, 3, 1, 1)
    workload = Workload(name="w", jobs=jobs, source="test")
    assert cpu_jobs_within(workload, 4, 0.0) == pytest.approx(1 / 3)
    assert cpu_jobs_within(workload, 4, 9.0) == pytest.approx(2 / 3)
    assert cpu_jobs_within(workload, 4, 99.0) == 1


def test_every_number_that_is_said_to_be_the_papers_is_in_it(found: CpuEvaluation, papers: Path) -> None:
    assert not_printed(found.claims, text_of(papers, "D")) == []


def test_every_claim_that_does_not_come_out_says_why(found: CpuEvaluation) -> None:
    open_ = {ClaimVerdict.PARTLY, ClaimVerdict.DIFFERS}
    assert [claim.id for claim in found.claims if claim.verdict in open_ and not claim.note] == []


def test_figures_7_12_and_13_and_table_ii_are_held_against_what_was_found(found: CpuEvaluation) -> None:
    claims = {claim.id: claim for claim in found.claims}
    judged = {
        id_: [one.what for one in claims[id_].stated if one.judgement in {Judgement.MET, Judgement.MISSED}]
        for id_ in ("D-n", "D-l", "D-m", "D-g")
    }
    assert {id_: len(what) for id_, what in judged.items()} == {"D-n": 2, "D-l": 4, "D-m": 4, "D-g": 6}
    assert {one.what for one in claims["D-g"].stated} >= {one.what for one in claims["D-g-iterations"].stated}


def test_the_eliminator_gives_training_its_speed_back_once_that_was_seen() -> None:
    assert loss_percent("transformer", 900.0, eliminates=False) == pytest.approx(50.0)
    assert loss_percent("transformer", 900.0, eliminates=True) < 2.0
    assert loss_percent("transformer", 0.0, eliminates=True) < 2.0, "the job that uses all bandwidth was there first"


def test_the_papers_tuner_meets_its_table_on_a_slower_gpu_and_on_curves_made_of_it(data: Path) -> None:
    table = synergy.read_matrix(data / SYNERGY)
    assert slower_gpu(table, "alexnet", 3, 1.0) == (11, 12)
    assert slower_gpu(table, "alexnet", 3, 0.5) == (4, 5)
    made = {model: stated_curve(model)[0] for model in PUBLISHED_STEPS}
    assert made == {**PUBLISHED_STEPS, "transformer": 4}  # with 2 cores it is best, says the paper: 1 is tried, too


def test_users_may_submit_unlike_numbers_of_jobs() -> None:
    alike, unlike = (Counter(job.spec.user for job in month(2000, 1, user_skew=skew).jobs) for skew in (0.0, 1.0))
    assert unlike["user-00"] > 2 * max(alike.values())
    assert month(2000, 1, load=2.0).jobs[-1].submit_s == pytest.approx(month(2000, 1).jobs[-1].submit_s / 2, rel=0.01)


def test_the_page_says_what_is_found(found: CpuEvaluation) -> None:
    """Of what does not hang on how much of the month was run; of all else the claims and what was published."""
    assert stale("D", found.claims, "D-[^ghn]|Of the") == [], "colane paper D --out DIR has the table"
    here, there = (
        [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("| D-")]
        for text in (table(found.claims), parts("D")[1])
    )
    assert here == there


def test_the_page_has_the_numbers_of_the_whole_month() -> None:
    """Those of the three policies that the paper compares, as `colane paper D` runs them."""
    ran, page = run_month(month(cpu_side.MONTH_JOBS, cpu_side.MONTH_SEED), MAIN), parts("D")[1]
    for columns in (
        ("used_active", "used", "active_queueing"), ("fragmented",), ("gpu_over_10min", "gpu_over_1h", "gpu_at_once"),
        ("cpu_at_once", "cpu_in_3min"),
    ):  # fmt: skip
        each = {name: [f"{getattr(one.numbers, column):.1f}" for column in columns] for name, one in ran.items()}
        assert "; ".join(f"{name} {' / '.join(values)}" for name, values in each.items()) in page
