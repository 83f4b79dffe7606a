"""What pools are for: how long jobs may run there, whose they may be, how they may be served."""

from __future__ import annotations

import grp
import os
import pwd
import re
from pathlib import Path
from typing import Any

import pytest

from colane.integrations.slurm.scontrol import allowed
from colane.model.job import JobId
from colane.server.writer.limits import LimitsError, read_pools, read_quotas
from tests.server.harness import SLEEP, World, finished, launched, node, report, world

OWN = grp.getgrgid(pwd.getpwuid(os.getuid()).pw_gid).gr_name
ME = pwd.getpwuid(os.getuid()).pw_name
FILE = f"""
[group.lab]
members = ["ann"]
[pool.default]
time_limit_default = "1h"
time_limit_max = "24h"
[pool.short]
time_limit_max = "10m"
qos = ["debug", "normal"]
[pool.labs]
users = ["carl"]
groups = ["lab", "{OWN}"]
[qos.vip]
priority = 50
gpus_max = 3
time_limit_max = "6h"
running_per_user = 1
gpus = 2
groups = ["lab"]
[qos.debug]
gpus_max = 4
[qos.long]
preemptible = true
[pool.usual]
time_limit_default = "2h"
[features]
a100 = ["n1", "n2"]
ib = ["n2", "n3"]
h100 = ["n4"]
"""


@pytest.fixture
def rules(tmp_path: Path) -> Any:
    (tmp_path / "limits.toml").write_text(FILE)
    assert read_quotas(tmp_path / "limits.toml").groups["lab"].members == frozenset({"ann"}), "read by both"
    return read_pools(tmp_path / "limits.toml")


async def limit_of(w: World, **job: Any) -> float | None:
    number = await w.submit(**{**SLEEP, **job})
    shown = await w.good("GET", f"/job/{number}")
    return shown["needs"]["time_limit_s"]  # type: ignore[no-any-return]


async def test_pools_are_told_as_partitions_are(rules: Any) -> None:
    async with world(pools=rules) as w:
        await w.good("POST", "/node", node(gpus=1))
        told = {pool["name"]: pool for pool in await w.good("GET", "/pools")}
    assert told["default"] == {
        "name": "default", "time_limit_max_s": 86_400.0, "time_limit_default_s": 3600.0,
        "users": None, "groups": None, "qos": None,
        "features": {"a100": ["n1", "n2"], "ib": ["n2", "n3"], "h100": ["n4"]},
    }  # fmt: skip
    assert {name: allowed(rule) for name, rule in told.items()} == {
        "default": ["AllowGroups=ALL AllowQos=ALL", "DefaultTime=1:00:00 MaxTime=1-00:00:00 State=UP"],
        "labs": [f"AllowGroups=lab,{OWN} AllowQos=ALL AllowUsers=carl", "DefaultTime=NONE MaxTime=UNLIMITED State=UP"],
        "short": ["AllowGroups=ALL AllowQos=debug,normal", "DefaultTime=NONE MaxTime=10:00 State=UP"],
        "usual": ["AllowGroups=ALL AllowQos=ALL", "DefaultTime=2:00:00 MaxTime=UNLIMITED State=UP"],
    }


@pytest.mark.parametrize(
    ("table", "job", "served"),
    [
        ("", {}, (0, None)),
        ("", {"priority": 5}, (5, None)),
        ("", {"priority": 0, "qos": "normal"}, (0, None)),
        ('[qos.normal]\ntime_limit_max = "2h"', {"priority": -5}, (-5, 7200.0)),
        ("[qos.normal]\npriority = -3", {}, (-3, None)),
        ("[qos.normal]\npriority = -3", {"priority": -3}, "is -3 of qos normal: leave it out, or the qos"),
    ],
)
async def test_jobs_that_name_no_qos_have_their_own_priority_unless_the_operator_gives_one(
    tmp_path: Path, table: str, job: dict[str, Any], served: Any
) -> None:
    (tmp_path / "limits.toml").write_text(table)
    async with world(pools=read_pools(tmp_path / "limits.toml")) as w:
        if isinstance(served, str):
            assert (await w.refused("POST", "/job", {**SLEEP, **job}))[1][0]["message"] == served
        else:
            spec = w.service.read_model.jobs[JobId(await w.submit(**job))].spec
            assert (spec.priority, spec.time_limit_s) == served


