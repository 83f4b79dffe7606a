"""A real scheduler process on a free port of the loopback interface."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

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

    process: subprocess.Popen[str]
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
    import json  # noqa: PLC0415 - kept beside its one use
    import tempfile  # noqa: PLC0415

    wanted = {"state_dir": str(state), "port": 0, "policy": "fifo", **settings}
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-c", before + PROGRAM, json.dumps(wanted)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                errors.seek(0)
                raise AssertionError(f"the scheduler did not start: {errors.read()}")
            url = line.split(" on ", 1)[1].split(" ", 1)[0]
            token = wanted.get("token") or (state / "token").read_text().strip()
            with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=DEADLINE_S) as http:
                yield Scheduler(process, state, url, line, errors, http)
        finally:
            process.kill()
            process.wait(DEADLINE_S)
            if process.stdout is not None:
                process.stdout.close()
