"""The worlds: what was measured is given back exactly, what was not follows its formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from pathlib import Path

import pytest

from colane.lab.simulate.accuracy import true_delta
from colane.lab.simulate.beliefs import Belief, make_beliefs
from colane.lab.simulate.factors import (
    FactorsWorld,
    demand_of_copies,
    slowdown_by_work,
    slowdown_of_several,
)
from colane.lab.simulate.gavel_speeds import V100_BYTES, fitting_memory
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.table_files import GAVEL_PAIRS, gavel_models, read_sources
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import canonical
from colane.lab.simulate.world import NeutralWorld, Running, Scope
from colane.lab.traces import clusters
from colane.lab.traces.tables import gavel
from colane.lab.traces.workload import TraceJob
from colane.model.hardware import GpuId
from colane.model.profile import Memory
from colane.scheduling.registry import create
from colane.settings.input_file import InputFileError

from .scenes import cluster, job, workload

ONE = (GpuId("n", 0),)


@pytest.fixture(scope="module")
def world(data: Path) -> TableWorld:
    return TableWorld(read_sources(data))


def on_v100(model: str, batch: int | None, *, gpus: int = 1, **needs: object) -> Running:
    made = job(1, 0, None, gpus=gpus, steps=100, family=model, batch_size=batch, **needs)
    return Running(made, "v100", tuple(GpuId("n", number) for number in range(gpus)), cores=made.spec.cores)


@pytest.mark.parametrize(
    ("first", "second", "delta"),
    [
        (("ResNet-18", 64), ("ResNet-18", 64), 2.00),
        (("ResNet-18", 128), ("ResNet-18", 128), 1.56),
        (("ResNet-18", 256), ("ResNet-18", 256), 1.27),
        (("ResNet-18", 64), ("ResNet-50", 64), 0.956),
        (("ResNet-50", 64), ("ResNet-50", 64), 0.996),
    ],
)
def test_pairs_of_gavel_have_the_speed_ups_paper_a_is_checked_by(
    world: TableWorld, first: tuple[str, int], second: tuple[str, int], delta: float
) -> None:
    found = true_delta(world, [on_v100(*first), on_v100(*second)])
    assert found == pytest.approx(delta, abs=0.005)


def test_every_measured_speed_alone_is_the_worlds(world: TableWorld, data: Path) -> None:
    table = gavel.read_isolated(data / "A/gavel_isolated.csv")
    checked = 0
    for kind in ("v100", "p100", "k80"):
        for gpus in (1, 2, 4, 8):
            for one in table.jobs(gpus):
                speed = table.alone(kind, one)
                if speed:
                    running = replace(on_v100(one.model, one.batch_size, gpus=gpus), gpu_type=kind)
                    assert math.isclose(world.steps_per_s(running, ()), speed, rel_tol=0.01)
                    checked += 1
    assert checked > 150


def test_names_of_models_and_gpus_need_not_be_spelt_alike(world: TableWorld) -> None:
    spelt = replace(on_v100("resnet18", 64), gpu_type="Tesla V100-SXM2-16GB")
    assert world.steps_per_s(spelt, ()) == world.steps_per_s(on_v100("ResNet-18", 64), ())
    assert canonical("ResNet-18") == canonical("resnet_18") == "resnet18"


def test_pairs_that_did_not_fit_stand_still_and_are_never_said_to_fit(world: TableWorld, data: Path) -> None:
    big, other = on_v100("ResNet-50", 128), on_v100("LM", 20)
    assert world.steps_per_s(big, [other]) == 0
    table = gavel.read_json(data / GAVEL_PAIRS)
    memory = fitting_memory(table)
    spot = gavel.Spot("v100", consolidated=True)
    unfit = 0
    for pair in combinations_with_replacement(table.jobs(1), 2):
        together = sum(memory[one.model, one.batch_size] for one in pair)
        if (0.0, 0.0) in (table.pair_steps_per_s.get((spot, *pair)), table.pair_steps_per_s.get((spot, *pair[::-1]))):
            unfit += 1
            assert together > V100_BYTES
    assert unfit == 21


def test_three_jobs_are_slowed_by_the_sum_of_their_pairs_or_by_the_work_of_all(world: TableWorld) -> None:
    a, b, c = on_v100("ResNet-18", 128), on_v100("ResNet-18", 128), on_v100("Transformer", 64)
    alone, with_b, with_c = (world.steps_per_s(a, others) for others in ([], [b], [c]))
    pairs = [alone / with_b, alone / with_c]
    demands = [world.occupancy_ratio(one.job, "v100") or 0.0 for one in (a, b, c)]
    assert alone / world.steps_per_s(a, [b, c]) == pytest.approx(slowdown_of_several(pairs, demands))
    assert world.steps_per_s(a, [b, c]) < min(with_b, with_c)


def test_a_pair_no_table_has_is_bound_by_its_work(world: TableWorld) -> None:
    known, unknown = on_v100("ResNet-18", 256), on_v100("something-new", 8)
    unknown = replace(unknown, job=job(2, 0, 50, steps=100, family="something-new"))
    demands = [world.occupancy_ratio(known.job, "v100") or 0.0, FactorsWorld().demand(unknown.job)]
    alone = world.steps_per_s(known, [])
    assert alone / world.steps_per_s(known, [unknown]) == pytest.approx(slowdown_by_work(demands))


def test_jobs_that_share_run_no_faster_than_alone_and_the_gpu_does_no_more_than_its_work(world: TableWorld) -> None:
    jobs = [on_v100("ResNet-18", b) for b in (16, 64, 256)] + [on_v100("LM", 20), on_v100("Transformer", 128)]
    for co_runners in (jobs[:2], jobs[:3], jobs[2:], jobs):
        for place, one in enumerate(co_runners):
            others = co_runners[:place] + co_runners[place + 1 :]
            assert world.steps_per_s(one, others) <= world.steps_per_s(one, ())


def test_times_of_paper_c_follow_the_sockets(world: TableWorld) -> None:
    alexnet = replace(on_v100("bvlc_alexnet", 1, gpus=2), gpu_type="P100")
    alone = {name: 4000 / world.steps_per_s(replace(alexnet, sockets=s), ()) for name, s in SOCKETS.items()}
    assert alone == {"one": pytest.approx(127.4, abs=0.05), "both": pytest.approx(159.1, abs=0.05)}
    other = replace(alexnet, gpus=(GpuId("n", 2), GpuId("n", 3)))
    beside_s = 4000 / world.steps_per_s(alexnet, [other])
    assert beside_s == pytest.approx(167.9, abs=0.05)
    elsewhere = replace(other, sockets=(1,))
    assert 4000 / world.steps_per_s(alexnet, [elsewhere]) == pytest.approx(127.4, abs=0.05)


SOCKETS: dict[str, tuple[int, ...]] = {"one": (0,), "both": (0, 1)}


def test_geometry_of_salus_gives_memory_and_speed_on_a_p100(world: TableWorld) -> None:
    vgg = replace(on_v100("vgg11", 25), gpu_type="P100")
    memory = world.memory(vgg.job, "P100")
    assert memory is not None
    assert memory.persistent_bytes > 0
    assert 5 < world.steps_per_s(vgg, ()) < 50


def test_declared_memory_goes_before_the_tables(world: TableWorld) -> None:
    vgg = on_v100("vgg11", 25, gpu_memory_bytes=123)
    assert world.memory(vgg.job, "P100") == Memory(123, 0)


def test_cores_change_the_speed_by_synergys_curve(world: TableWorld) -> None:
    at_fair_share, starved = on_v100("alexnet", 1, cores=3), on_v100("alexnet", 1, cores=1)
    assert world.steps_per_s(starved, ()) < 0.6 * world.steps_per_s(at_fair_share, ())


def test_a_job_without_duration_or_cores_goes_by_synergys_step_times_and_the_cores_it_gets(data: Path) -> None:
    """As those of Synergy's own traces, which say how many steps a job has, and no more."""
    asks_none = job(1, 0, None, steps=1000, family="deepspeech")
    world = TableWorld(read_sources(data), [asks_none], gpu_types=["v100"])
    assert world.refusal(asks_none, ("v100",)) is None
    assert world.refusal(asks_none, ("k80",)) is not None
    assert world.cores_of_use(asks_none) == 3
    at_fair_share = replace(on_v100("deepspeech", None), shared_cores=3.0)
    assert world.steps_per_s(at_fair_share, ()) == pytest.approx(1 / 0.757)
    assert world.steps_per_s(replace(at_fair_share, shared_cores=1.0), ()) == pytest.approx(0.3 / 0.757)


