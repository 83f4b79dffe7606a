"""What the record of a job tells of how it was submitted, and which callers it tells."""

from __future__ import annotations

from typing import Any

import pytest

from colane.server.store.store import FINISHED_JOBS, LAUNCH_SPECS, Put, Transaction, job_key
from tests.server.harness import World, finished, launched, node, report, world
from tests.server.test_users import Guest, guest

COMMAND = ["python", "train.py", "--api-key", "hunter2hunter2", "--lr", "0.1"]
SHOWN = ["python", "train.py", "--api-key", "***", "--lr", "0.1"]
STATES = ("queued", "running", "ended")
CALLERS: dict[str, tuple[dict[str, str], bool]] = {
    "its owner": ({"user": "ann"}, True),
    "an operator": ({"user": "root", "role": "operator"}, True),
    "another user": ({"user": "bob"}, False),
    "the agent of its node": ({"node": "n1"}, False),
    "the agent of another node": ({"node": "n2"}, False),
}


async def come_to(w: World, state: str, **fields: Any) -> None:
    """Bring job 1, Ann's, into a state."""
    await w.submit(user="ann", workdir="/home/ann", env={"SECRET": "of the environment"}, **fields)
    if state != "queued":
        await w.good("POST", "/node", node())
        await w.good("POST", "/node/n1/report", report(launched(1)))
    if state == "ended":
        await w.good("POST", "/finished_job", finished(1))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("caller", CALLERS)
async def test_command_and_directory_are_told_to_its_owner_and_operators(caller: str, state: str) -> None:
    holder, is_told = CALLERS[caller]
    async with world() as w:
        await come_to(w, state, command=COMMAND)
        asking = await guest(w, "t", **holder)
        status, shown = await asking.ask("GET", "/job/1")
        assert status == 200
        assert (shown.get("command"), shown.get("workdir")) == ((SHOWN, "/home/ann") if is_told else (None, None))
        assert ("command" in shown) == is_told
        assert "of the environment" not in str(shown)
        await nowhere_else(asking)


async def nowhere_else(asking: Guest) -> None:
    for path in ("/jobs", "/live_jobs", "/listing?ended=true", "/finished_jobs", "/job/1/why", "/nodes"):
        text = await asking.read(path)
        assert "/home/ann" not in text, path
        assert "train.py --" not in text, path
        assert "hunter2" not in text, path


async def test_a_record_holds_no_secret_once_its_job_has_ended() -> None:
    async with world() as w:
        await come_to(w, "ended", command=COMMAND)
        kept = str(list(w.service.store.read_all(FINISHED_JOBS)))
        assert "train.py" in kept
        assert "hunter2" not in kept
        assert "of the environment" not in kept
        assert w.service.store.count(LAUNCH_SPECS) == 0


@pytest.mark.parametrize("spoilt", [{}, {"command": None}, {"command": [7], "workdir": "/"}, {"command": "x"}])
async def test_a_job_ends_though_what_is_kept_for_its_launch_is_spoilt(spoilt: dict[str, Any]) -> None:
    async with world() as w:
        await come_to(w, "running", command=COMMAND)
        w.service.store.commit(Transaction([Put(LAUNCH_SPECS, job_key(1), spoilt)]))
        assert (await w.good("GET", "/job/1"))["command"] is None
        await w.good("POST", "/finished_job", finished(1))
        shown = await w.good("GET", "/job/1")
        assert (shown["state"], shown["command"], shown["workdir"]) == ("succeeded", None, None)


async def test_a_built_in_job_has_a_command_too() -> None:
    async with world() as w:
        await w.good("POST", "/job", {"model_name": "resnet18", "batch_size": 8, "iters": 3, "dataset": "digits"})
        assert "colane.workloads" in (await w.good("GET", "/job/1"))["command"]


REQUEST: dict[str, Any] = {
    "command": ["python", "train.py", "--lr", "0.1"],
    "gpus": "1..2",
    "time_limit": "2h",
    "labels": {"run": "a"},
    "retries": 0,
    "checkpoint": "plain",
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("caller", CALLERS)
async def test_its_request_is_given_to_its_owner_alone(caller: str, state: str) -> None:
    holder, _ = CALLERS[caller]
    async with world() as w:
        await come_to(w, state, **REQUEST)
        status, said = await (await guest(w, "t", **holder)).ask("GET", "/job/1/request")
        if caller == "its owner":
            assert (status, said) == (200, {**REQUEST, "workdir": "/home/ann", "gpus": [1, 2], "time_limit": 7200.0})
        else:
            assert status == 403
            assert said["detail"].startswith("job 1 belongs to ann: only its owner may submit it again; you are ")


@pytest.mark.parametrize("state", STATES)
async def test_a_job_submitted_again_is_the_same_but_for_its_environment(state: str) -> None:
    async with world() as w:
        ann = await guest(w, "t", user="ann")
        await come_to(w, state, **REQUEST)
        _, request = await ann.ask("GET", "/job/1/request")
        assert await ann.ask("POST", "/job", {**request, "env": {"NEW": "one"}}) == (200, {"id": 2})
        first, second = [await w.good("GET", f"/job/{job}") for job in (1, 2)]
        for shown in (first, second):
            del shown["needs"]["gpus"]  # the best of its sizes is that of the nodes that there are
        for name in ("name", "family", "user", "needs", "labels", "command", "workdir", "batch_size"):
            assert first[name] == second[name], name
        assert await ann.ask("GET", "/job/2/request") == (200, request)


@pytest.mark.parametrize("state", STATES)
async def test_a_built_in_job_is_asked_for_as_it_was(state: str) -> None:
    wanted = {"model_name": "resnet18", "batch_size": 8, "iters": 3, "dataset": "digits", "python": "/venv/bin/python"}
    async with world() as w:
        await come_to(w, state, **{"command": None, **wanted})
        _, request = await (await guest(w, "t", user="ann")).ask("GET", "/job/1/request")
        assert request == {**wanted, "workdir": "/home/ann"}


@pytest.mark.parametrize("state", STATES)
async def test_what_a_secret_has_left_of_a_command_is_not_submitted(state: str) -> None:
    async with world() as w:
        await come_to(w, state, command=COMMAND)
        status, said = await (await guest(w, "t", user="ann")).ask("GET", "/job/1/request")
        if state == "ended":
            refusal = "its command held a secret (--api-key), not kept beyond its end: submit it anew"
            assert (status, said["detail"]) == (409, f"{refusal}, with the secret in the environment")
        else:
            assert (status, said["command"]) == (200, COMMAND)


async def test_of_a_job_of_an_older_colane_too_little_is_kept() -> None:
    async with world() as w:
        await come_to(w, "running", **REQUEST)
        old = {"command": ["true"], "workdir": "/", "env": {}}
        w.service.store.commit(Transaction([Put(LAUNCH_SPECS, job_key(1), old)]))
        ann = await guest(w, "t", user="ann")
        for _ in range(2):
            status, said = await ann.ask("GET", "/job/1/request")
            assert (status, "submit it anew" in said["detail"]) == (409, True)
            await w.good("POST", "/finished_job", finished(1))


@pytest.mark.parametrize("state", STATES)
async def test_what_is_submitted_again_waits_for_no_job_of_then(state: str) -> None:
    async with world() as w:
        await come_to(w, state, **REQUEST)
        last = await w.submit(user="ann", after="any:1", if_never="hold", command=["true"])
        _, request = await (await guest(w, "t", user="ann")).ask("GET", f"/job/{last}/request")
        assert request == {"command": ["true"], "workdir": "/srv"}
