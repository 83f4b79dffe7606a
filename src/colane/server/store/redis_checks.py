"""Whether a Redis keeps what it has acknowledged: looked at when its store is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import redis

from colane.server.store.store import Durability

WANTED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "appendonly": (("yes",), "appendonly is {}: all is lost at its end; set it to yes"),
    "appendfsync": (("always",), "appendfsync is {}: a power cut loses what was acknowledged last; set it to always"),
    "no-appendfsync-on-rewrite": (
        ("no",),
        (
            "no-appendfsync-on-rewrite is {}: a power cut while its file is rewritten loses what was acknowledged; "
            "set it to no"
        ),
    ),
    "maxmemory-policy": (
        ("noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"),
        "maxmemory-policy is {}: jobs are thrown away when memory is short; set it to noeviction",
    ),
}
"""Settings, which values keep all, and what another means."""
REPLICAS: Final = "min-replicas-to-write"
FEW_REPLICAS: Final = (
    "it has replicas and min-replicas-to-write is 0: one that lags may take over and lack what was acknowledged; "
    "set it to 1"
)


def durability(client: redis.Redis) -> Durability:
    """Return what may be lost there, and what was not to be found out. Raises RedisError: it does not answer."""
    risks, unchecked = [], []
    for name, (good, told) in WANTED.items():
        value = _setting(client, name)
        if value is None:
            unchecked.append(name)
        elif value not in good:
            risks.append(told.format(value))
    at_least = _setting(client, REPLICAS)
    if at_least is None:
        unchecked.append(REPLICAS)
    elif at_least == "0" and _replicas(client):
        risks.append(FEW_REPLICAS)
    return Durability("redis", tuple(risks), tuple(unchecked))


def _setting(client: redis.Redis, name: str) -> str | None:
    """A setting's value; None where it may not be asked for, as of managed servers."""
    try:
        found: Any = client.config_get(name)
    except redis.ConnectionError:
        raise
    except redis.ResponseError:  # of them, a user without the right, and a command that was renamed or left out
        return None
    value = found.get(name, found.get(name.encode()))
    return None if value is None else value.decode() if isinstance(value, bytes) else str(value)


def _replicas(client: redis.Redis) -> int:
    try:
        found: Any = client.info("replication")
    except redis.ResponseError:
        return 0
    return int(found.get("connected_slaves", 0))
