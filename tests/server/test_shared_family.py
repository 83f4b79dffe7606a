"""A family that several users name: what one user's jobs have shown is not believed of another's until two agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.shared_family import AGREED_RATIO, agree, believed_family
from tests.examples import examples
from tests.server.harness import GB, World, finished, node, world
from tests.server.test_users import guest

USERS = ("ann", "bob", "carol", "dave")


async def ran(w: World, user: str, memory: int = GB, step_s: float = 0.01, family: str = "resnet50") -> str:
    """Run a user's job to its end: the family that it is believed to be of."""
    number = await w.submit(command=["python", "train.py"], family=family, user=user)
    job = w.service.read_model.jobs[number]  # type: ignore[index]
    assert job.spec.family == family  # what its owner declared stays
    believed = job.effective.family
    progress = {"steps": 120, "first_step_s": 1.0, "last_step_s": 1.0 + 119 * step_s, "at_s": 1.0 + 119 * step_s}
    progress |= {"persistent_bytes": memory, "peak_bytes": memory}
    await w.good("POST", "/finished_job", finished(number, progress=progress))
    return believed


async def test_two_users_who_agree_teach_a_third() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        assert [await ran(w, "ann") for _ in range(2)] == ["resnet50"] * 2
        assert [await ran(w, "bob") for _ in range(2)] == ["resnet50 (of bob)", "resnet50"]
        assert await ran(w, "carol") == "resnet50"


async def test_one_user_who_lies_is_believed_by_no_other() -> None:
    """However often, before and after the others' own jobs."""
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        for _ in range(3):
            assert await ran(w, "mallory", memory=2 * GB) == "resnet50"
        assert [await ran(w, "ann") for _ in range(3)] == ["resnet50 (of ann)"] * 3
        assert [await ran(w, "bob") for _ in range(2)] == ["resnet50 (of bob)"] * 2
        believed = w.service.driver.core.state.beliefs.profiles
        assert {key.family: int(profile.memory_bytes or 0) for key, profile in believed.items()} == {
            "resnet50": 2 * GB,
            "resnet50 (of ann)": GB,
            "resnet50 (of bob)": GB,
        }


async def test_the_first_user_is_not_spoilt_by_a_later_one() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        await ran(w, "ann")
        assert [await ran(w, "mallory", memory=2 * GB) for _ in range(3)] == ["resnet50 (of mallory)"] * 3
        assert await ran(w, "ann") == "resnet50"
        assert {p.memory_bytes for p in w.service.driver.core.state.knowledge.of_family("resnet50")} == {GB}


async def test_a_users_own_family_is_named_by_no_other() -> None:
    async with world() as w:
        bob = await guest(w, "b", user="bob")
        ask: dict[str, Any] = {"command": ["true"], "family": "resnet50 (of ann)"}
        status, said = await bob.ask("POST", "/job", ask)
        text = "'resnet50 (of ann)' is what ann's jobs alone have shown: leave '(of ann)' off"
        assert (status, said["detail"]) == (422, [{"field": "family", "message": text}])
        assert (await bob.ask("POST", "/job", {**ask, "family": "resnet50 (of bob)"}))[0] == 200


async def test_what_was_asked_for_is_what_is_submitted_again() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        await ran(w, "ann")
        bob = await guest(w, "b", user="bob")
        _, made = await bob.ask("POST", "/job", {"command": ["true"], "family": "resnet50"})
        told = await w.good("GET", f"/job/{made['id']}")
        assert (told["family"], told["constraints"]) == ("resnet50", {"family": "resnet50 (of bob)"})
        _, again = await bob.ask("GET", f"/job/{made['id']}/request")
        assert again["family"] == "resnet50"


def profile(family: str, memory: float, step_s: float, source: ValueSource, *users: str, batch: int = 1) -> Profile:
    held, step = Value(memory, source), Value(step_s, source)
    key = ProfileKey(family, batch, 1, "V100")
    return Profile(key=key, step_s=step, persistent_bytes=held, ephemeral_bytes=Value(0.0, source), users=users)


@pytest.mark.parametrize(
    ("memory", "step_s", "does"),
    [(1.0, 1.0, True), (AGREED_RATIO, 1.0, True), (1.3, 1.0, False), (1.0, 1.3, False), (1 / 1.3, 1.0, False)],
)
def test_values_agree_within_a_quarter(memory: float, step_s: float, does: bool) -> None:
    measured = ValueSource.MEASURED
    one, other = profile("a", GB, 0.1, measured), profile("b", GB * memory, 0.1 * step_s, measured)
    assert agree([one], [other]) is agree([other], [one]) is does
    assert not agree([one], [profile("b", GB, 0.1, measured, batch=2)])  # at nothing were both measured
    assert not agree([one], [profile("b", GB, 0.1, ValueSource.DECLARED)])


@given(st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from([1.0, 1.2, 9.0])), min_size=1, max_size=12))
@examples(200)
def test_one_users_word_alone_is_not_believed_of_anothers(history: list[tuple[str, float]]) -> None:
    """Whatever comes in any order: a job's family was taught by its user, by two, or as that user's jobs showed."""
    beliefs = Beliefs()
    for user, memory in history:
        family = believed_family("net", user, beliefs)
        users = {each for known in beliefs.of_family(family) for each in known.users}
        has_shown = agree(beliefs.of_family(family), beliefs.of_family(f"net (of {user})"))
        assert not users or user in users or len(users) >= 2 or has_shown, (family, user, users)
        beliefs.learn_profile(profile(family, memory * GB, 0.1, ValueSource.MEASURED, user))
        assert {known.key.family for known in beliefs.profiles.values()} <= {"net"} | {f"net (of {u})" for u in USERS}


def test_what_an_operator_declared_is_believed_of_all() -> None:
    beliefs = Beliefs(profiles=[profile("net", GB, 0.1, ValueSource.DECLARED)])
    assert {believed_family("net", user, beliefs) for user in USERS} == {"net"}
    beliefs.forget("net")
    assert beliefs.of_family("net") == []