def test_speeds_by_number_of_gpus_are_those_of_the_calibrated_table(world: TableWorld) -> None:
    titans = [replace(on_v100("InceptionV3", None, gpus=n), gpu_type="TITAN-Xp") for n in (1, 6)]
    speeds = [world.steps_per_s(one, ()) for one in titans]
    assert speeds == [pytest.approx(1.62, abs=0.01), pytest.approx(3.45, abs=0.01)]


def test_a_job_measured_on_other_gpu_types_only_does_not_fit(world: TableWorld) -> None:
    big = on_v100("ResNet-50", 128, gpus=4)
    assert world.steps_per_s(big, ()) > 0
    assert world.steps_per_s(replace(big, gpu_type="k80"), ()) == 0
    assert world.refusal(big.job, ("k80", "v100")) is None
    assert world.refusal(big.job, ("k80",)) is not None
    cluster = clusters.load("gavel-36")
    beliefs = make_beliefs(Belief.PROFILED, world, [big.job], cluster, noise=0.0, seed=0)
    known = {kind: beliefs.memory(big.job.spec, kind) for kind in ("k80", "v100")}
    assert known["k80"] is not None
    assert sum(known["k80"]) > 1 << 45
    assert known["v100"] is None or sum(known["v100"]) <= V100_BYTES


