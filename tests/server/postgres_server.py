"""A real Postgres, started by the tests on a socket of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from colane.server.store.postgres_store import PostgresStore
from colane.settings.store_address import StoreAddress, store_address

START_MAX_S = 60.0
WHY = "needs PostgreSQL's server (Debian: apt-get install postgresql; scripts/test installs it as root)"


def found_program(name: str) -> Path | None:
    """A program of the server's; Debian keeps them out of PATH."""
    on_path = shutil.which(name)
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return Path(on_path) if on_path else places[-1] if places else None


@dataclass
class PostgresServer:
    """A server whose files lie in a directory.

    Attributes:
        folder: For its files and its socket.
        owner: Words before each command: it refuses to run as root.
    """

    folder: Path
    owner: list[str]
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def url(self, name: str = "colane", user: str = "postgres") -> str:
        return f"postgres://{user}@/postgres?host={self.folder}&name={name}"

    def address(self, name: str = "colane", user: str = "postgres") -> StoreAddress:
        return store_address(self.url(name, user))

    def raw(self, **given: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A client that may do everything."""
        known = {"host": str(self.folder), "user": "postgres", "dbname": "postgres", "autocommit": True}
        return psycopg.connect(**{**known, **given})

    def make(self) -> None:
        """Make its files, once."""
        initdb = [*self.owner, str(found_program("initdb")), "-D", str(self.folder / "data"), "-U", "postgres"]
        subprocess.run([*initdb, "-A", "trust", "--no-sync", "-E", "UTF8"], check=True, capture_output=True)

    def start(self, *options: str) -> None:
        """Start it, and wait until it answers."""
        command = [*self.owner, str(found_program("postgres")), "-D", str(self.folder / "data")]
        command += ["-k", str(self.folder), "-h", "", *options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until_s = time.monotonic() + START_MAX_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until_s:
                raise AssertionError((self.folder / "log").read_text())

    def _answers(self) -> bool:
        try:
            self.raw(connect_timeout=2).close()
        except psycopg.OperationalError as error:
            return "password" in str(error)
        return True

    def kill(self) -> None:
        """End it as a power cut does: its children end with it."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End it without waiting for its clients."""
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server with files of its own, in a place whose name is short enough for a socket."""
    owner: list[str] = []
    if found_program("initdb") is None:
        pytest.skip(WHY)
    folder = Path(tempfile.mkdtemp(prefix="colane-postgres-"))
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(folder, account.pw_uid, account.pw_gid)
            owner = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        folder.chmod(0o755)
        server = PostgresServer(folder, owner)
        try:
            server.make()
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def opened(server: PostgresServer, name: str = "colane") -> Iterator[PostgresStore]:
    """A store there, closed in the end."""
    store = PostgresStore(server.address(name))
    try:
        yield store
    finally:
        store.close()
