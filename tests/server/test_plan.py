"""What would become of jobs if they were submitted now, and their submission only while that holds."""

from __future__ import annotations

import asyncio
import errno
import grp
import os
import pwd
import signal
import threading
from functools import partial
from random import Random
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core.core import Core
from colane.core.events import Submitted
from colane.model.choices import See
from colane.model.limits import GroupQuota, Limits, Quotas
from colane.policyfiles.load import create
from colane.server.planning.copies import CopyError, ask
from colane.server.planning.outcomes import fates
from colane.server.views.jobs_and_nodes import place_view
from tests.core.worlds import World as Drawn
from tests.examples import FUZZ, examples
from tests.memory_store import MemoryStore
from tests.server.harness import GB, World, finished, launched, node, report, world
from tests.server.test_users import guest

TWO = {"command": ["sleep", "5"], "gpus": 2}

SHORT = {"steps_total": 3, "time_limit_s": 5.0, "family": "short"}


async def one_runs(w: World) -> None:
    """A long job of ann's that may be stopped, and has run for longer than the least that jobs run."""
    await w.good("POST", "/node", node())
    for family in ("long", "short"):
        await w.good("PUT", "/profiles", {"key": {"family": family, "gpu_type": "cpu"}, "step_s": 0.5})
    await w.submit(user="ann", family="long", preemptible=True, steps_total=10**6)
    progress = {"at_s": 1e4, "steps": 3, "first_step_s": 9100.0, "last_step_s": 1e4}
    await w.good("POST", "/node/n1/report", report(launched(1, start_s=9000.0, progress=progress), at_s=1e4))


async def plan_of(w: World, *jobs: dict[str, Any]) -> Any:
    return await w.good("POST", "/plan", [{"command": ["sleep", "5"], **job} for job in jobs])


def everything(w: World) -> tuple[object, ...]:
    """What the core holds, as what can be compared, what the store holds, and what was told of groups."""
    store, core = w.service.store, w.service.driver.core
    assert isinstance(store, MemoryStore)
    return store.version(), w.everything_stored(), held_by(core), dict(w.service.driver.keeper._told)


def held_by(core: Core) -> str:
    state = core.state
    parts: tuple[object, ...] = (
        state.version,
        state.jobs,
        state.gpus,
        state.progress,
        state.beliefs.profiles,
        state.draining,
    )
    queues = {pool: queue.count for pool, queue in state.queues.items()}
    nodes = {name: (sorted(one.jobs), sorted(one.cores_booked), one.generation) for name, one in state.nodes.items()}
    return repr((parts, queues, nodes))


