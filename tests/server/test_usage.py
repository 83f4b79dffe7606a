"""Who has used what."""

from __future__ import annotations

import pytest

from colane.model.job import JobId
from tests.server.harness import finished, launched, node, report, world


async def test_ended_running_and_waiting_jobs_count_for_their_users() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=3))
        for user, gpus in (("ann", 2), ("bob", 1), ("bob", 1)):
            await w.submit(user=user, gpus=gpus)
        await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0), at_s=1.0))
        await w.good("POST", "/finished_job", finished(1, start_s=10.0, end_s=110.0, exit_code=3))
        ann, bob = sorted(await w.good("GET", "/usage"), key=lambda one: one["user"])
        assert {name: ann[name] for name in ("jobs", "failed", "running", "gpus", "waiting")} == {
            "jobs": 1, "failed": 1, "running": 0, "gpus": 0, "waiting": 0,
        }  # fmt: skip
        record = await w.good("GET", "/job/1")
        assert ann["gpu_s"] == pytest.approx(2 * (record["end_s"] - record["start_s"]))
        assert (bob["jobs"], bob["running"], bob["gpus"], bob["waiting"]) == (0, 2, 2, 0)
        later = {one["user"]: one["jobs"] for one in await w.good("GET", f"/usage?since_s={record['end_s'] + 1}")}
        assert later == {"bob": 0}


QOS = {"command": ["true"]}


async def test_presets() -> None:
    async with world() as w:
        debug, sweep, plain = [await w.submit(**QOS, qos=name) for name in ("debug", "sweep", "normal")]
        kept = await w.submit(**QOS, qos="debug", time_limit="5m")
        specs = [w.service.read_model.jobs[JobId(job)].spec for job in (debug, sweep, plain, kept)]
        assert [spec.priority for spec in specs] == [100, -100, 0, 100]
        assert [spec.time_limit_s for spec in specs] == [1800.0, None, None, 300.0]
        assert [spec.preemptible for spec in specs] == [False, True, False, False]


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"qos": "debug", "priority": 5}, "priority", "is 100 of qos debug: leave it out, or the qos"),
        ({"qos": "debug", "time_limit": "31m"}, "time_limit", "must be at most 30m of qos debug, got 31m"),
        ({"qos": "debug", "gpus": 3}, "gpus", "must be at most 2 of qos debug, got 3"),
        ({"qos": "best"}, "qos", "must be one of debug, normal, sweep, got 'best'"),
    ],
)
async def test_what_a_preset_does_not_allow(fields: dict[str, object], field: str, says: str) -> None:
    async with world() as w:
        status, said = await w.refused("POST", "/job", {**QOS, **fields})
        assert (status, said[0]["field"]) == (422, field)
        assert says in said[0]["message"]
