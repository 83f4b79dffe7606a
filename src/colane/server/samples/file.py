"""The SQLite file of samples. It may be lost at any time: then it is begun anew, with a word in the scheduler's log."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from colane.server.samples.codec import CLUSTER, DEVICE, JOB, Kind
from colane.server.samples.rings import LEVELS, SampleChunk, overlaid

log = logging.getLogger(__name__)

VERSION: Final = 1
JOBS_KEPT: Final = 100_000  # of so many jobs that were sampled last: some 400 MB where they are short

DAY_S: Final = 86_400
WAITED_DAYS: Final = 400
WAITED_MAX: Final = 10_000


class WaitedKey(NamedTuple):
    """Of which day since 1970 (UTC), whose jobs, and for which reason they waited."""

    day: int
    user: str
    why: str


_MEMORY: Final = ":memory:"
PAGE_BYTES: Final = 16_384
"""Of a new file: on SQLite's own 4 kB every chunk of ten-minute ticks would take a page of its own besides."""
_SCHEMA: Final = f"""
    CREATE TABLE chunks (
        series TEXT NOT NULL,
        level INTEGER NOT NULL,
        slot INTEGER NOT NULL,
        number INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (series, level, slot)
    ) WITHOUT ROWID;
    CREATE INDEX by_age ON chunks (level, number);
    PRAGMA user_version = {VERSION};
"""
_WAITED: Final = """
    CREATE TABLE IF NOT EXISTS waited (
        day INTEGER NOT NULL, user TEXT NOT NULL, why TEXT NOT NULL, job_s REAL NOT NULL,
        PRIMARY KEY (day, user, why)
    ) WITHOUT ROWID;
"""
ASIDE: Final = ".unreadable"


