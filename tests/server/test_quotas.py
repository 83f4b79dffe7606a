"""What users may have: told when they submit, and kept while their jobs wait and run."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from random import Random

import pytest

from colane.model.limits import QUEUED_DEFAULT, GroupQuota, Limits, Quotas
from colane.model.resources import Guarantee
from colane.server.board.clock import Clocks
from colane.server.config import quotas
from colane.server.writer.limits import LimitsError, SystemGroups, read_quotas
from colane.settings.sources import gather
from colane.settings.table import SERVER
from tests.memory_store import MemoryStore
from tests.server.harness import SLEEP, SteadyClock, World, finished, node, report, world

FILE = """
[default]
gpus = 2
queued = 10
[user.ann]
running = 1
submits_per_minute = 5
"""


async def has_state(w: World, job: int, state: str) -> None:
    await w.line(lambda line: line.kind == "job" and line.body["job"] == job and line.body["state"] == state)


async def running(w: World, user: str) -> tuple[int, int]:
    """Jobs and GPUs that a user's jobs hold."""
    jobs = [job for job in await w.good("GET", "/live_jobs") if job["user"] == user and job["node"]]
    return len(jobs), sum(len(job["gpus"]) for job in jobs)


def test_a_file_says_it(tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text(FILE)
    quotas = read_quotas(tmp_path / "limits.toml")
    assert quotas.of("bob") == Limits(gpus=2, queued=10)
    assert quotas.of("ann") == Limits(running=1, queued=QUEUED_DEFAULT, submits_per_minute=5)
    assert not Quotas().hold


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[default", "limits.toml: "),
        (
            "[groups.x]\ngpus = 1",
            "there is no table 'groups'; there are [default], [user.NAME], [group.NAME], [qos.NAME], [pool.NAME] and ",
        ),
        ("group = 3", "group: must be tables [group.NAME]"),
        ("[group.no-such-group-here]\ngpus = 1", "has no group 'no-such-group-here'; name its users: members"),
        ('[group.lab]\nmembers = "ann"', "group.lab.members: must be names"),
        ("[group.lab]\nmembers = [1]", "group.lab.members: must be names"),
        ("[group.lab]\nmembers = []\ngpu = 1", "group.lab.gpu: did you mean gpus"),
        ('[group.lab]\nmembers = ["ann"]\nguaranteed_gpus = -1', "group.lab.guaranteed_gpus: must be a whole number"),
        ('[group.lab]\nmembers = ["ann"]\ngpus = 1\nguaranteed_gpus = 2', "must be at most gpus, which is 1, got 2"),
        ("[group.root]\nguaranteed_gpus = 2", "guaranteed_gpus: name the users it is for: members = [...]"),
        ("[user.ann]\nguaranteed_gpus = 2", "user.ann.guaranteed_gpus: "),
        ("[group.no-such-group-here]\ngpu_hours_per_month = 5", "this machine has no group 'no-such-group-here'"),
        ("[user.ann]\ngpu_hours_per_month = 0.5", "user.ann.gpu_hours_per_month: must be a whole number"),
        ("[qos.vip]\nrunning = -1", "qos.vip.running: must be a whole number"),
        ("user = 3", "user: must be tables"),
        ("[user]\nann = 3", "user.ann: must be a table of gpus"),
        ("[default]\ngpu = 1", "default.gpu: did you mean gpus"),
        ("[user.ann]\ngpus = -1", "user.ann.gpus: must be a whole number from 0 up, got -1"),
        ("[default]\nqueued = true", "must be a whole number from 0 up, got True"),
        ("[default]\nqueued = 1.5", "must be a whole number from 0 up, got 1.5"),
    ],
)
def test_a_file_that_says_what_cannot_be(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "limits.toml").write_text(text)
    with pytest.raises(LimitsError) as error:
        read_quotas(tmp_path / "limits.toml")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_says_what_groups_are_guaranteed(tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text(
        '[group.lab]\nmembers = ["ann"]\nguaranteed_gpus = 2\n[group.old]\nmembers = []'
    )
    found = read_quotas(tmp_path / "limits.toml")
    assert found.guarantees == (Guarantee("lab", 2, frozenset({"ann"})),)
    assert not found.hold


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LimitsError, match="cannot be read"):
        read_quotas(tmp_path / "none.toml")


