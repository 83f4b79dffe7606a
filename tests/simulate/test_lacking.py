"""A policy that does not know what it is defined by is said first, whatever is missing; and what stands in for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from colane.lab.report.prose import LACKED, lacks_what
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.lacking import NEEDS, Truth, lacking
from colane.lab.simulate.request import Request, WorldKind, load
from colane.lab.simulate.table_files import MemoryFrom
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.workload import TraceJob
from colane.perf.beliefs import Beliefs
from colane.scheduling.presets import ALIASES, POLICIES
from colane.scheduling.registry import create
from tests.simulate.scenes import GIB, job

TELLS_ALL = job(
    1, 0.0, 10.0, gpus=2, steps=10, sizes=(1, 2), cores=2, user="ann", gpu_memory_bytes=GIB, gpu_type="v100"
)
WITHOUT = {
    "length": {"steps_total": None},
    "memory": {"gpu_memory_bytes": None},
    "sizes": {"sizes": ()},
    "cores": {"cores": 0},
    "owner": {"user": ""},
}
DEFINED_BY = {
    "easy-backfill": {"length"}, "sjf": {"length"}, "srtf": {"length"}, "srsf": {"length"}, "drf": {"owner"},
    "max-min": {"owner"}, "max-min-packed": {"owner"}, "finish-time-fair": {"length", "owner"}, "f-sched": {"sizes"},
    "colocate": {"occupancy"}, "pack": {"memory"}, "fair": {"memory"}, "salus-srtf": {"memory", "length"},
    "salus-code": {"memory"}, "coda": {"cores", "owner"},
    "colane:objective=fair": {"owner"}, "colane:objective=drf": {"owner"}, "colane:lanes=own": {"memory"},
    "colane:arrays=yes": {"cores"}, "colane:variance_max=0.1": {"sizes"}, "fair:turns=srtf": {"memory", "length"},
}  # fmt: skip
"""All others need nothing that a trace may lack."""


def missing(column: str) -> TraceJob:
    return replace(TELLS_ALL, spec=replace(TELLS_ALL.spec, **WITHOUT.get(column, {})))  # type: ignore[arg-type]


@pytest.mark.parametrize("column", NEEDS)
@pytest.mark.parametrize("policy", sorted({*POLICIES, *ALIASES, *DEFINED_BY}))
def test_each_policy_lacks_what_defines_it_and_nothing_else(policy: str, column: str) -> None:
    world = NeutralWorld() if column == "occupancy" else FactorsWorld()
    truth = Truth(world, Beliefs(), {"default": ["v100"]})
    found = lacking(create(policy, as_published=True), [TELLS_ALL, missing(column)], truth)
    many = 2 if column == "occupancy" else 1
    assert found == ({column: many} if column in DEFINED_BY.get(policy, set()) else {})


def test_it_is_said_of_how_many_with_what_stands_in() -> None:
    assert LACKED.keys() == NEEDS.keys()
    (said,) = lacks_what("pack", {"memory": 4, "length": 0}, 4, "--{option} {value}")
    assert said.startswith(
        "pack lacks what it is defined by: it knows no memory of any job and lets none of those share"
    )
    assert said.endswith("; --memory-from share takes that part of a GPU that each asks for.")
    (said,) = lacks_what("pack", {"memory": 3}, 4, '{option} = "{value}"')
    assert "of 3 of 4 jobs" in said
    assert 'memory_from = "share" takes' in said


def test_a_part_of_a_gpu_stands_in_for_memory(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "id,submit_s,duration_s,gpus,gpu_ratio,gpu_memory_bytes\na,0,9,1,0.25,\nb,0,9,1,1,1000\nc,0,9,0,1,\n"
    )
    asked = Request(
        cluster="dgx1", trace=str(trace), world=WorldKind.FACTORS, memory_from=MemoryFrom.SHARE, cpu_jobs=True
    )
    loaded = load(asked, 0)
    gpu_bytes = loaded.cluster.nodes[0].gpus[0].memory_bytes
    assert [one.spec.gpu_memory_bytes for one in loaded.workload.jobs] == [gpu_bytes // 4, 1000, None]
    assert any("by share" in note for note in loaded.workload.said)
