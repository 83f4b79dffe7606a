"""The law of facts: of one moment, every screen and every answer tells the same figure of a job."""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from colane.cli import output
from colane.cli.jobs import objects, ps, show, why
from colane.cli.top.drawing import TopPicture, TopView
from colane.cli.top.snapshot import ClusterShot
from colane.foresee.rollout import FAR_S, middles_s
from colane.integrations.assistant import _short
from colane.integrations.slurm.rows import duration, rows_of
from colane.integrations.slurm.squeue import LETTERS
from colane.model.job import Job, JobId
from colane.scheduling.foresight import is_foreseen, scene_of
from colane.verbs.of_jobs import Deed
from tests.cli.shots import AT_S, empty_overview
from tests.server.harness import GB, SteadyClock, World, finished, launched, node, report, world
from tests.server.test_lost_nodes import NODE_TIMEOUT_S, silent_world
from tests.server.test_suspend import GPU

STEPS = {"at_s": 20.0, "first_step_s": 1.0, "last_step_s": 19.9, "steps": 150, "steps_total": 600, "step_mean_s": 0.1}
SMALL = {"gpu_memory": "300MB", "command": ["python", "train.py"]}
Figures = dict[str, float | None]
RUNNING: Figures = {"left_s": 45.0, "now_steps_per_s": 10.0, "in_turn_steps_per_s": 10.0}
NOTHING: Figures = {"left_s": None, "now_steps_per_s": None, "in_turn_steps_per_s": None}


async def tell(w: World, job: int = 1, **fields: Any) -> None:
    await w.good("POST", "/node/n1/report", report(launched(job, progress={**STEPS, **fields})))


async def in_turns(w: World) -> int:
    await w.good("POST", "/node", node())
    for _ in range(2):
        await w.submit(**SMALL)
    samples = [{**STEPS, "turn": "running", "turn_share_ratio": 0.5}, {**STEPS, "turn": "waiting"}]
    told = [launched(number, progress=one) for number, one in enumerate(samples, 1)]
    await w.good("POST", "/node/n1/report", report(*told))
    return 1


async def parked(w: World) -> int:
    await w.good("POST", "/node", {**node(host_memory_bytes=500 * GB), "gpus": [GPU]})
    await w.submit()
    await tell(w)
    await w.good("POST", "/job/1/suspend", {"to_host": True})
    await tell(w, on_host_bytes=30 * GB)
    return 1


async def launching(w: World) -> int:
    await w.good("POST", "/node", node())
    await w.good("PUT", "/profiles", {"key": {"family": "known", "gpu_type": "cpu"}, "step_s": 0.5})
    await w.submit(family="known", steps_total=100)
    await w.good("POST", "/node/n1/report", report(launched(1)))
    return 1


async def no_sample_yet(w: World) -> int:
    await launching(w)
    await tell(w, steps=1, step_mean_s=None, steps_total=None)
    return 1


async def learned_length(w: World) -> int:
    await w.good("POST", "/node", node())
    await w.submit(**SMALL)
    last = {"at_s": 2.0, "steps": 600, "first_step_s": 1.0, "last_step_s": 2.0}
    assert (await w.good("POST", "/finished_job", finished(1, progress=last)))["believed"]
    job = await w.submit(**SMALL)
    await tell(w, job, steps_total=None)
    return job


async def array(w: World) -> int:
    await w.good("POST", "/node", node(gpus=2))
    await w.submit(array="0-9%1")
    return 1


async def element(w: World) -> int:
    await array(w)
    await tell(w, 2)
    return 2


async def gang(w: World) -> int:
    await w.good("POST", "/node", node(gpus=2))
    await w.submit(gpus=2)
    await tell(w)
    return 1


async def server(w: World) -> int:
    await w.good("POST", "/node", node())
    await w.submit(kind="inference", latency=0.5, steps_total=600)
    await tell(w, answers=40, latency_p99_s=0.1)
    return 1


async def near_its_limit(w: World) -> int:
    await w.good("POST", "/node", node())
    await w.submit(time_limit="10s")
    await tell(w, step_mean_s=1.0)
    return 1


async def on_a_lost_node(w: World) -> int:
    await w.good("POST", "/node", node(replaced=True))  # or a pool of which no node is heard keeps its jobs
    await w.submit()
    await tell(w)
    return 1


