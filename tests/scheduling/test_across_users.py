"""Which policies serve a queue across users: one user's thousands of jobs keep no other waiting."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from colane.core.cluster.draft import Draft
from colane.scheduling.engine.contracts import BoundOrder, Order
from colane.scheduling.presets import NAMES
from colane.scheduling.registry import create
from tests.core.worlds import make_node
from tests.scheduling.life import Coming, Life, job, known, step_time

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "policies.md"
LINE = " serve across users"
WEEK_S = 7 * 24 * 3600.0
MANY = 200


def crowd(**needs: object) -> list[Coming]:
    """Jobs of unknown length: many of one user, then two of another."""
    first = [job(0.0, 100.0 + 50.0 * (number % 2), user="ann", share=False, **needs) for number in range(MANY)]
    return [*first, *[job(10.0, 100.0, user="bob", share=False, **needs) for _ in range(2)]]


def serves(name: str, **needs: object) -> bool:
    """Whether the other user's first job starts on the first GPU that falls free."""
    life = Life(create(name), [make_node("n0", 2)], crowd(**needs)).run()
    start_s = life.spans[MANY + 1][0][0]
    assert start_s >= 100.0, "no GPU is free before"
    return start_s == 100.0


def declared() -> set[str]:
    """What the document says."""
    (line,) = [line for line in DOCUMENT.read_text().splitlines() if LINE in line]
    return set(re.findall(r"`([a-z-]+)`", line.partition(LINE)[0]))


@pytest.mark.parametrize("name", NAMES)
def test_the_document_says_which_policies_serve_across_users(name: str) -> None:
    assert serves(name) is (name in declared())


@pytest.mark.parametrize("name", NAMES)
def test_any_policy_does_with_past_use(name: str) -> None:
    assert serves(f"{name}:usage_half_life_s={WEEK_S:.0f},max_wait_s=none")


@pytest.mark.parametrize("kinds", [("f",), ("f", "g", "h")])
def test_several_users_come_in_turn_whatever_the_needs_of_their_jobs(kinds: tuple[str, ...]) -> None:
    """On GPUs that are free at once: each gets as many of them, and of its own jobs the first go first."""
    users = ("ann", *["bob"] * 3, "cyd", *["ann"] * 8, "bob", "cyd")
    jobs = [
        job(0.0, 1000.0, user=user, family=kinds[number % len(kinds)], share=False) for number, user in enumerate(users)
    ]
    life = Life(create("colane"), [make_node("n0", 6)], jobs).run()
    first = [number for number in sorted(life.spans) if life.spans[number][0][0] == 0.0]
    assert sorted(users[number - 1] for number in first) == ["ann", "ann", "bob", "bob", "cyd", "cyd"]
    for user in set(users):
        own = [number for number in range(1, len(users) + 1) if users[number - 1] == user]
        assert [number for number in own if number in first] == own[:2]


def test_value_goes_before_what_users_hold() -> None:
    """A user with nothing waits where its job is of less value: it is a tie that is broken, not an order."""
    jobs = [
        known(0.0, 500.0, user="ann", share=False), known(1.0, 400.0, user="bob", share=False),
        known(2.0, 100.0, user="ann", share=False),
    ]  # fmt: skip
    assert Life(create("colane"), [make_node("n0", 1)], jobs, [step_time(1.0)]).run().order == [1, 3, 2]


@dataclass(frozen=True)
class AskingAll:
    """An order that does not tell which classes go first."""

    order: Order

    @property
    def quantum_s(self) -> float:
        return self.order.quantum_s

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        return replace(self.order.bind(draft, pool), class_heads=None)


def test_of_many_classes_those_that_go_first_decide_as_all_do() -> None:
    """Many are as long as others, and of those the user who holds least goes first."""
    families = [f"f{number}" for number in range(160)]
    jobs = [
        known(0.0, 20.0 + 20.0 * (number % 2), user="ann" if number < 136 else "bob", family=family, share=False)
        for number, family in enumerate(families)
    ]
    steps, policy = [step_time(1.0, family=family) for family in families], create("colane")
    asks_all = replace(policy, order=AskingAll(policy.order))
    found = [Life(one, [make_node("n0", 3)], jobs, steps).run().spans for one in (policy, asks_all)]
    assert found[0] == found[1]
