"""Who may do what, by role: everybody sees, a user touches his own, an operator all, an agent speaks for its node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from colane.server.ground.access import Caller, Callers, Role, digest_of
from tests.memory_store import MemoryStore
from tests.server.harness import TOKEN, World, finished, node, report, world

PROFILE = {"key": {"family": "f", "gpu_type": "cpu"}, "step_s": 0.5}


class Guest:
    """A user who brings a token of their own."""

    def __init__(self, w: World, token: str) -> None:
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(w.app),
            base_url="http://127.0.0.1",
            headers={"Authorization": f"Bearer {token}"},
        )

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        answer = await self._http.request(method, path, json=body, headers=headers)
        return answer.status_code, answer.json()

    async def post(self, path: str, body: Any) -> httpx.Response:
        """Send something whose answer need not be JSON."""
        return await self._http.post(path, json=body)

    async def read(self, path: str) -> str:
        """All of an answer that is sent bit by bit."""
        return (await self._http.get(path)).text


async def guest(w: World, token: str, **holder: str) -> Guest:
    await w.good("POST", "/tokens", {"digest": digest_of(token), **holder})
    return Guest(w, token)


async def test_a_job_is_its_submitters() -> None:
    async with world() as w:
        ann = await guest(w, "a", user="ann")
        assert await ann.ask("POST", "/job", {"command": ["true"]}) == (200, {"id": 1})
        assert await ann.ask("POST", "/jobs", [{"command": ["true"], "user": "ann"}]) == (200, {"ids": [2]})
        assert {(await w.good("GET", f"/job/{job}"))["user"] for job in (1, 2)} == {"ann"}
        status, said = await ann.ask("POST", "/job", {"command": ["true"], "user": "bob"})
        assert (status, said["detail"]) == (
            403,
            [{"field": "user", "message": "must be 'ann' or left out: only an operator submits for others"}],
        )
        assert (await w.good("GET", f"/job/{await w.submit(user='bob')}"))["user"] == "bob"


TOUCHES: dict[str, tuple[str, str, Any]] = {
    "cancel": ("DELETE", "/job/1", None),
    "suspend": ("POST", "/job/1/suspend", {}),
    "resume": ("POST", "/job/1/resume", {}),
    "requeue": ("POST", "/job/1/requeue", {}),
    "change": ("POST", "/job/1/change", {"time_limit": "1h"}),
    "log": ("GET", "/job/1/log", None),
    "follow": ("GET", "/job/1/log?follow=true", None),
    "launch": ("GET", "/job/1/launch", None),
    "node": ("POST", "/node", node()),
    "node again": ("PUT", "/node/n1", node()),
    "report": ("POST", "/node/n1/report", report()),
    "end": ("POST", "/finished_job", finished(1)),
    "ends": ("POST", "/finished_jobs", [finished(1)]),
    "forget a node": ("DELETE", "/node/n1", None),
    "forget nodes": ("DELETE", "/nodes", None),
    "drain a node": ("POST", "/node/n1/drain", {}),
    "undrain a node": ("DELETE", "/node/n1/drain", None),
    "forget history": ("DELETE", "/finished_jobs", None),
    "profile": ("PUT", "/profiles", PROFILE),
    "hand over": ("POST", "/hand_over", {}),
    "have settings read again": ("POST", "/config/reload", {}),
    "what the store lacks": ("GET", "/store/behind", None),
    "adopt the store": ("POST", "/store/adopt", {"lost": 1}),
    "forget a family": ("DELETE", "/profiles?family=anns", None),
}


@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize("ended", [False, True])
async def test_what_is_anothers_is_refused_and_stays(touch: str, ended: bool) -> None:
    method, path, body = TOUCHES[touch]
    async with world() as w:
        bob = await guest(w, "b", user="bob")
        await w.good("POST", "/node", node())
        await w.submit(user="ann", env={"SECRET": "s"})
        if ended:
            await w.good("POST", "/finished_job", finished(1))
        before = w.service.store.last_audit_number()
        status, said = await bob.ask(method, path, body)
        if (touch, ended) == ("launch", True):
            assert status == 404  # nothing is left to be read
        else:
            assert status == 403, said
            assert "you are user bob" in str(said) or "user bob does not speak for node" in str(said)
        assert w.service.store.last_audit_number() == before
        shown = (await bob.ask("GET", "/job/1"))[1]
        assert shown["user"] == "ann"
        assert "SECRET" not in str(shown)


async def test_all_at_once_means_all_of_ones_own() -> None:
    async with world() as w:
        bob = await guest(w, "b", user="bob")
        for user in ("ann", "bob", "ann"):
            await w.submit(user=user)
        assert await bob.ask("DELETE", "/jobs?user=ann") == (200, {"ids": []})
        assert (await w.good("DELETE", "/jobs?user=eve"))["ids"] == []
        assert await bob.ask("DELETE", "/jobs?user=bob") == (200, {"ids": [2]})
        assert (await w.good("DELETE", "/jobs"))["ids"] == [1, 3]


async def test_a_story_names_who_asked_whatever_he_calls_himself() -> None:
    async with world() as w:
        bob = await guest(w, "b", user="bob")
        await w.submit(user="bob")
        assert (await bob.ask("DELETE", "/job/1?by=ann"))[0] == 200
        assert (await w.good("GET", "/job/1"))["reason"] == "cancelled by bob"
        await w.submit()
        await w.good("DELETE", "/job/2?by=the night watch")
        assert (await w.good("GET", "/job/2"))["reason"] == "cancelled by the night watch"


async def test_an_agent_speaks_for_its_node_and_takes_what_is_placed_there() -> None:
    async with world() as w:
        agent, other = await guest(w, "1", node="n1"), await guest(w, "2", node="n2")
        assert (await agent.ask("POST", "/node", node()))[0] == 200
        await w.submit(env={"A": "b"})
        assert (await agent.ask("GET", "/job/1/launch"))[1]["env"] == {"A": "b"}
        assert (await agent.ask("POST", "/node/n1/report", report()))[0] == 200
        for method, path, body in (
            ("GET", "/job/1/launch", None),
            ("POST", "/node", node()),
            ("POST", "/node/n1/report", report()),
            ("POST", "/finished_job", finished(1)),
            ("POST", "/finished_jobs", [finished(1)]),
            ("DELETE", "/job/1", None),
            ("POST", "/job", {"command": ["true"]}),
            ("POST", "/tokens", {"digest": digest_of("x"), "node": "n2"}),
        ):
            assert (await other.ask(method, path, body))[0] == 403, path
        assert (await agent.ask("POST", "/finished_job", finished(1)))[1]["believed"] is True


async def test_a_call_to_an_agent_brings_its_secret_and_no_user_is_shown_it() -> None:
    async with world() as w:
        asked: list[str | None] = []
        answer = w.agents.handle_async_request

        async def note(request: httpx.Request) -> httpx.Response:
            asked.append(request.headers.get("Authorization"))
            return await answer(request)

        w.agents.handle_async_request = note  # type: ignore[method-assign]
        shown = await w.good("POST", "/node", node(secret="hush"))
        await w.submit()
        assert (await w.http.get("/job/1/log")).status_code == 200
        assert set(asked) == {"Bearer hush"}
        assert "hush" not in str(shown) + w.everything_stored() + (await w.http.get("/nodes")).text


async def test_a_node_that_serves_one_user_takes_no_other_users_jobs() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(runs_as="ann"))
        status, said = await w.refused("POST", "/job", {"command": ["true"], "user": "bob"})
        assert (status, said[0]["field"]) == (403, "user")
        assert "bob may not submit here: node n1 runs jobs of ann only" in said[0]["message"]
        await w.submit(user="ann")
        await w.good("POST", "/node", node("n2", agent_id="a2", pool="elsewhere"))
        await w.submit(user="bob", pool="elsewhere")


class TestTokens:
    async def test_they_outlive_the_scheduler_as_digests_until_they_are_revoked(self) -> None:
        store = MemoryStore()
        async with world(store) as w:
            await guest(w, "ann's own", user="ann")
        async with world(store) as w:
            ann = Guest(w, "ann's own")
            (known,) = (await ann.ask("GET", "/tokens"))[1]
            assert (known["name"], known["role"], known["made_by"][:9]) == ("ann", "user", "operator ")
            assert "ann's own" not in str(list(store.read_all("tokens")))
            assert await ann.ask("DELETE", f"/token/{known['id']}") == (200, {"revoked": known["id"]})
            assert (await ann.ask("GET", "/jobs"))[0] == 401
        async with world(store) as w:
            assert (await Guest(w, "ann's own").ask("GET", "/jobs"))[0] == 401

    @pytest.mark.parametrize("path", ["/events?after=0", "/job/1/log?follow=true"])
    async def test_a_revoked_one_ends_what_is_still_being_answered(self, path: str) -> None:
        async with world() as w:
            ann = await guest(w, "ann's own", user="ann")
            (known,) = (await ann.ask("GET", "/tokens"))[1]
            await w.good("POST", "/node", node())
            await ann.ask("POST", "/job", {"command": ["true"]})
            w.agents.logs["/log/1/1"] = b"so far\n"
            answering = asyncio.create_task(ann.read(path))
            if "log" in path:
                await asyncio.wait_for(w.agents.read.wait(), 20)
            else:
                await w.line(lambda line: line.kind == "job")
            assert not answering.done()
            await w.good("DELETE", f"/token/{known['id']}")
            told = await asyncio.wait_for(answering, 20)
            assert ("revoked]" in told and "so far" in told) if "log" in path else "token-revoked" not in told

    async def test_no_user_makes_more_of_their_own_rights_or_revokes_anothers(self) -> None:
        async with world() as w:
            bob = await guest(w, "b", user="bob")
            await guest(w, "a", user="ann")
            digest = digest_of("new")
            for holder in ({"user": "ann"}, {"role": "operator"}, {"node": "n1"}):
                assert (await bob.ask("POST", "/tokens", {"digest": digest, **holder}))[0] == 403
            assert (await bob.ask("POST", "/tokens", {"digest": digest_of("a")}))[0] == 409
            anns = next(one["id"] for one in await w.good("GET", "/tokens") if one["name"] == "ann")
            assert (await bob.ask("DELETE", f"/token/{anns}"))[0] == 404
            assert [one["name"] for one in (await bob.ask("GET", "/tokens"))[1]] == ["bob"]

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ({}, 422),
            ({"digest": "short"}, 422),
            ({"digest": "0" * 64, "node": "n", "user": "u"}, 422),
            ({"digest": "0" * 64, "node": "n", "role": "operator"}, 422),
            ({"digest": "0" * 64, "role": "agent"}, 422),
        ],
    )
    async def test_what_makes_no_sense(self, body: dict[str, str], status: int) -> None:
        async with world() as w:
            assert (await w.refused("POST", "/tokens", body))[0] == status

    async def test_no_user_is_given_the_answer_to_anothers_key(self) -> None:
        async with world() as w:
            ann, bob = await guest(w, "a", user="ann"), await guest(w, "b", user="bob")
            key = {"Idempotency-Key": "k"}
            assert await ann.ask("POST", "/job", {"command": ["true"]}, **key) == (200, {"id": 1})
            assert await ann.ask("POST", "/job", {"command": ["true"]}, **key) == (200, {"id": 1})
            assert await bob.ask("POST", "/job", {"command": ["true"]}, **key) == (200, {"id": 2})


@pytest.mark.parametrize(("uid", "is_operator"), [(0, True), (1000, True), (1001, False), (54321, False)])
def test_the_kernels_word(uid: int, is_operator: bool) -> None:
    callers = Callers(token=TOKEN, uid=1000)
    found = callers.by_uid(uid)
    assert found.may_all is is_operator
    assert uid != 54321 or found == Caller("54321", Role.USER)


@pytest.mark.parametrize("role", Role)
def test_which_jobs_a_caller_owns(role: Role) -> None:
    own: Callable[[str], bool] = Caller("ann", role).owns
    assert (own("ann"), own("bob"), own("")) == {
        Role.USER: (True, False, False),
        Role.OPERATOR: (True, True, True),
        Role.AGENT: (False, False, False),
    }[role]


async def test_only_an_operator_goes_before_the_others() -> None:
    async with world() as w:
        ann = await guest(w, "a", user="ann")
        status, said = await ann.ask("POST", "/job", {"command": ["true"], "priority": 1})
        assert (status, said["detail"][0]["field"]) == (403, "priority")
        for fields in ({"priority": -5}, {"priority": 0}, {"qos": "debug"}):
            assert (await ann.ask("POST", "/job", {"command": ["true"], **fields}))[0] == 200
        await w.submit(priority=1000)