async def test_by_default_one_user_s_waiting_jobs_are_bounded_and_another_s_are_taken() -> None:
    async with world(quotas=quotas(gather(SERVER, {}, environment={}))) as w:
        taken = await w.good("POST", "/jobs", [{**SLEEP, "user": "ann"}] * QUEUED_DEFAULT)
        assert len(taken["ids"]) == QUEUED_DEFAULT
        refused = await w.http.post("/job", json={**SLEEP, "user": "ann"})
        assert refused.status_code == 429
        assert "ann may have 10000 jobs waiting, and has 10000" in refused.json()["detail"]
        assert "--limits FILE" in refused.json()["detail"]
        await w.good("POST", "/job", {**SLEEP, "user": "bob"})


async def test_more_than_a_user_may_have_waits_with_its_reason_and_goes_on_by_itself() -> None:
    async with world(quotas=Quotas(Limits(gpus=2), {"bob": Limits()})) as w:
        await w.good("POST", "/node", node(gpus=4))
        for _ in range(3):
            await w.submit(user="ann")
        for job in (1, 2):
            await has_state(w, job, "assigned")
        assert (await w.good("GET", "/job/3/why"))["sentence"] == (
            "QOSMaxGRESPerUser: ann's limit of 2 GPUs is reached: 2 GPUs used, 1 more needed; "
            "it starts when others under it have ended"
        )
        assert await running(w, "ann") == (2, 2)
        await w.submit(user="bob")
        await w.submit(user="bob")
        await has_state(w, 5, "assigned")
        await w.good("POST", "/node/n1/report", report(*[{"id": 1, "attempt": 1, "phase": "launched", "pid": 1}]))
        await w.good("POST", "/finished_job", finished(1))
        await has_state(w, 3, "assigned")


async def test_no_user_gets_round_it_by_suspending_and_resuming() -> None:
    async with world(quotas=Quotas(Limits(running=1))) as w:
        await w.good("POST", "/node", node(gpus=4))
        await w.submit(user="ann")
        await has_state(w, 1, "assigned")
        await w.submit(user="ann")
        status, said = await w.refused("POST", "/job/2/resume", {})
        assert (status, "job 2 waits for ann's limit of 1 running job" in said) == (409, True)
        await w.good("POST", "/job/2/suspend", {})
        assert (await w.good("GET", "/job/2/why"))["why"] == "held"
        await w.good("POST", "/job/2/resume", {})
        assert (await w.good("GET", "/job/2/why"))["why"] == "limit"
        assert await running(w, "ann") == (1, 1)


async def test_held_jobs_are_held_by_the_next_scheduler_and_let_go_by_one_without_limits() -> None:
    store = MemoryStore()
    quotas = Quotas(Limits(gpus=1))
    async with world(store, quotas=quotas) as w:
        await w.good("POST", "/node", node(gpus=4))
        for _ in range(3):
            await w.submit(user="ann")
        await has_state(w, 1, "assigned")
    async with world(store, quotas=quotas, tick_s=0.01) as w:
        await w.submit(user="bob")
        await has_state(w, 4, "assigned")
        assert await running(w, "ann") == (1, 1)
    async with world(store, tick_s=0.01) as w:
        await has_state(w, 3, "assigned")
        assert await running(w, "ann") == (3, 3)


