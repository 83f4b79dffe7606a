"""What page, top and metrics share: reasons over the whole queue, what needs a look, idle jobs, who was where."""

from __future__ import annotations

from typing import Any

import pytest

from colane.model.choices import IdleRule, See
from colane.model.job import JobId
from colane.server.board.clock import Clocks
from colane.server.ground.access import Caller, Role
from colane.server.samples.idle import GAP_MAX_S, IdleWatch, JobSeen
from colane.server.samples.keeper import ClusterCounts
from colane.server.samples.marks import BROKEN, KEPT, DeviceMarks
from colane.server.tending.counting import broken, counted
from colane.server.views import look, sampled
from colane.server.views.used import stem, used_of_asked
from tests.server.harness import SteadyClock, World, finished, gpu, launched, node, report, world
from tests.server.test_users import guest

USED = {"busy_ratio": 0.5, "device_bytes": 10**9, "cpu_cores": 0.5, "host_bytes": 10**8, "steps_per_s": 1.0, "share_ratio": None}  # fmt: skip  # noqa: E501


async def overview(w: World) -> Any:
    return await w.good("GET", "/overview")


async def test_an_empty_cluster_is_told_as_one() -> None:
    async with world() as w:
        found = await overview(w)
        assert (found["devices"]["total"], found["running"], found["waiting"]) == (0, 0, 0)
        assert (found["look"], found["why_waiting"], found["kept"], found["sharing_gain"]) == ([], [], [], None)
        assert await w.good("GET", "/usage/days") == []
        assert (await w.good("GET", "/timeline"))["jobs"] == []


async def test_all_waiting_jobs_are_counted_by_what_why_says_of_each() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        await w.submit(gpus=2)
        for number in range(30):
            await w.submit(gpus=1 + number % 2)
        held = await w.submit()
        await w.good("POST", f"/job/{held}/suspend", {})
        found = await overview(w)
        assert found["waiting"] == 31
        assert (found["devices"]["working"], found["devices"]["free"], found["running"]) == (2, 0, 1)
        told: dict[str, int] = {}
        for job in range(2, 33):
            why = (await w.good("GET", f"/job/{job}/why"))["why"]
            told[why] = told.get(why, 0) + 1
        counted = {one["why"]: one["count"] for one in found["why_waiting"]}
        assert counted == told
        first = found["why_waiting"][0]
        assert first["sentence"] == (await w.good("GET", f"/job/{first['jobs'][0]}/why"))["sentence"]
        await w.submit(array="0-9")
        assert (await overview(w))["waiting"] == 41


async def test_a_silent_node_needs_a_look_long_before_it_is_lost() -> None:
    clock = SteadyClock()
    async with world(clocks=Clocks(steady=clock), node_timeout_s=60.0) as w:
        await w.good("POST", "/node", node())
        clock.skip(9.0)
        assert (await overview(w))["look"] == []
        clock.skip(2.0)
        silent = (await overview(w))["look"][0]
        assert (silent["code"], silent["node"]) == ("node-silent", "n1")
        assert "nothing is heard of n1 for 11 s" in silent["sentence"]
        await w.good("POST", "/node/n1/report", report())
        assert (await overview(w))["look"] == []
    assert look.silent_s(0.0, 14.0, heartbeat_s=5.0) is None  # it has missed two reports
    assert look.silent_s(0.0, 15.0, heartbeat_s=5.0) == 15.0


async def test_what_needs_a_look_is_told_worst_first() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=3))
        broken, hot = [gpu(0, healthy=False), gpu(1), gpu(2, others_ratio=0.5)], {"index": 1, "throttle": ["thermal"]}
        await w.good("POST", "/node/n1/report", report(gpus=broken, devices=[{"index": 0, "xid": 79}, hot]))
        await w.good("POST", "/node/n1/drain", {"deadline_s": 600, "reason": "a new disk"})
        found = await overview(w)
        assert [one["code"] for one in found["look"]] == ["gpu-broken", "draining", "gpu-hot", "others"]
        first, drains = found["look"][:2]
        assert (first["level"], first["gpu"], first["sentence"]) == (
            "broken", "n1/0", "n1/0 does not work any more (Xid 79)",
        )  # fmt: skip
        assert "10 min left" in drains["sentence"]
        assert (drains["act"], "a new disk" in drains["sentence"]) == ("undrain", True)
        assert (found["devices"]["broken"], found["devices"]["closed"]) == (1, 2)


