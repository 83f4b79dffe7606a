"""How many steps a job is guessed to take: as many as the last of its kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colane.cli.jobs import objects as jobs
from colane.client.told import facts_of
from colane.server.store.sqlite import SqliteStore
from tests.server.harness import World, finished, launched, node, report, world

PROGRESS = {"at_s": 2.0, "steps": 120, "first_step_s": 1.0, "last_step_s": 2.0}
TRAIN = {"command": ["python", "train.py", "--lr", "0.1"]}


async def ran(w: World, progress: dict[str, Any] | None = None, end: dict[str, Any] | None = None, **job: Any) -> None:
    """Run a job to its end."""
    number = await w.submit(**{**TRAIN, **job})
    told = finished(number, progress={**PROGRESS, **(progress or {})}, **(end or {}))
    assert (await w.good("POST", "/finished_job", told))["believed"] is True


async def guess(w: World, **job: Any) -> int | None:
    """What the next one is taken to need, in both places where it is shown."""
    number = await w.submit(**{**TRAIN, **job})
    shown = (await w.good("GET", f"/job/{number}"))["steps_total_learned"]
    listed = {live["id"]: live["steps_total_learned"] for live in await w.good("GET", "/live_jobs")}
    assert listed[number] == shown
    await w.good("DELETE", f"/job/{number}")
    return None if shown is None else int(shown)


async def test_the_next_of_its_kind_is_taken_to_need_as_many_also_after_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "colane.db")
    async with world(store) as w:
        await w.good("POST", "/node", node(gpus=8))
        assert await guess(w) is None
        await ran(w)
        assert await guess(w, command=["python", "train.py", "--lr", "0.2"]) == 120
        await ran(w, {"steps": 90})
        await w.good("DELETE", "/finished_jobs")
    store.close()
    store = SqliteStore(tmp_path / "colane.db")
    async with world(store) as w:
        assert await guess(w) == 90
        assert await guess(w, command=["python", "train.py", "--epochs", "2"]) is None
        assert await guess(w, batch_size=32) is None
    store.close()


@pytest.mark.parametrize(
    ("progress", "end", "job"),
    [
        ({}, {"exit_code": 1}, {}),
        ({"steps": 0}, {}, {}),
        ({}, {}, {"kind": "inference"}),
    ],
    ids=["failed", "opaque", "inference"],
)
async def test_what_tells_nothing_of_the_next(
    progress: dict[str, Any], end: dict[str, Any], job: dict[str, Any]
) -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=8))
        await ran(w, progress, end, **job)
        assert await guess(w) is None


async def test_a_second_attempt_and_one_that_was_stopped_tell_nothing() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=8))
        await ran(w, {}, {"exit_code": 1}, retries=1)
        assert (await w.good("POST", "/finished_job", finished(1, 2, progress=PROGRESS)))["believed"] is True
        assert await w.state(1) == "succeeded"
        number = await w.submit(**TRAIN, steps_limit=100)
        await w.good("POST", "/node/n1/report", report(launched(number, progress=PROGRESS)))
        await w.good("POST", "/finished_job", finished(number, exit_code=None, signal=15, outcome="signalled"))
        assert await w.state(number) == "succeeded"
        assert await guess(w) is None


async def test_what_a_job_says_itself_counts() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=8))
        await ran(w)
        job = await w.good("GET", f"/job/{await w.submit(**TRAIN, steps_total=7)}")
        assert (job["steps_total"], job["steps_total_learned"]) == (7, None)


@pytest.mark.parametrize(
    ("before", "after", "guessed"),
    [
        ("--steps 1500", "--steps 100000", False),
        ("--steps=1500", "--steps=1501", False),
        ("trainer.max_steps=1_500", "trainer.max_steps=2_000", False),
        ("1500", "100", False),
        ("--tokens 10M", "--tokens 20M", False),
        ("--steps 1e5", "--steps 1e6", False),
        ("--steps 1500 --seed 1", "--steps 1500 --seed 2", True),
        ("--steps 1500 seed=1", "--steps 1500 seed=2", True),
        ("--steps 1500 --lr 3e-4", "--steps 1500 --lr 0.1", True),
        ("--steps 1500 --run exp1 --out runs/1", "--steps 1500 --run exp2 --out runs/2", True),
    ],
)
async def test_no_length_is_guessed_from_a_run_with_other_counts(before: str, after: str, *, guessed: bool) -> None:
    """Of the kinds that differ in counts alone the last that ran is kept, and no more."""
    commands = [["python", "train.py", *words.split()] for words in (before, after)]
    first, second = [dict[str, Any](command=words, family="one") for words in commands]
    async with world() as w:
        await w.good("POST", "/node", node(gpus=8))
        await ran(w, **first)
        assert await guess(w, **first) == 120
        assert await guess(w, **second) == (120 if guessed else None)
        await ran(w, {"steps": 90}, **second)
        assert await guess(w, **second) == 90
        assert await guess(w, **first) == (90 if guessed else None)
        assert len(w.service.read_model.lengths) == 1


def told(steps: int, **facts: Any) -> Any:
    job: Any = {"steps": steps}
    return {"facts": {**facts_of(job), **facts}}


def test_a_guess_is_marked() -> None:
    guessed = told(80, steps_total=120, is_length_guessed=True, left_s=20.0, left_by="learned")
    assert (jobs.progress_text(guessed), jobs.left_text(guessed)) == ("80/~120", "~20 s")
    beyond = told(120)
    assert (jobs.progress_text(beyond), jobs.left_text(beyond)) == ("120", "")
    known = told(80, steps_total=100, left_s=10.0, left_by="steps")
    assert (jobs.progress_text(known), jobs.left_text(known)) == ("80/100", "10 s")
    assert jobs.left_text(told(0, left_s=25.0, left_by="steps", is_speed_believed=True)) == "~25 s"
    assert jobs.left_text(told(0, left_s=25.0, left_by="family")) == "~25 s"
    assert jobs.left_text(told(0, left_s=25.0, left_by="limit")) == "25 s"
