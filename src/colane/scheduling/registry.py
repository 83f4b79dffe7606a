"""Policies by name."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from colane.scheduling.admissions.ageing import Ageing
from colane.scheduling.engine.loop import Composed
from colane.scheduling.engine.options import PolicyOptionError, configured, with_options
from colane.scheduling.mechanisms.fairness.allocation import NoSolverError, need_solver
from colane.scheduling.mechanisms.fairness.service import SmallestPart, Solver
from colane.scheduling.presets import ALIASES, NAMES, POLICIES, SUMMARIES

__all__ = ["ALIASES", "NAMES", "POLICIES", "SUMMARIES", "UnknownPolicyError", "create", "preset"]


class UnknownPolicyError(ValueError):
    """No policy of that name, or none with such an option; what there is near it is named."""


def create(name: str) -> Composed:
    """A policy by its registered name, with options where it has some: `pack:share_when=always`.

    Raises:
        UnknownPolicyError: There is none, or it has no such option or not with that value.
    """
    base, has_options, _ = name.partition(":")
    policy = _without_options(base)
    if policy is None:
        near = get_close_matches(base.lower(), NAMES, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise UnknownPolicyError(f"policy: unknown policy {name!r}; {hint}known: {', '.join(sorted(NAMES))}")
    if not has_options:
        return policy
    try:
        found = configured(policy, name)
        if isinstance(found.order, SmallestPart) and found.order.solver is Solver.LP:
            need_solver()
    except (PolicyOptionError, NoSolverError) as error:
        raise UnknownPolicyError(str(error)) from error
    return found


def bounded(name: str, max_wait_s: float) -> Composed:
    """A registered policy under which a job that has waited longer is overdue, as it is on a cluster that people use.

    Baselines are published without such a bound, or with a long one; one that is named with the policy stands.

    Raises:
        UnknownPolicyError: As `create`.
    """
    policy = create(name)
    if "max_wait_s=" in name:
        return policy
    own = [part for part in policy.admits if isinstance(part, Ageing)]
    if any(part.max_wait_s is not None and part.max_wait_s <= max_wait_s for part in own):
        return policy
    others = tuple([part for part in policy.admits if not isinstance(part, Ageing)])
    return replace(policy, admits=(Ageing(max_wait_s), *others))


def preset(registered: str, /, **options: object) -> Composed:
    """A registered policy with options given as values; `name` renames it."""
    name = str(options.pop("name", registered))
    return replace(with_options(create(registered), options), name=name)


def _without_options(name: str) -> Composed | None:
    """The policy of a row or a short name; one of a short name keeps that, so that records say what was asked for."""
    meant = ALIASES.get(name)
    return POLICIES.get(name) if meant is None else replace(create(meant), name=name)
