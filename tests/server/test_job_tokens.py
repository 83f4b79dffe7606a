"""Tokens of jobs: the rights of their owners, for as long as the attempt that has one."""

from __future__ import annotations

import os
from typing import Any

import pytest

from colane.server.ground.access import digest_of, user_name
from colane.server.ground.job_tokens import JobTokens, new_key
from colane.server.store.store import COLLECTIONS
from tests.memory_store import MemoryStore
from tests.server.harness import TOKEN, World, finished, launched, node, report, world
from tests.server.test_users import Guest

KEY = new_key()


async def token_of(w: World, job: int = 1) -> str | None:
    """What the agent of its node is given for a job."""
    found = (await w.good("GET", f"/job/{job}/launch")).get("token")
    assert found is None or isinstance(found, str)
    return found


async def as_job(w: World, **fields: Any) -> tuple[Guest, str]:
    """Job 1, Ann's, that has a place, and its token; job 2 is Bob's and waits."""
    await w.good("POST", "/node", node())
    await w.submit(**{"user": "ann", **fields})
    await w.submit(user="bob")
    token = await token_of(w)
    assert token is not None
    return Guest(w, token), token


async def counts(w: World, token: str) -> bool:
    status, _ = await Guest(w, token).ask("GET", "/job/1")
    return status == 200


async def test_a_job_submits_and_touches_as_its_owner() -> None:
    async with world() as w:
        job, _ = await as_job(w)
        assert await job.ask("POST", "/job", {"command": ["true"]}) == (200, {"id": 3})
        assert (await w.good("GET", "/job/3"))["user"] == "ann"
        assert (await job.ask("GET", "/job/1"))[1]["command"] == ["sleep", "5"]
        assert await job.ask("DELETE", "/job/3") == (200, {"id": 3})
        assert "cancelled by ann" in (await w.good("GET", "/job/3"))["reason"]


DENIED: dict[str, tuple[str, str, Any, int]] = {
    "another's job": ("DELETE", "/job/2", None, 403),
    "another's environment": ("GET", "/job/2/launch", None, 403),
    "a job for another": ("POST", "/job", {"command": ["true"], "user": "bob"}, 403),
    "a priority": ("POST", "/job", {"command": ["true"], "priority": 1}, 403),
    "a token": ("POST", "/tokens", {"digest": "0" * 64}, 403),
    "an operator's token": ("POST", "/tokens", {"digest": "0" * 64, "role": "operator"}, 403),
    "revoking": ("DELETE", "/token/000000000000", None, 404),
    "a node": ("POST", "/node", node("n2"), 403),
    "draining": ("POST", "/node/n1/drain", {}, 403),
    "its own end": ("POST", "/finished_job", finished(1), 403),
    "forgetting": ("DELETE", "/finished_jobs", None, 403),
}


@pytest.mark.parametrize("what", DENIED)
@pytest.mark.parametrize("owner", ["ann", "the operator"])
async def test_it_may_no_more_than_a_user_also_where_its_owner_is_an_operator(what: str, owner: str) -> None:
    method, path, body, status = DENIED[what]
    async with world() as w:
        job, _ = await as_job(w, user="ann" if owner == "ann" else user_name(os.geteuid()))
        answered, said = await job.ask(method, path, body)
        assert answered == status, said


async def test_a_job_is_named_in_what_it_is_refused() -> None:
    async with world() as w:
        job, _ = await as_job(w)
        _, said = await job.ask("DELETE", "/job/2")
        assert said["detail"].endswith("only its owner or an operator may cancel it; you are job 1 of user ann")
        assert (await job.ask("GET", "/tokens")) == (200, [])


ENDS: dict[str, list[tuple[str, str, Any]]] = {
    "it has ended": [("POST", "/finished_job", finished(1))],
    "it has failed": [("POST", "/finished_job", finished(1, exit_code=1))],
    "it was cancelled": [
        ("DELETE", "/job/1", None),
        ("POST", "/finished_job", finished(1, outcome="signalled", exit_code=None, signal=15)),
    ],
    "it lost its supervisor": [("POST", "/finished_job", finished(1, outcome="supervisor-died", exit_code=None))],
}


