"""Starts and ends as intervals: said of each job that waits or runs, by a copy, and not known before it is."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from colane.cli.jobs.objects import expected_text
from colane.foresee.foreseer import Foreseer
from colane.foresee.judged import Foretold
from colane.foresee.said import METHODS, QuoteBounds, StartQuote
from colane.foresee.scene import PoolScene, PresentJob
from colane.integrations.assistant import _short
from colane.integrations.slurm.rows import rows_of
from colane.integrations.slurm.squeue import LETTERS, _json
from colane.model.choices import See
from colane.scheduling.foresight import Foresight
from colane.scheduling.presets import PRESETS
from colane.server.board.clock import Clocks
from colane.server.handlers.forecasts import Forecasts
from colane.server.service import Service
from colane.server.tending.foreseeing import pause_after
from tests.foresee.test_foreseer import quotes
from tests.server.harness import SteadyClock, World, finished, launched, node, report, world
from tests.server.test_forecast import STEPS, one_runs_and_one_waits
from tests.server.test_plan import everything, plan_of
from tests.server.test_users import guest

NOT_KNOWN = "not known: fewer than 10 such waits seen"


def taught(foreseer: Foreseer, now_s: float, bursts: int) -> None:
    """So many waits of two minutes, and jobs that took as long, were seen before, hours apart."""
    for number in range(bursts):
        job, at_s = 10_000 + number, now_s - (bursts - number) * 7200.0
        foreseer.submitted(job, "ann|one", 1, at_s)
        foreseer.submitted(-job, "ann|one", 1, at_s)
        runs = PresentJob(-job, "ann|one", 1, 0.0, 120.0, None, None, True, True, (0.0,))
        waits = PresentJob(job, "ann|one", 1, 0.0, 120.0, None, None, False, False, (0.0,))
        quotes(foreseer, PoolScene(at_s, 1, [runs, waits]), [job])
        foreseer.ended(-job, 120.0, at_s + 120)
        foreseer.started(job, at_s + 120)
        foreseer.ended(job, 120.0, at_s + 240)


def seen(service: Service, bursts: int) -> None:
    """The same, by a service."""
    taught(service.driver.foresight.of("default"), service.driver.now(), bursts)
    for _ in range(2 * bursts):
        service.driver.core.state.knowledge.note_length("one", 120.0)


async def waits(w: World, bursts: int) -> dict[str, Any]:
    """The facts of a job that waits for two minutes behind another of its family, once a look was taken."""
    await one_runs_and_one_waits(w, family="one")
    seen(w.service, bursts)
    await w.service.foreseeing.look()
    found: dict[str, Any] = (await w.good("GET", "/job/2"))["facts"]
    return found


async def test_a_start_is_said_as_an_interval_once_ten_bursts_were_seen() -> None:
    async with world(policy="fifo") as w:
        facts = await waits(w, 20)
        start, end = facts["expected_start"], facts["expected_end"]
        assert 60 < start["p10_s"] <= start["p50_s"] <= start["p90_s"] < 240
        assert start["sentence"].startswith("in ")
        assert end["p50_s"] > start["p50_s"]
        told = await w.good("GET", "/job/2/start")
        assert told["expected_start"]["p50_s"] == pytest.approx(start["p50_s"], abs=5)
        assert told["sentence"] == f"it would start {told['expected_start']['sentence']}"
        rows = (await w.good("GET", "/page_rows"))["rows"]
        assert {row["id"]: row["starts"][:10] for row in rows} == {1: "", 2: "starts in "}
        (listed,) = [job for job in await w.good("GET", "/jobs") if job["id"] == 2]
        assert listed["facts"]["expected_start"]["basis"] == "learnt"


@pytest.mark.parametrize("bursts", [20, 5])
async def test_every_place_tells_the_same_of_a_start(bursts: int) -> None:
    """Lists, the job's page, why, a plan of one more of the kind, and what is asked right after a submission."""
    async with world(policy="fifo") as w:
        facts = await waits(w, bursts)
        said = facts["expected_start"]
        third = await w.submit(family="one", time_limit="1h")
        told = (await w.good("GET", f"/job/{third}/start?changes=false"))["expected_start"]
        (planned,) = (await plan_of(w, {"family": "one", "time_limit": "1h"}))["jobs"]
        places = {
            "jobs": next(job for job in await w.good("GET", "/jobs") if job["id"] == 2)["facts"]["expected_start"],
            "listing": next(job for job in (await w.good("GET", "/listing?limit=9"))["jobs"] if job["id"] == 2)[
                "facts"
            ]["expected_start"],
            "start": (await w.good("GET", "/job/2/start"))["expected_start"],
        }
        for place, one in places.items():
            assert one["said_s"] == said["said_s"], place
            assert one["p90_s"] == (None if bursts < 10 else pytest.approx(said["p90_s"], abs=5)), place
        seen_again = (await w.good("GET", f"/job/{third}"))["facts"]["expected_start"]
        assert seen_again["said_s"] == told["said_s"]
        if bursts < 10:
            assert [one["sentence"] for one in (said, told, planned["expected_start"])] == [NOT_KNOWN] * 3
        else:
            assert said["p50_s"] <= told["p50_s"] <= planned["expected_start"]["p50_s"], "each is behind the other"
            assert planned["sentence"].endswith(f"; it would start {planned['expected_start']['sentence']}")
            assert planned["expected_end"]["p50_s"] > planned["expected_start"]["p50_s"]


