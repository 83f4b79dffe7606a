"""Cancelling many jobs takes few requests."""

from __future__ import annotations

from typing import Any, Self

import pytest

from colane.cli.jobs import objects as jobs
from colane.integrations.slurm import contact, scancel
from tests.cli.conftest import Colane


class Scheduler:
    """Knows three jobs that wait and one that runs; counts what it is asked."""

    def __init__(self) -> None:
        self.states = {1: "running", 2: "queued", 3: "queued", 4: "queued"}
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cancel_queued(self, *, user: str | None = None) -> list[int]:
        self.asked.append("cancel queued" if user is None else f"cancel queued of {user}")
        ids = [job for job, state in self.states.items() if state == "queued"]
        self.states |= dict.fromkeys(ids, "cancelled")
        return ids

    def live_jobs(self) -> list[dict[str, Any]]:
        self.asked.append("live jobs")
        ended = {"cancelled", "stopping"}
        known = {job: state for job, state in self.states.items() if state not in ended}
        return [{"id": job, "user": "ann", "labels": {}, "state": state} for job, state in known.items()]

    def cancel(self, job_id: int) -> None:
        self.asked.append(f"cancel {job_id}")
        self.states[job_id] = "stopping"

    def job(self, job_id: int) -> dict[str, Any]:
        return {"state": self.states[job_id]}


@pytest.mark.parametrize(
    ("words", "first"), [(["--all"], "cancel queued"), (["--user", "ann"], "cancel queued of ann")], ids=["all", "user"]
)
def test_all_that_wait_go_in_one_request(
    colane: Colane, monkeypatch: pytest.MonkeyPatch, words: list[str], first: str
) -> None:
    scheduler = Scheduler()
    monkeypatch.setattr(jobs, "client", lambda: scheduler)
    said = colane("cancel", *words, "--json")
    assert {job["id"]: job["state"] for job in said.json} == {
        1: "stopping",
        2: "cancelled",
        3: "cancelled",
        4: "cancelled",
    }
    assert scheduler.asked == [first, "live jobs", "cancel 1"]


class Waiting(Scheduler):
    """Says of its jobs what Slurm's verbs ask."""

    def listing(self, limit: int, *, elements: bool) -> dict[str, Any]:
        del limit, elements
        self.asked.append("listing")
        return {"jobs": []}


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("-u ann -t PENDING", ["cancel queued of ann", "listing"]),
        ("-u ann --state=pd", ["cancel queued of ann", "listing"]),
        ("-u ann", ["listing"]),
        ("-u ann,bob -t PENDING", ["listing"]),
        ("-u ann -t PENDING,RUNNING", ["listing"]),
        ("-u ann -t PENDING -n train", ["listing"]),
        ("-u ann -t PENDING -s USR1", ["listing"]),
    ],
)
def test_scancel_of_all_that_waits_of_a_user_is_one_request(
    monkeypatch: pytest.MonkeyPatch, words: str, first: list[str]
) -> None:
    scheduler = Waiting()
    monkeypatch.setattr(contact, "client", lambda: scheduler)
    assert scancel.run(words.split(), "") == 0
    assert scheduler.asked == first


@pytest.mark.parametrize(
    ("words", "asked", "left"),
    [
        (["--all", "--state", "pending"], ["cancel queued"], {1}),
        (["-u", "ann", "--state", "queued"], ["cancel queued of ann"], {1}),
        (["--all", "--state", "running"], ["live jobs", "cancel 1"], {2, 3, 4}),
        (["-u", "ann", "--state", "running"], ["live jobs", "cancel 1"], {2, 3, 4}),
    ],
)
def test_those_of_one_state_alone(
    colane: Colane, monkeypatch: pytest.MonkeyPatch, words: list[str], asked: list[str], left: set[int]
) -> None:
    scheduler = Scheduler()
    monkeypatch.setattr(jobs, "client", lambda: scheduler)
    assert colane("cancel", *words).code == 0
    assert scheduler.asked == asked
    assert {job for job, state in scheduler.states.items() if state in {"queued", "running"}} == left


@pytest.mark.parametrize(
    ("words", "says"),
    [(["7", "--state", "queued"], "goes with --all"), (["--all", "--state", "done"], "must be queued or running")],
)
def test_a_state_that_cannot_be_meant_is_refused(colane: Colane, words: list[str], says: str) -> None:
    said = colane("cancel", *words)
    assert (said.code, says in said.err) == (2, True)
