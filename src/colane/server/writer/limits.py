"""Limits of users and groups, read from a file, and of which groups of the system users are."""

from __future__ import annotations

import grp
import pwd
import time
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from colane.model.limits import QUEUED_DEFAULT, GroupQuota, Limits, Quotas
from colane.server.ground.problems import near_matches

LIMIT_MAX: Final = 2**31
DEFAULT, USER, GROUP, MEMBERS, GUARANTEED = "default", "user", "group", "members", "guaranteed_gpus"
MEMBERSHIP_S: Final = 60.0
"""For so long it is remembered of what groups of the system a user is."""


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
    """Read a file of limits (TOML): tables `default`, `user.NAME` for users with their own, and `group.NAME`.

    Raises:
        LimitsError: It cannot be read, or says what cannot be.
    """
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LimitsError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise LimitsError(f"{path}: {error}") from error
    unknown = body.keys() - {DEFAULT, USER, GROUP}
    if unknown:
        tables = "[default], [user.NAME] and [group.NAME]"
        raise LimitsError(f"{path}: there is no table {min(unknown)!r}; there are {tables}")
    users, groups = _named_tables(path, body, USER), _named_tables(path, body, GROUP)
    return Quotas(
        _of_user(f"{path}: {DEFAULT}", body.get(DEFAULT, {})),
        {name: _of_user(f"{path}: {USER}.{name}", table) for name, table in users.items()},
        {name: _group(f"{path}: {GROUP}.{name}", name, table) for name, table in groups.items()},
    )


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
    if not isinstance(members, list) or not all(isinstance(user, str) and user for user in members):
        raise LimitsError(f'{place}.{MEMBERS}: must be names of users, as ["ann", "bob"], got {members!r}')
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