@pytest.mark.parametrize("batch", [False, True], ids=["one", "a batch"])
@pytest.mark.parametrize(
    ("job", "limit_s"),
    [
        ({}, 3600),
        ({"time_limit": "2h"}, 7200),
        ({"time_limit_s": 60.0}, 60),
        ({"qos": "debug"}, 1800),
        ({"qos": "sweep"}, 3600),
        ({"qos": "long"}, 3600),
        ({"qos": "vip", "user": "ann"}, 3600 * 6),
        ({"pool": "short"}, 600),
        ({"pool": "short", "qos": "debug"}, 600),
        ({"pool": "usual"}, 7200),
        ({"pool": "usual", "time_limit": "100h"}, 360_000),
        ({"pool": "labs", "user": "ann"}, None),
        ({"pool": "labs", "user": "carl"}, None),
        ({"pool": "labs", "user": ME}, None),
        ({"pool": "other"}, None),
        ({"array": "0-3", "pool": "short"}, 600),
    ],
)
async def test_a_job_has_the_time_limit_of_its_pool(
    rules: Any, job: dict[str, Any], limit_s: float | None, *, batch: bool
) -> None:
    async with world(pools=rules) as w:
        if batch:
            ids = await w.good("POST", "/jobs", [{**SLEEP, **job}] * 80)
            shown = await w.good("GET", f"/job/{ids['ids'][-1]}")
            assert shown["needs"]["time_limit_s"] == limit_s
        else:
            assert await limit_of(w, **job) == limit_s


@pytest.mark.parametrize(
    ("job", "field", "says"),
    [
        ({"time_limit": "25h"}, "time_limit", "must be at most 24h in pool default, got 25h"),
        ({"pool": "short", "time_limit_s": 660.0}, "time_limit", "must be at most 10m in pool short, got 11m"),
        ({"pool": "short", "qos": "sweep"}, "qos", "must be one of debug, normal in pool short, got sweep"),
        ({"qos": "vip", "user": "bob"}, "qos", "'vip' is for group lab: choose another qos"),
        ({"qos": "vip", "user": "ann", "gpus": 4}, "gpus", "must be at most 3 of qos vip, got 4"),
        ({"qos": "vip", "user": "ann", "time_limit": "7h"}, "time_limit", "must be at most 360m of qos vip, got 420m"),
        ({"qos": "vip", "user": "ann", "priority": -1}, "priority", "is 50 of qos vip: leave it out, or the qos"),
        ({"qos": "vipp"}, "qos", "must be one of debug, normal, sweep, vip, long, got 'vipp' (did you mean vip?)"),
        ({"pool": "labs", "user": "bob"}, "pool", f"'labs' is for carl, group lab, group {OWN}: choose another pool"),
    ],
)
async def test_what_a_pool_is_not_for_is_refused_with_the_fix(
    rules: Any, job: dict[str, Any], field: str, says: str
) -> None:
    async with world(pools=rules) as w:
        for path, body, at in (("/job", {**SLEEP, **job}, ""), ("/jobs", [{**SLEEP, **job}] * 80, "jobs[0].")):
            answer = await w.http.post(path, json=body)
            assert answer.status_code == 422
            told = answer.json()["detail"][0]
            assert told["message"] == says
            assert told["field"].removeprefix(at).removesuffix("_s") == field


@pytest.mark.parametrize(
    ("job", "nodes"),
    [
        ({"features": "a100"}, "n1,n2"),
        ({"features": "a100&ib"}, "n2"),
        ({"features": "a100&ib|h100"}, "n2,n4"),
        ({"features": "a100", "nodes": "not:n1"}, "n2"),
        ({"nodes": "n[1-2],n4"}, "n1,n2,n4"),
        ({"nodes": "not:n[01-02]"}, "not:n01,n02"),
    ],
)
async def test_nodes_are_named_by_their_names_and_features(rules: Any, job: dict[str, Any], nodes: str) -> None:
    async with world(pools=rules) as w:
        number = await w.submit(**SLEEP, **job)
        assert (await w.good("GET", f"/job/{number}"))["needs"]["nodes"] == nodes


