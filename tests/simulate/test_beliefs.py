"""What a run starts from: nothing, noisy profiles, or the truth; and how wrong it turned out to be."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from colane.lab.simulate.accuracy import true_delta
from colane.lab.simulate.beliefs import Belief, OracleBeliefs, declare_lengths, describe, examples, make_beliefs
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.request import Request, WorldKind, inputs, load
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.table_files import gavel_models, read_sources
from colane.lab.simulate.table_world import TableWorld
from colane.lab.traces.generate import poisson
from colane.perf.beliefs import Beliefs
from colane.perf.estimates import profile_key
from colane.scheduling.registry import create

from .scenes import GIB, cluster, job, workload

KNOWN = [job(i, 0, 50, steps=100, family=name, gpu_memory_bytes=GIB) for i, name in enumerate("ab", 1)]


def beliefs(belief: Belief, noise: float = 0.2, seed: int = 1) -> Beliefs:
    return make_beliefs(belief, FactorsWorld(0.6), KNOWN, cluster(2), noise=noise, seed=seed)


def step_s(known: Beliefs, place: int) -> float | None:
    profile = known.profile(KNOWN[place].spec, "v100")
    return None if profile is None or profile.step_s is None else profile.step_s.value


def test_no_belief_knows_nothing() -> None:
    assert not beliefs(Belief.NONE).profiles


def test_profiles_are_the_truth_times_log_normal_noise_of_the_seed() -> None:
    assert step_s(beliefs(Belief.PROFILED, noise=0.0), 0) == 0.5
    drawn = [step_s(beliefs(Belief.PROFILED, seed=seed), 0) or 0.0 for seed in range(400)]
    logs = np.log(np.array(drawn) / 0.5)
    assert abs(float(logs.mean())) < 0.03
    assert 0.18 < float(logs.std()) < 0.22
    assert step_s(beliefs(Belief.PROFILED, seed=7), 0) == drawn[7]
    assert step_s(beliefs(Belief.PROFILED, seed=7), 0) != step_s(beliefs(Belief.PROFILED, seed=7), 1)


def test_another_kind_of_job_in_the_workload_does_not_move_the_noise_of_the_others() -> None:
    alone = make_beliefs(Belief.PROFILED, FactorsWorld(), KNOWN[1:], cluster(1), noise=0.2, seed=1)
    assert step_s(alone, 1) == step_s(beliefs(Belief.PROFILED), 1)


def test_memory_is_profiled_exactly() -> None:
    profile = beliefs(Belief.PROFILED).profile(KNOWN[0].spec, "v100")
    assert profile is not None
    assert profile.memory_bytes == GIB


def test_the_oracle_says_what_the_world_does_and_learns_nothing(data: Path) -> None:
    jobs = poisson(gavel_models(data), jobs=60, mean_gap_s=1, seed=3).jobs
    world = TableWorld(read_sources(data), jobs)
    oracle = make_beliefs(Belief.ORACLE, world, jobs, cluster(2), noise=0.5, seed=0)
    assert isinstance(oracle, OracleBeliefs)
    kinds = list(examples(jobs, cluster(2)).values())
    judged = 0
    for one in kinds:
        for other in kinds[:6]:
            true = true_delta(world, [one, other])
            prediction = oracle.predict([profile_key(x.job.spec, x.gpu_type) for x in (other, one)], "mps")
            assert (prediction is None) == (true is None)
            if prediction is not None and true is not None:
                assert math.isclose(prediction.speedup, true)
                judged += 1
    assert judged > 50
    before = dict(oracle.profiles)
    oracle.learn_profile(next(iter(beliefs(Belief.PROFILED).profiles.values())))
    assert dict(oracle.profiles) == before


def test_the_oracle_knows_recorded_durations_to_the_fraction() -> None:
    """Declared as steps of a second both jobs are as long, and the first to come would start first."""
    jobs = declare_lengths([job(1, 0, 9), job(2, 1, 10.4), job(3, 1, 10.3)], Belief.ORACLE, noise=0.0, seed=0)
    found = make_beliefs(Belief.ORACLE, FactorsWorld(), jobs, cluster(1), noise=0.0, seed=0)
    assert [found.run_s(one.spec, ["v100"]) for one in jobs] == [9, 10.4, 10.3]
    given = Inputs(
        cluster=cluster(1), workload=workload(*jobs), world=FactorsWorld(), policy=create("sjf"), beliefs=found
    )
    assert list(simulate(given).ledger.rows.id) == [1, 3, 2]


def test_in_a_world_without_steps_lengths_are_declared_as_seconds() -> None:
    plain = [job(1, 0, 100), job(2, 0, 3, steps=7), job(3, 0, None)]
    told = declare_lengths(plain, Belief.ORACLE, noise=0.3, seed=0)
    assert [one.spec.steps_total for one in told] == [100, 7, None]
    assert [one.spec.steps_total for one in declare_lengths(plain, Belief.NONE, noise=0, seed=0)] == [None, 7, None]
    noisy = declare_lengths([job(i, 0, 1000) for i in range(1, 300)], Belief.PROFILED, noise=0.3, seed=0)
    logs = np.log([(one.spec.steps_total or 0) / 1000 for one in noisy])
    assert 0.25 < float(logs.std()) < 0.35


@pytest.mark.parametrize("world", [WorldKind.NEUTRAL, WorldKind.FACTORS])
def test_an_oracle_makes_the_shortest_job_first_the_best_order(world: WorldKind, tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit_s,duration_s\n" + "".join(f"{i},0,{d}\n" for i, d in enumerate((90, 10, 50, 30))))
    request = Request(cluster="paper-b", trace=str(trace), world=world, belief=Belief.ORACLE)
    done = simulate(inputs(request, load(request, 0), "sjf", 0))
    assert sorted(done.ledger.rows.end_s) == [10, 40, 90, 180]


def test_errors_of_belief_are_judged_at_every_start(data: Path) -> None:
    request = Request(
        cluster="v100-36", trace="poisson:jobs=80,gap=900", tables=data, belief=Belief.PROFILED, noise=0.3
    )
    loaded = load(request, 0)
    noisy = simulate(inputs(request, loaded, "colocate", 0)).errors
    starts = len(noisy.alone) + len(noisy.shared) + noisy.alone_unknown + noisy.shared_unknown
    assert starts == 80
    assert noisy.alone_unknown == 0
    assert max(noisy.alone) > 0.05
    told = Request(cluster="v100-36", trace="poisson:jobs=80,gap=900", tables=data, belief=Belief.ORACLE)
    exact = simulate(inputs(told, loaded, "colocate", 0)).errors
    assert max(exact.alone) < 1e-9
    assert not exact.shared or max(exact.shared) < 1e-9


def test_every_belief_is_said_in_words() -> None:
    assert "ORACLE" in describe(Belief.ORACLE, 0.1)
    assert "0.25" in describe(Belief.PROFILED, 0.25)
    assert describe(Belief.NONE, 0.1)


def test_what_parking_takes_is_known_of_each_node_as_the_cluster_says(tmp_path: Path) -> None:
    described = tmp_path / "cluster.yaml"
    described.write_text(
        "name: mine\ncosts: {park: 2s}\ngroups:\n"
        "  - {name: old, count: 1, gpus: 1, gpu_type: V100, gpu_memory: 16GB}\n"
        "  - {name: new, count: 1, gpus: 1, gpu_type: A100, gpu_memory: 40GB, costs: {to_host: 20GB/s}}\n"
    )
    request = Request(trace="sample", cluster=str(described))
    nodes = inputs(request, load(request, 0), "fifo", 0).cluster.nodes
    assert [(node.park_s, node.to_host_bytes_per_s) for node in nodes] == [(2.0, 10e9), (2.0, 20e9)]


@pytest.mark.parametrize(
    ("policy", "belief", "lengthless"),
    [("sjf", Belief.NONE, 2), ("srsf", Belief.NONE, 2), ("fifo", Belief.NONE, 0), ("colane", Belief.NONE, 0)]
    + [("srtf", belief, 0) for belief in (Belief.PROFILED, Belief.ORACLE)],
)
def test_policies_that_are_defined_by_lengths_say_of_how_many_jobs_they_know_none(
    policy: str, belief: Belief, lengthless: int
) -> None:
    made = [job(1, 0, 50), job(2, 1, 9), job(3, 2, 9, time_limit_s=60.0)]
    jobs = declare_lengths(made, belief, noise=0.1, seed=1)
    known = make_beliefs(belief, FactorsWorld(), jobs, cluster(1), noise=0.1, seed=1)
    given = Inputs(
        cluster=cluster(1), workload=workload(*jobs), world=FactorsWorld(), policy=create(policy), beliefs=known
    )
    assert simulate(given).lacks == ({"length": lengthless} if lengthless else {})