@pytest.mark.parametrize("how", ENDS)
async def test_it_counts_no_longer_once_its_attempt_is_over(how: str) -> None:
    async with world() as w:
        _, token = await as_job(w, retries=0)
        assert await counts(w, token)
        await w.good("POST", "/node/n1/report", report(launched(1)))
        assert await counts(w, token)
        for method, path, body in ENDS[how]:
            await w.good(method, path, body)
        assert not await counts(w, token)
        status, said = await Guest(w, token).ask("GET", "/jobs")
        assert (status, said["detail"]) == (
            401, "the token given was a job's, and counts no longer: its attempt has ended"
        )  # fmt: skip


async def test_while_it_is_being_stopped_it_still_counts() -> None:
    """A job that is asked to end may hand in what goes on where it stops."""
    async with world() as w:
        _, token = await as_job(w)
        await w.good("POST", "/node/n1/report", report(launched(1)))
        await w.good("DELETE", "/job/1")
        assert await w.state(1) == "stopping"
        assert await counts(w, token)


async def test_each_attempt_has_its_own_and_an_agent_that_asks_twice_the_same() -> None:
    async with world() as w:
        _, first = await as_job(w, retries=1)
        assert await token_of(w) == first
        await w.good("POST", "/node/n1/report", report(launched(1)))
        await w.good("POST", "/finished_job", finished(1, exit_code=1))
        second = await token_of(w)
        assert second not in {None, first}
        assert (await counts(w, first), await counts(w, str(second))) == (False, True)


async def test_a_job_that_serves_requests_has_none() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.submit(user="ann", kind="inference")
        assert await token_of(w) is None
        forged = JobTokens(w.service.config.job_key, dict).token_of(w.service.read_model.jobs[1])  # type: ignore[index]
        assert forged is None


async def test_its_owner_reads_none_where_the_environment_is_read() -> None:
    async with world() as w:
        await as_job(w)
        await w.good("POST", "/tokens", {"digest": digest_of("a"), "user": "ann"})
        status, launch = await Guest(w, "a").ask("GET", "/job/1/launch")
        assert (status, "token" in launch) == (200, False)


async def test_what_is_made_up_counts_nothing() -> None:
    async with world() as w:
        _, token = await as_job(w)
        _, number, attempt, code = token.split("-")
        made_up = [
            f"job-2-{attempt}-{code}", f"job-{number}-2-{code}", f"job-{number}-0-{code}", token[:-1],
            token[:-1] + ("0" if token[-1] != "0" else "1"), f"{token}0", f"job-99-1-{code}", token.upper(),
            f"job-{'9' * 16}-1-{code}", f"job-1-1-{'0' * 64}", f"job--1-1-{code}", "job-1-1-", "job-1-1",
        ]  # fmt: skip
        for one in made_up:
            assert (await Guest(w, one).ask("GET", "/jobs"))[0] == 401, one
        assert (await Guest(w, TOKEN).ask("GET", "/jobs"))[0] == 200


async def test_it_is_not_in_the_store_and_outlives_a_restart_of_the_scheduler() -> None:
    store = MemoryStore()
    async with world(store, job_key=KEY) as w:
        _, token = await as_job(w)
        await w.good("POST", "/node/n1/report", report(launched(1)))
        kept = str([list(store.read_all(name)) for name in COLLECTIONS]) + w.everything_stored()
        assert token.rpartition("-")[2] not in kept
        for path in ("/job/1", "/live_jobs", "/tokens", "/nodes", "/job/1/why"):
            assert token not in (await w.http.get(path)).text
    async with world(store, job_key=KEY) as w:
        assert await counts(w, token)
    async with world(store) as w:
        assert not await counts(w, token), "of another scheduler, or of a copy that was put back elsewhere"


async def test_one_that_is_given_the_id_anew_is_another() -> None:
    """As where an older copy of the store is put back."""
    tokens = []
    for _ in range(2):
        async with world(job_key=KEY) as w:
            _, token = await as_job(w)
            tokens.append(token)
    async with world(job_key=KEY) as w:
        await as_job(w)
        assert [await counts(w, token) for token in tokens] == [False, False]
