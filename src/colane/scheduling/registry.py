"""Policies by name."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from colane.scheduling.admissions.ageing import Ageing
from colane.scheduling.engine.loop import Composed
from colane.scheduling.engine.options import WORDS, PolicyOptionError, configured, with_options
from colane.scheduling.mechanisms.fairness.allocation import NoSolverError, need_solver
from colane.scheduling.mechanisms.fairness.service import SmallestPart, Solver, WorstFinish
from colane.scheduling.presets import ALIASES, AS_PUBLISHED, NAMES, POLICIES, SUMMARIES

__all__ = ["ALIASES", "AS_PUBLISHED", "NAMES", "POLICIES", "SUMMARIES", "UnknownPolicyError", "create", "preset"]


class UnknownPolicyError(ValueError):
    """No policy of that name, or none with such an option; what there is near it is named."""


FORMER_NAMES: Final = {"shadow-price": "colane", "colane-0.2": "colane"}
"""What a policy is called now that had a name of its own in a version."""

FORM: Final = "as_published"  # the option that says in which form a policy is meant


def create(name: str, *, as_published: bool = False) -> Composed:
    """A policy by its registered name, with options where it has some: `pack:share_when=always`.

    Args:
        name: Name and options; `as_published=yes` or `no` among them goes before the argument.
        as_published: Without guards that its publication lacks (`AS_PUBLISHED`); of our own rows nothing is published.

    Raises:
        UnknownPolicyError: There is none, or it has no such option or not with that value.
    """
    base, has_options, options = name.partition(":")
    policy = _without_options(base)
    if policy is None:
        near = [FORMER_NAMES[base]] if base in FORMER_NAMES else get_close_matches(base.lower(), NAMES, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise UnknownPolicyError(f"policy: unknown policy {name!r}; {hint}known: {', '.join(sorted(NAMES))}")
    try:
        is_as_published, others = _form(base, options)
        if as_published if is_as_published is None else is_as_published:
            policy = replace(
                with_options(policy, AS_PUBLISHED.get(_row(base), {})), is_as_published=_row(base) in AS_PUBLISHED
            )
        found = replace(configured(policy, f"{base}:{others}"), name=name) if has_options else policy
        if isinstance(found.order, SmallestPart) and found.order.solver is Solver.LP:
            need_solver()
    except (PolicyOptionError, NoSolverError) as error:
        raise UnknownPolicyError(str(error)) from error
    return found


def bounded(name: str, max_wait_s: float) -> Composed:
    """A registered policy under which a job that has waited longer is overdue, as it is on a cluster that people use.

    Baselines are published without such a bound; one that is named with the policy, or `as_published=yes`, stands.
    Raises UnknownPolicyError: as `create`.
    """
    policy = for_service(name)
    if "max_wait_s=" in name or policy.is_as_published:
        return policy
    own = [part for part in policy.admits if isinstance(part, Ageing)]
    if any(part.max_wait_s is not None and part.max_wait_s <= max_wait_s for part in own):
        return policy
    others = tuple([part for part in policy.admits if not isinstance(part, Ageing)])
    ratio = next((part.gang_wait_ratio for part in own), None)
    return replace(policy, admits=(Ageing(max_wait_s, ratio), *others))


ROUND_MIN_S: Final = 10.0
"""About what it takes to stop a job and start another: in shorter rounds jobs move more than they run."""


def for_service(name: str) -> Composed:
    """A registered policy for jobs that really run: in each of its rounds some of them may change places.

    Raises UnknownPolicyError: as `create`; or its rounds are shorter than such a change takes.
    """
    policy = create(name)
    order = policy.order
    if isinstance(order, (SmallestPart, WorstFinish)) and order.quantum_s < ROUND_MIN_S:
        base, option = name.partition(":")[0], "quantum_s" if isinstance(order, SmallestPart) else "lease_s"
        usual = create(base).order.quantum_s
        raise UnknownPolicyError(
            f"policy: {base}: {option} must be at least {ROUND_MIN_S:g} s where jobs really run, as a change of places "
            f"takes about as long, got {order.quantum_s:g}; {usual:g} is usual"
        )
    return policy


def preset(registered: str, /, **options: object) -> Composed:
    """A registered policy with options given as values; `name` renames it."""
    name = str(options.pop("name", registered))
    return replace(with_options(create(registered), options), name=name)


def _row(base: str) -> str:
    """The row that a name stands for."""
    return ALIASES.get(base, base).partition(":")[0]


def _form(base: str, options: str) -> tuple[bool | None, str]:
    """Whether a policy is asked for as published, None where that is not said, and the other options."""
    said, others = list[str](), list[str]()
    for option in options.split(","):
        (said if option.partition("=")[0].strip() == FORM else others).append(option)
    if not said:
        return None, options
    value = said[0].partition("=")[2].strip().lower()
    if len(said) > 1 or value not in WORDS:
        raise PolicyOptionError(f"policy: {base}: {FORM} must be yes or no, and be said once")
    if WORDS[value] and _row(base) not in AS_PUBLISHED:
        raise PolicyOptionError(f"policy: {base} is Colane's own and published nowhere; leave {FORM} away")
    return WORDS[value], ",".join(others)


def _without_options(name: str) -> Composed | None:
    """The policy of a row or a short name; one of a short name keeps that, so that records say what was asked for."""
    meant = ALIASES.get(name)
    return POLICIES.get(name) if meant is None else replace(create(meant), name=name)
