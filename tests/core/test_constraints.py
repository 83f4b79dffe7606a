"""What an owner declared stays as it is; what is learnt or imposed stands beside it, and decides."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from colane.model.checkpoint import CHECKPOINT_PRESETS
from colane.model.job import Job, JobId, JobSpec
from colane.model.job_spec import UNCONSTRAINED, CheckpointContract, Constraints, NewLimit, under

PLAIN = JobSpec(
    name="a",
    family="a",
    gpus=2,
    sizes=(1, 2, 4),
    cores=3,
    preemptible=True,
    steps_total=7,
    time_limit_s=60.0,
    after="ok:@",
)
SIGNAL = CheckpointContract("SIGUSR1", 9.0)


@pytest.mark.parametrize(
    ("constraints", "changed"),
    [
        (UNCONSTRAINED, {}),
        (Constraints(isolated=True), {"share": False}),
        (Constraints(not_preemptible=True), {"preemptible": False}),
        (Constraints(checkpoint=SIGNAL), {"checkpoint": SIGNAL}),
        (Constraints(checkpoint=SIGNAL, not_preemptible=True), {"checkpoint": SIGNAL, "preemptible": False}),
        (Constraints(sizes_lost=(4,)), {"sizes": (1, 2)}),
        (Constraints(sizes_lost=(2,)), {"sizes": (1, 4), "gpus": 4}),
        (Constraints(sizes_lost=(4, 2)), {"sizes": (), "gpus": 1}),
        (Constraints(cores=5), {"cores": 0, "cores_offered": 5, "cores_beside": 3}),
        (Constraints(cores=2), {"cores": 0, "cores_offered": 2, "cores_beside": 2}),
        (Constraints(cores=5, needs_cores=True), {"cores": 5}),
        (Constraints(sharing_domain="user ann"), {"sharing_domain": "user ann"}),
        (Constraints(gpu_memory_bytes=9), {"gpu_memory_bytes": 9}),
        (Constraints(steps_total_doubted=True), {"steps_total": None}),
        (Constraints(steps_total_doubted=True, steps_total_said=9), {"steps_total": None}),
        (Constraints(time_limit=NewLimit(9.0)), {"time_limit_s": 9.0}),
        (Constraints(time_limit=NewLimit(None)), {"time_limit_s": None}),
        (Constraints(after="ok:12"), {"after": "ok:12"}),
    ],
)
def test_constraints_change_what_a_job_needs(constraints: Constraints, changed: dict[str, object]) -> None:
    job = Job(JobId(1), PLAIN, 0.0, constraints=constraints)
    assert job.effective == replace(PLAIN, **changed)  # type: ignore[arg-type]
    assert job.effective.need == replace(PLAIN, **changed).need  # type: ignore[arg-type]
    assert job.spec is PLAIN
    assert job.under(UNCONSTRAINED).effective is PLAIN


def test_a_job_that_is_found_to_save_its_state_may_be_stopped_for_others() -> None:
    silent = replace(PLAIN, preemptible=False)
    assert under(silent, Constraints(checkpoint=CHECKPOINT_PRESETS["plain"])).preemptible
    declared = replace(silent, checkpoint=SIGNAL)
    learnt = SIGNAL._replace(reforms=True)
    assert not under(declared, Constraints(checkpoint=learnt)).preemptible


CONSTRAINED = {
    "share", "preemptible", "checkpoint", "sizes", "gpus_min", "gpus_max", "cores", "sharing_domain", "need", "part",
    "at",
    "can_run_on", "gpu_memory_bytes", "steps_total", "time_limit_s", "after",
}  # fmt: skip
"""What may be another than was declared."""


def declared_reads(path: Path) -> Iterator[str]:
    """Where a module asks a job's declaration for what may be another by now."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "spec":
            owner = node.value.value
            is_job = not (isinstance(owner, ast.Name) and owner.id in {"self", "need", "event"})
            if is_job and node.attr in CONSTRAINED:
                yield f"{path}:{node.lineno} asks .spec.{node.attr}; what decides asks `job.effective`"


def test_what_decides_asks_for_the_effective_needs() -> None:
    source = Path(__file__).parents[2] / "src" / "colane"
    modules = [path for room in ("core", "scheduling") for path in sorted((source / room).rglob("*.py"))]
    assert len(modules) > 100
    assert [found for path in modules for found in declared_reads(path)] == []
