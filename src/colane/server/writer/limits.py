"""Limits of users and groups, read from a file, and of which groups of the system users are."""

from __future__ import annotations

import grp
import pwd
import re
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from colane.model.job_fields import PRIORITY_MAX
from colane.model.limits import QUEUED_DEFAULT, GroupQuota, Limits, QosQuota, Quotas
from colane.model.quantities import parse_duration_s
from colane.server.ground.pools import PRESETS, PoolRule, PoolRules, Preset
from colane.server.ground.problems import near_matches

LIMIT_MAX: Final = 2**31
DEFAULT, USER, GROUP, POOL, QOS = "default", "user", "group", "pool", "qos"
MEMBERS, GUARANTEED = "members", "guaranteed_gpus"
FEATURES: Final = "features"
_FEATURE: Final = re.compile(r"[\w.-]+")
POOL_TIMES: Final = ("time_limit_max", "time_limit_default")
POOL_LISTS: Final = ("users", "groups", "qos")
QOS_OF_ALL, QOS_OF_USER = ("gpus", "running"), ("gpus_per_user", "running_per_user")
QOS_KNOWN: Final = (
    "priority", "preemptible", POOL_TIMES[0], "gpus_max", *QOS_OF_ALL, *QOS_OF_USER, *POOL_LISTS[:2]
)  # fmt: skip
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
    """Read of a file of limits (TOML) `default`, `user.NAME` for users with their own, `group.NAME` and `qos.NAME`.

    Raises LimitsError: it cannot be read, or says what cannot be.
    """
    return quotas_of(path, _read(path))


def quotas_of(path: Path | str, body: Mapping[str, Any]) -> Quotas:
    """Return the same of a file's tables, or of what `tables_of` made of limits. Raises LimitsError, as above."""
    unknown = body.keys() - {DEFAULT, USER, GROUP, POOL, QOS, FEATURES}
    if unknown:
        tables = "[default], [user.NAME], [group.NAME], [qos.NAME], [pool.NAME] and [features]"
        raise LimitsError(f"{path}: there is no table {min(unknown)!r}; there are {tables}")
    users, groups = _named_tables(path, body, USER), _named_tables(path, body, GROUP)
    return Quotas(
        _of_user(f"{path}: {DEFAULT}", body.get(DEFAULT, {})),
        {name: _of_user(f"{path}: {USER}.{name}", table) for name, table in users.items()},
        {name: _group(f"{path}: {GROUP}.{name}", name, table) for name, table in groups.items()},
        {name: _of_qos(f"{path}: {QOS}.{name}", table) for name, table in _named_tables(path, body, QOS).items()},
    )


def tables_of(quotas: Quotas) -> dict[str, Any]:
    """Return limits as the tables of a file; of groups of the system with the members that it knows of."""
    found: dict[str, Any] = {DEFAULT: _table(quotas.default)}
    found[USER] = {name: _table(limits) for name, limits in quotas.users.items()}
    found[GROUP] = {
        name: _table(own.limits)
        | {MEMBERS: sorted(_members(name) if own.members is None else own.members)}
        | ({GUARANTEED: own.guaranteed_gpus} if own.guaranteed_gpus else {})
        for name, own in quotas.groups.items()
    }
    found[QOS] = {
        name: _table(own.limits) | {f"{key}_per_user": value for key, value in _table(own.per_user).items()}
        for name, own in quotas.qos.items()
    }
    return {name: table for name, table in found.items() if table}


def _table(limits: Limits) -> dict[str, int]:
    return {each.name: value for each in fields(Limits) if (value := getattr(limits, each.name)) is not None}


def _members(name: str) -> set[str]:
    group = grp.getgrnam(name)
    return {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == group.gr_gid)}


def read_pools(path: Path) -> PoolRules:
    """Read its tables `pool.NAME`, `qos.NAME` and `features`.

    Raises LimitsError: it cannot be read, or says what cannot be.
    """
    body = _read(path)
    groups = {
        name: frozenset(table[MEMBERS]) if isinstance(table, dict) and MEMBERS in table else None
        for name, table in _named_tables(path, body, GROUP).items()
    }
    own = _named_tables(path, body, QOS)
    served = {**PRESETS, **{name: _preset(f"{path}: {QOS}.{name}", name, own[name], groups) for name in own}}
    rules = {
        name: _pool(f"{path}: {POOL}.{name}", table, groups, served)
        for name, table in _named_tables(path, body, POOL).items()
    }
    features = body.get(FEATURES, {})
    if not isinstance(features, dict):
        raise LimitsError(f'{path}: {FEATURES}: must be names of nodes by feature, as a100 = ["n1"]')
    for name, nodes in features.items():
        _names(f"{path}: {FEATURES}.{name}", nodes)
        if not _FEATURE.fullmatch(name):
            raise LimitsError(f"{path}: {FEATURES}.{name}: must be a word of letters, digits, '.', '_' and '-'")
    return PoolRules(rules, SystemGroups().of, features, served)


