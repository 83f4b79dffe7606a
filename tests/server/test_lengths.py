"""How screens mark what is learnt of others of the family."""

from __future__ import annotations

from typing import Any

from colane.cli.jobs import objects as jobs
from colane.client.told import facts_of


def told(steps: int, **facts: Any) -> Any:
    job: Any = {"steps": steps}
    return {"facts": {**facts_of(job), **facts}}


def test_a_guess_is_marked() -> None:
    guessed = told(80, left_s=20.0, left_by="family")
    assert (jobs.progress_text(guessed), jobs.left_text(guessed)) == ("80", "~20 s")
    beyond = told(120)
    assert (jobs.progress_text(beyond), jobs.left_text(beyond)) == ("120", "")
    known = told(80, steps_total=100, left_s=10.0, left_by="steps")
    assert (jobs.progress_text(known), jobs.left_text(known)) == ("80/100", "10 s")
    assert jobs.left_text(told(0, left_s=25.0, left_by="steps", is_speed_believed=True)) == "~25 s"
    assert jobs.left_text(told(0, left_s=25.0, left_by="family")) == "~25 s"
    assert jobs.left_text(told(0, left_s=25.0, left_by="limit")) == "25 s"
