"""Cancelling many jobs takes few requests."""

from __future__ import annotations

from typing import Any, Self

import pytest

from colane.cli.jobs import objects as jobs
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

    def cancel_queued(self) -> list[int]:
        self.asked.append("cancel queued")
        ids = [job for job, state in self.states.items() if state == "queued"]
        self.states |= dict.fromkeys(ids, "cancelled")
        return ids

    def live_jobs(self) -> list[dict[str, Any]]:
        self.asked.append("live jobs")
        ended = {"cancelled", "stopping"}
        return [{"id": job, "user": "ann", "labels": {}} for job, state in self.states.items() if state not in ended]

    def cancel(self, job_id: int) -> None:
        self.asked.append(f"cancel {job_id}")
        self.states[job_id] = "stopping"

    def job(self, job_id: int) -> dict[str, Any]:
        return {"state": self.states[job_id]}


def test_all_that_wait_go_in_one_request(colane: Colane, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler()
    monkeypatch.setattr(jobs, "client", lambda: scheduler)
    said = colane("cancel", "--all", "--json")
    assert {job["id"]: job["state"] for job in said.json} == {
        1: "stopping",
        2: "cancelled",
        3: "cancelled",
        4: "cancelled",
    }
    assert scheduler.asked == ["cancel queued", "live jobs", "cancel 1"]