class TestAPlanSays:
    async def test_where_it_would_start(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            plan = await plan_of(w, {"gpus": 2, "name": "train"})
            (job,) = plan["jobs"]
            assert (job["id"], job["name"], job["state"], job["starts_count"]) == (1, "train", "starts", 1)
            assert job["starts"][0]["gpus"] == ["n1/0", "n1/1"]
            assert job["sentence"] == "would start at once on n1/0, n1/1"
            assert plan["index"].startswith(f"{plan['state_version']}-")
            assert await w.good("GET", "/jobs") == []

    async def test_why_it_would_wait_and_with_how_many_gpus_it_would_not(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=8))
            await w.submit(gpus=3)
            (job,) = (await plan_of(w, {"gpus": 8}))["jobs"]
            (change,) = job["changes"]
            assert (job["state"], job["reason"]["why"]) == ("waits", "no-free-gpu")
            assert (change["option"], change["field"], change["value"]) == ("--gpus 5", "gpus", 5)
            assert change["starts"]["gpus"] == [f"n1/{number}" for number in range(3, 8)]
            assert job["sentence"].startswith("would wait: ")
            assert job["sentence"].endswith("; it would start at once with --gpus 5")

    async def test_with_which_type_and_how_much_memory_it_would_start(self) -> None:
        async with world() as w:
            gpus = [{"index": 0, "uuid": "a", "type": "A100", "memory_bytes": 40 * GB}]
            await w.good("POST", "/node", node() | {"gpus": gpus})
            small = [{"index": 0, "uuid": "v", "type": "V100", "memory_bytes": 16 * GB}]
            await w.good("POST", "/node", node("n2", agent_id="a2") | {"gpus": small})
            await w.submit(gpu_type="A100")
            (job,) = (await plan_of(w, {"gpu_type": "A100", "gpu_memory": "8GB"}))["jobs"]
            assert [change["option"] for change in job["changes"]] == ["any GPU type (no --gpu-type)"]
            (job,) = (await plan_of(w, {"gpu_memory": "30GB"}))["jobs"]
            assert [change["option"] for change in job["changes"]] == ["--gpu-memory 16GB"]
            assert job["changes"][0]["starts"]["gpus"] == ["n2/0"]

    async def test_with_how_many_cores_it_would_start(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit(gpus=0, cores=3)
            (job,) = (await plan_of(w, {"gpus": 0, "cores": 4}))["jobs"]
            assert [change["option"] for change in job["changes"]] == ["--cores 1"]

    async def test_which_co_runners_it_would_have_and_what_they_cost(self) -> None:
        async with world(policy="fair") as w:
            await w.good("POST", "/node", node())
            await w.submit(gpu_memory="300MB", user="ann")
            (job,) = (await plan_of(w, {"gpu_memory": "300MB"}))["jobs"]
            beside = {"job": 1, "user": "ann", "takes_turns": True, "ratio_now": 1.0, "ratio_then": 0.5}
            assert (job["starts"][0]["beside"], job["starts"][0]["ratio"]) == ([beside], 0.5)
            assert job["sentence"].startswith(
                "would start at once on n1/0, beside job 1 (100 % -> 50 %), at 50 % of its"
            )

    async def test_which_jobs_would_be_preempted(self) -> None:
        async with world(policy="srtf:quantum_s=0") as w:
            await one_runs(w)
            plan = await plan_of(w, SHORT)
            way = {"job": 1, "user": "ann", "action": "stop", "ratio_now": 1.0, "ratio_then": None}
            assert plan["makes_way"] == [way]
            assert plan["jobs"][0]["reason"]["why"] == "preempting"
            assert plan["jobs"][0]["changes"] == []

    async def test_when_it_becomes_eligible(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            first = await w.submit()
            plan = await plan_of(w, {"begin": "now+2h"}, {"after": f"ok:{first}"}, {"hold": True})
            begin, after, hold = plan["jobs"]
            assert {job["state"] for job in plan["jobs"]} == {"held"}
            assert begin["eligible_s"] == pytest.approx(plan["now_s"] + 7200, abs=1)
            assert (after["eligible_s"], after["reason"]["why"], after["reason"]["jobs"]) == (None, "after", [first])
            assert (hold["eligible_s"], hold["reason"]["why"]) == (None, "held")

    async def test_how_many_elements_of_an_array_would_start(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=3))
            await w.submit()
            (job,) = (await plan_of(w, {"array": "4-99%8"}))["jobs"]
            assert (job["state"], job["starts_count"]) == ("starts", 2)
            assert [(one["index"], one["gpus"]) for one in job["starts"]] == [(4, ["n1/1"]), (5, ["n1/2"])]
            assert job["sentence"] == "2 elements would start at once, [4] on n1/1"
            assert len(await w.good("GET", "/live_jobs")) == 1

    async def test_no_more_than_the_caller_may_see(self) -> None:
        async with world(policy="srtf:quantum_s=0", see=See.OWN) as w:
            await one_runs(w)
            bob = await guest(w, "b", user="bob")
            plan = (await bob.ask("POST", "/plan", [{"command": ["true"], **SHORT}]))[1]
            assert [(one["job"], one["user"]) for one in plan["makes_way"]] == [(None, None)]
            assert "ann" not in str(plan)


class TestNothingIsDone:
    async def test_by_a_plan(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=4))
            await w.submit(gpus=3)
            before = everything(w)
            for job in (TWO, {"gpus": 1}, {"array": "0-9"}, {"begin": "now+1h"}, {"singleton": True, "gpus": 2}):
                await plan_of(w, job)
                assert everything(w) == before

    @examples(6)
    @given(st.integers(0, 2**32))
    @pytest.mark.parametrize("policy", ["fifo", "fair", "srtf", "colane"])
    def test_in_random_worlds_and_what_was_planned_comes_true(self, policy: str, seed: int) -> None:
        asyncio.run(planned_comes_true(policy, Random(seed)))

    async def test_of_groups_by_a_turn_that_is_only_tried(self) -> None:
        group = grp.getgrgid(os.getgid()).gr_name
        user = pwd.getpwuid(os.getuid()).pw_name
        quotas = Quotas(groups={group: GroupQuota(Limits(gpus=1))})
        async with world(quotas=quotas) as w:
            await w.good("POST", "/node", node(gpus=2))
            await plan_of(w, {"user": user})
            for _ in range(2):
                await w.submit(user=user)
            running = [job for job in await w.good("GET", "/live_jobs") if job["node"]]
            assert len(running) == 1, "the core would not have known of the group"


