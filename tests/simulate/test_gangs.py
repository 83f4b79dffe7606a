"""Jobs over several nodes run in virtual time as they do live: all ranks start, step and end together."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.cli import app
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.gangs import GangWorld
from colane.lab.simulate.run import admit
from colane.lab.simulate.table_files import read_sources
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.world import NeutralWorld, Running
from colane.lab.traces import clusters
from colane.lab.traces.read import read
from colane.lab.traces.readers import colane_csv
from colane.lab.traces.workload import TraceJob, only_pools, spread_large
from colane.model.hardware import GpuId
from colane.model.job import JobState
from colane.scheduling import registry
from tests.simulate.scenes import Restless, cluster, job, random_cluster, random_jobs, run, workload

GANG = job(1, 0, 10, gpus=6, multi_node=True)


def spread(traced: TraceJob, *nodes: tuple[str, int], gpu_type: str = "v100") -> Running:
    """A job with so many GPUs on each of these nodes."""
    parts = tuple(Running(traced, gpu_type, tuple(GpuId(node, i) for i in range(many))) for node, many in nodes)
    return Running(traced, gpu_type, sum((part.gpus for part in parts), ()), tuple(range(len(parts))), parts=parts)


def test_a_gang_runs_for_its_duration_and_frees_all_its_nodes() -> None:
    after = job(2, 1, 5, gpus=4)
    result = run((GANG, after), cluster(4, 4), registry.create("fifo"), NeutralWorld())
    rows = result.ledger.rows
    assert (list(rows.id), list(rows.end_s)) == ([1, 2], [10, 15])
    assert Counter(gpu.node for gpu in rows.gpus[0]) == {"n0": 4, "n1": 2}
    assert rows.gpu_s[0] == 60
    assert result.ledger.flaws == []


def test_without_leave_it_is_refused_and_with_too_few_gpus_too() -> None:
    kept, refused = admit(workload(job(1, 0, 10, gpus=6), job(2, 0, 10, gpus=9, multi_node=True), GANG),
                          cluster(4, 4), NeutralWorld())  # fmt: skip
    assert [one.id for one in kept] == [1]
    assert [one.reason for one in refused] == [
        "needs 6 GPUs on one node, the largest has 4",
        "needs 9 GPUs over several nodes, its pool has 8",
    ]


@pytest.mark.parametrize("policy", sorted(registry.POLICIES))
def test_every_policy_runs_gangs_to_their_end(policy: str) -> None:
    jobs = [job(n, n, 20 + n, gpus=gpus, multi_node=gpus > 2) for n, gpus in enumerate((3, 1, 5, 2, 6, 1, 4), 1)]
    result = run(jobs, cluster(2, 2, 2), registry.create(policy), NeutralWorld())
    assert result.ledger.rows.count(JobState.SUCCEEDED) == len(jobs)
    assert result.ledger.flaws == []


@given(st.integers(0, 10_000))
def test_gangs_that_are_stopped_again_and_again_do_all_their_work(seed: int) -> None:
    machines = random_cluster(seed)
    jobs = spread_large(workload(*random_jobs(seed, most_gpus=4)), dict.fromkeys(machines.pools, 1)).jobs
    result = run(jobs, machines, Restless(), NeutralWorld(), DriverConfig(stop_s=1.0))
    kept, _ = admit(workload(*jobs), machines, NeutralWorld())
    assert result.ledger.rows.count(JobState.SUCCEEDED) == len(kept)
    assert result.ledger.flaws == []


def test_a_gang_goes_at_the_pace_of_its_slowest_rank() -> None:
    world = GangWorld(NeutralWorld())
    gang = spread(GANG, ("a", 2), ("b", 1))
    small = Running(job(2, 0, 1), "v100", (GpuId("b", 0),))
    assert world.steps_per_s(gang, ()) == 1
    assert world.steps_per_s(gang, [small]) == 0.5
    assert world.steps_per_s(gang, [Running(job(2, 0, 1), "v100", (GpuId("c", 0),))]) == 1
    assert world.steps_per_s(small, [gang]) == 0.5


def test_neighbours_feel_only_the_ranks_on_their_own_node(data: Path) -> None:
    """Sockets have the same numbers on every node; a rank on socket 0 of another node disturbs no job here."""
    noisy = job(1, 0, None, gpus=2, steps=10, family="bvlc_alexnet", batch_size=4, multi_node=True)
    world = TableWorld(read_sources(data), [noisy])
    me = Running(job(2, 0, None, steps=10, family="bvlc_alexnet", batch_size=1), "P100", (GpuId("a", 1),), (0,))
    alone = world.steps_per_s(me, ())
    beside = Running(noisy, "P100", (GpuId("a", 0),), (0,))
    away = Running(noisy, "P100", (GpuId("b", 0),), (0,))
    here = Running(noisy, "P100", (GpuId("a", 0), GpuId("b", 0)), (0, 1), parts=(beside, away))
    there = Running(noisy, "P100", (GpuId("b", 0), GpuId("c", 0)), (0, 1), parts=(away, spread(noisy, ("c", 1))))
    assert GangWorld(world).steps_per_s(me, [here]) == world.steps_per_s(me, [beside]) < alone
    assert GangWorld(world).steps_per_s(me, [there]) == alone


def test_measured_speeds_over_servers_are_taken_where_there_are_some(data: Path) -> None:
    table = read_sources(data)
    gang = job(1, 0, None, gpus=2, steps=10, family="ResNet-50", batch_size=16, multi_node=True)
    world = GangWorld(TableWorld(table, [gang]))
    together = Running(gang, "V100", (GpuId("a", 0), GpuId("a", 1)))
    apart = spread(gang, ("a", 1), ("b", 1), gpu_type="V100")
    assert 0 < world.steps_per_s(apart, ()) < world.steps_per_s(together, ())


def test_philly_holds_its_large_jobs_where_they_may_span_nodes(data: Path) -> None:
    machines = clusters.load("philly")
    traced = only_pools(read(data / "traces" / "philly.csv.gz"), machines.pools)
    large = sum(one.spec.gpus > 8 for one in traced.jobs)
    kept, refused = admit(spread_large(traced, machines.gpus_max), machines, NeutralWorld())
    assert (large, len(refused)) == (289, 0)
    assert sum(one.spec.multi_node for one in kept) == 289


def test_the_column_is_read_written_and_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, machines = tmp_path / "t.csv", tmp_path / "c.yaml"
    path.write_text("id,submit_s,duration_s,gpus,multi_node,anti_collocation\na,0,9,3,1,0\nb,0,9,2,1,1\nc,0,9,3,,\n")
    machines.write_text("groups: [{count: 2, gpus: 2, gpu_type: A, gpu_memory: 1GB}]")
    jobs = read(path).jobs
    assert [(one.spec.multi_node, one.spec.anti_collocation) for one in jobs] == [
        (True, False),
        (True, True),
        (False,) * 2,
    ]
    colane_csv.write(read(path), tmp_path / "again.csv")
    assert [one.spec for one in read(tmp_path / "again.csv").jobs] == [one.spec for one in jobs]
    words = ["trace", "check", str(path), "--cluster", str(machines), "--json"]
    assert never_fit(words, capsys) == [1]
    assert never_fit([*words, "--multi-node"], capsys) == []
    assert app.run(["simulate", "-c", str(machines), "-t", str(path), "-p", "fifo", "--multi-node", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["finished"] == 3


def never_fit(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[int]:
    assert app.run(words) == 0
    return [one["count"] for one in json.loads(capsys.readouterr().out)["findings"] if one["code"] == "never-fits"]


def test_apart_needs_leave_to_span(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("submit_s,duration_s,gpus,anti_collocation\n0,9,2,1\n")
    with pytest.raises(ValueError, match=r"t.csv:2: column 'anti_collocation': needs multi_node"):
        read(path)


def test_sizes_are_read_written_and_the_largest_that_fits_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('submit_s,duration_s,gpus,sizes\n0,9,8,1..8\n0,9,4,"2,4"\n0,9,1,\n')
    jobs = read(path).jobs
    assert [one.spec.sizes for one in jobs] == [tuple(range(1, 9)), (2, 4), ()]
    colane_csv.write(read(path), tmp_path / "again.csv")
    assert [one.spec for one in read(tmp_path / "again.csv").jobs] == [one.spec for one in jobs]
    kept, refused = admit(workload(*jobs), cluster(3), NeutralWorld())
    assert [one.spec.gpus for one in kept] == [3, 2, 1]
    assert not refused
    path.write_text("submit_s,duration_s,gpus,sizes\n0,9,8,1..4\n")
    with pytest.raises(ValueError, match=r"t.csv:2: column 'sizes': gpus 8 is not among them"):
        read(path)
    path.write_text("submit_s,duration_s,gpus,sizes\n0,9,8,4..1\n")
    with pytest.raises(ValueError, match=r"column 'sizes': the smallest number of GPUs comes first"):
        read(path)
