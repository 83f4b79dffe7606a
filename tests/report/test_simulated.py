"""Metrics, tables, figures and files of simulated runs, on numbers that can be checked by hand."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from colane.lab.report.simulated import (
    ClusterCurves,
    JobColumns,
    ReportedSpan,
    SimulatedRun,
    Study,
    confidence,
    measure_run,
    slo_violations,
)
from colane.lab.report.simulated_compared import sentences
from colane.lab.report.simulated_plots import CURVE_POINTS_MAX, gantt_is_readable, thinned
from colane.lab.report.simulated_writer import notes, summary_object, write
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobId, JobSpec, JobState

NAN = float("nan")


def columns(rows: Sequence[tuple[JobState, float, float, float, int, float]]) -> JobColumns:
    """State, submission, first start, end, attempts, time alone of each job."""
    state, submit_s, start_s, end_s, attempts, alone_s = zip(*rows, strict=True)
    return JobColumns(
        id=np.arange(1, len(rows) + 1), state=state, submit_s=np.array(submit_s, float),
        first_start_s=np.array(start_s, float), start_s=np.array(start_s, float), end_s=np.array(end_s, float),
        attempts=np.array(attempts), gpu_s=np.nan_to_num(np.array(end_s, float) - np.array(start_s, float)),
        alone_s=np.array(alone_s, float), gpus=["n/0"] * len(rows),
    )  # fmt: skip


def curves(at_s: Sequence[float], active: Sequence[float]) -> ClusterCurves:
    values = np.array(active, float)
    return ClusterCurves(
        at_s=np.array(at_s, float), active_gpus=values, utilized_gpus=values / 2, stranded_gpus=2 - values,
        waiting=values, running=values,
    )  # fmt: skip


OK = JobState.SUCCEEDED
ROWS = [(OK, 0.0, 0.0, 10.0, 1, 10.0), (OK, 2.0, 10.0, 30.0, 2, 10.0), (JobState.TIMED_OUT, 3.0, 30.0, 40.0, 1, 10.0)]
RUN = SimulatedRun(
    policy="fifo", seed=0, jobs=4, refused=("job x: too large",), columns=columns(ROWS),
    curves=curves([0, 10, 30, 40], [1, 2, 1, 0]), gpus=["n/0", "n/1"], decisions=3, events=9,
    stays=(ReportedSpan(1, ("n/0",), 0, 10), ReportedSpan(2, ("n/0",), 10, 30), ReportedSpan(3, ("n/0",), 30, 40)),
    plan_s=np.array([0.1, 0.3]), wall_s=1.0,
)  # fmt: skip


def jobs(*labels: dict[str, str]) -> dict[int, TraceJob]:
    given = [*labels, {}, {}, {}, {}][:4]
    specs = (JobSpec(name=f"j{n}", family="f", labels=found) for n, found in enumerate(given, 1))
    return {n: TraceJob(id=JobId(n), submit_s=0.0, spec=spec) for n, spec in enumerate(specs, 1)}


def study(*runs: SimulatedRun) -> Study:
    return Study(title="t", inputs={"world": "w"}, runs=runs, jobs={run.seed: jobs() for run in runs}, notes=("N.",))


def test_metrics_are_those_of_the_glossary() -> None:
    found = measure_run(RUN, jobs())
    assert (found.jobs, found.submitted, found.refused, found.finished, found.restarts) == (4, 3, 1, 2, 1)
    assert found.makespan_s == 40
    assert found.jct_s is not None
    assert found.jct_s.mean == (10 + 28) / 2
    assert found.queue_s is not None
    assert found.queue_s.mean == 4
    assert found.run_span_s is not None
    assert found.run_span_s.mean == 15
    assert found.gpu_active_ratio == pytest.approx((10 + 40 + 10) / 80)
    assert found.gpu_utilization_ratio == pytest.approx((10 + 40 + 10) / 160)
    assert found.fragmentation_ratio == pytest.approx((10 + 0 + 10) / 80)
    assert found.slowdown_variance == pytest.approx(np.var([1.0, 2.8]))
    assert found.states == {"succeeded": 2, "timed-out": 1}
    assert (found.decision_max_s, found.gpu_hours) == (0.3, 40 / 3600)


def test_objectives_are_missed_by_the_clock_by_slowness_and_by_failing() -> None:
    asked = jobs({"slo": "9"}, {"minimal_utility": "0.5"}, {"slo": "1000"}, {})
    assert slo_violations(RUN.columns, asked) == {1: True, 2: False, 3: True}
    assert slo_violations(RUN.columns, jobs({}, {"minimal_utility": "0.51"})) == {2: True}
    assert slo_violations(RUN.columns, jobs({"slo_ratio": "1"}, {"slo_ratio": "2.7"})) == {1: False, 2: True}
    assert measure_run(RUN, asked).slo_violations == 2


def test_a_run_of_nothing_has_no_numbers_and_can_be_written(tmp_path: Path) -> None:
    nothing = replace(RUN, columns=columns([(JobState.QUEUED, 0.0, NAN, NAN, 0, NAN)]), stays=(), plan_s=np.empty(0))
    found = measure_run(nothing, jobs())
    assert (found.makespan_s, found.jct_s, found.gpu_active_ratio, found.decision_s) == (None, None, None, None)
    assert (found.unfinished, found.never_started) == (1, 1)
    written = write(study(nothing), tmp_path)
    assert json.loads(written.summary_json.read_text())["runs"][0]["jct_s"] is None
    assert "never ended" in written.html.read_text()


def test_a_curve_holds_between_its_rows_and_before_the_first_there_is_nothing() -> None:
    found = curves([10, 20], [4, 2])
    assert found.mean(found.active_gpus, 0, 40) == pytest.approx((0 + 40 + 40) / 40)
    assert found.mean(found.active_gpus, 15, 25) == pytest.approx(3)
    assert found.mean(found.active_gpus, 5, 5) == 0


def test_a_thinned_curve_keeps_its_area() -> None:
    rng = np.random.default_rng(1)
    at_s = np.sort(rng.uniform(0, 1000, 50_000))
    values = rng.uniform(0, 9, 50_000)
    times, means = thinned(at_s, values)
    assert times.size == CURVE_POINTS_MAX + 1
    area = float(np.dot(values[:-1], np.diff(at_s)))
    assert math.isclose(float(np.dot(means[:-1], np.diff(times))), area, rel_tol=1e-9)


def test_intervals_are_students() -> None:
    found = confidence([1.0, 2.0, 3.0])
    assert found is not None
    assert found.mean == 2
    assert found.half_width == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)
    assert confidence([5.0]) == (5.0, None)
    assert confidence([None]) is None


def test_policies_are_compared_by_their_means_over_seeds() -> None:
    fast = columns([(OK, 0.0, 0.0, 5.0, 1, 5.0), (OK, 2.0, 5.0, 15.0, 1, 10.0)])
    runs = [RUN, replace(RUN, seed=1), replace(RUN, policy="quick", columns=fast)]
    runs.append(replace(runs[-1], seed=1))
    found = study(*runs)
    assert found.policies == ("fifo", "quick")
    assert found.seeds == (0, 1)
    assert sentences(found)[0].startswith("quick against FIFO: all jobs are done in 62 % less time; a job takes")
    assert [one["seeds"] for one in summary_object(found)["policies"]] == [2, 2]
    assert summary_object(found)["differences"] == [], "seeds that are all alike are one workload"


def of_seed(seed: int, policy: str, longer_s: float) -> SimulatedRun:
    ended = [(OK, 0.0, 0.0, 10.0 + longer_s, 1, 10.0), (OK, 2.0, 3.0, 20.0, 1, 10.0)]
    return replace(RUN, seed=seed, policy=policy, columns=columns(ended))


def test_over_seeds_only_what_they_agree_on_is_said() -> None:
    base = [of_seed(seed, "fifo", 3.0 * seed) for seed in range(4)]
    quick = [of_seed(seed, "quick", 3.0 * seed - 4 - 0.01 * seed) for seed in range(4)]
    other = [of_seed(seed, "other", 3.0 * seed + (-1.0) ** seed) for seed in range(4)]
    found = study(*base, *quick, *other)
    first, second, last = sentences(found)
    assert first == "quick against FIFO, paired over 4 seeds: mean JCT 2.01 s lower (+- 10.3 ms, 12.4 %)."
    assert second == "other against FIFO, paired over 4 seeds: no difference is significant at 95 %."
    assert last.startswith("FIFO finished 8 of 16 jobs of 4 seeds, those of a seed in 20 s")
    flags = {(one["policy"], one["metric"]): one["significant"] for one in summary_object(found)["differences"]}
    assert flags["quick", "mean_jct_s"] is True
    assert flags["other", "mean_jct_s"] is False
    assert flags["quick", "mean_queueing_s"] is False, "no difference at all"


def test_two_seeds_claim_nothing() -> None:
    runs = [of_seed(seed, policy, seed + 5.0 * (policy == "slow")) for policy in ("fifo", "slow") for seed in range(2)]
    found = study(*runs)
    assert sentences(found)[0] == "slow against FIFO: 2 seeds tell no difference from chance; that takes 3."
    assert {one["ci95"] for one in summary_object(found)["differences"]} == {None}


def test_a_partial_run_says_so_first() -> None:
    found = summary_object(study(replace(RUN, is_partial=True)))
    assert found["partial"] is True
    assert found["notes"][0].startswith("Partial")


def test_files_are_complete_and_unknown_times_are_empty(tmp_path: Path) -> None:
    waiting = replace(RUN, columns=columns([*ROWS, (JobState.QUEUED, 5.0, NAN, NAN, 0, NAN)]))
    written = write(study(waiting), tmp_path)
    with written.jobs_csv[0].open() as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["succeeded", "succeeded", "timed-out", "queued"]
    assert rows[3]["first_start_s"] == rows[3]["jct_s"] == ""
    names = {path.stem for path in written.figures}
    assert names >= {"jct_cdf", "gantt", "gpus_over_time"}
    assert "comparison" not in names, "there is one policy and one seed"
    assert "too large" in (tmp_path / "refused.csv").read_text()


def test_the_offered_load_is_said_once_for_each_seed() -> None:
    runs = [replace(RUN, policy=p, seed=s, offered_load=load) for p in "ab" for s, load in enumerate((0.5, 1.25))]
    said = [note for note in notes(study(*runs)) if note.startswith("Offered load")]
    assert said == ["Offered load: 0.5, 1.25 GPU-seconds asked for per GPU-second there is, while jobs arrive."]


def test_only_small_runs_have_a_gantt_chart() -> None:
    assert gantt_is_readable(["g"] * 64, 1500)
    assert not gantt_is_readable(["g"] * 65, 10)
    assert not gantt_is_readable(["g"], 1501)
    assert not gantt_is_readable(["g"], 0)


def test_a_policy_that_lacks_what_defines_it_is_named_first() -> None:
    shortest = replace(RUN, policy="sjf", lacks={"length": 3})
    first, *_ = sentences(study(RUN, shortest))
    assert first.startswith("sjf lacks what it is defined by: it knows no length of 3 of 4 jobs")
    assert not any("lacks" in sentence for sentence in sentences(study(RUN)))
