"""Submitting, showing, cancelling and explaining jobs over REST."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from colane.server.store.store import FINISHED_JOBS, LAUNCH_SPECS, SUBMITTED_JOBS
from tests.server.harness import SLEEP, CountingStore, finished, launched, node, report, world

PAPER_A = {"model_name": "vgg11", "batch_size": 128, "dataset": "synthetic", "iters": 7}


async def test_a_job_is_appended_and_shown() -> None:
    async with world() as w:
        first, second = await w.submit(name="a", labels={"run": "x"}), await w.submit(name="b")
        assert (first, second) == (1, 2)
        job = await w.good("GET", "/job/1")
        assert (job["name"], job["state"], job["labels"], job["gpus"]) == ("a", "queued", {"run": "x"}, [])
        assert [job["id"] for job in await w.good("GET", "/jobs")] == [1, 2]


@pytest.mark.parametrize("wrap", [list, lambda jobs: {"jobs": jobs}])
async def test_a_batch_in_both_forms(wrap: Any) -> None:
    async with world() as w:
        assert await w.good("POST", "/jobs", wrap([SLEEP, PAPER_A, SLEEP])) == {"ids": [1, 2, 3]}
        job = await w.good("GET", "/job/2")
        assert (job["model_name"], job["family"], job["batch_size"]) == ("vgg11", "vgg11 dataset=synthetic", 128)
        assert job["steps_total"] == 7


async def test_an_empty_batch_is_no_job() -> None:
    async with world() as w:
        assert await w.good("POST", "/jobs", []) == {"ids": []}
        assert await w.good("GET", "/jobs") == []


async def test_a_batch_with_one_bad_job_stores_nothing() -> None:
    store = CountingStore()
    async with world(store) as w:
        before = store.commits
        status, detail = await w.refused("POST", "/jobs", [SLEEP, {**PAPER_A, "batch_size": -4}])
        assert status == 422
        assert detail == [{"field": "jobs[1].batch_size", "message": "must be at least 1, got -4"}]
        assert await w.good("GET", "/jobs") == []
        assert (store.count(SUBMITTED_JOBS), store.count(LAUNCH_SPECS), store.commits - before) == (0, 0, 0)


@pytest.mark.parametrize(
    ("request_", "field", "message"),
    [
        ({"model_name": "vgg12"}, "model_name", "did you mean vgg11"),
        ({**PAPER_A, "batch_size": -4}, "batch_size", "must be at least 1, got -4"),
        ({**SLEEP, "gpu_type": "H100"}, "gpu_type", "known: cpu"),
        ({**SLEEP, "gpus": 2}, "gpus", "asks for 2"),
        ({**SLEEP, "gpu_memory": "3GB"}, "gpu_memory", "asks for 3000000000"),
        ({**SLEEP, "cores": 5}, "cores", "more than 4"),
        ({**SLEEP, "host_memory": "9GB"}, "host_memory", "asks for 9000000000"),
        ({"command": []}, "command", "must not be empty"),
        ({**SLEEP, "prio": 1}, "prio", "did you mean priority?"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_field_named(
    request_: dict[str, Any], field: str, message: str
) -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        status, detail = await w.refused("POST", "/job", request_)
        assert status == 422
        assert [each["field"] for each in detail] == [field]
        assert message in detail[0]["message"]
        assert await w.good("GET", "/live_jobs") == []


async def test_a_batch_beyond_the_limit_is_refused() -> None:
    async with world(batch_jobs_max=3) as w:
        assert await w.refused("POST", "/jobs", [SLEEP] * 4) == (
            422,
            [{"field": "jobs", "message": "must be at most 3 at once, got 4"}],
        )
        assert await w.good("POST", "/jobs", [SLEEP] * 3) == {"ids": [1, 2, 3]}


@pytest.mark.parametrize("path", ["/job", "/jobs"])
async def test_what_is_not_json_is_refused(path: str) -> None:
    async with world() as w:
        headers = {"Content-Type": "application/json"}
        for text in (b"{", b"[1,", b"\xff", b"nonsense", b""):
            answer = await w.http.post(path, content=text, headers=headers)
            assert answer.status_code in {400, 422}, (text, answer.text)
        deep = b"[" * 100_000
        assert (await w.http.post(path, content=deep, headers=headers)).status_code in {400, 422}


class TestCancel:
    async def test_a_queued_job_ends_now(self) -> None:
        async with world() as w:
            await w.submit()
            assert await w.good("DELETE", "/job/1?by=me") == {"id": 1}
            job = await w.good("GET", "/job/1")
            assert (job["state"], job["reason"]) == ("cancelled", "cancelled by me")
            assert await w.good("DELETE", "/job/1") == {"id": 1}
            assert await w.good("GET", "/live_jobs") == []

    async def test_a_running_job_ends_when_its_process_is_gone(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            await w.good("POST", "/node/n1/report", report(launched(1)))
            await w.good("DELETE", "/job/1")
            assert await w.state(1) == "stopping"
            assert (await w.good("GET", "/node/n1"))["jobs"][0]["run"] is False
            ended = finished(1, outcome="signalled", exit_code=None, signal=15)
            assert (await w.good("POST", "/finished_job", ended))["believed"] is True
            assert await w.state(1) == "cancelled"
            assert (await w.good("GET", "/node/n1"))["jobs"] == []

    async def test_an_ended_job_cannot_be_cancelled(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            await w.good("POST", "/finished_job", finished(1))
            assert await w.refused("DELETE", "/job/1") == (409, "job 1 has already ended: succeeded")

    async def test_all_queued_at_once(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.good("POST", "/jobs", [SLEEP] * 3)
            assert await w.good("DELETE", "/jobs") == {"ids": [2, 3]}
            assert [job["id"] for job in await w.good("GET", "/live_jobs")] == [1]


@pytest.mark.parametrize("path", ["/job/9", "/job/9/why", "/job/9/stacks", "/job/9/log", "/job/9/launch"])
async def test_an_unknown_job_is_404(path: str) -> None:
    async with world() as w:
        assert (await w.refused("GET", path))[0] == 404


async def test_why_a_job_waits_runs_and_ended() -> None:
    async with world() as w:
        await w.good("POST", "/jobs", [SLEEP, SLEEP])
        waiting = await w.good("GET", "/job/1/why")
        assert (waiting["why"], waiting["facts"]) == ("no-node", {"pool": "default"})
        await w.good("POST", "/node", node())
        assert (await w.good("GET", "/job/1/why"))["sentence"] == "n1/0 is free"
        behind = await w.good("GET", "/job/2/why")
        assert behind["sentence"]
        assert behind["why"] in {"behind", "no-free-gpu"}
        await w.good("POST", "/finished_job", finished(1, exit_code=3))
        assert (await w.good("GET", "/job/1/why"))["sentence"] == "exited with code 3"


class TestSecrets:
    async def test_command_and_environment_are_served_to_agents_only(self) -> None:
        async with world() as w:
            secret = {"command": ["run", "--password", "hunter2"], "env": {"TOKEN": "hunter2"}}
            await w.submit(**secret)
            assert await w.refused("GET", "/job/1/launch") == (409, "job 1 is queued and runs nowhere")
            await w.good("POST", "/node", node())
            launch = await w.good("GET", "/job/1/launch")
            assert (launch["command"], launch["env"]) == (secret["command"], secret["env"])
            assert (launch["attempt"], launch["workdir"]) == (1, "/srv")
            assert (launch["ranks"], launch["mps"]) == ("one", False)
            await w.good("POST", "/finished_job", finished(1))
            shown = [
                (await w.http.get(path)).text
                for path in ("/job/1", "/jobs", "/live_jobs", "/nodes", "/finished_jobs", "/job/1/why")
            ]
            assert "hunter2" not in "".join([*shown, w.everything_stored()])
            assert w.service.store.count(LAUNCH_SPECS) == 0
            assert "hunter2" not in str(list(w.service.store.read_all(FINISHED_JOBS)))

    async def test_it_is_not_in_a_refusal_either(self) -> None:
        async with world() as w:
            body = {"command": ["run", 7, "hunter2"], "env": {"TOKEN": ["hunter2"]}, "gpus": -1}
            assert "hunter2" not in str(await w.refused("POST", "/job", body))


class TestIdempotency:
    async def test_the_same_key_gives_the_first_answer(self) -> None:
        async with world() as w:
            key = {"Idempotency-Key": "k1"}
            answers = [await w.post("/job", SLEEP, **key) for _ in range(3)]
            assert [answer.json() for answer in answers] == [{"id": 1}] * 3
            assert len(await w.good("GET", "/jobs")) == 1
            assert (await w.post("/job", SLEEP, **{"Idempotency-Key": "k2"})).json() == {"id": 2}

    async def test_at_once(self) -> None:
        async with world() as w:
            key = {"Idempotency-Key": "k"}
            answers = await asyncio.gather(*(w.post("/jobs", [SLEEP, SLEEP], **key) for _ in range(10)))
            assert [answer.json() for answer in answers] == [{"ids": [1, 2]}] * 10
            assert len(await w.good("GET", "/jobs")) == 2

    async def test_the_key_of_another_request_is_refused(self) -> None:
        async with world() as w:
            await w.post("/job", SLEEP, **{"Idempotency-Key": "k"})
            status, detail = await w.refused("POST", "/job", {**SLEEP, "gpus": 2}, **{"Idempotency-Key": "k"})
            assert (status, detail[0]["field"]) == (422, "Idempotency-Key")
            assert (await w.refused("DELETE", "/jobs", **{"Idempotency-Key": "k"}))[0] == 422
            assert len(await w.good("GET", "/jobs")) == 1

    async def test_a_refused_request_may_be_mended_under_its_key(self) -> None:
        async with world() as w:
            assert (await w.refused("POST", "/job", {"command": []}, **{"Idempotency-Key": "k"}))[0] == 422
            assert (await w.post("/job", SLEEP, **{"Idempotency-Key": "k"})).json() == {"id": 1}

    async def test_cancelling_twice_under_one_key(self) -> None:
        async with world() as w:
            await w.good("POST", "/jobs", [SLEEP, SLEEP])
            key = {"Idempotency-Key": "k"}
            first = (await w.http.delete("/jobs", headers=key)).json()
            await w.submit()
            assert (await w.http.delete("/jobs", headers=key)).json() == first == {"ids": [1, 2]}
            assert len(await w.good("GET", "/jobs")) == 1


async def test_64_submitters_share_commits_and_get_ids_of_their_own() -> None:
    store = CountingStore()
    async with world(store) as w:

        async def submit(worker: int) -> list[int]:
            return [await w.submit(name=f"{worker}-{number}") for number in range(5)]

        ids = await asyncio.gather(*(submit(worker) for worker in range(64)))
        assert sorted(job for some in ids for job in some) == list(range(1, 321))
        assert all(some == sorted(some) for some in ids)
        assert len(await w.good("GET", "/jobs")) == store.count(SUBMITTED_JOBS) == 320
        assert store.commits < 160


async def test_openapi_names_every_endpoint_of_the_interfaces() -> None:
    async with world() as w:
        paths = set((await w.good("GET", "/openapi.json"))["paths"])
        promised = {
            "/jobs", "/job", "/plan", "/job/{number}", "/job/{number}/why", "/job/{number}/log", "/job/{number}/launch",
            "/job/{number}/stacks", "/job/{number}/terminal",
            "/job/{number}/request", "/job/{number}/requeue", "/job/{number}/change", "/job/{number}/start",
            "/job/{number}/suspend", "/job/{number}/resume",
            "/live_jobs", "/node", "/nodes", "/agent_settings", "/pools", "/qos", "/node/{name}",
            "/node/{name}/report", "/node/{name}/drain",
            "/finished_job", "/finished_jobs", "/listing", "/last_job", "/profiles", "/measurements",
            "/events", "/health", "/state",
            "/tokens", "/token/{token}", "/usage", "/usage/days", "/overview", "/metrics", "/timeline",
            "/job/{number}/efficiency", "/job/{number}/cost", "/job/{number}/co_runners",
            "/samples/nodes/{name}", "/samples/jobs/{number}", "/samples/cluster", "/timeline/moves",
            "/page_link", "/page_rows", "/live", "/hand_over", "/config/reload",
            "/reservations", "/reservation/{name}", "/usage/used", "/usage/waiting", "/usage/ended", "/usage/budgets",
            "/usage/shared", "/whatif",
            "/store/behind", "/store/adopt",
        }  # fmt: skip
        assert paths == promised
        page = (await w.http.get("/docs")).text
        assert "<h2>POST /job</h2>" in page
        assert '<h2 id="JobRequest">' in page
        assert "http://" not in page.replace("http://head", "")
        assert "https://" not in page
        assert "<script" not in page
