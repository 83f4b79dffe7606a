"""Starts and ends as intervals: said of each job that waits or runs, by a copy, and not known before it is."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

import pytest

from colane.foresee.foreseer import METHODS, StartQuote
from colane.foresee.judged import Foretold
from colane.foresee.said import QuoteBounds
from colane.foresee.scene import PoolScene, PresentJob
from colane.model.choices import See
from colane.scheduling.foresight import Foresight
from colane.scheduling.presets import PRESETS
from colane.server.service import Service
from tests.server.harness import World, finished, launched, report, world
from tests.server.test_forecast import one_runs_and_one_waits
from tests.server.test_plan import everything, plan_of
from tests.server.test_users import guest

NOT_KNOWN = "not known: fewer than 10 such waits seen"


def seen(service: Service, bursts: int) -> None:
    """So many waits of two minutes, and jobs that took as long, were seen before, hours apart."""
    foreseer, now_s = service.driver.foresight.of("default"), service.driver.now()
    for number in range(bursts):
        job, at_s = 10_000 + number, now_s - (bursts - number) * 7200.0
        foreseer.submitted(job, "ann|one", 1, at_s)
        foreseer.submitted(-job, "ann|one", 1, at_s)
        runs = PresentJob(-job, "ann|one", 1, 0.0, 120.0, None, None, True, True, (0.0,))
        waits = PresentJob(job, "ann|one", 1, 0.0, 120.0, None, None, False, False, (0.0,))
        foreseer.quotes(PoolScene(at_s, 1, [runs, waits]), [job])
        foreseer.ended(-job, 120.0, at_s + 120)
        foreseer.started(job, at_s + 120)
        foreseer.ended(job, 120.0, at_s + 240)


async def waits(w: World, bursts: int) -> dict[str, Any]:
    """The facts of a job that waits for two minutes behind another, once a look was taken."""
    await one_runs_and_one_waits(w)
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
        third = await w.submit(time_limit="1h")
        told = (await w.good("GET", f"/job/{third}/start?changes=false"))["expected_start"]
        (planned,) = (await plan_of(w, {"time_limit": "1h"}))["jobs"]
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