async def test_a_job_that_is_stopped_and_started_without_end_needs_a_look() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit()
        for attempt in range(1, look.VAIN_MOVES + 2):
            await w.good("POST", "/node/n1/report", report(launched(job, attempt)))
            codes = [one["code"] for one in (await overview(w))["look"]]
            assert codes == (["in-vain"] if attempt > look.VAIN_MOVES else [])
            if attempt <= look.VAIN_MOVES:
                await w.good("POST", f"/job/{job}/requeue", {})
                await w.good(
                    "POST",
                    "/finished_job",
                    finished(job, attempt, exit_code=None, signal=15, outcome="signalled"),
                )
            if 1 < attempt <= look.VAIN_MOVES:  # from the second time on it would wait before its next start
                await w.good("POST", f"/job/{job}/resume", {})
        said = (await overview(w))["look"][0]["sentence"]
        assert said.endswith("gets nowhere: stopped and started 20 times, no step kept")


async def test_jobs_wait_for_nodes_that_are_not_there_by_what_nodes_are_there() -> None:
    async with world() as w:
        await w.submit()
        assert (await overview(w))["look"][0]["sentence"] == "1 job waits for nodes that are not there"
        await w.good("POST", "/node", node())
        await w.submit()
        assert (await overview(w))["look"] == [], "the second waits for the first alone"
        await w.good("POST", "/node/n1/drain", {})
        assert [one["code"] for one in (await overview(w))["look"]] == ["draining", "no-node"]


async def test_free_devices_of_a_node_that_is_reserved_are_kept() -> None:
    async with world(policy="easy-backfill") as w:
        await w.good("POST", "/node", node(gpus=2))
        runs = await w.submit(time_limit_s=600)
        await w.good("POST", "/node/n1/report", report(launched(runs)))
        first = await w.submit(gpus=2)
        await w.submit(gpus=2)
        assert (await overview(w))["kept"] == [{"gpu": "n1/1", "job": first, "why": "reserved"}]


async def test_a_user_is_told_of_own_jobs_and_of_all_devices() -> None:
    async with world(see=See.OWN) as w:
        bob = await guest(w, "b", user="bob")
        await w.good("POST", "/node", node())
        await w.submit(user="ann", name="annsonly")
        await w.submit(user="ann", name="annsonly")
        await w.submit(user="bob")
        status, found = await bob.ask("GET", "/overview")
        assert (status, found["waiting"], found["running"], found["devices"]["working"]) == (200, 1, 0, 1)
        for path in ("/overview", "/timeline", "/usage/days"):
            assert "ann" not in str((await bob.ask("GET", path))[1])
        assert (await bob.ask("GET", "/job/1/efficiency"))[0] == 404


async def test_where_a_job_was_is_told_live_and_ended() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        await w.submit(user="ann", gpus=2)
        await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0)))
        (span,) = (await w.good("GET", "/job/1"))["attempts"][0]["spans"]
        assert (span["gpus"], span["until_s"]) == (["n1/0", "n1/1"], None)
        await w.good("POST", "/finished_job", finished(1))
        (ended,) = (await w.good("GET", "/job/1"))["attempts"][0]["spans"]
        assert ended["until_s"] >= span["since_s"]
        (told,) = (await w.good("GET", "/timeline"))["jobs"]
        assert (told["id"], told["spans"]) == (1, [ended])
        (day,) = await w.good("GET", "/usage/days?days=1")
        assert (day["user"], day["ended"]) == ("ann", 1)
        assert day["gpu_s"] == pytest.approx(2 * (ended["until_s"] - ended["since_s"]))
        at_s = ended["since_s"] - 10
        assert (await w.good("GET", f"/timeline?until_s={at_s}"))["jobs"] == []


