"""Limits of users and groups, read from a file, and of which groups of the system users are."""

from __future__ import annotations

import grp
import pwd
import re
import time
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from colane.model.job_spec import Qos
from colane.model.limits import QUEUED_DEFAULT, GroupQuota, Limits, Quotas
from colane.model.quantities import parse_duration_s
from colane.server.ground.pools import PoolRule, PoolRules
from colane.server.ground.problems import near_matches

LIMIT_MAX: Final = 2**31
DEFAULT, USER, GROUP, POOL, MEMBERS, GUARANTEED = "default", "user", "group", "pool", "members", "guaranteed_gpus"
FEATURES: Final = "features"
_FEATURE: Final = re.compile(r"[\w.-]+")
POOL_TIMES: Final = ("time_limit_max", "time_limit_default")
POOL_LISTS: Final = ("users", "groups", "qos")
MEMBERSHIP_S: Final = 60.0  # for so long it is remembered of what groups of the system a user is


class LimitsError(Exception):
    """A file of limits says what cannot be; the message is one line that names the place."""


class SystemGroups:
    """Of which groups of the system users are; it is asked anew from time to time."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    def of(self, user: str) -> frozenset[str]:
        """Return the names of a user's groups."""
        known = self._known.get(user)
        if known is None or time.monotonic() > known[0] + MEMBERSHIP_S:
            known = self._known[user] = time.monotonic(), _system_groups(user)
        return known[1]


def _system_groups(user: str) -> frozenset[str]:
    """Return the names of the groups in which the system has a user; none where the user is unknown to it."""
    try:
        first = pwd.getpwnam(user).pw_gid
    except KeyError:
        return frozenset()
    return frozenset(group.gr_name for group in grp.getgrall() if group.gr_gid == first or user in group.gr_mem)


def read_quotas(path: Path) -> Quotas:
    """Read of a file of limits (TOML) the tables `default`, `user.NAME` for users with their own, and `group.NAME`.

    Raises LimitsError: it cannot be read, or says what cannot be.
    """
    body = _read(path)
    users, groups = _named_tables(path, body, USER), _named_tables(path, body, GROUP)
    return Quotas(
        _of_user(f"{path}: {DEFAULT}", body.get(DEFAULT, {})),
        {name: _of_user(f"{path}: {USER}.{name}", table) for name, table in users.items()},
        {name: _group(f"{path}: {GROUP}.{name}", name, table) for name, table in groups.items()},
    )


def read_pools(path: Path) -> PoolRules:
    """Read its tables `pool.NAME`. Raises LimitsError: it cannot be read, or says what cannot be."""
    body = _read(path)
    groups = {
        name: frozenset(table[MEMBERS]) if isinstance(table, dict) and MEMBERS in table else None
        for name, table in _named_tables(path, body, GROUP).items()
    }
    rules = {
        name: _pool(f"{path}: {POOL}.{name}", table, groups) for name, table in _named_tables(path, body, POOL).items()
    }
    features = body.get(FEATURES, {})
    if not isinstance(features, dict):
        raise LimitsError(f'{path}: {FEATURES}: must be names of nodes by feature, as a100 = ["n1"]')
    for name, nodes in features.items():
        _names(f"{path}: {FEATURES}.{name}", nodes)
        if not _FEATURE.fullmatch(name):
            raise LimitsError(f"{path}: {FEATURES}.{name}: must be a word of letters, digits, '.', '_' and '-'")
    return PoolRules(rules, SystemGroups().of, features)


