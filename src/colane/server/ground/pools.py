"""What a pool of machines is for, and how jobs may be served: how long they may run, and whose they may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from colane.api.job_request import JobRequest
from colane.api.nodes import PoolObject, QosObject
from colane.model.job_spec import is_among, parse_nodes
from colane.model.limits import QOS_LABEL
from colane.model.nearest import did_you_mean
from colane.model.problem import Problem
from colane.server.ground.problems import RefusedError


def _said(seconds: float) -> str:
    return f"{seconds / 3600:g}h" if seconds >= 3600 else f"{seconds / 60:g}m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Whose jobs may use something; None and None: any user's."""

    users: Sequence[str] | None = None  # whose jobs may use it, beside those of `groups`
    # as `users`; each with its members, None for those of the system's group of this name
    groups: Mapping[str, frozenset[str] | None] | None = None

    def refusal(self, user: str, groups_of: Callable[[str], frozenset[str]]) -> str:
        """Whose it is, where it is not this user's; empty where it is."""
        if (self.users is None and self.groups is None) or user in (self.users or ()):
            return ""
        for name, members in (self.groups or {}).items():
            if user in members if members is not None else name in groups_of(user):
                return ""
        return ", ".join([*(self.users or ()), *(f"group {name}" for name in self.groups or ())]) or "no user"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRule(Access):
    """Of one pool; None bounds nothing."""

    time_limit_max_s: float | None = None  # its jobs may run no longer
    time_limit_default_s: float | None = None  # so long may jobs run that say nothing; None: as long as any
    qos: Sequence[str] | None = None  # how its jobs may be served


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset(Access):
    """How jobs are served that ask for it by name (`--qos`); None bounds nothing."""

    priority: int | None = 0  # their priority; None: what they ask for
    preemptible: bool = False  # whether one may be stopped for others, if it does not say
    time_limit_max_s: float | None = None  # they may run no longer, and end then if they do not say
    gpus_max: int | None = None  # each may ask for no more

    def problems(self, request: JobRequest, groups_of: Callable[[str], frozenset[str]]) -> Iterator[Problem]:
        """Yield what is wrong with what a job asks for."""
        name, limit_s, most_s = request.qos, request.time_limit_s, self.time_limit_max_s
        if whose := self.refusal(request.user, groups_of):
            yield Problem("qos", f"{name!r} is for {whose}: choose another qos")
        if self.priority is not None and "priority" in request.model_fields_set:
            yield Problem("priority", f"is {self.priority} of qos {name}: leave it out, or the qos")
        if limit_s is not None and most_s is not None and limit_s > most_s:
            yield Problem("time_limit", f"must be at most {most_s / 60:g}m of qos {name}, got {limit_s / 60:g}m")
        if self.gpus_max is not None and request.gpus[-1] > self.gpus_max:
            yield Problem("gpus", f"must be at most {self.gpus_max} of qos {name}, got {request.gpus[-1]}")


USUAL: Final = "normal"  # how jobs are served that do not say
PRESETS: Final[Mapping[str, Preset]] = {
    "debug": Preset(priority=100, time_limit_max_s=1800.0, gpus_max=2),
    USUAL: Preset(priority=None),
    "sweep": Preset(priority=-100, preemptible=True),
}


