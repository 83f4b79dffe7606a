"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType

from colane.core.policy import Policy
from colane.policies.best_fit import BestFit
from colane.policies.blocks.lanes import SHORTEST_FIRST
from colane.policies.colocate import Colocate
from colane.policies.drf import DominantResourceFairness
from colane.policies.easy_backfill import EasyBackfill
from colane.policies.fair import Fair
from colane.policies.fcfs import FirstComeFirstServed
from colane.policies.fifo import Fifo
from colane.policies.fifo_skip import FifoSkip
from colane.policies.finish_time_fair import FinishTimeFairness
from colane.policies.las import LeastAttainedService
from colane.policies.max_min import MaxMinFairness
from colane.policies.options import PolicyOptionError, configured
from colane.policies.pack import Pack
from colane.policies.salus_code import SalusCode
from colane.policies.sjf import ShortestJobFirst
from colane.policies.srtf import ShortestRemainingTimeFirst
from colane.policies.topo_aware import TopoAware

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        "fifo": Fifo,
        "fifo-skip": FifoSkip,
        "easy-backfill": EasyBackfill,
        "best-fit": BestFit,
        "colocate": Colocate,
        "sjf": ShortestJobFirst,
        "srtf": ShortestRemainingTimeFirst,
        "las": LeastAttainedService,
        "drf": DominantResourceFairness,
        "max-min": MaxMinFairness,
        "max-min-packed": partial(MaxMinFairness, name="max-min-packed", packed=True),
        "finish-time-fair": FinishTimeFairness,
        "fcfs": FirstComeFirstServed,
        "topo-aware": TopoAware,
        "topo-aware-p": partial(TopoAware, name="topo-aware-p", postpones=True),
        "topo-aware-share": partial(TopoAware, name="topo-aware-share", company_max=2),
        "pack": Pack,
        "fair": Fair,
        "salus-srtf": partial(Fair, name="salus-srtf", turns=SHORTEST_FIRST),
        "salus-code": SalusCode,
    }
)


class UnknownPolicyError(ValueError):
    """No policy of that name, or none with such an option; what there is near it is named."""


def create(name: str) -> Policy:
    """A policy by its registered name, with options where it has some: `pack:share_when=always`.

    Raises:
        UnknownPolicyError: There is none, or it has no such option or not with that value.
    """
    base, has_options, _ = name.partition(":")
    make = POLICIES.get(base)
    if make is None:
        near = get_close_matches(base.lower(), POLICIES, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise UnknownPolicyError(f"policy: unknown policy {name!r}; {hint}known: {', '.join(sorted(POLICIES))}")
    if not has_options:
        return make()
    try:
        return configured(make(), name)
    except PolicyOptionError as error:
        raise UnknownPolicyError(str(error)) from error