class SampleFile:
    """Chunks of samples; any thread may call any method. Without a path they are kept in memory alone."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._problem = ""
        self._connection = self._open()

    def write(self, chunks: Iterable[SampleChunk]) -> None:
        """Write chunks, each over what is in its slot; what cannot be written is lost, and said once."""
        with self._lock:
            try:
                with self._connection:
                    for chunk in chunks:
                        self._write(chunk)
                self._problem = ""
            except sqlite3.OperationalError as error:  # a full disk
                self._say(f"samples cannot be written, and are lost meanwhile: {error}")
            except sqlite3.DatabaseError as error:
                self._begin_anew(error)

    def read(self, first: str, last: str, level: int, numbers: range) -> list[SampleChunk]:
        """Return the chunks with these numbers of series from `first` up to `last`, in order; none where it fails."""
        query = (
            "SELECT series, level, number, data FROM chunks WHERE series >= ? AND series <= ? AND level = ? "
            "AND number >= ? AND number < ? ORDER BY series, number"
        )
        asked = (first, last, level, numbers.start, numbers.stop)
        with self._lock:
            try:
                rows = self._connection.execute(query, asked).fetchall()
            except sqlite3.OperationalError as error:
                self._say(f"samples cannot be read: {error}")
                return []
            except sqlite3.DatabaseError as error:
                self._begin_anew(error)
                return []
        size = {kind: kind.size_bytes * LEVELS[level].ticks for kind in (DEVICE, JOB, CLUSTER)}
        return [
            SampleChunk(series, level, number, data, is_whole=True)
            for series, level, number, data in rows
            if len(data) == size[kind_of(series)]
        ]

    def add_waited(self, seconds: Mapping[WaitedKey, float]) -> None:
        """Add to what users' jobs have waited; what cannot be written is lost."""
        query = (
            "INSERT INTO waited VALUES (?, ?, ?, ?) "
            "ON CONFLICT (day, user, why) DO UPDATE SET job_s = job_s + excluded.job_s"
        )
        rows = [(key.day, key.user, key.why, job_s) for key, job_s in seconds.items()]
        with self._lock, suppress(sqlite3.Error), self._connection:
            self._connection.executemany(query, rows)

    def waited(self, first_day: int) -> list[tuple[str, str, float]]:
        """Return user, reason and seconds since a day, the longest first; none where they cannot be read."""
        query = (
            "SELECT user, why, SUM(job_s) AS total FROM waited WHERE day >= ? GROUP BY user, why "
            "ORDER BY total DESC, user, why LIMIT ?"
        )
        with self._lock, suppress(sqlite3.Error):
            return [(user, why, total) for user, why, total in self._connection.execute(query, (first_day, WAITED_MAX))]
        return []

    def prune(self, now_s: float, newest_job: int) -> None:
        """Remove what is older than its level's ring, and series of jobs beyond those that are kept."""
        with self._lock, suppress(sqlite3.Error), self._connection:
            for place, level in enumerate(LEVELS):
                oldest = int(now_s // level.chunk_s) - level.chunks
                self._connection.execute("DELETE FROM chunks WHERE level = ? AND number < ?", (place, oldest))
            self._connection.execute("DELETE FROM waited WHERE day < ?", (int(now_s // DAY_S) - WAITED_DAYS,))
            jobs_before = job_series(max(newest_job - JOBS_KEPT, 0), "")
            self._connection.execute(
                "DELETE FROM chunks WHERE series >= ? AND series < ?", (job_series(0, ""), jobs_before)
            )

    def close(self) -> None:
        """Close it."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()

    def _write(self, chunk: SampleChunk) -> None:
        slot, data = chunk.number % LEVELS[chunk.level].chunks, chunk.data
        key = (chunk.series, chunk.level, slot)
        if not chunk.is_whole:
            query = "SELECT data FROM chunks WHERE series = ? AND level = ? AND slot = ? AND number = ?"
            found = self._connection.execute(query, (*key, chunk.number)).fetchone()
            data = data if found is None else overlaid(kind_of(chunk.series), found[0], data)
        self._connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?)", (*key, chunk.number, data))

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return _connect(_MEMORY)
        try:
            return _connect(str(self._path))
        except sqlite3.OperationalError as error:
            self._say(f"samples are kept in memory alone: {self._path} cannot be opened: {error}")
            return _connect(_MEMORY)
        except sqlite3.DatabaseError as error:
            self._put_aside(error)
        try:
            return _connect(str(self._path))
        except sqlite3.Error as error:
            self._say(f"samples are kept in memory alone: {self._path} cannot be opened: {error}")
            return _connect(_MEMORY)

    def _begin_anew(self, error: sqlite3.Error) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        if self._path is not None:
            self._put_aside(error)
        self._connection = self._open()

    def _put_aside(self, error: sqlite3.Error) -> None:
        path = self._path
        assert path is not None  # noqa: S101 - as called
        aside = path.with_name(path.name + ASIDE)
        log.warning("samples are begun anew: %s cannot be read (%s); it is kept as %s", path, error, aside.name)
        with suppress(OSError):
            path.replace(aside)
        for rest in ("-wal", "-shm"):
            path.with_name(path.name + rest).unlink(missing_ok=True)

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.warning("%s", problem)


def _connect(name: str) -> sqlite3.Connection:
    """Open a file, made where there is none. Raises sqlite3.DatabaseError: it is none of ours, or damaged."""
    is_new = name != _MEMORY and not Path(name).exists()
    connection = sqlite3.connect(name, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        with closing(connection.execute("PRAGMA user_version")) as told:
            version = told.fetchone()[0]
        if version == 0:
            connection.executescript(_SCHEMA)
        elif version != VERSION:
            raise sqlite3.DatabaseError(f"it is of version {version}")
        connection.execute("SELECT series FROM chunks LIMIT 1").fetchone()
        connection.executescript(_WAITED)  # which a file of before has not
    except sqlite3.Error:
        connection.close()
        raise
    if is_new:
        os.chmod(name, 0o600)  # noqa: PTH101 - as sqlite3 was given it
        log.info("samples are begun in %s", name)
    return connection


ID_DIGITS: Final = 16


CLUSTER_SERIES: Final = "cluster"


def device_series(node: str, index: int) -> str:
    """Name of the series of a device; `chr(127)` sorts behind all of a node's."""
    return f"node/{node}/{index:04d}"


def job_series(job: int, node: str) -> str:
    """Name of the series of a job on a node; ids sort as numbers."""
    return f"job/{job:0{ID_DIGITS}d}/{node}"


def kind_of(series: str) -> Kind:
    """What a series holds."""
    if series == CLUSTER_SERIES:
        return CLUSTER
    return JOB if series.startswith("job/") else DEVICE


def below(prefix: str) -> tuple[str, str]:
    """Return the first and the last possible name of series that begin so."""
    return prefix, prefix + chr(127)