@pytest.mark.parametrize("bursts", [20, 5])
async def test_every_edge_draws_the_same_interval_of_one_moment(bursts: int) -> None:
    """Answers of the API, the page's row, tables and lines of commands, Slurm's columns, and what assistants read."""
    now_s = time.time()
    async with world(policy="fifo", clocks=Clocks(wall=lambda: now_s, steady=SteadyClock())) as w:
        await waits(w, bursts)
        answer = await w.good("POST", "/job?start=true", {"command": ["sleep", "5"], "time_limit": "1h"})
        assert await w.good("GET", f"/job/{answer['id']}/start?changes=false") == answer["start"]
        said = answer["start"]["expected_start"]
        job = await w.good("GET", f"/job/{answer['id']}")
        (listed,) = [one for one in await w.good("GET", "/jobs") if one["id"] == job["id"]]
        (page,) = [row for row in (await w.good("GET", "/page_rows"))["rows"] if row["id"] == job["id"]]
        (row,) = rows_of([job])
        assert job["facts"]["expected_start"] == listed["facts"]["expected_start"] == said
        assert _short(job)["expected_start"] == said
        assert [expected_text(one, "start") for one in (job, listed)] == [said["sentence"]] * 2
        aged = f"; said 7.0 s ago, length {said['basis']}" if bursts >= 10 else ""
        assert expected_text(job, "start", now_s + 7) == said["sentence"] + aged
        assert page["starts"] == ("starts " if bursts >= 10 else "start ") + said["sentence"]
        assert LETTERS["expected"][1](row) == said["sentence"]
        assert {"basis": said["basis"], "said_s": said["said_s"]} == {"basis": "learnt", "said_s": now_s}
        columns = {"p10_s": "p10", "p50_s": "S", "p90_s": "p90"}
        told = _json(row)
        for bound, letter in columns.items():
            if bursts < 10:
                assert (said[bound], LETTERS[letter][1](row)) == (None, "N/A")
            else:
                at = datetime.fromisoformat(str(LETTERS[letter][1](row))).timestamp()
                assert at == pytest.approx(now_s + said[bound], abs=10)
                assert row.starts(bound) == pytest.approx(now_s + said[bound], abs=10)  # type: ignore[arg-type]
        assert told["expected_start"] == said
        running = await w.good("POST", "/job?start=true", {"command": ["sleep", "5"], "gpus": 0})
        assert running["start"]["starts_in_s"] in {0.0, None}
        assert "start" not in await w.good("POST", "/job", {"command": ["sleep", "5"]})


async def test_with_fewer_it_is_not_known_and_that_is_said() -> None:
    async with world(policy="fifo") as w:
        facts = await waits(w, 5)
        assert facts["expected_start"]["sentence"] == facts["expected_end"]["sentence"] == NOT_KNOWN
        assert [facts["expected_start"][name] for name in ("p10_s", "p50_s", "p90_s")] == [None] * 3
        assert (await w.good("GET", "/job/2/start"))["starts_in_s"] == pytest.approx(120, abs=5)


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("policy", [preset.name for preset in PRESETS])
async def test_a_look_changes_nothing_under_any_order(policy: str, is_told: bool) -> None:
    """Nor does the order of a policy meet what was worked out beside it of jobs that tell their length."""
    async with world(policy=policy) as w:
        if is_told:
            await w.good("PUT", "/profiles", {"key": {"family": "told", "gpu_type": "cpu"}, "step_s": 0.5})
        await one_runs_and_one_waits(w, **({"family": "told", "steps_total": 100} if is_told else {}))
        before = everything(w)
        assert await w.service.foreseeing.look() >= 0
        assert everything(w) == before
        assert set(w.service.driver.shown) == {1, 2}
        await w.submit(family="told", steps_total=10)  # the policy is asked again
        assert w.service.driver.policy_problem == ""
        assert not w.service.driver.faults.met


