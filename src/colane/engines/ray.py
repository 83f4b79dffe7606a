"""Agents that Ray starts: an actor on each of its nodes, which keeps one there (`ray_keeper`).

Ray is spoken with in a process of its own (`ray_driver`), which is started again when it, or Ray's head, has died.
Agents and jobs go on meanwhile: which there are, Ray knows, by the actors' names.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final

from colane.client.hosts import is_loopback
from colane.engines import EngineError

Tell = Callable[[str], None]

LOOK_EVERY_S: Final = 0.5
START_MAX_S: Final = 60.0
"""What agents have to be there at the start; those of nodes that come later are said when they are."""
SILENT_MAX_S: Final = 40.0  # without a word for so long Ray does not answer; what the driver asks takes less
CONNECT_MAX_S: Final = 120.0
AGAIN_S: Final = 3.0
STOP_MAX_S: Final = 240.0  # jobs' time to save is known to the driver, which waits no longer than that and a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig:
    """Where agents are."""

    folder: Path  # where what Ray says is written to
    address: str  # of Ray's head, `HOST:PORT`
    url: str  # of the scheduler, as nodes reach it
    token: str | None = field(repr=False)  # the scheduler's
    owner: Mapping[str, str]  # what others are told of this scheduler: `cluster`, `url`, `host`, `state`
    gpus_per_node: int | None = None  # that each agent books; None books all of its node's
    # settings of each agent, by their names in `colane.toml`
    agent: Mapping[str, str | float | bool] = field(default_factory=dict)
    keep: bool = False  # leave agents and jobs at the end; the next of this scheduler takes them over

    def document(self) -> dict[str, Any]:
        """Return what the driver is told."""
        from urllib.parse import urlsplit  # noqa: PLC0415 - of this alone

        host = "127.0.0.1" if is_loopback(urlsplit(self.url).hostname or "") else "0.0.0.0"  # noqa: S104 - it has a secret
        agent = {**self.agent, "url": self.url, "host": host}
        made_of = json.dumps([agent, self.gpus_per_node], sort_keys=True)
        return {
            "address": self.address,
            "url": self.url,
            "token": self.token,
            "owner": {**self.owner, "made_of": made_of},
            "gpus_per_node": self.gpus_per_node,
            "takes_any": "devices" in self.agent,
            "agent": agent,
        }


class RayEngine:
    """Keeps an agent on each node of a Ray."""

    def __init__(self, config: RayConfig, tell: Tell) -> None:
        self.config = config
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._heard_s = -math.inf
        self._has_beaten = False
        self._has_stopped = False
        self._missing: list[str] | None = None
        self._failure = ""
        self._told_away = ""
        self._not_before_s = -math.inf

    def start(self) -> None:
        """Start an agent on each node, and return once the scheduler has heard of them, or after a minute.

        Raises EngineError: Ray does not answer, is of another version, or has the agents of another scheduler.
        """
        self._begin()
        deadline_s = time.monotonic() + START_MAX_S
        try:
            while self._missing is None or (self._missing and time.monotonic() < deadline_s):
                self._listen(LOOK_EVERY_S)
                self._must_be_there()
        except BaseException as error:
            if not self._failure and (self._has_beaten or not isinstance(error, EngineError)):
                self.stop()
            self._end()
            raise
        for name in self._missing:
            self._tell(f"{name}: its agent is not there yet")

    def watch(self, max_s: float | None = None) -> None:
        """Keep them there, and start the driver again when Ray has been away."""
        deadline_s = math.inf if max_s is None else time.monotonic() + max_s
        while True:
            now_s = time.monotonic()
            self._listen(min(max(deadline_s - now_s, 0.0), LOOK_EVERY_S))
            if self._has_gone():
                self._away(self._failure or f"Ray at {self.config.address} does not answer")
            if self._process is None and time.monotonic() >= self._not_before_s:
                self._begin()
            if time.monotonic() >= deadline_s:
                return

    def stop(self) -> None:
        """Cancel the jobs, end the agents and their actors; with `keep` none of it."""
        process = self._process
        if not self.config.keep:
            if process is None or process.stdin is None or not self._has_beaten:
                self._tell(f"Ray at {self.config.address} does not answer: agents there may go on")
            else:
                with suppress(BrokenPipeError):
                    process.stdin.write(b"stop\n")
                    process.stdin.flush()
                deadline_s = time.monotonic() + STOP_MAX_S
                while process.poll() is None and time.monotonic() < deadline_s:
                    self._listen(LOOK_EVERY_S)
                if not self._has_stopped:
                    self._tell(f"Ray at {self.config.address} does not answer any more: agents there may go on")
        self._end()

    @property
    def _log(self) -> Path:
        return self.config.folder / "ray.log"

    def _begin(self) -> None:
        self._failure, self._rest, self._has_beaten = "", b"", False
        self._heard_s = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "colane.engines.ray_driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.config.folder,
                process_group=0,  # Ctrl-C is for us
            )
        assert self._process.stdin is not None  # noqa: S101 - it was made with a pipe
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(self.config.document()).encode() + b"\n")
            self._process.stdin.flush()

    def _listen(self, max_s: float) -> None:
        """Hear what the driver says within a time."""
        process = self._process
        if process is None:
            time.sleep(max_s)
            return
        assert process.stdout is not None  # noqa: S101 - it was made with a pipe
        if not wait([process.stdout.fileno()], max_s):
            return
        read = os.read(process.stdout.fileno(), 65536)
        if not read:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max_s or LOOK_EVERY_S)
            return
        *lines, self._rest = (self._rest + read).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))

    def _hear(self, said: Mapping[str, Any]) -> None:
        self._heard_s = time.monotonic()
        if "say" in said:
            self._tell(said["say"])
        if "fail" in said:
            self._failure = said["fail"]
        if "stopped" in said:
            self._has_stopped = True
        if "beat" in said:
            self._missing = said["missing"]
            self._has_beaten = True
            if self._told_away:
                self._told_away = ""
                self._tell(f"Ray at {self.config.address} answers again")

    def _must_be_there(self) -> None:
        if self._has_gone():
            raise EngineError(self._failure or f"Ray has ended our process; it says why in {self._log}")

    def _has_gone(self) -> bool:
        process = self._process
        if process is None:
            return False
        silent_s = time.monotonic() - self._heard_s
        return process.poll() is not None or silent_s > (SILENT_MAX_S if self._has_beaten else CONNECT_MAX_S)

    def _away(self, why: str) -> None:
        if not self._told_away:
            self._tell(f"{why}; agents and jobs that run go on")
        self._told_away = why
        self._end()
        self._not_before_s = time.monotonic() + AGAIN_S

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            process.wait(AGAIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
