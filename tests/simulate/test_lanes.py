"""Lanes in virtual time: shares, pauses, interference between lanes only, switch costs, servers, and conservation."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.cli import app
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.policy import Policy
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.run import Run
from colane.lab.simulate.world import NO_STARTUP, NeutralWorld, Running, Scope, Startup
from colane.lab.traces.workload import TraceJob
from colane.model.hardware import GpuId
from colane.model.job import JobKind
from colane.model.placement import TurnRule, Turns
from colane.model.plan import Plan
from colane.model.profile import Memory
from colane.model.reason import Reason, Why
from colane.scheduling.registry import create, preset
from tests.examples import examples

from .scenes import cluster, job, random_cluster, random_jobs, run

GPU = GpuId("n0", 0)
SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


class Halving:
    """One step a second alone; every job in another lane halves the speed. Steps are the jobs' own."""

    name = "halving"
    counts_steps = True
    scope = Scope.GPU

    def __init__(self) -> None:
        self.sharing_beliefs: set[int] = set()

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:  # noqa: ARG002
        return None

    def work_steps(self, job: TraceJob) -> float:
        return float(job.steps or 0)

    def startup(self, job: TraceJob) -> Startup:  # noqa: ARG002
        return NO_STARTUP

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:  # noqa: ARG002
        self.sharing_beliefs.add(len(others))
        return 0.5 ** len(others)

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        return Memory(0, job.spec.gpu_memory_bytes or 0)

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:  # noqa: ARG002
        return None


class Laned:
    """Puts every job on the one GPU, into the lane its label says."""

    name = "laned"
    min_runtime_before_preemption_s = inf

    def __init__(self, rule: TurnRule = TurnRule.FAIR, quantum_s: float | None = 0.0) -> None:
        self.turns = Turns(rule=rule, quantum_s=quantum_s)

    def plan(self, view: ClusterView) -> Plan:
        draft = Draft(view)
        for pool in view.pools:
            for waiting in map(view.job, list(view.queue(pool))):
                lane = int(waiting.spec.labels["lane"])
                draft.start(waiting, [draft.load(GPU)], Reason(Why.FREE_GPU, {"gpu": str(GPU)}), [lane])
        return draft.plan()


def laned(
    number: int, submit_s: float, steps: int, lane: int = 0, *, gpu_ratio: float = 1.0, **needs: object
) -> TraceJob:
    wants: dict[str, Any] = {"labels": {"lane": str(lane)}, "gpu_memory_bytes": 1 << 20, **needs}
    made = job(number, submit_s, float(steps), steps=steps, **wants)
    return replace(made, gpu_ratio=gpu_ratio)


def ends(done: Run) -> dict[int, float]:
    return dict(zip(done.ledger.rows.id, done.ledger.rows.end_s, strict=True))


def live(policy: Policy, *jobs: TraceJob, config: DriverConfig | None = None) -> Run:
    done = run(jobs, cluster(1), policy, Halving(), config)
    assert done.ledger.flaws == []
    return done


def test_members_of_a_lane_share_its_time_and_do_not_disturb_each_other() -> None:
    world = Halving()
    done = run([laned(1, 0, 10), laned(2, 0, 10)], cluster(1), Laned(), world)
    assert ends(done) == {1: 20, 2: 20}
    assert world.sharing_beliefs == {0}
    assert done.ledger.paused_s == {1: 10, 2: 10}


class LanedGangs(Laned):
    """Puts every job on the GPUs of n0 that its label names, into lane 0 of each."""

    name = "laned-gangs"

    def plan(self, view: ClusterView) -> Plan:
        draft = Draft(view)
        for pool in view.pools:
            for waiting in map(view.job, list(view.queue(pool))):
                gpus = [GpuId("n0", int(number)) for number in waiting.spec.labels["on"]]
                why = Reason(Why.FREE_GPU, {"gpu": str(gpus[0])})
                draft.start(waiting, [draft.load(gpu) for gpu in gpus], why, [0] * len(gpus))
        return draft.plan()