@pytest.mark.parametrize(
    ("cpu_s", "took_s", "pause_s"), [(0.001, 0.01, 5.0), (0.3, 0.5, 15.0), (2.5, 3.0, 24.0), (20.0, 14.0, 5.0)]
)
def test_looks_take_little_of_a_core_and_what_they_tell_is_seldom_older_than_30_s(
    cpu_s: float, took_s: float, pause_s: float
) -> None:
    assert pause_after(cpu_s, took_s) == pytest.approx(pause_s)
    assert pause_s == 5.0 or pause_s + 2 * took_s <= 30.0


async def test_an_empty_cluster_is_not_looked_at() -> None:
    async with world() as w:
        assert not w.service.foreseeing._has_changed()
        await w.submit()
        assert w.service.foreseeing._has_changed()
        await w.service.foreseeing.look()
        assert not w.service.foreseeing._has_changed()


async def test_a_quote_is_kept_with_what_came_of_it() -> None:
    async with world(policy="fifo") as w:
        await waits(w, 0)
        (said,) = w.service.driver.foresight.foretold.values()
        assert (said.quote.job, isnan(said.start_s)) == (2, True)
        await w.good("POST", "/finished_job", finished(1))
        await w.good("POST", "/node/n1/report", report(launched(2)))
        (said,) = w.service.driver.foresight.foretold.values()
        assert said.start_s >= 0


async def test_an_array_stands_in_the_line_and_is_told_when_its_first_element_starts() -> None:
    async with world(policy="fifo") as w:
        await one_runs_and_one_waits(w, array="0-99")
        await w.submit(time_limit="1h")
        await w.service.foreseeing.look()
        shown = w.service.driver.shown
        assert shown[2].start is not None
        assert shown[2].end.p50_s > shown[2].start.p50_s


async def test_who_may_not_see_the_jobs_ahead_is_told_times_alone() -> None:
    async with world(policy="fifo", see=See.OWN) as w:
        await waits(w, 20)
        await w.submit(user="bob")
        await w.service.foreseeing.look()
        bob = await guest(w, "b", user="bob")
        status, told = await bob.ask("GET", "/job/3/start")
        assert (status, set(told["expected_start"])) == (
            200,
            {"p10_s", "p50_s", "p90_s", "at_once_ratio", "said_s", "basis", "sentence"},
        )
        assert (await bob.ask("GET", "/job/2/start"))[0] == 404


async def test_what_was_learnt_is_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "foreseen.json"
    async with world(policy="fifo", foreseen=path) as w:
        before = (await waits(w, 20))["expected_start"]
        w.service.foreseeing.keep()
    assert path.stat().st_size < 1_000_000
    async with world(policy="fifo", foreseen=path) as w:
        w.service.foreseeing.take_back()
        await one_runs_and_one_waits(w)
        await w.service.foreseeing.look()
        after = (await w.good("GET", "/job/2"))["facts"]["expected_start"]
    assert after["p50_s"] == pytest.approx(before["p50_s"], rel=0.5)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"policy": "fifo", "lengths": {"kinds": [1]}}'])
