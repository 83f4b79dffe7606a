"""What the scheduler says is read alike where it says more than is known here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from colane.agent.files.jobdir import LAUNCH, JobDir, LaunchFacts, write_json
from colane.agent.launch.gang import ranks_problem
from colane.agent.link.messages import read_desired
from colane.agent.reconcile import SaveRequest
from colane.model.placement import TurnRule, Turns
from colane.model.profile import Memory
from tests.other_versions import newer

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
NODE: Any = {
    "generation": 9,
    "jobs": [JOB],
    "turns": {"rule": "fair", "quantum_s": 0.5},
    "bandwidth": {"interval_s": 10.0},
}


def test_a_newer_scheduler_is_understood() -> None:
    plain = read_desired(NODE)
    assert plain.jobs[0].save == SaveRequest("SIGUSR1", 3, 2)
    assert plain.jobs[0].memory == Memory(5, 6)
    assert read_desired(newer(NODE)) == plain


def test_rows_that_have_grown_are_read_as_far_as_they_are_known() -> None:
    grown: Any = {**NODE, "jobs": [{**JOB, "memory": [5, 6, 7]}]}
    assert read_desired(grown) == read_desired(NODE)


def test_an_older_scheduler_is_understood() -> None:
    save = {"signal": "SIGUSR1", "number": 3}
    bare: Any = {"generation": 9, "jobs": [{"id": 7, "attempt": 2, "run": True, "slots": [{"gpu": 0}], "save": save}]}
    assert read_desired(bare).jobs[0].save == SaveRequest("SIGUSR1", 3)


def test_words_that_are_not_known_stand_for_what_is_usual() -> None:
    words = {"turns": {"rule": "by-moon", "quantum_s": 0.5}, "jobs": [{**JOB, "kind": "by-moon"}]}
    read = read_desired(NODE | words)
    assert read.turns == Turns(rule=TurnRule.FAIR, quantum_s=0.5)
    assert read.jobs == read_desired(NODE).jobs


def test_ranks_that_are_started_in_a_way_that_is_not_known_are_not_started() -> None:
    assert "'per-socket'" in ranks_problem({"ranks": "per-socket"})
    launches: Any = ({}, {"ranks": "one"}, {"ranks": "per-gpu"}, {"ranks": None})
    assert [ranks_problem(launch) for launch in launches] == [""] * 4


def test_how_a_job_was_placed_is_read_where_a_newer_agent_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "7-2").mkdir()
    job, facts = JobDir(tmp_path / "7-2"), LaunchFacts(boot_id="b", prepared_s=1.0, gpus=(1, 3), cores=(4,), port=5)
    job.place(facts)
    write_json(job.path / LAUNCH, {**json.loads((job.path / LAUNCH).read_text()), "said_by_newer_ones": 1})
    assert job.facts() == facts
