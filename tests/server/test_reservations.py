"""Nodes that are kept for users: asked for, refused in one line, told, over restarts."""

from __future__ import annotations

from typing import Any

import pytest

from colane.api.nodes import ReservationObject, ReservedObject
from tests.server.harness import SLEEP, finished, node, world

ASK: dict[str, Any] = {"nodes": "n1", "from": "now+1h", "to": "now+2h", "users": ["ann"]}


async def test_nodes_are_kept_told_and_let_go() -> None:
    async with world() as w:
        for name in ("n1", "n2"):
            await w.good("POST", "/node", node(name=name, gpus=1))
        made = await w.good("POST", "/reservations", {**ASK, "nodes": "n[1-2]"})
        assert (made["name"], made["nodes"], made["users"]) == ("ann-1", ["n1", "n2"], ["ann"])
        assert made["to_s"] - made["from_s"] == pytest.approx(3600)
        assert await w.good("GET", "/reservations") == [made]
        assert set(made) == {*ReservedObject.__annotations__, *ReservationObject.__annotations__}
        assert [one["name"] for one in (await w.good("GET", "/node/n2"))["reservations"]] == ["ann-1"]
        other = await w.submit(**SLEEP, user="bob")
        assert (await w.good("GET", f"/job/{other}/why"))["why"] == "nodes-reserved"
        await w.good("DELETE", f"/job/{other}")
        own, short = await w.submit(**SLEEP, user="ann"), await w.submit(**SLEEP, user="bob", time_limit="10m")
        for job in (own, short):
            await w.line(lambda line, job=job: line.body.get("job") == job and line.body.get("state") == "assigned")  # type: ignore[misc]
        later = await w.good("POST", "/reservations", {**ASK, "from": "now+2h", "to": "now+3h"})
        assert (later["name"], later["nodes"]) == ("ann-2", ["n1"])
        assert (await w.good("DELETE", "/reservation/ann-1")) == {"unreserved": "ann-1"}
        assert await w.good("GET", "/reservations") == [later]
        told = await w.line(lambda line: line.body.get("reservations") == ["ann-2"])
        assert told.body["kept"] == [{key: value for key, value in later.items() if key != "nodes"}]
        await w.good("POST", "/node", node(name="n1", gpus=1))
        assert await w.good("GET", "/reservations") == [later], "registered anew it is kept still"


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"nodes": "n9"}, 404, "there is no node 'n9'; colane nodes lists those there are"),
        ({"nodes": "n[1"}, 422, "must name nodes as n1,n[3-5], got 'n[1'"),
        ({"from": "noon-ish"}, 422, "must be now+2h, tomorrow"),
        ({"to": "soon"}, 422, "must be now+2h, tomorrow"),
        ({"to": "now+1h"}, 422, "must be later than from"),
        ({"from": "now", "to": "now"}, 422, "must be later than from"),
        ({"users": []}, 422, "users"),
        ({"name": "first", "from": "now+5h", "to": "now+6h"}, 409, "there is a reservation 'first'"),
        ({"from": "now+3h+1m"}, 422, "must be a duration"),
        ({"from": "now+3h", "to": "now+5h"}, 409, "n1 is kept for reservation first of carl from"),
        ({"from": "now+2h", "to": "now+9h"}, 409, "n1 is kept for reservation first of carl from"),
        ({"from": "now+200m", "to": "now+210m"}, 409, "n1 is kept for reservation first of carl from"),
        ({}, 409, "of bob on n1 has no time limit: limit its time (colane change), requeue it, or reserve with"),
        ({"nod": "n1"}, 422, "nod"),
    ],
)
async def test_what_cannot_be_kept_is_refused_in_one_line(change: dict[str, Any], status: int, says: str) -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        job = await w.submit(**SLEEP, user="bob")
        await w.line(lambda line: line.body.get("job") == job and line.body.get("state") == "assigned")
        first = {**ASK, "from": "now+3h", "to": "now+4h", "users": ["carl"], "name": "first", "ignore_jobs": True}
        made = await w.good("POST", "/reservations", first)
        code, said = await w.refused("POST", "/reservations", {**ASK, **change})
        assert (code, says in str(said)) == (status, True), said
        assert "\n" not in str(said)
        assert await w.good("GET", "/reservations") == [made], "nothing half done"
        assert (await w.refused("DELETE", "/reservation/none"))[0] == 404


@pytest.mark.parametrize(
    ("user", "asked", "is_refused"),
    [("bob", "2h", True), ("bob", None, True), ("bob", "40m", False), ("bob", "10m", False), ("ann", "2h", False),
     ("ann", None, False)],
)  # fmt: skip
async def test_a_running_jobs_limit_is_not_raised_past_a_reservation(
    user: str, asked: str | None, *, is_refused: bool
) -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        await w.good("POST", "/reservations", ASK)
        job = await w.submit(**SLEEP, user=user, time_limit="20m")
        await w.line(lambda line: line.body.get("job") == job and line.body.get("state") == "assigned")
        answer = await w.http.post(f"/job/{job}/change", json={"time_limit": asked})
        assert answer.status_code == (422 if is_refused else 200), answer.text
        assert ("from when n1 is kept for reservation ann-1 of ann" in answer.text) is is_refused


@pytest.mark.parametrize("ahead", [False, True], ids=["reserved first", "promised first"])
@pytest.mark.parametrize(
    ("user", "begins", "is_kept_off"), [("bob", "now+5m", True), ("bob", "now+30m", False), ("ann", "now+5m", False)]
)
async def test_no_promise_counts_on_nodes_that_are_kept_for_others(
    user: str, begins: str, *, is_kept_off: bool, ahead: bool
) -> None:
    kept = {**ASK, "from": begins}
    due = {**SLEEP, "user": user, "deadline": "20m", "time_limit": "10m"}
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        first = await w.submit(**SLEEP, user="carl", time_limit="4m")
        await w.line(lambda line: line.body.get("job") == first and line.body.get("state") == "assigned")
        if not ahead:
            await w.good("POST", "/reservations", kept)
            if is_kept_off:
                status, said = await w.refused("POST", "/job", due)
                assert (status, said[0]["field"]) == (422, "deadline")
                assert "n1 may be kept for others before then (reservation ann-1 of ann): ask for an" in str(said)
                await w.good("POST", "/node", node(name="n2", gpus=1))
            job = await w.submit(**due)
            promised = (await w.good("GET", f"/job/{job}"))["constraints"]["promised"]["gpus"]
            assert promised == ["n2/0" if is_kept_off else "n1/0"]
            return
        job = await w.submit(**due)
        await w.good("GET", f"/job/{job}")
        if is_kept_off:
            status, said = await w.refused("POST", "/reservations", kept)
            assert (status, f"job {job} of bob was promised GPUs of n1 until" in str(said)) == (409, True), said
            assert await w.good("GET", "/reservations") == []
        await w.good("POST", "/reservations", {**kept, "ignore_jobs": True})
        await w.good("POST", "/finished_job", finished(first))
        assert await w.state(job) == "assigned", "what was promised is kept all the same"
