"""Starts foreseen in virtual time: what is said holds, is not known before it is, and changes nothing."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from colane.cli import app
from colane.foresee.foreseer import Foreseer
from colane.foresee.judged import judged
from colane.foresee.scene import PoolScene
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.workload import TraceJob
from colane.scheduling.registry import create
from tests.simulate.scenes import GIB, cluster, job, workload


def bursts(seed: int = 1, many: int = 60) -> list[TraceJob]:
    """Bursts of jobs, two days apart, on more than there is for some hours."""
    random, jobs = Random(seed), list[TraceJob]()
    for burst in range(many):
        long_s = random.lognormvariate(7, 1)
        for element in range(random.randint(6, 14)):
            at_s = burst * 40_000.0 + 30.0 * element
            jobs.append(job(len(jobs) + 1, at_s, long_s * random.lognormvariate(0, 0.2), gpus=random.choice((1, 1, 2))))
    return jobs


def ran(policy: str, jobs: list[TraceJob], *, foresees: bool = True) -> Run:
    given = Inputs(
        cluster=cluster(4), workload=workload(*jobs), world=NeutralWorld(), policy=create(policy), foresees=foresees
    )
    return simulate(given)


@pytest.mark.parametrize("policy", ["fifo", "las", "colane"])
def test_most_quotes_hold_and_only_known_ones_are_called_so(policy: str) -> None:
    run = ran(policy, bursts())
    assert run.foretold is not None
    assert len(run.foretold) > 100
    assert [one.quote.start.is_known for one in run.foretold[:9]] == [False] * 9
    found = judged(run.foretold)["foreseen"]
    assert found.known.quotes > 50
    assert found.holds > 0.65
    assert all(one.start_s > 0 for one in run.foretold)


def test_what_is_foreseen_changes_nothing_and_is_the_same_each_time() -> None:
    jobs = bursts(many=12)
    first, second, without = ran("colane", jobs), ran("colane", jobs), ran("colane", jobs, foresees=False)
    assert first.foretold == second.foretold
    assert without.foretold is None
    assert list(first.ledger.rows.end_s) == list(without.ledger.rows.end_s)


@pytest.mark.parametrize("policy", ["fifo", "las"])
def test_where_none_that_come_later_pass_no_start_is_put_off_for_such(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, slower = list[float](), Foreseer._slower

    def noted(*asked: Any) -> float:
        found.append(slower(*asked))
        return found[-1]

    monkeypatch.setattr(Foreseer, "_slower", noted)
    ran(policy, bursts(many=6))
    assert set(found) == {1.0}


@pytest.mark.parametrize(("policy", "least"), [("fifo", 1.0), ("fair", 0.25)])
def test_what_runs_is_foreseen_at_its_present_speed(policy: str, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is live: under `fair` up to four jobs take turns."""
    speeds, says = list[float](), Foreseer.say

    def noted(self: Foreseer, scene: PoolScene, asked: Any) -> Any:
        speeds.extend([one.speed for one in scene.present if one.runs])
        return says(self, scene, asked)

    monkeypatch.setattr(Foreseer, "say", noted)
    ran(policy, [replace(one, spec=replace(one.spec, gpu_memory_bytes=GIB)) for one in bursts(many=3)])
    assert (min(speeds) <= least, max(speeds)) == (True, 1.0)
    assert policy == "fair" or min(speeds) == 1.0


def test_of_a_long_trace_some_submissions_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colane.lab.simulate.run.QUOTES_MAX", 60)
    run = ran("fifo", bursts(many=12))
    assert run.foretold is not None
    assert 10 < len(run.foretold) < 60


def simulated(tmp_path: Path, *more: str) -> Path:
    trace = tmp_path / "jobs.csv"
    with trace.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("id", "submit_s", "duration_s", "gpus", "model", "user"))
        for one in bursts(many=12):
            rows.writerow((one.spec.name, one.submit_s, one.duration_s, one.spec.gpus, "m", "ann"))
    out = tmp_path / "out"
    assert app.run(["simulate", "-t", str(trace), *more, "--foresee", "-o", str(out)]) == 0
    return out


def machine(tmp_path: Path) -> str:
    path = tmp_path / "machine.yaml"
    path.write_text("groups:\n  - {name: n, gpus: 4, gpu_type: v100, gpu_memory: 16GB}\n")
    return str(path)


def test_rows_table_plot_and_summary_tell_what_came_of_quotes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = simulated(tmp_path, "-c", machine(tmp_path), "-p", "fifo")
    assert "What was foreseen, and what came of it" in capsys.readouterr().out
    rows = list(csv.DictReader((out / "quotes-fifo.csv").read_text().splitlines()))
    assert {row["method"] for row in rows} == {
        "work ahead", "recent waits", "plan by mean lengths", "roll-outs", "foreseen", "end",
    }  # fmt: skip
    assert all(float(row["p10_s"]) <= float(row["p50_s"]) <= float(row["p90_s"]) for row in rows)
    (run,) = json.loads((out / "summary.json").read_text())["runs"]
    assert [one["method"] for one in run["foreseen"]][-2:] == ["foreseen", "end"]
    assert "foreseen" in (out / "report.html").read_text()


def test_where_no_job_waits_nothing_is_foreseen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = simulated(tmp_path, "-c", "v100-36", "-p", "fifo")
    assert "nothing was foreseen: no job waited" in capsys.readouterr().out
    assert len((out / "quotes-fifo.csv").read_text().splitlines()) == 1


OWN = """
class Own:
    name = "own"
    def plan(self, view):
        from colane.core.cluster.draft import Draft
        from colane.scheduling.mechanisms.topology.free import first_fit
        from colane.model.reason import Reason, Why
        draft = Draft(view)
        for job in [view.jobs[one] for pool in view.pools for one in view.queue(pool)]:
            place = first_fit(draft, job.spec)
            if place is not None:
                draft.start(job, place, Reason(Why.FREE_GPU, {"gpu": str(place[0].id)}))
        return draft.plan()
"""


def test_a_policy_of_a_users_own_is_taken_to_go_by_arrival(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    out = simulated(tmp_path, "-c", machine(tmp_path), "-p", f"{tmp_path / 'own.py'}:Own")
    assert len((out / "quotes-own.csv").read_text().splitlines()) > 10
