"""`colane profile forget`: what was learnt of a family goes, in memory and in the store, at its owner's word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import PROFILES, RUN_TIMES
from tests.server.harness import GB, World, finished, node, world
from tests.server.test_users import guest

TRAIN = {"command": ["python", "train.py"], "family": "mine"}
PROGRESS = {
    "at_s": 2.0,
    "steps": 120,
    "first_step_s": 1.0,
    "last_step_s": 2.0,
    "persistent_bytes": GB,
    "peak_bytes": GB,
}


async def ran(w: World, **job: Any) -> None:
    """Run a job to its end."""
    number = await w.submit(**{**TRAIN, **job})
    await w.good("POST", "/finished_job", finished(number, progress=PROGRESS))


def families(store: SqliteStore) -> list[str]:
    return sorted(body["key"]["family"] for _, body in store.read_all(PROFILES))


async def test_it_is_gone_before_and_after_a_restart_and_learnt_anew(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "colane.db")
    async with world(store) as w:
        await w.good("POST", "/node", node(gpus=1))
        await ran(w)
        await ran(w, family="other")
        assert families(store) == ["mine", "other"]
        assert await w.good("DELETE", "/profiles?family=mine") == {"forgotten": 2}
        assert families(store) == ["other"]
        assert [family for family, _ in store.read_all(RUN_TIMES)] == ["other"]
        assert {key.family for key in w.service.driver.core.state.beliefs.profiles} == {"other"}
        assert w.service.driver.core.state.knowledge.lengths.of_family("mine") is None
        status, detail = await w.refused("DELETE", "/profiles?family=mine")
        assert (status, "nothing is known of family mine" in str(detail)) == (404, True)
    store.close()
    store = SqliteStore(tmp_path / "colane.db")
    async with world(store) as w:
        assert {key.family for key in w.service.driver.core.state.beliefs.profiles} == {"other"}
        known = w.service.driver.core.state.knowledge.lengths.of_family("other")
        assert known is not None
        assert known.jobs == 1
        await w.good("POST", "/node", node(gpus=1))
        await ran(w)
        assert families(store) == ["mine", "other"]
    store.close()


async def test_its_owner_may_ask_for_it_and_no_other_user(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "colane.db")
    async with world(store) as w:
        ann, bob = await guest(w, "a", user="ann"), await guest(w, "b", user="bob")
        await w.good("POST", "/node", node(gpus=1))
        await ran(w, user="ann")
        await ran(w, user="ann", family="shared")
        for _ in range(2):  # once known as "shared (of bob)", until it has shown the same
            await ran(w, user="bob", family="shared")
        for who, family in ((bob, "mine"), (ann, "shared"), (bob, "shared"), (bob, "none such")):
            status, said = await who.ask("DELETE", f"/profiles?family={family}")
            assert (status, "only an operator, or a user from whose jobs alone" in str(said)) == (403, True)
        assert families(store) == ["mine", "shared", "shared (of bob)"]
        assert (await ann.ask("DELETE", "/profiles?family=mine"))[0] == 200
        assert families(store) == ["shared", "shared (of bob)"]
        line = await w.line(lambda line: line.kind == "profiles-forgotten")
        assert line.body == {"family": "mine", "by": "ann"}
    store.close()