Kind = tuple[Callable[[World], Awaitable[int]], Figures, str]
KINDS: dict[str, Kind] = {
    "in turns": (in_turns, {"left_s": 90.0, "now_steps_per_s": 5.0, "in_turn_steps_per_s": 10.0}, "running"),
    "parked": (parked, NOTHING, "suspended"),
    "no sample yet": (no_sample_yet, {"left_s": 49.5, "now_steps_per_s": 2.0, "in_turn_steps_per_s": 2.0}, "running"),
    "launching": (launching, {**NOTHING, "left_s": 50.0}, "running"),
    "learned length": (learned_length, {"now_steps_per_s": 10.0, "in_turn_steps_per_s": 10.0}, "running"),
    "array": (array, NOTHING, "running"),
    "element": (element, RUNNING, "running"),
    "gang": (gang, RUNNING, "running"),
    "server": (server, {**RUNNING, "left_s": None}, "running"),
    "near its limit": (near_its_limit, {"now_steps_per_s": 1.0, "in_turn_steps_per_s": 1.0}, "running"),
    "on a lost node": (on_a_lost_node, NOTHING, "queued"),
}


@asynccontextmanager
async def scene(kind: str, **config: Any) -> AsyncIterator[tuple[World, int]]:
    """A service in which a job is as its kind says."""
    make = KINDS[kind][0]
    if kind != "on a lost node":
        async with world(policy="fair", **config) as w:
            yield w, await make(w)
        return
    clock = SteadyClock()
    async with silent_world(clock, **config) as w:
        job = await make(w)
        clock.go_on(NODE_TIMEOUT_S + 1)
        await w.line(lambda line: line.kind == "node-lost")
        yield w, job


def plain(word: str) -> str:
    """Without whether it is protected, which ends by the clock."""
    return word.removesuffix("-protected")


def metric(text: str, name: str, job: str) -> float | None:
    found = re.search(rf'^colane_job_{name}{{job="{re.escape(job)}",.*}} (\S+)$', text, re.MULTILINE)
    return None if found is None else float(found[1])


def counts_from_the_same_end(w: World, job: Job, left_s: float | None) -> None:
    """Starts of others are counted from when a job that runs ends, as it is told, less what it has made since."""
    core, now_s = w.service.driver.core, w.service.driver.now()
    if is_foreseen(job) and job.array is None and job.placement is not None:
        found = middles_s(scene_of(core.state, core.policy, job.spec.pool, now_s, core.pacing))
        wanted_s = FAR_S if left_s is None else left_s
        assert wanted_s - 2 < min(found[job.id][1], FAR_S) < wanted_s + 0.5


@pytest.mark.parametrize("kind", KINDS)
async def test_every_screen_tells_the_same_figure(kind: str) -> None:
    _, wanted, word = KINDS[kind]
    async with scene(kind) as (w, number):
        shown = await w.good("GET", f"/job/{number}")
        facts = shown["facts"]
        assert {name: facts[name] for name in wanted} == pytest.approx(wanted)
        assert plain(facts["word"]) == word
        left_s, per_s = facts["left_s"], facts["now_steps_per_s"]
        assert kind != "near its limit" or (facts["left_by"], left_s < 10) == ("limit", True)
        assert kind != "learned length" or (facts["left_by"], facts["is_length_guessed"]) == ("family", True)

        # Other answers.
        live = {job["id"]: job for job in await w.good("GET", "/live_jobs")}[number]
        listed = {job["id"]: job for job in (await w.good("GET", "/listing?limit=99&elements=true"))["jobs"]}[number]
        by_clock = (
            "word",
            "ran_s",
            "spent_s",
            "limit_left_s",
            "time_spent",
            *(["left_s", "left_p10_s", "left_p50_s", "left_p90_s"] * (facts["left_by"] == "limit")),
            *(["done_ratio"] * facts["is_length_guessed"]),
        )
        for other in (live, listed):
            assert {**other["facts"], **{name: facts[name] for name in by_clock}} == facts
        (row,) = (await w.good("GET", f"/page_rows?job={number}"))["rows"]
        assert (row["may"], row["gpus"]) == (shown["may"], facts["gpus"])
        assert {plain(other["word"]) for other in (row, live["facts"], listed["facts"])} == {word}
        if row["run"] is not None:
            assert row["run"]["left_s"] == pytest.approx(left_s, abs=0.5)
            for ours, theirs in (("now_steps_per_s", "now_steps_per_s"), ("steps_per_s", "in_turn_steps_per_s"),
                                 ("turn_share_ratio", "share_got_ratio")):  # fmt: skip
                assert row["run"][ours] == facts[theirs], ours
            assert row["run"]["done_ratio"] == pytest.approx(facts["done_ratio"], abs=0.01)
        text, said = (await w.http.get("/metrics")).text, w.service.read_model.jobs[JobId(number)].said
        assert metric(text, "steps_per_second", said) == per_s
        assert metric(text, "left_seconds", said) == pytest.approx(left_s, abs=0.5)
        assert _short(shown)["left_s"] == left_s

        # Screens, drawn from the answers.
        cells = dict(zip([column.heading for column in ps.COLUMNS], ps._row(shown, "a", None), strict=False))
        assert cells["STATE"] == facts["word"]
        assert cells["STEPS/S"] == ("" if per_s is None else output.number(per_s))
        assert cells["ETA"].removeprefix("~") == ("" if left_s is None else output.duration(left_s))
        assert cells["ETA"].startswith("~") is (kind in {"launching", "no sample yet", "learned length"})
        reason = await w.good("GET", f"/job/{number}/why")
        fields = dict(show._fields(shown, reason))
        if "steps/s" in fields:
            assert fields["steps/s"].startswith("0, no step" if per_s == 0 else output.number(per_s))
            assert fields.get("time left", "").partition(" (")[0] == cells["ETA"]
        said = why._describe(number, shown, "a")
        assert ("left" in said) is (left_s is not None)
        assert left_s is None or f"about {output.duration(left_s)} left" in said
        drawn = TopPicture(ClusterShot(AT_S, empty_overview(), [], [shown], 0, {}), TopView(width=160))
        if shown["node"] is not None:
            numbers = drawn._numbers(shown)
            assert numbers[2] == output.number(per_s)
            assert (numbers[4] == "?") is (left_s is None)
        for line in rows_of([shown]):
            most_s = facts["limit_left_s"]
            assert LETTERS["L"][1](line) == ("UNLIMITED" if most_s is None else duration(most_s))
            assert line.elapsed_s == pytest.approx(facts["ran_s"] if line.state != "PENDING" else 0.0)

        counts_from_the_same_end(w, w.service.read_model.jobs[JobId(number)], facts["left_p50_s"])


