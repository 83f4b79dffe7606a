"""Whose jobs teach about whose, where users name the same family: those of two users once they have agreed.

A family that is derived from a command has the user in it. One that is named (`--family resnet50`) may be named by all,
so what one user's jobs have shown, be it an error or a lie, would be believed of everyone's. So the first user's jobs
keep the plain name; another's are known as `resnet50 (of bob)` until they have shown about the same. From then on both
are of the plain name, and so is a third user's: it rests on two users' word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from colane.model.problem import Problem
from colane.model.profile import Profile, Value, ValueSource
from colane.perf.knowledge import Knowledge

AGREED_RATIO: Final = 1.25
"""Two users' values agree where neither is more than this times the other: of one program on one GPU type, steps and
memory vary by a few percent."""

USERS_MIN: Final = 2  # what so many users' jobs have shown is believed of everyone's

_OWN: Final = "{family} (of {user})"
_OWN_PATTERN: Final = re.compile(r".* \(of (?P<user>[^()]*)\)")


def owned_problem(family: str | None, user: str) -> Problem | None:
    """What is wrong with naming a family; None where nothing is."""
    found = None if family is None else _OWN_PATTERN.fullmatch(family)
    if found is None or found["user"] == user:
        return None
    text = f"{family!r} is what {found['user']}'s jobs alone have shown: leave '(of {found['user']})' off"
    return Problem("family", text)


def believed_family(named: str, user: str, beliefs: Knowledge) -> str:
    """Return the family whose beliefs count for a user's job of a family."""
    own = _OWN.format(family=named, user=user)
    shown, shown_by_own = beliefs.of_family(named), beliefs.of_family(own)
    if shown_by_own:
        return named if agree(shown, shown_by_own) else own
    users = {each for profile in shown for each in profile.users}
    return named if not users or user in users or len(users) >= USERS_MIN else own


def agree(some: Iterable[Profile], others: Iterable[Profile]) -> bool:
    """Whether two families were measured to be about the same wherever both were, and somewhere both were."""
    known = {profile.key[1:]: _measured(profile) for profile in others}
    ratios = [
        max(one, other) / min(one, other)
        for profile in some
        for one, other in zip(_measured(profile), known.get(profile.key[1:], ()), strict=False)
        if one and other
    ]
    return bool(ratios) and max(ratios) <= AGREED_RATIO


def _measured(profile: Profile) -> tuple[float, float]:
    """Step time and GPU memory of a profile, 0 where they were not measured."""
    step, held, more = profile.step_s, profile.persistent_bytes, profile.ephemeral_bytes
    return _value(step), _value(held) + _value(more)


def _value(value: Value | None) -> float:
    return value.value if value is not None and value.source is ValueSource.MEASURED else 0.0
