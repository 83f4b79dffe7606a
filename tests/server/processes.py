"""A real scheduler process on a free port of the loopback interface."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

from colane.client.tls import trusted
from tests.warm import Warm

DEADLINE_S = 60.0

PROGRAM = """
import json, sys
from pathlib import Path
from colane.client.tls import TlsFiles
from colane.server.config import ServerConfig
from colane.server.main import run_server

settings = json.loads(sys.argv[1])
tls = settings.pop("tls", None)
paths = {"state_dir": Path(settings["state_dir"]), "tls": tls and TlsFiles(*map(Path, tls))}
run_server(ServerConfig(**{**settings, **paths}))
"""


@dataclass
class Scheduler:
    """A running scheduler."""

    process: Warm
    state: Path
    url: str
    line: str
    error_file: IO[str]
    http: httpx.Client

    @property
    def token(self) -> str:
        """What it demands of its clients."""
        return self.http.headers["Authorization"].removeprefix("Bearer ")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def errors(self) -> str:
        """Return what it wrote to standard error."""
        self.error_file.seek(0)
        return self.error_file.read()


@contextmanager
def scheduler(state: Path, *, before: str = "", **settings: Any) -> Iterator[Scheduler]:
    """Start a scheduler, wait until it listens, and end it; `before` is run in its process first."""
    wanted = {"state_dir": str(state), "port": 0, "policy": "fifo", **settings}
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder, "out"), Path(folder, "errors")
        os.mkfifo(out)
        process = Warm(before + PROGRAM, [json.dumps(wanted)], out, errors)
        try:
            with out.open() as said, errors.open("w+") as error_file:
                line = said.readline()
                assert line, f"the scheduler did not start: {error_file.read()}"
                url = line.split(" on ", 1)[1].split(" ", 1)[0]
                token = wanted.get("token") or (state / "token").read_text().strip()
                headers = {"Authorization": f"Bearer {token}"}
                with httpx.Client(
                    base_url=url, headers=headers, timeout=DEADLINE_S, verify=trusted(os.environ)
                ) as http:
                    yield Scheduler(process, state, url, line, error_file, http)
        finally:
            process.kill()
            process.wait(DEADLINE_S)
