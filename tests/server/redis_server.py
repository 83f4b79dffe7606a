"""A real Redis, started by the tests on a socket of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from colane.server.store.redis_store import RedisStore
from colane.settings.store_address import StoreAddress, store_address

START_MAX_S = 60.0
WHY = "needs redis-server (Debian: apt-get install redis-server; scripts/test installs it as root)"


@dataclass
class RedisServer:
    """A server whose files lie in a directory.

    Attributes:
        folder: For its files and its socket.
        options: Of its command line, beside those that make it durable.
    """

    folder: Path
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    def url(self, name: str = "colane") -> str:
        return f"unix://{self.socket}?name={name}"

    def address(self, name: str = "colane") -> StoreAddress:
        return store_address(self.url(name))

    def raw(self, **given: Any) -> redis.Redis:
        """A client that may do everything."""
        return redis.Redis(unix_socket_path=str(self.socket), **given)

    def start(self, *options: str) -> None:
        """Start it, and wait until it answers."""
        durable = ("--appendonly", "yes", "--appendfsync", "always")
        command = ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        command += ["--save", "", *durable, "--daemonize", "no", *self.options, *options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until_s = time.monotonic() + START_MAX_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until_s:
                raise AssertionError((self.folder / "log").read_text())

    def _answers(self) -> bool:
        try:
            with self.raw() as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def kill(self) -> None:
        """End it as a power cut does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.socket.unlink(missing_ok=True)


@contextlib.contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """A server with files of its own, in a place whose name is short enough for a socket."""
    if shutil.which("redis-server") is None:
        pytest.skip(WHY)
    folder = Path(tempfile.mkdtemp(prefix="colane-redis-"))
    server = RedisServer(folder, options)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)


@contextlib.contextmanager
def opened(server: RedisServer, name: str = "colane") -> Iterator[RedisStore]:
    """A store there, closed in the end."""
    store = RedisStore(server.address(name))
    try:
        yield store
    finally:
        store.close()