@pytest.mark.parametrize("seed", range(5))
async def test_no_one_ever_has_more_whatever_is_asked(seed: int) -> None:
    random, most = Random(seed), {"ann": (2, 3), "bob": (3, 2)}
    quotas = Quotas(Limits(), {user: Limits(running=jobs, gpus=gpus) for user, (jobs, gpus) in most.items()})
    async with world(quotas=quotas, tick_s=0.01) as w:
        await w.good("POST", "/node", node(gpus=8))
        ids: list[int] = []
        for _ in range(60):
            act = random.choice(("submit", "submit", "cancel", "suspend", "resume"))
            if act == "submit" or not ids:
                ids.append(await w.submit(user=random.choice(("ann", "bob")), gpus=random.choice((1, 1, 2))))
            elif act == "cancel":
                await w.http.delete(f"/job/{random.choice(ids)}")
            else:
                await w.http.post(f"/job/{random.choice(ids)}/{act}", json={})
            for user, (jobs, gpus) in most.items():
                has = await running(w, user)
                assert has[0] <= jobs
                assert has[1] <= gpus


async def test_what_could_never_run_and_what_is_too_much_at_once_is_refused_whole() -> None:
    clock = SteadyClock(step_s=0.0)
    quotas = Quotas(
        Limits(gpus=1), {"ann": Limits(queued=2), "eve": Limits(running=0), "dan": Limits(submits_per_minute=2)}
    )
    async with world(quotas=quotas, clocks=Clocks(steady=clock)) as w:
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "bob", "gpus": 2})
        assert (status, said) == (422, [{"field": "gpus", "message": "must be at most 1, the limit of bob, got 2"}])
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "eve"})
        assert (status, said) == (422, [{"field": "user", "message": "eve may run no jobs"}])
        await w.submit(user="ann")
        status, said = await w.refused("POST", "/jobs", [{**SLEEP, "user": "ann"}] * 2)
        assert (status, said) == (
            429, ("ann may have 2 jobs waiting, and has 1; submit 2 more when some have started, or ask "
            "an operator for a larger `queued` (colane server --limits FILE)")
        )  # fmt: skip
        await w.submit(user="ann")
        for _ in range(2):
            await w.submit(user="dan")
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "dan"})
        assert (status, said) == (
            429, "dan may submit 2 jobs a minute, and has submitted 2; wait, or send fewer at once"
        )  # fmt: skip
        clock.skip(61.0)
        await w.submit(user="dan")
        assert [job["user"] for job in await w.good("GET", "/jobs")] == ["ann", "ann", "dan", "dan", "dan"]


async def test_elements_of_arrays_count_in_every_quota() -> None:
    clock = SteadyClock(step_s=0.0)
    quotas = Quotas(Limits(queued=5), {"dan": Limits(submits_per_minute=4)})
    async with world(quotas=quotas, clocks=Clocks(steady=clock)) as w:
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "ann", "array": "0-99999"})
        assert status == 429
        assert said.startswith("ann may have 5 jobs waiting, and has 0 (elements of arrays count each); ")
        await w.submit(user="ann", array="0-2")
        for more in ({"array": "0-2"}, {"array": "7,9,11"}):
            assert (await w.refused("POST", "/job", {**SLEEP, "user": "ann", **more}))[0] == 429
        await w.submit(user="ann", array="0-1")
        assert (await w.refused("POST", "/jobs", [{**SLEEP, "user": "ann"}]))[0] == 429
        await w.good("POST", "/node", node(gpus=3))
        await has_state(w, 2, "assigned")
        await has_state(w, 4, "assigned")
        await w.submit(user="ann", array="0-2")
        assert (await w.refused("POST", "/job", {**SLEEP, "user": "ann"}))[0] == 429
        await w.submit(user="dan", array="0-3")
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "dan"})
        assert (status, said.startswith("dan may submit 4 jobs a minute, and has submitted 4;")) == (429, True)