def on(number: int, gpus: str, steps: int, submit_s: float = 0) -> TraceJob:
    return laned(number, submit_s, steps, labels={"lane": "0", "on": gpus}, gpus=len(gpus))


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([on(1, "01", 10), on(2, "01", 10)], {1: 20, 2: 20}),
        ([on(1, "01", 10), on(2, "0", 10), on(3, "1", 10)], {1: 20, 2: 20, 3: 20}),
        ([on(1, "0", 10), on(2, "01", 10, 5)], {1: 15, 2: 20}),
        ([on(1, "01", 10), on(2, "0", 10), on(3, "0", 10), on(4, "1", 10)], {1: 30, 2: 30, 3: 30, 4: 15}),
    ],
    ids=["gangs", "one beside each rank", "enters and stays", "the narrowest lane counts, others get the rest"],
)
def test_a_gang_has_all_of_its_lanes_at_once(jobs: list[TraceJob], expected: dict[int, float]) -> None:
    done = run(jobs, cluster(2), LanedGangs(), Halving())
    assert done.ledger.flaws == []
    assert ends(done) == pytest.approx(expected)


def test_jobs_of_different_lanes_run_at_once_and_disturb_each_other() -> None:
    done = live(Laned(), laned(1, 0, 10, 0), laned(2, 0, 10, 1))
    assert ends(done) == {1: 20, 2: 20}
    assert done.ledger.paused_s == {}


def test_beside_a_shared_lane_a_job_meets_one_of_its_members_at_a_time() -> None:
    """Lane 1 is never empty, so the job in lane 0 goes at half speed; its two members at a quarter each."""
    done = live(Laned(), laned(1, 0, 10, 0), laned(2, 0, 5, 1), laned(3, 0, 5, 1))
    assert ends(done) == {1: 20, 2: 20, 3: 20}


def test_a_newcomer_has_its_share_at_once_and_leaves_it_to_the_others() -> None:
    done = live(Laned(), laned(1, 0, 20), laned(2, 10, 5))
    assert ends(done) == {1: 25, 2: 20}


def test_shares_follow_weights() -> None:
    done = live(Laned(), laned(1, 0, 30, weight=3.0), laned(2, 0, 10, weight=1.0))
    assert ends(done) == {1: 40, 2: 40}


def test_the_shortest_runs_and_the_others_pause() -> None:
    done = live(Laned(TurnRule.SRTF), laned(1, 0, 30), laned(2, 10, 5), laned(3, 12, 10))
    assert ends(done) == {1: 45, 2: 15, 3: 25}
    assert done.ledger.paused_s == {1: 15, 3: 3}


def test_fifo_lets_only_the_oldest_run_and_priority_the_highest() -> None:
    jobs = (laned(1, 0, 10), laned(2, 1, 5, priority=1))
    assert ends(live(Laned(TurnRule.FIFO), *jobs)) == {1: 10, 2: 15}
    assert ends(live(Laned(TurnRule.PRIORITY), *jobs)) == {1: 15, 2: 6}


def test_a_lane_is_not_held_up_by_a_job_that_launches() -> None:
    done = live(Laned(), laned(1, 0, 10), laned(2, 5, 10), config=DriverConfig(launch_s=5))
    assert ends(done) == {1: 20, 2: 25}, "while the second launches, from 5 to 10, the first has the lane alone"


@pytest.mark.parametrize(("quantum_s", "end_s"), [(0.0, 22.0), (9.5, 20.2)])
def test_passing_on_the_turn_costs_the_lane(quantum_s: float, end_s: float) -> None:
    """0.1 s for every turn of a step of 1 s, or of ten steps."""
    policy = Laned(quantum_s=quantum_s)
    done = live(policy, laned(1, 0, 10), laned(2, 0, 10), config=DriverConfig(switch_s=0.1))
    assert ends(done) == pytest.approx({1: end_s, 2: end_s})
    alone = live(policy, laned(1, 0, 10), config=DriverConfig(switch_s=0.1))
    assert ends(alone) == {1: 10}


def test_a_server_goes_first_for_the_part_of_the_time_it_is_busy() -> None:
    """Its requests come as they came when it was alone: it is as fast as ever, and training pauses a quarter."""
    server = laned(1, 0, 40, kind=JobKind.INFERENCE, gpu_ratio=0.25)
    done = live(Laned(), server, laned(2, 0, 30))
    assert ends(done) == {1: 40, 2: 40}
    assert done.ledger.paused_s == {2: 10}


def test_a_busy_server_stops_training_in_its_lane() -> None:
    done = live(Laned(), laned(1, 0, 10, kind=JobKind.INFERENCE), laned(2, 0, 10))
    assert ends(done) == {1: 10, 2: 20}


def test_gpu_time_is_given_by_share_of_the_lane() -> None:
    done = live(Laned(TurnRule.SRTF), laned(1, 0, 30), laned(2, 0, 10))
    assert dict(zip(done.ledger.rows.id, done.ledger.rows.gpu_s, strict=True)) == {1: 30, 2: 10}


