"""Jobs that ask for no cores go by what the others of their node leave them, whether cores are tuned or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from colane.cpu.config import TuningConfig
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.shared_cores import Sharer, divide
from colane.lab.simulate.table_files import read_sources
from colane.lab.simulate.table_world import TableWorld
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob
from colane.scheduling import registry
from tests.simulate.scenes import job, node, workload


@pytest.fixture(scope="module")
def world(data: Path) -> TableWorld:
    return TableWorld(read_sources(data))


def training(number: int, family: str, *, submit_s: float = 0.0, steps: int = 10_000, cores: int = 0) -> TraceJob:
    """A step takes a second with three cores."""
    return job(number, submit_s, float(steps), steps=steps, family=family, cores=cores)


def ends_s(world: TableWorld, cores: int, gpus: int, *jobs: TraceJob, tunes: bool = False) -> list[float]:
    machines = Cluster("test", (replace(node("n0", gpus), cores=tuple(range(cores))),))
    given = Inputs(
        cluster=machines, workload=workload(*jobs), world=world, policy=registry.create("fifo"),
        tuning=TuningConfig() if tunes else None,
    )  # fmt: skip
    rows = simulate(given).ledger.rows
    return [end_s for _, end_s in sorted(zip(rows.id, rows.end_s, strict=True))]


def speed(world: TableWorld, family: str, cores: float) -> float:
    """Of a job that goes at one step a second with three cores."""
    return world._gain(training(1, family), cores)


def test_each_gets_what_it_has_use_for_and_where_there_is_less_all_alike() -> None:
    assert divide([Sharer(1, 3), Sharer(1, 1), Sharer(2, 20)], 30) == [3, 1, 20]
    assert divide([Sharer(1, 3), Sharer(1, 1), Sharer(2, 20)], 13) == [3, 1, 9]
    assert divide([Sharer(1, 9), Sharer(1, 1), Sharer(2, 20)], 13) == [4, 1, 8]
    assert divide([Sharer(1, 9)], -1) == [0]
    assert divide([], 4) == []


@pytest.mark.parametrize(("cores", "has"), [(24, 12), (6, 6), (2, 2)])
def test_one_alone_has_all_cores_it_has_use_for(world: TableWorld, cores: int, has: int) -> None:
    assert ends_s(world, cores, 1, training(1, "alexnet")) == pytest.approx([10_000 / speed(world, "alexnet", has)])


def test_who_comes_and_who_books_leaves_it_less(world: TableWorld) -> None:
    """Six cores; three once the other has come; the other's alone again, less what a third has booked."""
    first, second = training(1, "alexnet", steps=20_000), training(2, "alexnet", submit_s=1000.0, steps=2000)
    booking = training(3, "gnmt", submit_s=5000.0, steps=20_000, cores=4)
    fast, shared, short = (speed(world, "alexnet", cores) for cores in (6, 3, 2))
    ends = ends_s(world, 6, 2, first, second)
    assert ends[1] == pytest.approx(1000 + 2000 / shared)
    assert ends[0] == pytest.approx(1000 + 2000 / shared + (20_000 - 1000 * fast - 2000) / fast)
    ends = ends_s(world, 6, 2, first, booking)
    assert ends[0] == pytest.approx(5000 + (20_000 - 5000 * fast) / short)


def test_tuned_or_not_they_go_alike(world: TableWorld) -> None:
    families = ("alexnet", "res18", "res50", "gnmt", "mobilenet")
    jobs = [training(number, family, submit_s=100.0 * number) for number, family in enumerate(families, 1)]
    assert ends_s(world, 8, 3, *jobs, tunes=True) == ends_s(world, 8, 3, *jobs)
