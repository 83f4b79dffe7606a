"""When `colane why` asks a job's processes where they are, without being told to."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from colane.cli.jobs.why import _where
from colane.client.client import Client
from colane.client.errors import SchedulerError

FOUND = {"id": 7, "sentences": ["its process is in load (data.py:12)"], "processes": [{"pid": 42}]}
STALL = {"no_step_s": 60.0, "step_s": 0.5}


def job(at_s: float | None = 10.0, last_step_s: float | None = None, **fields: Any) -> Any:
    sample = None if at_s is None else {"at_s": at_s, "last_step_s": last_step_s}
    return {"id": 7, "start_s": 5.0, "progress": sample, "stalled": None, **fields}


@pytest.mark.parametrize(
    ("asked", "is_asked"),
    [
        (job(stalled=STALL, last_step_s=9.0), True),
        (job(65.0), True),
        (job(64.0), False),
        (job(900.0, 899.0), False),
        (job(None), False),
        (job(900.0, start_s=None), False),
    ],
)
def test_of_a_job_that_makes_no_step_or_has_made_none_for_a_minute(asked: Any, is_asked: bool) -> None:
    scheduler = Mock(Client)
    scheduler.stacks.return_value = FOUND
    assert _where(scheduler, asked) == (FOUND if is_asked else None)
    assert scheduler.stacks.called == is_asked


@pytest.mark.parametrize("answer", [SchedulerError("no"), [{**FOUND, "processes": []}]])
def test_without_an_answer_nothing_is_said(answer: Any) -> None:
    scheduler = Mock(Client)
    scheduler.stacks.side_effect = answer
    assert _where(scheduler, job(stalled=STALL)) is None