async def test_what_became_of_jobs_around_a_moment_is_found_by_its_time() -> None:
    async with world(see=See.OWN) as w:
        bob = await guest(w, "b", user="bob")
        await w.good("POST", "/node", node())
        for user in ("ann", "bob", "ann"):
            await w.submit(user=user)
        await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0)))
        lines = [line for line in w.service.store.audit(0, 1000) if line.kind == "job"]
        for limit in (1, 2, 100):
            for at in (0, 2, len(lines) - 1):
                moment_s = lines[at].at_s
                found = await w.good("GET", f"/timeline/moves?at_s={moment_s!r}&limit={limit}")
                until = [line.number for line in lines if line.at_s <= moment_s]
                then = [line.number for line in lines if line.at_s > moment_s]
                assert [one["number"] for one in found["before"]] == until[-limit:]
                assert [one["number"] for one in found["after"]] == then[:limit]
        assert (await w.good("GET", "/timeline/moves?at_s=0"))["before"] == []
        told = await w.good("GET", "/timeline/moves")
        assert (told["after"], {one["job"] for one in told["before"]}) == ([], {1, 2, 3})
        own = (await bob.ask("GET", "/timeline/moves"))[1]
        assert {one["job"] for one in own["before"]} == {2}


async def test_devices_and_jobs_are_counted_over_time() -> None:
    async with world(see=See.OWN) as w:
        bob = await guest(w, "b", user="bob")
        await w.good("POST", "/node", node(gpus=2))
        for _ in range(3):
            await w.submit(user="ann")
        await w.submit(user="bob", array="0-9")
        use = {"index": 0, "busy_ratio": 0.25}
        await w.good("POST", "/node/n1/report", report(devices=[use, {**use, "index": 1, "busy_ratio": 0.75}]))
        now_s = w.service.driver.now() + 100  # apart from what it has counted itself
        counts = counted(w.service.read_model, w.service.samples, w.service.driver.now())
        assert counts == ClusterCounts(devices=2, working=2, sharing=0, running=2, waiting=11, busy_ratio=0.5)
        w.service.samples.take_cluster(now_s, counts)
        shown = await sampled.cluster(w.service.samples, now_s, 3600, None, with_jobs=True)
        assert (shown["working"][-1], shown["waiting"][-1], shown["waiting"][0]) == (None, None, None)
        w.service.samples.take_cluster(now_s + 10, counts)
        shown = await sampled.cluster(w.service.samples, now_s, 3600, None, with_jobs=True)
        assert (shown["working"][-1], shown["waiting"][-1], shown["busy_ratio"][-1]) == (2.0, 11.0, 0.5)
        status, own = await bob.ask("GET", "/samples/cluster")
        assert (status, set(own["running"]), set(own["waiting"])) == (200, {None}, {None})


async def test_users_are_told_what_their_jobs_used_of_what_they_asked_for() -> None:
    async with world(see=See.OWN) as w:
        bob = await guest(w, "b", user="bob")
        await w.good("POST", "/node", node(gpus=3))
        for number, user in enumerate(("ann", "ann", "bob")):
            await w.submit(user=user, name=f"sweep-{number}", gpu_memory="2GB")
        told = [launched(job, start_s=1.0, use=USED) for job in (1, 2, 3)]
        await w.good("POST", "/node/n1/report", report(*told))
        samples, jobs = w.service.samples, w.service.read_model.jobs
        now_s = w.service.driver.now() + 600
        for job in (1, 2, 3):
            use = samples.jobs[job]["n1"][1]
            for second in range(0, 500, 5):
                samples.take("n1", (jobs[JobId(job)].first_start_s or 0.0) + second, (), {job: use})
        sight = w.service.sight(Caller("op", Role.OPERATOR))
        ann, one = await used_of_asked(w.service.store, w.service.read_model, samples, sight, 0.0, now_s)
        assert (ann["user"], ann["jobs"], one["user"], one["jobs"]) == ("ann", 2, "bob", 1)
        assert (ann["ratios"]["gpu"], ann["ratios"]["gpu-memory"]) == (0.5, 0.5)
        assert "host-memory" not in ann["ratios"]  # none was asked for: nothing to compare with
        assert await w.good("GET", "/usage/used") == []  # by their own clock they ran too short a time
        assert (await bob.ask("GET", "/usage/used"))[1] == []
        for name in ("lr-1", "lr-2"):  # runs of a sweep are one note
            assert stem(name) == "lr"