async def planned_comes_true(policy: str, random: Random) -> None:
    async with world(policy=policy) as w:
        sizes = [random.randint(1, 4) for _ in range(2)]
        most = max(sizes)
        for number, gpus in enumerate(sizes):
            await w.good("POST", "/node", node(f"n{number}", gpus, agent_id=f"a{number}"))
        for _ in range(random.randint(4, 8)):
            await something(w, random, most)
            job = random_job(random, most)
            before = everything(w)
            plan = await plan_of(w, job)
            assert everything(w) == before
            answer = await w.http.post(f"/jobs?if_plan={plan['index']}", json=[{"command": ["sleep", "5"], **job}])
            assert answer.status_code == 200, answer.text
            (job_id,) = answer.json()["ids"]
            assert job_id == plan["jobs"][0]["id"]
            assert await starts_of(w, job_id) == [one["gpus"] for one in plan["jobs"][0]["starts"]]


async def starts_of(w: World, job_id: int) -> list[list[str]]:
    jobs = await w.good("GET", "/live_jobs")
    return [job["gpus"] for job in jobs if job["node"] and job_id in {job["id"], job["array_id"]}]


def random_job(random: Random, most: int) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = [
        {"gpus": random.randint(1, most)}, {"array": f"0-{random.randint(1, 5)}%2"}, {"gpus": 0, "cores": 2},
        {"gpus": 1, "priority": random.randint(-3, 3)}, {"hold": True}, {"gpus": 1, "preemptible": True},
        {"gpus": 1, "after": "any:@"},
    ]  # fmt: skip
    return {"family": random.choice("ab"), **random.choice(kinds)}


async def something(w: World, random: Random, most: int) -> None:
    """A job is submitted, launched, or ends."""
    jobs = [job for job in await w.good("GET", "/live_jobs") if job["node"]]
    if not jobs or random.random() < 0.5:
        await w.submit(
            family=random.choice("ab"), gpus=random.randint(1, min(2, most)), preemptible=random.random() < 0.5
        )
        return
    job, name = (one := random.choice(jobs)), one["node"]
    whose = {"agent_id": f"a{name[1:]}"}
    if random.random() < 0.5:
        await w.good("POST", f"/node/{name}/report", report(launched(job["id"], job["attempt"]), **whose))
    else:
        await w.good("POST", "/finished_job", finished(job["id"], job["attempt"], node=name, **whose))


