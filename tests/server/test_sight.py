"""Where users are told of their own jobs only: two users of a real scheduler, over every route that it has."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

import httpx
import pytest

from colane.cli import app
from colane.client.client import Client
from colane.integrations.assistant import AssistantSession
from colane.integrations.slurm.main import main as slurm
from colane.scheduling.foresight import Foresight
from colane.scheduling.registry import create
from colane.server.ground.access import digest_of
from tests.server.harness import SLEEP, finished, launched, node, report
from tests.server.processes import DEADLINE_S, Scheduler, scheduler
from tests.server.test_foreseeing import taught

pytestmark = pytest.mark.live

HERS, HIS = "annsonly", "bobsonly"
RUNS, ENDED, BOBS_RUNS, BOBS_ENDED, HELD, WAITS, BOBS_WAITS = range(1, 8)
UNKNOWN = 999
PROFILE = {"key": {"family": HERS, "gpu_type": "cpu"}, "step_s": 0.5}


def named(user: str, name: str, **fields: Any) -> dict[str, Any]:
    return {**SLEEP, "user": user, "name": name, "family": name, "labels": {"of": name}, **fields}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    with scheduler(tmp_path_factory.mktemp("state"), see="own") as started:
        populate(started.http)
        yield started
        assert started.errors() == ""


def populate(http: httpx.Client) -> None:
    """Ann's and Bob's jobs: one of each runs, waits and has ended; one of hers is held."""

    def good(method: str, path: str, body: Any) -> None:
        http.request(method, path, json=body).raise_for_status()

    good("POST", "/node", node(gpus=2))
    for user in ("ann", "bob"):
        good("POST", "/tokens", {"digest": digest_of(f"of {user}"), "user": user})
    good("POST", "/tokens", {"digest": digest_of("of n1"), "node": "n1"})
    good("PUT", "/profiles", PROFILE)
    short: dict[str, Any] = {"gpus": 0, "cores": 1}
    hers, his = ("ann", HERS), ("bob", HIS)
    good("POST", "/jobs", [named(*hers), named(*hers, **short), named(*his), named(*his, **short), named(*hers)])
    good("POST", f"/job/{HELD}/suspend", {})
    good("POST", "/jobs", [named(*hers, gpus=2), named(*his, gpus=2)])
    runs = [launched(job) for job in (RUNS, ENDED, BOBS_RUNS, BOBS_ENDED)]
    good("POST", "/node/n1/report", report(*runs, messages=[f"job {RUNS}-1 of {HERS} runs without MPS"]))
    for job in (ENDED, BOBS_ENDED):
        good("POST", "/finished_job", finished(job))


def as_user(running: Scheduler, name: str) -> httpx.Client:
    return httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer of {name}"}, timeout=DEADLINE_S)


def paths(running: Scheduler) -> list[str]:
    """Every path that can be read, those of a job once for each of hers."""
    known: dict[str, Any] = running.http.get("/openapi.json").json()["paths"]
    read = [path for path, methods in known.items() if "get" in methods and path not in {"/events", "/live"}]
    found = [path.replace("{name}", "n1") for path in read]
    of_jobs = [path for path in found if "{number}" in path]
    hers = [path.replace("{number}", str(job)) for path in of_jobs for job in (RUNS, WAITS, HELD, ENDED)]
    assert len(of_jobs) == 11, "a new route that tells of a job: is it meant to?"
    return [path for path in found if path not in of_jobs] + hers + ["/listing?ended=true", "/listing?user=ann"]


def test_no_route_tells_a_user_of_anothers_jobs(running: Scheduler) -> None:
    with as_user(running, "bob") as bob:
        for path in paths(running):
            text = bob.get(path).text
            assert HERS not in text, path
            assert '"ann"' not in text, path


def test_his_own_are_shown_as_ever(running: Scheduler) -> None:
    with as_user(running, "bob") as bob:
        assert [job["id"] for job in bob.get("/jobs").json()] == [BOBS_WAITS]
        assert [job["id"] for job in bob.get("/live_jobs").json()] == [BOBS_RUNS, BOBS_WAITS]
        assert [job["id"] for job in bob.get("/finished_jobs").json()] == [BOBS_ENDED]
        screen = bob.get("/listing?ended=true").json()
        assert [job["id"] for job in screen["jobs"]] == [BOBS_ENDED, BOBS_RUNS, BOBS_WAITS]
        assert screen["left_out"] == {"running": 0, "queued": 0, "ended": False}
        assert [one["user"] for one in bob.get("/usage").json()] == ["bob"]
        (here,) = bob.get("/nodes").json()
        assert [job["id"] for job in here["jobs"]] == [BOBS_RUNS]
        assert here["messages"] == []
        assert bob.get(f"/job/{BOBS_RUNS}").json()["name"] == HIS
        assert bob.get(f"/job/{BOBS_WAITS}/why").json()["sentence"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/job/{}"),
        ("GET", "/job/{}/why"),
        ("GET", "/job/{}/stacks"),
        ("GET", "/job/{}/log"),
        ("GET", "/job/{}/launch"),
        ("GET", "/job/{}/request"),
        ("DELETE", "/job/{}"),
        ("POST", "/job/{}/suspend"),
        ("POST", "/job/{}/resume"),
    ],
)
@pytest.mark.parametrize("job", [RUNS, WAITS, HELD, ENDED])
def test_anothers_job_is_as_one_that_is_not_there(running: Scheduler, method: str, path: str, job: int) -> None:
    with as_user(running, "bob") as bob:
        said = [bob.request(method, path.format(number), json={}) for number in (job, UNKNOWN)]
    texts = [answer.text.replace(str(number), "N") for answer, number in zip(said, (job, UNKNOWN), strict=True)]
    assert [answer.status_code for answer in said] == [404, 404]
    assert texts[0] == texts[1]
    assert running.http.get(f"/job/{job}").json()["state"] in {"running", "launching", "queued", "held", "succeeded"}


def test_events_tell_of_his_jobs_and_of_nodes(running: Scheduler) -> None:
    with as_user(running, "bob") as bob, bob.stream("GET", "/events?after=0") as stream:
        lines = list(takewhile(lambda line: '"succeeded"' not in line, stream.iter_lines()))
    text = "\n".join(lines)
    assert HERS not in text
    assert HIS in text
    kinds = {line.removeprefix("event: ") for line in lines if line.startswith("event: ")}
    assert kinds == {"job", "decision", "attempt-ended", "node-registered"}


def test_events_end_where_they_are_asked_to_though_that_one_is_hidden(running: Scheduler) -> None:
    """The last of them is of a job that he is not told of."""
    newest = running.http.get("/health").json()["events"]
    told = running.http.get("/events", params={"after": 0, "until": newest}).text
    numbers = [int(each) for each in re.findall(r"^id: (\d+)", told, re.MULTILINE)]
    assert numbers == list(range(1, newest + 1))
    hers = max(number for number, data in zip(numbers, re.findall(r"^data: .*", told, re.MULTILINE), strict=True)
               if f'"{HERS}"' in data)  # fmt: skip
    with as_user(running, "bob") as bob:
        seen = bob.get("/events", params={"after": 0, "until": hers}).text
        assert bob.get("/events", params={"after": hers, "until": hers}).text == ""
    shown = [int(each) for each in re.findall(r"^id: (\d+)", seen, re.MULTILINE)]
    assert 0 < max(shown) < hers


def test_what_tells_of_everybody_at_once_is_the_operators(running: Scheduler) -> None:
    with as_user(running, "bob") as bob:
        for path in ("/profiles", "/measurements"):
            refused = bob.get(path)
            assert (refused.status_code, "users are told of their own here" in refused.text) == (403, True)
            assert running.http.get(path).status_code == 200


def test_an_operator_and_a_nodes_agent_are_told_what_they_need(running: Scheduler) -> None:
    assert len(running.http.get("/live_jobs").json()) == 5
    with as_user(running, "n1") as agent:
        assert {job["id"] for job in agent.get("/node/n1").json()["jobs"]} == {RUNS, BOBS_RUNS}
        assert agent.get(f"/job/{RUNS}/launch").status_code == 200
        assert agent.get("/live_jobs").json() == []


@pytest.fixture(scope="module")
def foreseen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    """Starts are known: a job of Ann's runs, and one of Bob's waits behind another of hers."""
    state, foresight = tmp_path_factory.mktemp("state"), Foresight(create("fifo"))
    taught(foresight.of("default"), time.time(), 20)
    (state / "foreseen.json").write_text(json.dumps(foresight.kept()))
    with scheduler(state, see="own") as started:
        started.http.post("/node", json=node()).raise_for_status()
        for user in ("ann", "bob"):
            started.http.post("/tokens", json={"digest": digest_of(f"of {user}"), "user": user}).raise_for_status()
        jobs = [named("ann", HERS), named("ann", HERS), named("bob", HIS)]
        started.http.post("/jobs", json=[{**job, "time_limit": "5m"} for job in jobs]).raise_for_status()
        started.http.post("/node/n1/report", json=report(launched(1))).raise_for_status()
        yield started
        assert started.errors() == ""


JOB = {**SLEEP, "family": HIS, "time_limit": "5m"}


def submission(bob: httpx.Client) -> str:
    """The answer to one, of a job that is then taken away again."""
    answer = bob.post("/job?start=true", json=JOB)
    bob.delete(f"/job/{answer.json()['id']}").raise_for_status()
    return answer.text


SUBMIT = ["submit", "--family", HIS, "--time-limit", "5m"]
STARTS: dict[str, list[str] | Callable[[httpx.Client, AssistantSession], object]] = {
    "ps": ["ps", "--start"],
    "why": ["why", "3"],
    "show": ["show", "3"],
    "plan": [*SUBMIT, "--plan", "--", "true"],
    "squeue": ["squeue", "--start", "-O", "jobid,starttime,startearliest,startlatest,expectedstart:60"],
    "squeue of a job": ["squeue", "--start", "-j", "3", "--json"],
    "page": lambda bob, _: bob.get("/page_rows").text,
    "start": lambda bob, _: bob.get("/job/3/start").text,
    "list": lambda bob, _: bob.get("/jobs").text,
    "submission": lambda bob, _: submission(bob),
    "assistant": lambda _, session: json.dumps([session.start("3"), session.job("3"), session.queue()]),
    "assistant's plan": lambda bob, _: bob.post("/plan", json=[JOB]).text,
}


@pytest.mark.parametrize("screen", STARTS)
def test_every_screen_tells_when_his_job_starts_and_names_none_ahead(
    screen: str, foreseen: Scheduler, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLANE_URL", foreseen.url)
    monkeypatch.setenv("COLANE_TOKEN", "of bob")
    words = STARTS[screen]
    with as_user(foreseen, "bob") as bob, Client(foreseen.url, "of bob") as client:
        said = bob.get("/job/3/start?changes=false").json()["expected_start"]
        assert said["p10_s"] < said["p50_s"] < said["p90_s"]
        if not isinstance(words, list):
            text = str(words(bob, AssistantSession(client, dict, int)))
        else:
            assert (slurm(words[0], words=words[1:]) if words[0] == "squeue" else app.run(words)) == 0
            text = "".join(capfd.readouterr())
    assert re.search(r"\b(in|within) \d+ (s|min)\b", text), text
    assert HERS not in text
    assert not re.search(r"\bann\b", text), text
