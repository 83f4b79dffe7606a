"""What the scheduler says is read alike where it says more than is known here."""

from __future__ import annotations

from typing import Any

from colane.agent.link.messages import read_desired
from colane.agent.reconcile import SaveWish
from colane.model.profile import Memory

JOB: dict[str, Any] = {
    "id": 7,
    "attempt": 2,
    "run": True,
    "slots": [{"gpu": 0, "lane": 1}],
    "cores": [0, 1],
    "kind": "training",
    "steps_total": 100,
    "gang": {
        "address": "10.0.0.1",
        "port": 5000,
        "world_size": 4,
        "rank_first": 2,
        "nodes": ["a", "b"],
        "node_rank": 1,
    },
    "save": {"signal": "SIGUSR1", "number": 3, "ranks": 2},
    "memory": [5, 6],
}
NODE: dict[str, Any] = {
    "generation": 9,
    "jobs": [JOB],
    "turns": {"rule": "fair", "quantum_s": 0.5},
    "bandwidth": {"interval_s": 10.0},
}


def newer(value: Any) -> Any:
    """Add a field to each object within."""
    if isinstance(value, dict):
        return {**{key: newer(each) for key, each in value.items()}, "said_by_newer_ones": [{"x": 1}]}
    return [newer(each) for each in value] if isinstance(value, list) else value


def test_a_newer_scheduler_is_understood() -> None:
    plain = read_desired(NODE)
    assert plain.jobs[0].save == SaveWish("SIGUSR1", 3, 2)
    assert plain.jobs[0].memory == Memory(5, 6)
    assert read_desired(newer(NODE)) == plain


def test_rows_that_have_grown_are_read_as_far_as_they_are_known() -> None:
    grown = {**NODE, "jobs": [{**JOB, "memory": [5, 6, 7]}]}
    assert read_desired(grown) == read_desired(NODE)


def test_an_older_scheduler_is_understood() -> None:
    save = {"signal": "SIGUSR1", "number": 3}
    bare = {"generation": 9, "jobs": [{"id": 7, "attempt": 2, "run": True, "slots": [{"gpu": 0}], "save": save}]}
    assert read_desired(bare).jobs[0].save == SaveWish("SIGUSR1", 3)
