"""A `colane up` whose agents are elsewhere, and what it said."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colane.client.client import Client
from tests.cli.conftest import COLANE, START_MAX_S, environment, until
from tests.warm import UP, Warm

IS_UP = "submit with"
RUNS = frozenset({"launching", "running", "running-protected"})
"""States of a job whose process is there. One that tells of no steps is taken to run after 10 s."""


class Up:
    """A `colane up` and what it said.

    Args:
        state: Its directory.
        options: Further ones.
        env: What its environment has beside that of the tests.
        is_warm: Whether it is forked from a process that has imported it. Ray's own libraries start threads and ask
            who runs them, so that there it begins as a user's does.
    """

    def __init__(self, state: Path, *options: str, env: Mapping[str, str], is_warm: bool = True) -> None:
        words = ["up", "--port", "0", "--state", str(state), "--devices", "cpu:1:1GB", *options]
        self.log = state.parent / "said"
        before = self.said().count(IS_UP) if self.log.exists() else 0  # by one of before
        self.log.touch()
        self.process: Warm | subprocess.Popen[bytes]
        if is_warm:
            self.process = Warm(UP, words, self.log, self.log, environment(**env))
        else:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [*COLANE, *words], env=environment(**env), stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
        self.state = state
        until(lambda: self.said().count(IS_UP) > before or self.process.poll() is not None, "it is up")
        assert self.process.poll() is None, self.said()

    def said(self) -> str:
        return self.log.read_text()

    @property
    def client(self) -> Client:
        url = json.loads((self.state / "server.json").read_text())["url"]
        return Client(url, (self.state / "token").read_text().strip())

    def nodes(self) -> dict[str, Any]:
        with self.client as scheduler:
            return {node["name"]: node for node in scheduler.nodes() if not node["lost"]}

    def end(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(START_MAX_S) == 0, self.said()
        return self.said()
