"""A policy of a user's own, live: as the documents show it, and one that fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Gate, Up, run_colane, until
from tests.policyfiles.files import BAD, EXAMPLE, written

pytestmark = pytest.mark.live

MakeUp = Callable[..., Up]


def submit(up: Up, command: list[str]) -> int:
    with up.client as client:
        return client.submit({"command": command, "env": {"PATH": os.environ["PATH"]}})


def test_the_policy_of_the_documents_runs_jobs(make_up: MakeUp) -> None:
    up = make_up("--devices", "cpu:1", "--policy", f"{EXAMPLE}:FewestRunning", "--policy-budget", "30s")
    up.wait_for(submit(up, ["true"]), "succeeded")
    with up.client as client:
        assert client.health()["policy"] == "fewest-running"


def test_a_policy_that_loops_for_ever_stops_no_job(make_up: MakeUp, gate: Gate, tmp_path: Path) -> None:
    own = written(tmp_path, BAD["loops"][0])
    up = make_up("--devices", "cpu:1", "--policy", own, "--policy-budget", "300ms")
    running = submit(up, gate.job)
    up.wait_for(running, "launching")
    waiting = submit(up, ["true"])
    with up.client as client:
        until(lambda: client.health()["status"] == "degraded", "a service that says it is degraded")
    why = run_colane(["why", str(waiting)], COLANE_STATE=str(up.state))
    assert "no job starts until policy mine plans again" in why.out
    gate.open()
    up.wait_for(running, "succeeded")
    up.wait_for(waiting, "succeeded")


IN_COPIES = """
        if os.getpid() != HOME:
            raise RuntimeError("only where it is asked what would be")
        return draft.plan()
import os
HOME = os.getpid()
"""


def test_one_that_raises_where_it_is_asked_what_would_be_is_told_and_jobs_go_on(
    make_up: MakeUp, gate: Gate, tmp_path: Path
) -> None:
    up = make_up("--devices", "cpu:1", "--policy", written(tmp_path, IN_COPIES))
    running = submit(up, gate.job)
    up.wait_for(running, "launching")
    waiting = submit(up, ["true"])
    for words in (["submit", "--plan", "--", "true"], ["why", str(waiting)], ["ps", "--start"]):
        said = run_colane(words, COLANE_STATE=str(up.state))
        assert said.code == 0, said
        assert "not known" in said.out, said
        assert ("RuntimeError: only where it is asked" in said.out) is (words[0] == "submit"), said
    with up.client as client:
        assert client.health()["status"] == "ok"
    gate.open()
    up.wait_for(running, "succeeded")
    up.wait_for(waiting, "succeeded")


def test_a_file_that_is_not_there_is_refused_at_once() -> None:
    said = run_colane(["server", "--policy", "/nowhere/mine.py:Mine", "--port", "0"])
    assert (said.code, said.err) == (2, "colane: --policy: there is no file /nowhere/mine.py\n")