async def test_waiting_is_added_up_by_user_and_reason() -> None:
    async with world(see=See.OWN) as w:
        bob = await guest(w, "b", user="bob")
        await w.good("POST", "/node", node())
        for user in ("ann", "ann", "ann", "bob"):
            await w.submit(user=user)
        held = await w.submit(user="bob", hold=True)
        now_s = w.service.driver.now()
        w.service.counting.count_waiting(now_s - 60, now_s)
        w.service.counting.count_waiting(now_s - 10_000, now_s)  # of so long a time nothing is known
        found = await w.good("GET", "/usage/waiting?days=1")
        by = {(one["user"], one["why"]): one["waited_s"] for one in found}
        why = (await w.good("GET", "/job/2/why"))["why"]
        held_why = (await w.good("GET", f"/job/{held}/why"))["why"]
        after = (await w.good("GET", "/job/3/why"))["why"]
        assert sum(by.values()) == pytest.approx(4 * 60)
        assert by["bob", held_why] == pytest.approx(60)
        assert sum(by["ann", reason] for reason in {why, after}) == pytest.approx(120)
        status, own = await bob.ask("GET", "/usage/waiting")
        assert (status, {one["user"] for one in own}) == (200, {"bob"})


async def test_how_jobs_that_ended_fared() -> None:
    async with world(see=See.OWN) as w:
        bob = await guest(w, "b", user="bob")
        await w.good("POST", "/node", node())
        for user in ("ann", "bob", "ann"):
            await w.submit(user=user)
        await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0)))
        await w.good("POST", "/finished_job", finished(1))
        await w.good("DELETE", "/job/3")
        found = await w.good("GET", "/usage/ended?days=1")
        assert (found["count"], found["states"]) == (2, {"succeeded": 1, "cancelled": 1})
        assert [one["id"] for one in found["jobs"]] == [3, 1]
        assert (found["jobs"][0]["waited_s"], found["jobs"][0]["reason"]) == (None, "cancelled by root")
        assert found["took_s"]["median"] == pytest.approx(found["jobs"][1]["took_s"])
        assert len((await w.good("GET", "/usage/ended?limit=1"))["jobs"]) == 1
        status, own = await bob.ask("GET", "/usage/ended")
        assert (status, own["count"], own["jobs"], own["waited_s"]) == (200, 0, [], None)


def stands(watch: IdleWatch, seconds: int, *, node_name: str = "n1", start: int = 0, **seen: Any) -> None:
    for second in range(start, start + seconds, 2):
        watch.take(node_name, 1, second, JobSeen(**{"attempt": 1, "steps": 5, "busy_ratio": 0.0, **seen}))


@pytest.mark.parametrize(
    ("seen", "is_idle"),
    [
        ({}, True),
        ({"busy_ratio": 0.001}, True),
        ({"busy_ratio": 0.3}, False),  # a long evaluation: kernels, and no step
        ({"busy_ratio": None}, False),  # the driver does not tell processes apart
        ({"turn": "waiting"}, False),
    ],
)
def test_what_is_idle(seen: dict[str, Any], is_idle: bool) -> None:
    watch = IdleWatch()
    stands(watch, 600, **seen)
    since_s = watch.since_s(1, {"n1"}, 600)
    assert since_s == (0 if is_idle else 598)


