"""Why not otherwise: the policy's own plan with one thing forced, and by what it differs."""

from __future__ import annotations

import pytest

from colane.model.choices import See
from colane.model.job import JobId
from colane.policyfiles.load import create
from colane.server.planning.otherwise import Forced, otherwise
from tests.core.worlds import World
from tests.examples import FUZZ
from tests.server.harness import World as Served
from tests.server.harness import launched, node, report, world
from tests.server.test_plan import everything, one_runs
from tests.server.test_users import guest


async def two_run_and_two_wait(w: Served) -> None:
    """On a node of one GPU each; the second that waits is behind the first."""
    for name in ("n1", "n2"):
        await w.good("POST", "/node", node(name))
    await w.submit(share=False)
    await w.submit(share=False)
    for job, at in ((1, "n1"), (2, "n2")):
        where = w.service.read_model.jobs[JobId(job)].placement
        assert where is not None
        assert where.nodes == (at,)
        await w.good("POST", f"/node/{at}/report", report(launched(job)))
    await w.submit(share=False)
    await w.submit(share=False)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("not_now=true", "forced, it would wait all the same"),
        ("not_on=n2", "forced, it would wait all the same"),
        ("instead=2", "forced, it would start on n2/0"),
        ("instead=1", "forced, it would start on n1/0"),
    ],
)
async def test_what_is_forced_is_told_by_what_it_changes(asked: str, wanted: str) -> None:
    async with world(policy="fifo") as w:
        await two_run_and_two_wait(w)
        before = everything(w)
        told = (await w.good("GET", f"/job/4/why?{asked}"))["otherwise"]
        assert everything(w) == before
        assert told[0].startswith("the policy leaves it waiting: ")
        assert told[1].startswith(wanted)
        if "instead" in asked:
            assert told[2] == f"job {asked[-1]} would leave n{asked[-1]}/0"
            assert told[-1].startswith("all that run would go at 2.00 times")


async def test_with_preemption_who_makes_way_is_told() -> None:
    async with world(policy="srtf:quantum_s=0") as w:
        await one_runs(w)
        await w.submit(family="long", steps_total=10**6)  # no shorter: the policy stops nothing for it
        told = (await w.good("GET", "/job/2/why?not_now=true"))["otherwise"]
        assert told[1] == "forced, it would start once job 1 made way"


@pytest.mark.parametrize(
    ("asked", "job", "status", "text"),
    [
        ("not_on=n9", 4, 422, "not_on: there is no node 'n9'"),
        ("instead=99", 4, 422, "instead: there is no live job 99"),
        ("instead=3", 4, 422, "instead: job 3 holds no GPU"),
        ("not_now=true", 1, 409, "job 1 does not wait for GPUs in the queue"),
        ("not_now=true", 77, 404, "77"),
    ],
)
async def test_what_cannot_be_forced_is_refused(asked: str, job: int, status: int, text: str) -> None:
    async with world(policy="fifo") as w:
        await two_run_and_two_wait(w)
        answer = await w.refused("GET", f"/job/{job}/why?{asked}")
        assert answer[0] == status
        assert text.partition(": ")[2] in str(answer[1])


async def test_jobs_of_others_are_not_named_to_who_may_not_see_them() -> None:
    async with world(policy="srtf:quantum_s=0", see=See.OWN) as w:
        await one_runs(w)
        await w.submit(user="bob", family="long", steps_total=10**6)
        bob = await guest(w, "b", user="bob")
        status, told = await bob.ask("GET", "/job/2/why?not_now=true")
        assert status == 200
        assert told["otherwise"][1] == "forced, it would start once another user's job made way"
        assert (await bob.ask("GET", "/job/2/why?instead=1"))[0] == 422


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "colane", "topo-aware-p"])
def test_in_any_state_a_forced_plan_is_one_that_may_be_carried_out(policy: str) -> None:
    assert sum(_asked(World(create(policy), seed)) for seed in range(3 * max(1, FUZZ))) > 0


def _asked(world: World) -> int:
    """Ask along a world; how often something was forced."""
    asked = 0
    for number in range(48):
        world.step(world.random_event())
        if number % 12 != 11:
            continue
        state = world.core.state
        waiting = [job for job in state.jobs.values() if job.is_waiting and not job.holds and job.spec.gpus]
        running = [job for job in state.jobs.values() if job.placement is not None and job.gpus_held]
        for job in waiting[:1]:
            every = [Forced(), *[Forced(on=name) for name in list(state.nodes)[:1]]]
            every += [Forced(instead=one.id) for one in running[:1] if not one.is_leaving]
            for forced in every:
                version = state.version
                told = otherwise(world.core, job.id, forced, world.now_s, lambda one: f"job {one}")
                assert state.version == version, "the core itself was not asked"
                assert not any(one.startswith("no plan may do that") for one in told), (forced, told)
                asked += 1
    return asked