@pytest.mark.parametrize(
    ("job", "field", "says"),
    [
        ({"features": "a10"}, "features", "no node has 'a10': there are a100, ib, h100; as a100&ib or a100|h100"),
        ({"features": "a100*2"}, "features", "no node has 'a100*2'"),
        ({"features": "h100&ib"}, "features", "no node has h100&ib"),
        ({"features": "h100", "nodes": "n1"}, "features", "no node has h100 and is among n1"),
        ({"nodes": "n[3-"}, "nodes", "must name nodes as n1,n[3-5], got 'n[3-'"),
        ({"nodes": "n9"}, "nodes", "must be some of pool default: n1"),
        ({"nodes": "not:n1"}, "nodes", "must be some of pool default: n1"),
        ({"nodes": "n[0-99999999]"}, "nodes", "must name at most 10000 nodes"),
    ],
)
async def test_nodes_that_are_none_are_refused(rules: Any, job: dict[str, Any], field: str, says: str) -> None:
    async with world(pools=rules) as w:
        await w.good("POST", "/node", node())
        answer = await w.http.post("/job", json={**SLEEP, **job})
        assert answer.status_code == 422, answer.text
        (told,) = answer.json()["detail"]
        assert (told["field"], says in told["message"]) == (field, True), told


async def test_a_job_with_its_nodes_whole_has_no_other_beside_it(rules: Any) -> None:
    async with world(pools=rules) as w:
        await w.good("POST", "/node", node(gpus=4))
        whole = await w.submit(**SLEEP, whole_node=True, gpus=0)
        await w.line(lambda line: line.kind == "job" and line.body["job"] == whole and line.body["state"] == "assigned")
        for gpus in (0, 1):
            other = await w.submit(**SLEEP, gpus=gpus)
            assert "held by" in (await w.good("GET", f"/job/{other}/why"))["sentence"] or gpus == 0
            assert await w.state(other) == "queued"


async def test_a_limit_is_not_raised_past_that_of_its_pool(rules: Any) -> None:
    async with world(pools=rules) as w:
        await w.good("POST", "/node", node(pool="short"))
        number = await w.submit(**SLEEP, pool="short", hold=True)
        for asked in ("11m", None):
            answer = await w.http.request("POST", f"/job/{number}/change", json={"time_limit": asked})
            assert (answer.status_code, "must be at most 10m in pool short" in answer.text) == (422, True), answer.text
        await w.good("POST", f"/job/{number}/change", {"time_limit": "9m"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pool = 3", "pool: must be tables [pool.NAME]"),
        ("[pool]\na = 3", "pool.a: must be a table of time_limit_max, time_limit_default, users, groups, qos"),
        ("[pool.a]\ntime_max = '1h'", "pool.a.time_max: "),
        ("[pool.a]\ntime_limit_max = 3", "pool.a.time_limit_max: must be a time"),
        ("[pool.a]\ntime_limit_max = 'soon'", "pool.a.time_limit_max: must be a time"),
        ("[pool.a]\ntime_limit_max = '0s'", "pool.a.time_limit_max: must be a time"),
        ("[pool.a]\ntime_limit_max = '1h'\ntime_limit_default = '2h'", "time_limit_default: must be at most"),
        ("[pool.a]\nusers = 'ann'", "pool.a.users: must be names"),
        ("[pool.a]\nqos = ['fast']", "pool.a.qos: "),
        ("[qos.vip]\npriorty = 3", "qos.vip.priorty: did you mean priority"),
        ("[qos.vip]\npriority = 'high'", "qos.vip.priority: must be a whole number"),
        ("[qos.vip]\npreemptible = 1", "qos.vip.preemptible: must be true or false"),
        ("[qos.vip]\ntime_limit_max = 3", "qos.vip.time_limit_max: must be a time"),
        ("[qos.vip]\ngpus_max = -1", "qos.vip.gpus_max: must be a whole number"),
        ("[qos.vip]\ngroups = ['no-such-group-here']", "qos.vip.groups: this machine has no group"),
        ("[qos.'a b']\npriority = 1", "qos.a b: must be a word"),
        ("qos = 3", "qos: must be tables [qos.NAME]"),
        ("features = 3", "features: must be names of nodes by feature"),
        ("[features]\na100 = 'n1'", "features.a100: must be names"),
        ("[features]\n'a&b' = ['n1']", "features.a&b: must be a word"),
        ("[pool.a]\ngroups = ['no-such-group-here']", "has no group 'no-such-group-here'"),
    ],
)
def test_a_file_that_says_what_cannot_be(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "limits.toml").write_text(text)
    with pytest.raises(LimitsError) as error:
        read_pools(tmp_path / "limits.toml")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