async def test_users_without_a_name_have_one_quota_together() -> None:
    quotas = Quotas(Limits(queued=3, running=1), {"4711": Limits(queued=1)})
    async with world(quotas=quotas) as w:
        for number in range(3):
            await w.submit(user=str(100_000 + number))
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "100777"})
        assert (status, said.startswith("users without a name may have 3 jobs waiting, and has 3;")) == (429, True)
        await w.submit(user="4711")
        await w.submit(user="ann")
        await w.good("POST", "/node", node(gpus=8))
        await has_state(w, 1, "assigned")
        await has_state(w, 5, "assigned")
        assert await w.state(2) == await w.state(3) == "queued"


LAB = GroupQuota(Limits(gpus=3, running=2, queued=6, submits_per_minute=8), frozenset({"ann", "bob"}))


async def test_a_group_s_limit_holds_for_its_members_together_and_for_no_other_user() -> None:
    async with world(quotas=Quotas(Limits(), {}, {"lab": LAB})) as w:
        await w.good("POST", "/node", node(gpus=8))
        for user in ("ann", "bob", "ann", "eve"):
            await w.submit(user=user)
        await has_state(w, 2, "assigned")
        await has_state(w, 4, "assigned")
        assert (await w.good("GET", "/job/3/why"))["sentence"] == (
            "QOSGrpJobsLimit: group lab's limit of 3 GPUs and 2 running jobs is reached: 2 jobs used, one more needed; "
            "it starts when others under it have ended"
        )
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "bob", "gpus": 4})
        assert (status, said) == (
            422,
            [{"field": "gpus", "message": "must be at most 3, the limit of group lab, got 4"}],
        )
        status, said = await w.refused("POST", "/jobs", [{**SLEEP, "user": "bob"}] * 7)
        assert (status, said.startswith("group lab may have 6 jobs waiting, and has 1;")) == (429, True)
        await w.good("DELETE", "/job/2")
        await w.good("POST", "/finished_job", finished(2))
        await has_state(w, 3, "assigned")


async def test_a_user_held_by_their_own_limit_does_not_keep_others_of_the_group_waiting() -> None:
    lab = GroupQuota(Limits(running=3), frozenset({"ann", "bob"}))
    async with world(quotas=Quotas(Limits(), {"ann": Limits(running=1)}, {"lab": lab})) as w:
        await w.good("POST", "/node", node(gpus=8))
        for user in ("ann", "ann", "ann", "ann", "bob", "bob", "bob"):
            await w.submit(user=user)
        await has_state(w, 6, "assigned")
        assert (await running(w, "ann"))[0] == 1
        assert (await running(w, "bob"))[0] == 2


async def test_a_group_s_pace_is_that_of_all_its_members() -> None:
    clock = SteadyClock(step_s=0.0)
    lab = GroupQuota(Limits(submits_per_minute=2), frozenset({"ann", "bob"}))
    async with world(quotas=Quotas(groups={"lab": lab}), clocks=Clocks(steady=clock)) as w:
        for user in ("ann", "bob", "eve"):
            await w.submit(user=user)
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "ann"})
        assert (status, said) == (
            429, "group lab may submit 2 jobs a minute, and has submitted 2; wait, or send fewer at once"
        )  # fmt: skip
        clock.skip(61.0)
        await w.submit(user="ann")


def test_groups_are_the_system_s_where_the_file_names_no_members(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.getuid())
    group = grp.getgrgid(me.pw_gid).gr_name
    (tmp_path / "limits.toml").write_text(f"[group.{group}]\nrunning = 3\n[group.lab]\nmembers = ['ann']\ngpus = 4")
    quotas = read_quotas(tmp_path / "limits.toml")
    groups = SystemGroups()
    assert [bound.told() for bound in quotas.bounds(me.pw_name, groups.of(me.pw_name))] == [
        f"{me.pw_name}'s limit of nothing", f"group {group}'s limit of 3 running jobs"
    ]  # fmt: skip
    assert [bound.name for bound in quotas.bounds("ann", groups.of("ann"))] == ["ann", "group lab"]
    assert groups.of("nobody-of-that-name") == frozenset()