def test_a_step_a_kernel_a_new_attempt_and_a_gap_begin_anew() -> None:
    changes: list[dict[str, Any]] = [{"steps": 6}, {"attempt": 2}]
    for change in changes:
        watch = IdleWatch()
        stands(watch, 100)
        stands(watch, 50, start=100, **change)
        assert watch.since_s(1, {"n1"}, 150) == 100
    notebook = IdleWatch()  # a cell is run now and then
    stands(notebook, 100)
    stands(notebook, 2, start=100, busy_ratio=0.4)
    stands(notebook, 50, start=102)
    assert notebook.since_s(1, {"n1"}, 150) == 100
    gap = IdleWatch()
    stands(gap, 100)
    late = 100 + int(GAP_MAX_S)
    assert gap.since_s(1, {"n1"}, 2 * late) is None
    stands(gap, 10, start=late)
    assert gap.since_s(1, {"n1"}, late + 10) == late
    stands(gap, 10, start=0)  # the clock was put back
    assert gap.since_s(1, {"n1"}, 10) == 0


def test_ranks_that_wait_at_a_barrier_for_one_that_works_are_not_idle() -> None:
    watch = IdleWatch()
    stands(watch, 600)
    stands(watch, 600, node_name="n2", busy_ratio=0.9)
    assert watch.since_s(1, {"n1", "n2"}, 600) == 598
    assert watch.since_s(1, {"n1"}, 600) == 0


async def test_an_idle_job_is_told_until_it_steps() -> None:
    async with world(idle_after_s=0.0) as w:
        await w.good("POST", "/node", node())
        await w.submit(user="ann", name="nb-explore")
        await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0, progress={"at_s": 1.0, "steps": 1})))
        still = launched(1, start_s=1.0, progress={"at_s": 1.0, "steps": 1}, use={**USED, "busy_ratio": 0.0})
        for _ in range(2):
            await w.good("POST", "/node/n1/report", report(still))
        found = await overview(w)
        assert [one["job"] for one in found["idle"]] == [1]
        assert [(one["code"], one["job"], one["user"]) for one in found["look"]] == [("idle", 1, "ann")]
        await w.good("POST", "/job/1/suspend", {})
        assert (await overview(w))["idle"] == []


async def test_idle_jobs_are_stopped_where_that_is_the_rule_and_no_other() -> None:
    async with world(idle_after_s=0.0, idle_rule=IdleRule.STOP) as w:
        await w.good("POST", "/node", node(gpus=2))
        for _ in range(2):
            await w.submit(user="ann")
        step = {"at_s": 1.0, "steps": 1}
        for _ in range(2):
            rests, works = ({**USED, "busy_ratio": ratio} for ratio in (0.0, 0.7))
            told = [
                launched(1, start_s=1.0, progress=step, use=rests),
                launched(2, start_s=1.0, progress=step, use=works),
            ]
            await w.good("POST", "/node/n1/report", report(*told))
        await w.service.idle_ruling.stop_idle()
        first, second = [await w.good("GET", f"/job/{job}") for job in (1, 2)]
        assert first["state"] == "stopping"
        assert first["reason"].startswith("cancelled by the rule for idle jobs, after ")
        assert second["state"].startswith("running")