async def test_a_qos_of_the_operator_s_is_shown_and_bounds_what_runs(rules: Any, tmp_path: Path) -> None:
    quotas = read_quotas(tmp_path / "limits.toml")
    async with world(pools=rules, quotas=quotas) as w:
        await w.good("POST", "/node", node(gpus=4))
        first, second = [await w.submit(**SLEEP, user="ann", qos="vip") for _ in range(2)]
        shown = await w.good("GET", f"/job/{first}")
        assert (shown["labels"]["qos"], shown["priority"]) == ("vip", 50)
        why = await w.good("GET", f"/job/{second}/why")
        assert (why["why"], "ann in qos vip's limit of 1 running job" in why["sentence"]) == ("limit", True)
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "ann", "qos": "vip", "gpus": 3})
        assert (status, "must be at most 2, the limit of qos vip, got 3" in str(said)) == (422, True)
        answer = await w.http.post(f"/job/{second}/change", json={"time_limit": "7h"})
        assert "must be at most 6h of qos vip, got 7h" in answer.text


async def test_a_budget_that_is_used_up_is_told_in_the_refusal_and_in_the_usage(tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text('[group.lab]\nmembers = ["ann"]\ngpu_hours_per_month = 0\n')
    async with world(quotas=read_quotas(tmp_path / "limits.toml")) as w:
        await w.good("POST", "/node", node(gpus=1))
        for path, body in (("/job", {**SLEEP, "user": "ann"}), ("/jobs", [{**SLEEP, "user": "ann"}] * 80)):
            status, said = await w.refused("POST", path, body)
            assert status == 429
            assert "group lab's budget of 0 GPU-hours a month is used up (0.0 since the month began)" in str(said)
            assert "gpu_hours_per_month" in str(said)
        await w.submit(**SLEEP, user="bob")
        await w.submit(**{**SLEEP, "gpus": 0}, user="ann")
        (told,) = await w.good("GET", "/usage/budgets")
        assert (told["name"], told["gpu_s"], told["used_gpu_s"]) == ("group lab", 0, 0)


@pytest.mark.parametrize(
    ("busy", "job", "starts", "told"),
    [
        ((), {"pool": "short,usual"}, "short", "short,usual"),
        (("short",), {"pool": "short,usual"}, "usual", "short,usual"),
        (("short", "usual"), {"pool": "usual,short"}, "", "usual,short"),
        ((), {"pool": "short,usual", "gpus": 2}, "usual", "usual; short: gpus asks for 2, but"),
        ((), {"pool": "labs,short"}, "short", "short; labs: pool 'labs' is for carl"),
        ((), {"pool": "short,usual", "time_limit": "11m"}, "usual", "usual; short: time_limit must be at most 10m"),
        (("short", "usual"), {"pool": "short,usual", "gpus": 0}, "short", "short,usual"),
        (("short",), {"pool": "short,usual", "gpus": 0, "whole_node": True}, "usual", "short,usual"),
        ((), {"pool": "usual,short", "array": "0-3"}, "", "usual,short"),
        (("short",), {"pool": "short,usual", "time_limit": "5m", "deadline": "20m"}, "usual", "short,usual"),
        (("short", "usual"), {"pool": "short,usual", "hold": True}, "", "short,usual"),
    ],
)
async def test_of_several_pools_it_is_the_first_that_can_start_it(
    rules: Any, busy: tuple[str, ...], job: dict[str, Any], starts: str, told: str
) -> None:
    async with world(pools=rules) as w:
        for name, gpus in (("short", 1), ("usual", 2), ("labs", 2)):
            await w.good("POST", "/node", node(name=f"{name}-1", pool=name, gpus=gpus))
        for name in busy:
            number = await w.submit(**SLEEP, pool=name, gpus=1 if name == "short" else 2)
            assert await w.state(number) == "assigned"
        body = {**SLEEP, "user": "bob", "env": {"SLURM_JOB_PARTITION": job["pool"]}, **job}
        number = await w.submit(**body)
        shown = await w.good("GET", f"/job/{number}")
        assert shown["labels"]["pools"][: len(told)] == told
        assert shown["pool"] == starts or (not starts and shown["pool"] == told)
        if starts:
            assert (await w.good("GET", f"/job/{number}/launch"))["env"]["SLURM_JOB_PARTITION"] == starts
        ids = (await w.good("POST", "/jobs", [{**body, "deadline": None}] * 80))["ids"]
        assert (await w.good("GET", f"/job/{ids[-1]}"))["labels"]["pools"] == shown["labels"]["pools"]
        again = await w.submit(**SLEEP, pool=job["pool"])
        assert (await w.good("GET", f"/job/{again}/request"))["pool"] == job["pool"], "as it was asked for"


@pytest.mark.parametrize("kind", ["plain", "element", "dependent"])
async def test_a_job_that_waits_starts_in_whichever_of_its_pools_has_room_first(rules: Any, kind: str) -> None:
    async with world(pools=rules) as w:
        for name, gpus in (("short", 1), ("usual", 1)):
            await w.good("POST", "/node", node(name=f"{name}-1", pool=name, gpus=gpus))
        busy = [await w.submit(**SLEEP, pool=name) for name in ("short", "usual")]
        more = {"element": {"array": "0-0"}, "dependent": {"after": f"any:{busy[1]}"}}.get(kind, {})
        asked = await w.submit(**SLEEP, pool="short,usual", **more)
        number = asked + (kind == "element")
        shown = await w.good("GET", f"/job/{number}")
        assert shown["pool"] == "short,usual"
        said = (await w.good("GET", f"/job/{number}/why"))["sentence"]
        assert kind == "dependent" or re.search("job 1; in pool usual: .*job 2", said)
        problem = await w.http.post(f"/job/{asked}/change", json={"time_limit": "11m"})
        assert "must be at most 10m in pool short" in problem.text, "it may start in either"
        await w.good("POST", "/node/usual-1/report", report(launched(busy[1])))
        ended = finished(busy[1], node="usual-1")
        await w.good("POST", "/finished_job", ended)
        shown = await w.good("GET", f"/job/{number}")
        assert (shown["state"], shown["pool"], shown["needs"]["time_limit_s"]) == ("assigned", "usual", 7200)


@pytest.mark.parametrize(
    ("job", "field", "says"),
    [
        (
            {"pool": "short,labs", "gpus": 2},
            "pool",
            "short: gpus asks for 2, but no node of pool short has more than 1 GPU",
        ),
        ({"pool": "short,nope"}, "pool", "nope: pool unknown 'nope'; known: labs, short, usual"),
        ({"pool": "short,"}, "pool", ": pool unknown ''"),
        ({"pool": "short,usual", "begin": "soon"}, "begin", "got 'soon'"),
    ],
)
async def test_no_pool_of_several_is_refused_with_the_cause_of_each(
    rules: Any, job: dict[str, Any], field: str, says: str
) -> None:
    async with world(pools=rules) as w:
        for name, gpus in (("short", 1), ("usual", 2), ("labs", 2)):
            await w.good("POST", "/node", node(name=f"{name}-1", pool=name, gpus=gpus))
        answer = await w.http.post("/job", json={**SLEEP, "user": "bob", **job})
        assert answer.status_code == 422, answer.text
        (told,) = answer.json()["detail"]
        assert (told["field"], says in told["message"]) == (field, True), told


async def test_ways_to_be_served_are_told_the_operators_own_too(rules: Any) -> None:
    async with world(pools=rules) as w:
        told = {one["name"]: one for one in await w.good("GET", "/qos")}
    assert list(told) == ["debug", "normal", "sweep", "vip", "long"]
    assert told["vip"] == {
        "name": "vip", "priority": 50, "time_limit_max_s": 21_600.0, "gpus_max": 3, "users": None, "groups": ["lab"],
    }  # fmt: skip