Groups = Mapping[str, frozenset[str] | None]


def _demand_table(place: str, table: Any, known: Sequence[str]) -> None:  # noqa: ANN401 - whatever the file holds
    if not isinstance(table, dict):
        raise LimitsError(f"{place}: must be a table of {', '.join(known)}")
    for name in table:
        if name not in known:
            raise LimitsError(f"{place}.{name}: {near_matches(name, known)}there are {', '.join(known)}")


def _access(place: str, table: Mapping[str, Any], groups: Groups) -> dict[str, Any]:
    """Whose jobs may use what a table is of, as `Access` has it."""
    users, named = (_names(f"{place}.{name}", table[name]) if name in table else None for name in POOL_LISTS[:2])
    for name in named or ():
        if name not in groups:
            _demand_system_group(f"{place}.groups", name)
    return {"users": users, "groups": None if named is None else {name: groups.get(name) for name in named}}


def _preset(place: str, name: str, table: Any, groups: Groups) -> Preset:  # noqa: ANN401 - whatever the file holds
    _demand_table(place, table, QOS_KNOWN)
    if not _FEATURE.fullmatch(name):
        raise LimitsError(f"{place}: must be a word of letters, digits, '.', '_' and '-'")
    values: dict[str, Any] = {}
    if "priority" in table:
        values["priority"] = sign = table["priority"]
        if isinstance(sign, bool) or not isinstance(sign, int) or abs(sign) > PRIORITY_MAX:
            raise LimitsError(f"{place}.priority: must be a whole number within {PRIORITY_MAX} of 0, got {sign!r}")
    if "preemptible" in table:
        values["preemptible"] = table["preemptible"]
        if not isinstance(values["preemptible"], bool):
            raise LimitsError(f"{place}.preemptible: must be true or false, got {values['preemptible']!r}")
    if POOL_TIMES[0] in table:
        values["time_limit_max_s"] = _time(f"{place}.{POOL_TIMES[0]}", table[POOL_TIMES[0]])
    if "gpus_max" in table:
        values["gpus_max"] = _whole(f"{place}.gpus_max", table["gpus_max"])
    return replace(PRESETS.get(name, Preset()), **values, **_access(place, table, groups))


def _of_qos(place: str, table: Any) -> QosQuota:  # noqa: ANN401 - whatever the file holds
    _demand_table(place, table, QOS_KNOWN)
    given = {name: _whole(f"{place}.{name}", table[name]) for name in (*QOS_OF_ALL, *QOS_OF_USER) if name in table}
    of_all, of_user = ([given.get(name) for name in names] for names in (QOS_OF_ALL, QOS_OF_USER))
    return QosQuota(Limits(gpus=of_all[0], running=of_all[1]), Limits(gpus=of_user[0], running=of_user[1]))


def _pool(place: str, table: Any, groups: Groups, served: Mapping[str, Preset]) -> PoolRule:  # noqa: ANN401 - whatever the file holds
    _demand_table(place, table, [*POOL_TIMES, *POOL_LISTS])
    qos = _names(f"{place}.qos", table["qos"]) if "qos" in table else None
    for name in qos or ():
        if name not in served:
            raise LimitsError(f"{place}.qos: {near_matches(name, list(served))}there are {', '.join(served)}")
    most_s, usual_s = (_time(f"{place}.{name}", table.get(name)) for name in POOL_TIMES)
    if most_s is not None and usual_s is not None and usual_s > most_s:
        raise LimitsError(f"{place}.{POOL_TIMES[1]}: must be at most {POOL_TIMES[0]}, {table[POOL_TIMES[0]]}")
    access = _access(place, table, groups)
    return PoolRule(time_limit_max_s=most_s, time_limit_default_s=usual_s, qos=qos, **access)


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
    return body


def _named_tables(path: Path | str, body: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
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
    _demand_table(place, table, [each.name for each in fields(Limits)])
    for name, value in table.items():
        _whole(f"{place}.{name}", value)
    return Limits(**table)


def _whole(place: str, value: Any) -> int:  # noqa: ANN401 - whatever the file holds
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LIMIT_MAX:
        raise LimitsError(f"{place}: must be a whole number from 0 up, got {value!r}")
    return value