@dataclass(frozen=True, slots=True)
class PoolRules:
    """Of all pools."""

    by_pool: Mapping[str, PoolRule] = field(default_factory=dict)  # of those that have any
    # tells the groups of the system that a user is in
    groups_of: Callable[[str], frozenset[str]] = field(default=lambda _: frozenset(), compare=False)
    features: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what nodes have each, by the word for it
    served: Mapping[str, Preset] = field(default_factory=lambda: PRESETS)  # how jobs may be served, by name

    def told(self, pools: Iterable[str]) -> list[PoolObject]:
        """What callers are told of these pools."""
        return [
            {
                "name": pool,
                "time_limit_max_s": rule.time_limit_max_s,
                "time_limit_default_s": rule.time_limit_default_s,
                "users": None if rule.users is None else list(rule.users),
                "groups": None if rule.groups is None else list(rule.groups),
                "qos": None if rule.qos is None else list(rule.qos),
                "features": {name: list(nodes) for name, nodes in self.features.items()},
            }
            for pool, rule in ((pool, self.of(pool)) for pool in pools)
        ]

    def ways(self) -> list[QosObject]:
        """What callers are told of how jobs may be served."""
        return [
            {
                "name": name,
                "priority": way.priority or 0,
                "time_limit_max_s": way.time_limit_max_s,
                "gpus_max": way.gpus_max,
                "users": None if way.users is None else list(way.users),
                "groups": None if way.groups is None else list(way.groups),
            }
            for name, way in self.served.items()
        ]

    def of(self, pool: str) -> PoolRule:
        """The rule of a pool."""
        return self.by_pool.get(pool, PoolRule())

    def judged(self, request: JobRequest, *, is_limited: bool) -> JobRequest:
        """Return a request, its amounts in base units, with the time limit that its pool gives it, and its nodes.

        Args:
            request: It.
            is_limited: Whether it was submitted with a time limit.

        Raises:
            RefusedError: 422, its pool or its QoS does not allow what it asks for.
        """
        request = self._served(request)
        rule, limit_s = self.of(request.pool), request.time_limit_s
        if not is_limited:
            usual_s = rule.time_limit_default_s if limit_s is None else limit_s
            limit_s = min([one for one in (usual_s, rule.time_limit_max_s) if one is not None], default=None)
        problems = [*self._problems(request, rule), *self.too_long(request.pool, limit_s)]
        nodes, problem = self._nodes(request)
        if problems := [*problems, *([problem] if problem else [])]:
            raise RefusedError(422, problems)
        if limit_s == request.time_limit_s and nodes == request.nodes:
            return request
        return request.model_copy(update={"time_limit_s": limit_s, "nodes": nodes})

    def _served(self, request: JobRequest) -> JobRequest:
        """Return a request with what its QoS says put in. Raises RefusedError: 422, that is not allowed."""
        name, preset = request.qos, self.served.get(request.qos)
        if preset is None:
            said = f"must be one of {', '.join(self.served)}, got {name!r}{did_you_mean(name, self.served)}"
            raise RefusedError(422, [Problem("qos", said)])
        if problems := [*preset.problems(request, self.groups_of)]:
            raise RefusedError(422, problems)
        values: dict[str, Any] = {} if name == USUAL else {"labels": {**request.labels, QOS_LABEL: name}}
        if preset.priority is not None:
            values["priority"] = preset.priority
        if preset.preemptible and "preemptible" not in request.model_fields_set:
            values["preemptible"] = True
        if preset.time_limit_max_s is not None and request.time_limit_s is None:
            values["time_limit_s"] = preset.time_limit_max_s
        return request.model_copy(update=values) if values else request

    def _nodes(self, request: JobRequest) -> tuple[str, Problem | None]:
        """The nodes that a request may use, by their names and features; and what is wrong with these."""
        try:
            nodes = parse_nodes(request.nodes)
        except ValueError as error:
            return "", Problem("nodes", str(error))
        if request.features is None:
            return nodes, None
        names = re.split(r"[&|]", request.features)
        if unknown := [name for name in names if name not in self.features]:
            there = ", ".join(self.features) or "none, as [features] of the file of limits (--limits) names none"
            return "", Problem("features", f"no node has {unknown[0]!r}: there are {there}; as a100&ib or a100|h100")
        ways = [[self.features[name] for name in way.split("&")] for way in request.features.split("|")]
        able = dict.fromkeys(node for way in ways for node in way[0] if all(node in each for each in way))
        left = [node for node in able if is_among(nodes, node)]
        beside = f" and is among {nodes}" if nodes else ""
        return ",".join(left), None if left else Problem("features", f"no node has {request.features}{beside}")

    def too_long(self, pool: str, limit_s: float | None, qos: str = USUAL) -> Iterator[Problem]:
        """Yield what is wrong with a time limit in a pool, of a job that is served so."""
        served = self.served.get(qos, Preset())
        for most_s, where in (
            (served.time_limit_max_s, f"of qos {qos}"),
            (self.of(pool).time_limit_max_s, f"in pool {pool}"),
        ):
            if most_s is not None and (limit_s is None or limit_s > most_s):
                asked = "none" if limit_s is None else _said(limit_s)
                yield Problem("time_limit", f"must be at most {_said(most_s)} {where}, got {asked}")

    def _problems(self, request: JobRequest, rule: PoolRule) -> Iterator[Problem]:
        if whose := rule.refusal(request.user, self.groups_of):
            yield Problem("pool", f"{request.pool!r} is for {whose}: choose another pool")
        if rule.qos is not None and request.qos not in rule.qos:
            yield Problem("qos", f"must be one of {', '.join(rule.qos)} in pool {request.pool}, got {request.qos}")