async def test_an_idle_job_is_parked_where_that_is_the_rule_and_comes_back_once_it_would_step() -> None:
    async with world(idle_after_s=0.0, idle_rule=IdleRule.PARK) as w:
        await w.good("POST", "/node", node())
        await w.submit(user="ann")
        step = {"at_s": 1.0, "steps": 9, "first_step_s": 0.5}

        async def says(**progress: Any) -> None:
            sample = {**step, **progress}
            still = launched(1, start_s=0.5, progress=sample, use={**USED, "busy_ratio": 0.0})
            await w.good("POST", "/node/n1/report", report(still))

        for _ in range(2):
            await says()
        await w.service.idle_ruling.park_idle()
        job = await w.good("GET", "/job/1")
        assert job["state"] == "running"
        kept = "it would not be seen that job 1 wants to step again"
        assert (await overview(w))["idle"][0]["problem"] == kept
        assert kept in (await overview(w))["look"][0]["sentence"]
        said = f"it is not parked, as the rule for idle jobs asks: {kept}"
        assert said in (await w.good("GET", "/job/1/why"))["now"]

        await says(rest="possible")
        await w.service.idle_ruling.park_idle()
        job = await w.good("GET", "/job/1")
        assert (job["state"], job["suspended"]) == ("paused", True)
        assert "no step and no kernel: parked by the rule for idle jobs" in job["reason"]
        (wanted,) = (await w.good("GET", "/node/n1"))["jobs"]
        assert (wanted["paused"], wanted["to_host"], wanted["at_rest"]) == (True, True, True)
        await says(rest="possible", on_host_bytes=0)
        await w.submit(user="bob")
        assert (await w.good("GET", "/job/2"))["state"] == "assigned"
        await says(rest="asks", on_host_bytes=0)
        assert (await w.good("GET", "/job/1"))["state"] == "paused", "another job has its device"
        await w.good("POST", "/finished_job", finished(2))
        job = await w.good("GET", "/job/1")
        assert job["state"].startswith("running")
        assert [line["why"] for line in job["story"][-4:]] == [
            "idle-parked", "idle-off-gpu", "steps-again", "comes-back",
        ]  # fmt: skip


async def test_co_runners_are_jobs_that_were_on_the_same_devices_at_the_same_time() -> None:
    async with world(see=See.OWN, policy="fair") as w:
        ann, bob = [await guest(w, name, user=name) for name in ("ann", "bob")]
        await w.good("POST", "/node", node(gpus=1))
        for user in ("ann", "bob", "ann"):
            await w.submit(user=user, gpu_memory="300MB")
        await w.submit(user="ann", share=False)
        (first,), (second,), (third,) = [
            (await w.good("GET", f"/job/{job}"))["attempts"][0]["spans"] for job in (1, 2, 3)
        ]
        told = await w.good("GET", "/job/1/co_runners")
        assert (told["since_s"], told["hidden"], told["left_out"]) == (first["since_s"], 0, False)
        assert [(one["id"], one["user"], one["spans"]) for one in told["jobs"]] == [
            (2, "bob", [{**second, "gpus": ["n1/0"]}]), (3, "ann", [third]),
        ]  # fmt: skip
        short = await w.good("GET", "/job/1/co_runners?limit=1")
        assert ([one["id"] for one in short["jobs"]], short["left_out"]) == ([2], True)
        assert [one["id"] for one in (await w.good("GET", "/job/3/co_runners"))["jobs"]] == [1, 2]
        waits = await w.good("GET", "/job/4/co_runners")
        assert (waits["since_s"], waits["jobs"]) == (None, [])
        for job in (1, 2, 3):
            await w.good("POST", "/finished_job", finished(job))
        assert [one["id"] for one in (await w.good("GET", "/job/1/co_runners"))["jobs"]] == [2, 3]
        alone = await w.good("GET", "/job/4/co_runners")
        assert (alone["since_s"] is None, alone["jobs"]) == (False, []), "it came after they had left"
        status, own = await ann.ask("GET", "/job/1/co_runners")
        assert (status, [one["id"] for one in own["jobs"]], own["hidden"]) == (200, [3], 1)
        assert own["jobs"][0]["spans"][0]["until_s"] is not None
        assert (await bob.ask("GET", "/job/1/co_runners"))[0] == 404


async def test_what_stopping_a_job_costs_and_which_jobs_it_helps() -> None:
    async with world(see=See.OWN) as w:
        bob = await guest(w, "b", user="bob")
        await w.good("POST", "/node", node())
        for user in ("bob", "ann", "bob"):
            await w.submit(user=user)
        before = await w.good("GET", "/job/1/cost")
        assert (before["lost_s"], before["gpus"], before["helps"], before["helped"]) == (0.0, 1, [2], 1)
        step = {"at_s": 1.0, "steps": 5}
        await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0, progress=step)))
        after = await w.good("GET", "/job/1/cost")
        assert after["lost_s"] > 0
        assert after["saved_s"] is None
        status, own = await bob.ask("GET", "/job/1/cost")
        assert (status, own["helps"]) == (200, [])
        assert (await bob.ask("GET", "/job/2/cost"))[0] == 404
        assert (await w.refused("GET", "/job/99/cost"))[0] == 404