async def test_a_damaged_file_is_begun_anew(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "foreseen.json"
    path.write_text(text)
    async with world(policy="fifo", foreseen=path) as w:
        w.service.foreseeing.take_back()
        assert "cannot be read and is begun anew" in caplog.text
        await one_runs_and_one_waits(w)
        await w.service.foreseeing.look()
        assert set(w.service.driver.shown) == {1, 2}


async def test_of_another_policy_lengths_alone_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "foreseen.json"
    async with world(policy="fifo", foreseen=path) as w:
        await waits(w, 20)
        w.service.foreseeing.keep()
    async with world(policy="las", foreseen=path) as w:
        w.service.foreseeing.take_back()
        await one_runs_and_one_waits(w)
        await w.service.foreseeing.look()
        assert (await w.good("GET", "/job/2"))["facts"]["expected_start"]["sentence"] == NOT_KNOWN
        assert w.service.driver.foresight.of("default").lengths.mean_s(1) < 1000


def foretold(foresight: Foresight, now_s: float, took_s: float | None = None) -> None:
    """A hundred quotes of 100 s, hours apart: eight of ten come as said, or all take so long."""
    for number in range(100):
        bounds = QuoteBounds(50.0, 100.0, 200.0, 20)
        quote = StartQuote(number, now_s - 7200.0 * number, (bounds,) * 5, bounds, is_told=True)
        holds = number % 10 < 8
        foresight.foretold[number] = Foretold(quote, (100.0 if holds else 500.0) if took_s is None else took_s, 900.0)


async def test_scores_are_told_by_policy_and_horizon_and_kept_when_the_policy_changes(tmp_path: Path) -> None:
    path = tmp_path / "foreseen.json"
    async with world(policy="fifo", foreseen=path) as w:
        await waits(w, 0)
        foretold(w.service.driver.foresight, w.service.driver.now())
        before = (await w.good("GET", "/health"))["foreseen"]
        w.service.foreseeing.keep()
    assert [one["method"] for one in before] == [*METHODS, "end"]
    (shown,) = [one for one in before if one["method"] == "foreseen"]
    assert (shown["policy"], shown["holds"]) == ("fifo", 0.8)
    assert [one["quotes"] for one in shown["horizons"]] == [50, 0, 0, 0, 0], "by what was said: 100 s"
    async with world(policy="las", foreseen=path) as w:
        w.service.foreseeing.take_back()
        foretold(w.service.driver.foresight, w.service.driver.now(), 3600.0)
        after = (await w.good("GET", "/health"))["foreseen"]
    assert after[len(before) :] == before
    assert {one["policy"] for one in after[: len(before)]} == {"las"}


@pytest.mark.parametrize(("took_s", "is_said"), [(3600.0, True), (None, False)])
async def test_health_says_where_too_few_came_as_said(took_s: float | None, is_said: bool) -> None:
    async with world(policy="fifo") as w:
        foretold(w.service.driver.foresight, w.service.driver.now(), took_s)
        health = await w.good("GET", "/health")
        assert ("starts that were foreseen" in health.get("detail", "")) is is_said
        assert health["status"] == "ok"
        assert {one["method"]: one["quotes"] for one in health["foreseen"]}["foreseen"] == 50


class Told(NamedTuple):
    """Something that goes wrong, and what is told of a start then; nothing where it is known all the same."""

    happens: Callable[[World], Awaitable[object]]
    said: str


async def loses_its_errors(w: World) -> None:
    w.service.driver.foresight.of("default").mix.errors.clear()


async def is_drained(w: World) -> None:
    await w.good("POST", "/node/n1/drain", {})


async def shrinks(w: World) -> None:
    await w.good("POST", "/node/n1/report", report(launched(1, progress={**STEPS, "steps_total": 10})))


async def is_set_back(w: World) -> None:
    """What was seen is of the days to come, and so is the last look."""
    foreseer = w.service.driver.foresight.of("default")
    for scored in (*foreseer.scored, foreseer.ends, foreseer.lefts):
        kept = scored.kept()
        for one in kept["quotes"]:
            one[0] += 3 * 86_400.0
        scored.__init__()  # type: ignore[misc]
        scored.take_back(kept)


async def nothing(_w: World) -> None:
    """All is as it was."""


WRONG = {
    "an empty history": Told(nothing, "fewer than 10 such waits seen"),
    "a fault of its own": Told(loses_its_errors, "a fault in foreseeing (ValueError: "),
    "a queue that can never drain": Told(is_drained, "it asks for 1 GPU of 0 to be had"),
    "total steps that shrink": Told(shrinks, ""),
    "a clock set back": Told(is_set_back, ""),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_goes_wrong_in_foreseeing_fails_nothing_and_is_told(wrong: str) -> None:
    async with world(policy="fifo") as w:
        await one_runs_and_one_waits(w, family="one")
        seen(w.service, 0 if wrong == "an empty history" else 20)
        await WRONG[wrong].happens(w)
        assert await w.service.foreseeing.look() >= 0
        (planned,) = (await plan_of(w, {"time_limit": "1h"}))["jobs"]
        await w.submit(time_limit="1h")  # which is taken, and asked for before the next look
        (listed,) = [job for job in await w.good("GET", "/jobs") if job["id"] == 2]
        rows = {row["id"]: row["starts"] for row in (await w.good("GET", "/page_rows"))["rows"]}
        told = {
            "plan": planned["expected_start"],
            "job": (await w.good("GET", "/job/2"))["facts"]["expected_start"],
            "jobs": listed["facts"]["expected_start"],
            "start": (await w.good("GET", "/job/2/start"))["expected_start"],
            "start of a new one": (await w.good("GET", "/job/3/start"))["expected_start"],
            "page": {"sentence": rows[2].partition(" ")[2], "p50_s": None},
        }
        said = WRONG[wrong].said
        for place, one in told.items():
            assert one["sentence"].startswith(f"not known: {said}" if said else ("in ", "within ")), place
            assert place == "page" or (one["p50_s"] is None) is bool(said), place
            assert not said or place == "page" or (one["p10_s"], one["p90_s"]) == (None, None), place
        assert not w.service.driver.faults.met


@pytest.mark.parametrize("share", [False, True])
async def test_gpus_of_what_serves_alone_are_not_to_be_had(share: bool) -> None:
    """It does not end; beside one that shares its GPU another job may start."""
    async with world(policy="fifo") as w:
        await w.good("POST", "/node", node())
        await w.submit(kind="inference", share=share)
        await w.submit()
        await w.service.foreseeing.look()
        start = (await w.good("GET", "/job/2"))["facts"]["expected_start"]
        assert start["sentence"] == (NOT_KNOWN if share else "not known: it asks for 1 GPU of 0 to be had")


RAISES = """
import os
from colane.model.plan import Plan

HOME = os.getpid()

class Raises:
    name = "raises"

    def plan(self, view):
        if os.getpid() != HOME:
            raise RuntimeError("only where it is asked what would be")
        return Plan(view.version, (), {})
"""


async def test_a_policy_that_raises_in_a_copy_is_why_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RAISES)
    async with world(policy=f"{tmp_path / 'mine.py'}:Raises") as w:
        await w.good("POST", "/node", node())
        await w.submit()
        assert await w.service.foreseeing.look() >= 0
        planned = await plan_of(w, {})
        start = await w.good("GET", "/job/1/start")
        why = "RuntimeError: only where it is asked what would be"
        assert planned["starts_in_s"] is start["starts_in_s"] is None
        for sentence in (planned["jobs"][0]["sentence"], start["sentence"]):
            assert "when it starts is not known: " in sentence
        assert why in planned["jobs"][0]["sentence"]  # the other asks the policy nothing, as nothing is known to end
        assert not w.service.driver.policy_problem


@pytest.mark.parametrize("changes", ["another core", "not ready", "learnt anew"])
async def test_what_a_copy_of_a_past_leader_has_found_is_thrown_away(
    changes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is read anew while it works, as where another led meanwhile."""
    async with world(policy="fifo") as w:
        await one_runs_and_one_waits(w)
        driver, foreseeing = w.service.driver, w.service.foreseeing
        asked = foreseeing.forecasts.of_copy

        async def answered(question: Any) -> Any:
            found = await asked(question)
            if changes == "another core":
                driver.load()
            elif changes == "not ready":
                monkeypatch.setattr(driver, "_core", None)
            else:
                driver.foresight = Foresight(driver.decider)
            return found

        monkeypatch.setattr(Forecasts, "of_copy", lambda _self, question: answered(question))
        await foreseeing.look()
        assert driver.shown == {}
        assert not driver.foresight.foretold
        monkeypatch.undo()
        await foreseeing.look()
        assert set(driver.shown) == {1, 2}


async def test_what_fails_where_jobs_change_costs_what_was_learnt_and_no_job(caplog: pytest.LogCaptureFixture) -> None:
    async with world(policy="fifo") as w:
        await one_runs_and_one_waits(w)
        before = w.service.driver.foresight
        before.of("default").scored = None  # type: ignore[assignment]
        await w.good("POST", "/finished_job", finished(1))
        await w.good("POST", "/node/n1/report", report(launched(2)))
        assert await w.state(2) == "launching"
        assert w.service.driver.foresight is not before
        assert "fault" in caplog.text
        await w.service.foreseeing.look()
        assert set(w.service.driver.shown) == {2}


async def test_a_copy_that_fails_whole_is_why_a_start_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(policy="fifo") as w:
        await one_runs_and_one_waits(w)
        monkeypatch.setattr("os.fork", lambda: (_ for _ in ()).throw(OSError(12, "Cannot allocate memory")))
        start = await w.good("GET", "/job/2/start")
        assert start["starts_in_s"] is None
        assert start["sentence"].startswith("when it starts is not known: no plan could be made: this process cannot")
        assert start["expected_start"]["p50_s"] is None