def test_lane_mates_teach_no_speed_up() -> None:
    done = live(Laned(), laned(1, 0, 100), laned(2, 20, 100))
    assert done.measurements == ()
    apart = live(Laned(), laned(1, 0, 100, 0), laned(2, 20, 100, 1))
    assert [one.delta for one in apart.measurements] == pytest.approx([1.0, 1.0]), "a window, and the rest"


LANE_POLICIES = ("pack", "fair", "salus-srtf", "salus-code")


@pytest.mark.parametrize("name", LANE_POLICIES)
@examples(25)
@given(seed=SEEDS, switch_s=st.sampled_from([0.0, 0.5]))
def test_every_second_of_every_job_is_queueing_pausing_launching_or_running(
    name: str, seed: int, switch_s: float
) -> None:
    costs = DriverConfig(launch_s=2, switch_s=switch_s)
    jobs = random_jobs(seed, with_steps=True)
    done = run(jobs, random_cluster(seed), create(name), FactorsWorld(0.9), costs)
    rows = done.ledger.rows
    assert done.ledger.flaws == []
    assert set(done.ledger.paused_s) <= set(rows.id)
    spans = dict(zip(rows.id, np.subtract(rows.end_s, rows.first_start_s), strict=True))
    for id_, paused_s in done.ledger.paused_s.items():
        assert 0 < paused_s <= spans[id_] + 1e-6


@examples(25)
@given(seed=SEEDS)
def test_one_lane_for_each_gpu_delivers_the_work_of_its_jobs_and_no_more(seed: int) -> None:
    """Taking turns neither makes nor loses work: without costs the lane's time adds up to its jobs' times alone."""
    jobs = [replace(one, spec=replace(one.spec, gpus=1)) for one in random_jobs(seed)]
    for policy in (
        preset("fair"),
        preset("fair", name="srtf", turns=Turns(rule=TurnRule.SRTF)),
        preset("fair", turns=Turns(rule=TurnRule.RR)),
    ):
        done = run(jobs, random_cluster(seed), policy, NeutralWorld())
        had_s = dict(zip(done.ledger.rows.id, done.ledger.rows.gpu_s, strict=True))
        assert had_s == pytest.approx({one.id: one.duration_s for one in jobs}, abs=1e-6)


def test_runs_without_shared_lanes_have_no_pauses() -> None:
    jobs = random_jobs(7, with_steps=True)
    done = run(jobs, random_cluster(7), preset("pack", take_turns=False), FactorsWorld())
    assert done.ledger.paused_s == {}


def test_pauses_are_reported_where_there_are_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = tmp_path / "jobs.csv", tmp_path / "out"
    head = "id,submit_s,duration_s,steps,gpus,gpu_memory_bytes,model\n"
    trace.write_text(f"{head}a,0,30,30,1,1000000000,m\nb,0,30,30,1,1000000000,m\n")
    command = ["simulate", "-c", "paper-b", "-t", str(trace), "--world", "factors", "-p", "fair", "-p", "fifo"]
    assert app.run([*command, "--json", "--out", str(out)]) == 0
    fair, fifo = json.loads(capsys.readouterr().out)["runs"]
    assert fair["pause_s"]["mean"] == 30
    assert "pause_s" not in fifo
    lines = {name: (out / f"jobs-{name}.csv").read_text().splitlines() for name in ("fair", "fifo")}
    tables = {name: list(csv.DictReader(found)) for name, found in lines.items()}
    assert [row["pause_s"] for row in tables["fair"]] == ["30.0", "30.0"]
    assert all("pause_s" not in row for row in tables["fifo"])


class Large(Halving):
    """Jobs turn out to need 1 GiB between steps and 9 more within one."""

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        return Memory(1 << 30, 9 << 30)


def test_jobs_that_do_not_fit_side_by_side_take_turns_once_that_is_seen() -> None:
    """Job 2 comes at 5 s into a lane of its own; at its first sample it is moved, and neither disturbs the other."""
    world = Large()
    done = run([laned(1, 0, 100, 0), laned(2, 5, 100, 1, family="g")], cluster(1), Laned(), world)
    assert done.ledger.flaws == []
    assert world.sharing_beliefs == {0, 1}
    assert set(done.ledger.paused_s) == {1, 2}
    assert max(ends(done).values()) == pytest.approx(200, abs=2)
