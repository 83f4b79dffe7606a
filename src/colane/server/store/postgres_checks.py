"""Whether a Postgres keeps what it has acknowledged: looked at when its store is opened."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from colane.server.store.store import Durability

WANTED: Final = (
    ("fsync", "on", "fsync is {}: a power cut loses or damages all; set it to on"),
    ("full_page_writes", "on", "full_page_writes is {}: a power cut may damage it; set it to on"),
)
"""Settings, the value that keeps all, and what another means. `synchronous_commit` is set by ourselves."""
STANDBYS: Final = (
    "it has standbys and synchronous_standby_names is empty: one that lags may take over and lack what was "
    "acknowledged; name one there"
)


def durability(connection: psycopg.Connection[tuple[Any, ...]]) -> Durability:
    """Return what may be lost there. Raises psycopg.Error: it does not answer."""
    risks = []
    for name, good, told in WANTED:
        value = _one(connection, name)
        if value != good:
            risks.append(told.format(value))
    standbys = connection.execute("SELECT count(*) FROM pg_stat_replication").fetchone()
    if standbys != (0,) and not _one(connection, "synchronous_standby_names"):
        risks.append(STANDBYS)
    return Durability("postgres", tuple(risks))


def _one(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    return "" if row is None else str(row[0])