async def test_what_a_job_used_of_what_it_asked_for() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.submit(gpu_memory="2GB", cores=2, host_memory="4GB", time_limit="1h")
        told = launched(1, start_s=1.0, use=USED)
        await w.good("POST", "/node/n1/report", report(told))
        job = w.service.read_model.jobs[JobId(1)]
        since_s = job.first_start_s or 0.0
        for second in range(0, 90, 5):
            sample = {1: w.service.samples.jobs[1]["n1"][1]}
            w.service.samples.take("n1", since_s + second, (), sample)
        found = await w.good("GET", "/job/1/efficiency")
        by = {row["what"]: row for row in found["rows"]}
        assert (by["gpu"]["used"], by["gpu"]["ratio"]) == (0.5, 0.5)
        assert (by["gpu-memory"]["asked"], by["gpu-memory"]["ratio"]) == (2e9, 0.5)
        assert (by["cores"]["asked"], by["cores"]["ratio"]) == (2.0, 0.25)
        assert by["host-memory"]["ratio"] == pytest.approx(0.025, rel=0.01)
        assert (found["is_short"], found["notes"]) == (True, [])


async def test_rows_of_the_page_are_of_jobs_that_the_caller_is_told_of() -> None:
    async with world(see=See.OWN) as w:
        bob = await guest(w, "b", user="bob")
        await w.good("POST", "/node", node())
        await w.submit(user="ann", name="first")
        for user in ("bob", "ann"):
            await w.submit(user=user, name=f"Run of {user}")
        await w.submit(user="bob", array="0-9")
        rows = await w.good("GET", "/page_rows")
        assert [one["id"] for one in rows["rows"]] == [1, 2, 3, 4]
        assert [one["is_own"] for one in rows["rows"]] == [True] * 4
        assert (rows["count"], rows["rows"][0]["gpus"], rows["rows"][0]["reason"]) == (4, ["n1/0"], "")
        assert rows["rows"][1]["reason"] == (await w.good("GET", "/job/2/why"))["sentence"]
        assert (rows["rows"][0]["nodes"], rows["rows"][1]["nodes"], rows["rows"][1]["run"]) == (["n1"], [], None)
        assert set(rows["rows"][0]["run"].values()) - {1.0} == {None}  # of speed 1 alone; no step was made yet
        status, own = await bob.ask("GET", "/page_rows?job=1&job=2")
        assert (status, own["count"], [one["id"] for one in own["rows"]]) == (200, 1, [2])
        assert await w.good("GET", f"/page_rows?seen={rows['event']}") == {"event": rows["event"]}
        assert (await w.good("GET", "/page_rows?text=run+of&first=1&limit=1"))["rows"][0]["id"] == 3
        why = (await w.good("GET", "/job/2/why"))["why"]
        assert (await w.good("GET", f"/page_rows?why={why}&text=2"))["count"] == 1
        assert (await w.http.get("/page_rows?limit=501")).status_code == 422


async def test_the_row_of_an_array_that_runs_says_how_its_elements_stand() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.submit(array="0-2")
        (row,) = (await w.good("GET", "/page_rows"))["rows"]
        assert (row["state"], row["run"]) == ("running", None)
        assert row["reason"] == "3 elements: 1 running, 2 waiting, 0 ended"