def _pool(place: str, table: Any, groups: Mapping[str, frozenset[str] | None]) -> PoolRule:  # noqa: ANN401 - whatever the file holds
    known = [*POOL_TIMES, *POOL_LISTS]
    if not isinstance(table, dict):
        raise LimitsError(f"{place}: must be a table of {', '.join(known)}")
    for name in table:
        if name not in known:
            raise LimitsError(f"{place}.{name}: {near_matches(name, known)}there are {', '.join(known)}")
    lists = {name: _names(f"{place}.{name}", table[name]) for name in POOL_LISTS if name in table}
    for name in lists.get("qos", ()):
        if name not in set(Qos):
            raise LimitsError(f"{place}.qos: {near_matches(name, list(Qos))}there are {', '.join(Qos)}")
    for name in lists.get("groups", ()):
        if name not in groups:
            _demand_system_group(f"{place}.groups", name)
    most_s, usual_s = (_time(f"{place}.{name}", table.get(name)) for name in POOL_TIMES)
    if most_s is not None and usual_s is not None and usual_s > most_s:
        raise LimitsError(f"{place}.{POOL_TIMES[1]}: must be at most {POOL_TIMES[0]}, {table[POOL_TIMES[0]]}")
    members = {name: groups.get(name) for name in lists["groups"]} if "groups" in lists else None
    return PoolRule(
        time_limit_max_s=most_s, time_limit_default_s=usual_s, users=lists.get("users"), groups=members,
        qos=lists.get("qos"),
    )  # fmt: skip


def _names(place: str, value: Any) -> list[str]:  # noqa: ANN401 - whatever the file holds
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise LimitsError(f'{place}: must be names, as ["ann", "bob"], got {value!r}')
    return value


def _time(place: str, value: Any) -> float | None:  # noqa: ANN401 - whatever the file holds
    if value is None:
        return None
    try:
        seconds = parse_duration_s(value) if isinstance(value, str) else 0.0
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise LimitsError(f'{place}: must be a time, as "90m", "24h" or "2-00:00", got {value!r}')
    return seconds


def _read(path: Path) -> dict[str, Any]:
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LimitsError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise LimitsError(f"{path}: {error}") from error
    unknown = body.keys() - {DEFAULT, USER, GROUP, POOL, FEATURES}
    if unknown:
        tables = "[default], [user.NAME], [group.NAME], [pool.NAME] and [features]"
        raise LimitsError(f"{path}: there is no table {min(unknown)!r}; there are {tables}")
    return body


def _named_tables(path: Path, body: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    tables = body.get(kind, {})
    if not isinstance(tables, dict):
        raise LimitsError(f"{path}: {kind}: must be tables [{kind}.NAME]")
    return tables


def _group(place: str, name: str, table: Any) -> GroupQuota:  # noqa: ANN401 - whatever the file holds
    members = table.get(MEMBERS) if isinstance(table, dict) else None
    if members is None:
        if isinstance(table, dict) and GUARANTEED in table:
            raise LimitsError(f"{place}.{GUARANTEED}: name the users it is for: members = [...]")
        _demand_system_group(place, name)
        return GroupQuota(_limits(place, table))
    members = _names(f"{place}.{MEMBERS}", members)
    own = {field: value for field, value in table.items() if field not in {MEMBERS, GUARANTEED}}
    limits, gpus = _limits(place, own), _whole(f"{place}.{GUARANTEED}", table.get(GUARANTEED, 0))
    if limits.gpus is not None and gpus > limits.gpus:
        raise LimitsError(f"{place}.{GUARANTEED}: must be at most gpus, which is {limits.gpus}, got {gpus}")
    return GroupQuota(limits, frozenset(members), gpus)


def _demand_system_group(place: str, name: str) -> None:
    try:
        grp.getgrnam(name)
    except (KeyError, ValueError) as error:
        raise LimitsError(f"{place}: this machine has no group {name!r}; name its users: members = [...]") from error


def _of_user(place: str, table: Any) -> Limits:  # noqa: ANN401 - whatever the file holds
    """A user's limits: waiting jobs are bounded also where the table does not say so."""
    limits = _limits(place, table)
    return limits if limits.queued is not None else replace(limits, queued=QUEUED_DEFAULT)


def _limits(place: str, table: Any) -> Limits:  # noqa: ANN401 - whatever the file holds
    known = [each.name for each in fields(Limits)]
    if not isinstance(table, dict):
        raise LimitsError(f"{place}: must be a table of {', '.join(known)}")
    for name, value in table.items():
        if name not in known:
            raise LimitsError(f"{place}.{name}: {near_matches(name, known)}there are {', '.join(known)}")
        _whole(f"{place}.{name}", value)
    return Limits(**table)


def _whole(place: str, value: Any) -> int:  # noqa: ANN401 - whatever the file holds
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LIMIT_MAX:
        raise LimitsError(f"{place}: must be a whole number from 0 up, got {value!r}")
    return value