@pytest.mark.parametrize("kind", KINDS)
async def test_what_may_be_done_is_taken_and_what_may_not_is_refused_or_changes_nothing(kind: str) -> None:
    for deed in Deed:
        async with scene(kind) as (w, number):
            before = await w.good("GET", f"/job/{number}")
            if deed is Deed.AGAIN:
                assert deed.value not in before["may"]  # it has not ended
                continue
            path, method = (f"/job/{number}", "DELETE") if deed is Deed.CANCEL else (f"/job/{number}/{deed}", "POST")
            answer = await w.http.request(method, path, json={} if method == "POST" else None)
            if deed.value in before["may"]:
                assert answer.status_code == 200, (deed, answer.text)
            elif answer.status_code == 200:
                after = await w.good("GET", f"/job/{number}")
                assert (plain(after["facts"]["word"]), after["attempt"]) == (
                    plain(before["facts"]["word"]),
                    before["attempt"],
                ), deed


async def test_a_screen_that_has_looked_before_tells_of_new_co_runners_at_once() -> None:
    async with world(policy="fair") as w:
        await w.good("POST", "/node", node())
        for _ in range(2):
            await w.submit(**SMALL)
            row, shown = await w.good("GET", "/page_rows?job=1"), await w.good("GET", "/job/1")
            (run,) = [one["run"] for one in row["rows"]]
            assert run["speed_ratio"] == shown["facts"]["speed_ratio"]
            assert run["share_asked_ratio"] == shown["facts"]["share_asked_ratio"]
        assert run["share_asked_ratio"] == 0.5


RAW = {"step_mean_s", "turn_share_ratio", "steps_total_learned"}
"""What facts are worked out from; a screen that looks at them works something out anew."""
ROWS = {"turn_share_ratio"}
"""Rows of the page call a fact so."""
DRAWS = ("cli", "integrations", "server/views", "server/metrics", "server/planning")
MEASURED = ["server/metrics/own.py: step_mean_s"]
"""It is told by its own name, as it was measured."""


def test_no_screen_works_a_figure_out_anew() -> None:
    root = Path(objects.__file__).parents[2]
    found = []
    for folder in DRAWS:
        for path in (root / folder).rglob("*.py"):
            names = {one.attr for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Attribute)}
            found += [f"{path.relative_to(root)}: {name}" for name in sorted(names & RAW)]
    scripts = (root / "server/web/static").glob("*.js")
    found += [f"{path.name}: {name}" for path in scripts for name in RAW - ROWS if name in path.read_text()]
    assert found == MEASURED