async def test_many_screens_share_an_overview_and_the_next_asks_for_what_has_happened_since() -> None:
    async with world(see=See.OWN) as w:
        bob = await guest(w, "b", user="bob")
        w.service.overviews.shared_ratio_max, w.service.overviews.shared_max_s = 1e-12, 1e6  # as if it took long
        first = await w.good("GET", "/page_rows?overview=true")
        await w.submit(user="ann")
        again = await w.good("GET", "/page_rows?overview=true")
        assert (again["count"], again["overview"]) == (1, first["overview"])
        assert again["event"] == first["event"] < (await w.good("GET", "/page_rows"))["event"]
        status, own = await bob.ask("GET", "/page_rows?overview=true")
        assert (status, own["overview"]["waiting"], own["count"]) == (200, 0, 0)
        assert (await overview(w))["waiting"] == 1


async def test_a_row_tells_how_far_a_job_is_and_how_fast() -> None:
    async with world(policy="fair") as w:
        await w.good("POST", "/node", node())
        for _ in range(2):
            await w.submit(gpu_memory="300MB", weight=1)
        sample = {"at_s": 20.0, "first_step_s": 1.0, "steps": 150, "steps_total": 600, "step_mean_s": 0.1}
        turn = {"turn": "running", "turn_share_ratio": 0.5}
        await w.good("POST", "/node/n1/report", report(launched(1, progress={**sample, **turn}), launched(2)))
        first, second = (one["run"] for one in (await w.good("GET", "/page_rows"))["rows"])
        assert (first["done_ratio"], first["steps_per_s"], first["turn_share_ratio"]) == (0.25, 10, 0.5)
        assert first["left_s"] == pytest.approx(450 / 10 / 0.5)  # it has its turn half of the time
        assert first["share_asked_ratio"] == 0.5
        assert first["speed_ratio"] == pytest.approx((await w.good("GET", "/job/1"))["rate"]["ratio"])
        assert (second["done_ratio"], second["left_s"], second["steps_per_s"]) == (None, None, None)


async def test_what_a_job_had_to_make_again_is_told_of_its_day() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        await w.submit(user="ann", gpus=2)
        sample = {"at_s": 8.0, "first_step_s": 2.0, "last_step_s": 8.0, "steps": 60, "step_mean_s": 0.1}
        await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0, progress=sample)))
        (before,) = await w.good("GET", "/usage/days?days=1")
        assert before["lost_gpu_s"] == 0
        await w.good("POST", "/job/1/requeue", {})
        await w.good("POST", "/finished_job", finished(1))
        lost_s = (await w.good("GET", "/job/1"))["lost_s"]
        (day,) = await w.good("GET", "/usage/days?days=1")
        assert day["lost_gpu_s"] == pytest.approx(2 * lost_s)
        assert lost_s > 0


async def test_the_timeline_tells_from_when_to_when_devices_were_broken_or_kept() -> None:
    marks = DeviceMarks()
    marks.take(KEPT, 10.0, {"n1/0": 7, "n1/1": 7})
    marks.take(BROKEN, 10.0, {"n1/2": None})
    marks.take(KEPT, 20.0, {"n1/0": 8})
    told = {(one.gpu, one.kind, one.job): (one.since_s, one.until_s) for one in marks.between(0.0, 100.0)}
    assert told == {
        ("n1/0", KEPT, 7): (10.0, 20.0),
        ("n1/1", KEPT, 7): (10.0, 20.0),
        ("n1/0", KEPT, 8): (20.0, None),
        ("n1/2", BROKEN, None): (10.0, None),
    }
    assert [one.gpu for one in marks.between(0.0, 10.0)] == []
    assert {one.job for one in marks.between(20.0, 30.0)} == {8, None}
    async with world() as w:
        gpus = [gpu(0), {**gpu(1), "healthy": False}]
        await w.good("POST", "/node", {**node(), "gpus": gpus})
        now_s = w.service.driver.now()
        w.service.marks.take(BROKEN, now_s - 5, broken(w.service.read_model))
        w.service.counting.mark_kept(now_s)
        (mark,) = (await w.good("GET", "/timeline"))["marks"]
        assert (mark["gpu"], mark["kind"], mark["until_s"]) == ("n1/1", "broken", None)