class TestOnlyWhileItHolds:
    async def test_it_is_submitted(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            index = (await plan_of(w, TWO))["index"]
            assert await w.good("POST", f"/job?if_plan={index}", TWO) == {"id": 1}
            assert await starts_of(w, 1) == [["n1/0", "n1/1"]]

    async def test_it_is_refused_with_the_new_plan_and_nothing_is_done(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            index = (await plan_of(w, TWO))["index"]
            await w.submit(gpus=1)
            before = everything(w)
            status, said = await w.refused("POST", f"/job?if_plan={index}", TWO)
            assert status == 409
            assert said[0]["field"] == "if_plan"
            assert f"plan {index} does not hold any more: by now sleep would wait: " in said[0]["message"]
            assert "it would start at once with --gpus 1. The new plan is " in said[0]["message"]
            assert everything(w) == before
            new = said[0]["message"].split()[-1]
            assert await w.good("POST", f"/job?if_plan={new}", TWO) == {"id": 2}

    async def test_what_does_not_concern_it_may_happen_meanwhile(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            await w.submit(gpus=1)
            index = (await plan_of(w, {"gpus": 1}))["index"]
            await w.good("POST", "/node/n1/report", report(launched(1)))
            assert await w.good("POST", f"/job?if_plan={index}", {"command": ["sleep", "5"], "gpus": 1}) == {"id": 2}

    async def test_the_plan_of_another_job_is_none_of_this(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            index = (await plan_of(w, TWO))["index"]
            assert (await w.refused("POST", f"/job?if_plan={index}", {**TWO, "command": ["true"]}))[0] == 409

    async def test_a_request_that_is_sent_again_is_answered_as_it_was(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            index = (await plan_of(w, TWO))["index"]
            first = await w.post(f"/job?if_plan={index}", TWO, **{"Idempotency-Key": "k"})
            again = await w.post(f"/job?if_plan={index}", TWO, **{"Idempotency-Key": "k"})
            assert first.json() == again.json() == {"id": 1}

    async def test_of_many_at_once_one_is_submitted(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            index = (await plan_of(w, TWO))["index"]
            answers = await asyncio.gather(*(w.post(f"/job?if_plan={index}", TWO) for _ in range(8)))
            assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7

    @pytest.mark.parametrize("index", ["x", "1-", "1-zzzzzzzzzzzz", "-", "1-0123456789ab;"])
    async def test_what_is_no_index_is_refused_by_name(self, index: str) -> None:
        async with world() as w:
            status, said = await w.refused("POST", f"/job?if_plan={index}", TWO)
            assert (status, said[0]["field"]) == (422, "if_plan")


async def test_what_could_not_be_submitted_cannot_be_planned() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        for jobs, field in (([{**TWO, "gpus": 3}], "jobs[0].gpus"), ([{}], "jobs[0].command"), ([], "jobs")):
            status, said = await w.refused("POST", "/plan", jobs)
            assert (status, said[0]["field"]) == (422, field)
        status, said = await w.refused("POST", "/plan", [{**TWO, "after": "ok:77"}])
        assert (status, said[0]["field"]) == (422, "jobs[0].after")


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


async def test_many_ask_while_many_submit() -> None:
    before = children()
    async with world() as w:
        await w.good("POST", "/node", node(gpus=4))
        asked = [plan_of(w, TWO) for _ in range(12)]
        *plans, _ = await asyncio.gather(*asked, asyncio.gather(*(w.submit() for _ in range(30))))
        assert len(plans) == 12
        assert len(await w.good("GET", "/live_jobs")) == 30
        assert children() <= before, "no copy is left, not even as a zombie"


class TestWithoutRoomForACopy:
    async def test_there_is_no_plan_and_nothing_is_submitted_by_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails() -> int:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            index = (await plan_of(w, TWO))["index"]
            before, files = everything(w), psutil.Process().num_fds()
            with monkeypatch.context() as patched:
                patched.setattr(os, "fork", fails)
                said = "no plan could be made: this process cannot be copied: Cannot allocate memory"
                assert await w.refused("POST", "/plan", [TWO]) == (503, said)
                assert await w.refused("POST", f"/job?if_plan={index}", TWO) == (503, said)
            assert (everything(w), psutil.Process().num_fds()) == (before, files)
            assert (await w.good("GET", "/health"))["faults"] == 0
            assert await w.good("POST", f"/job?if_plan={index}", TWO) == {"id": 1}

    def test_a_copy_that_takes_too_long_or_fails_is_ended_and_told(self) -> None:
        before = children()
        with pytest.raises(CopyError, match="it took too long"):
            ask(threading.Event().wait, limit_s=0.05)
        with pytest.raises(CopyError, match="ZeroDivisionError: "):
            ask(lambda: 1 // 0)
        with pytest.raises(CopyError, match="it ended without an answer"):
            ask(lambda: os.kill(os.getpid(), signal.SIGKILL))
        assert children() <= before


FORETOLD_POLICIES = ("fifo", "srtf", "las", "colane", "pack", "topo-aware-p")


def _foretold(world: Drawn) -> tuple[int, int]:
    """Along a world, jobs are planned in a copy and then come, some time later: how many, and how many as was told."""
    asked = came = 0
    for number in range(60):
        world.step(world.random_event())
        if number % 4 != 3:
            continue
        event = world.submit()
        assert isinstance(event, Submitted)
        version = world.core.state.version
        (fate,) = ask(partial(fates, world.core, [event], world.now_s, [event.job])).jobs
        assert world.core.state.version == version, "the core itself was not asked"
        outcome = world.step(event)
        (job,) = [one for one in outcome.jobs if one.id == event.job]
        there = [start.place for start in fate.starts]
        asked, came = asked + 1, came + (there == ([] if job.placement is None else [place_view(job.placement)]))
    return asked, came


def test_in_random_states_a_plan_foretells_where_the_next_job_starts() -> None:
    """Or that it waits: in 95 % of 1,000 states, as time goes on and timers go off between the two."""
    many = 2 * max(1, FUZZ)
    found = [_foretold(Drawn(create(policy), seed)) for policy in FORETOLD_POLICIES for seed in range(many)]
    asked, came = (sum(one) for one in zip(*found, strict=True))
    assert asked >= 90 * many
    assert came >= 0.95 * asked, f"{came} of {asked}"
