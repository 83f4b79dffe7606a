"""Who leaves for a job of higher priority, of several that count as much: whoever loses least by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from colane.core.events import Submitted
from colane.model.checkpoint import CHECKPOINT_PRESETS
from colane.model.job import JobId, JobSpec
from colane.model.plan import Action, Park, Stop

from .test_parking import Machine

OLD, NEW, URGENT = JobId(1), JobId(2), JobId(3)
GIB = 1 << 30
ALLOWED: Mapping[str, Any] = {"preemptible": True}
NOTHING: Mapping[str, object] = {}


def urgent_comes(
    old: Mapping[str, object], new: Mapping[str, object], of_node: Mapping[str, object] = NOTHING, **needs: object
) -> list[Action]:
    """What is done for it where two jobs of these samples run, each on a GPU of its own."""
    machine = Machine("colocate", devices=2, gpu_type="V100", **of_node)
    for job, values in ((OLD, old), (NEW, new)):
        machine.run(job, share=False, **needs)
        machine.do(after_s=100.0)
        machine.sample(job, **values)  # type: ignore[arg-type]
    asked = JobSpec(name="u", family="f", priority=1, share=False)
    return [decision.action for decision in machine.do(Submitted(URGENT, asked)).decisions]


@pytest.mark.parametrize(("old", "new", "victim"), [(990, 700, OLD), (700, 990, NEW), (990, 990, NEW)])
def test_the_one_with_least_work_unsaved_is_stopped(old: int, new: int, victim: JobId) -> None:
    """Ten steps of a second are lost, or 300; of two alike the newer one goes."""
    said = {"steps": 1000, "step_mean_s": 1.0}
    saved, cannot_park = ({**said, "steps_saved": old}, {**said, "steps_saved": new}), "the driver is too old"
    left = urgent_comes(*saved, {"host_refusal": cannot_park}, **ALLOWED)
    assert [action.job for action in left] == [victim]


def test_one_that_saves_when_it_is_asked_loses_nothing_but_its_launch() -> None:
    behind = {"steps": 1000, "step_mean_s": 1.0, "steps_saved": 0}
    left = urgent_comes(behind, behind, **ALLOWED, checkpoint=CHECKPOINT_PRESETS["plain"])
    assert [(type(action), action.job) for action in left] == [(Stop, NEW)]


def test_one_far_behind_what_it_saved_is_parked_though_it_may_be_stopped() -> None:
    behind = {"steps": 1000, "step_mean_s": 1.0, "steps_saved": 0}
    left = urgent_comes(behind, behind, **ALLOWED)
    assert [(type(action), action.job) for action in left] == [(Park, NEW)]


def test_the_one_with_least_memory_to_move_is_parked() -> None:
    left = urgent_comes({"persistent_bytes": GIB}, {"persistent_bytes": 14 * GIB})
    assert [(type(action), action.job) for action in left] == [(Park, OLD)]


@pytest.mark.parametrize(
    ("of_node", "means"),
    [
        ({}, Park),
        ({"to_host_bytes_per_s": float(GIB) / 100}, Stop),
        ({"park_s": 60.0}, Stop),
    ],
)
def test_parking_is_weighed_by_what_it_takes_on_that_node(of_node: Mapping[str, object], means: type[Action]) -> None:
    """A hundred seconds of work would be lost; 8 GiB move in 1.6 s both ways, or in 1,600 s, or after two minutes."""
    behind = {"steps": 1000, "step_mean_s": 1.0, "steps_saved": 900, "persistent_bytes": 8 * GIB}
    (left,) = urgent_comes(behind, behind, of_node, **ALLOWED)
    assert isinstance(left, means)