def test_a_job_without_length_or_measured_speed_is_refused(world: TableWorld) -> None:
    unknown = job(1, 0, None, steps=5, family="something-new")
    reason = world.refusal(unknown, ("v100",))
    assert reason is not None
    assert "something-new" in reason
    known = on_v100("ResNet-18", 64).job
    assert world.refusal(known, ("v100",)) is None
    assert world.refusal(known, ("a100", "v100")) is None  # of a type no table has, as on the fastest there is


def test_tables_that_know_no_job_are_left_out_and_the_name_says_which_are_used(data: Path) -> None:
    sources = read_sources(data)
    only = TableWorld(sources, [on_v100("ResNet-18", 64).job])
    assert "Gavel" in only.name
    assert "SC 2017" not in only.name
    assert only.scope is Scope.GPU
    assert TableWorld(sources, [on_v100("bvlc_alexnet", 1).job]).scope is Scope.NODE
    assert not TableWorld(sources, [job(1, 0, 5, family="x")]).knows_jobs


def test_a_directory_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="no measured table"):
        read_sources(tmp_path)


def test_models_to_draw_from_have_speeds_and_memory(data: Path) -> None:
    models = gavel_models(data)
    assert len(models) == 26
    assert all(model.steps_per_s and model.gpu_memory_bytes for model in models)


def test_demand_follows_from_two_copies() -> None:
    assert [demand_of_copies(ratio) for ratio in (1.0, 0.5, 0.25)] == [0.5, 1.0, 2.0]
    assert slowdown_by_work([0.3, 0.4]) == 1
    assert slowdown_by_work([0.9, 0.6]) == pytest.approx(1.5)
    assert slowdown_of_several([1.5, 1.2], [0.5, 0.5, 0.5]) == pytest.approx(1.7)
    assert slowdown_of_several([1.0, 1.0], [0.5, 0.5, 0.5]) == pytest.approx(1.5)


def test_factors_take_the_part_of_a_gpu_a_trace_asks_for() -> None:
    world = FactorsWorld(0.5)
    whole, part = job(1, 0, 10, steps=20), TraceJob(id=job(2, 0, 10).id, submit_s=0, spec=job(2, 0, 10).spec,
                                                     duration_s=10, gpu_ratio=0.2)  # fmt: skip
    assert (world.demand(whole), world.demand(part)) == (0.5, 0.2)
    assert world.steps_per_s(Running(whole, "x", ONE), [Running(part, "x", ONE)]) == 2.0
    three: Sequence[Running] = [Running(whole, "x", ONE)] * 2
    assert world.steps_per_s(Running(whole, "x", ONE), three) == pytest.approx(2 / 1.5)


def test_in_the_neutral_world_a_gang_waits_for_its_most_crowded_gpu() -> None:
    world = NeutralWorld()
    gang = Running(job(1, 0, 10, gpus=2), "x", (GpuId("n", 0), GpuId("n", 1)))
    one = Running(job(2, 0, 10), "x", (GpuId("n", 1),))
    assert world.steps_per_s(gang, [one, one]) == pytest.approx(1 / 3)
    assert world.steps_per_s(one, [gang]) == 0.5


@pytest.mark.parametrize("policy", ["fair", "salus-srtf", "salus-code"])
@pytest.mark.parametrize("belief", Belief)
@pytest.mark.parametrize("world", [NeutralWorld(), FactorsWorld()], ids=["neutral", "factors"])
def test_of_a_peak_alone_nothing_is_taken_as_given_back_between_steps(
    world: NeutralWorld | FactorsWorld, belief: Belief, policy: str
) -> None:
    """Jobs whose peaks do not fit a GPU together share it only where the trace says that they hold less than those."""
    jobs = [job(number, number, 40, steps=100, gpu_memory_bytes=9 * 10**9) for number in (1, 2, 3)]

    def overlap(jobs: list[TraceJob]) -> bool:
        known = make_beliefs(belief, world, jobs, cluster(1), noise=0.0, seed=1)
        given = Inputs(cluster=cluster(1), workload=workload(*jobs), world=world, policy=create(policy), beliefs=known)
        rows = simulate(given).ledger.rows
        stays = sorted(zip(rows.first_start_s, rows.end_s, strict=True))
        return any(start_s < end_s for (_, end_s), (start_s, _) in pairwise(stays))

    assert not overlap(jobs)
    if (
        world.counts_steps and policy != "salus-code"
    ):  # which opens no lane that the first job's does not leave room for
        assert overlap([replace(one, persistent_bytes=10**9) for one in jobs])
