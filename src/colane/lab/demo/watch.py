"""What demos that watch jobs have in common: submitting, looking at them, and telling what was decided."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from colane.api.jobs import JobObject, JobRequestObject
from colane.cli import output
from colane.client.client import Client
from colane.engines.local import LocalEngine

LOOK_EVERY_S: Final = 0.5
HEARTBEAT_S: Final = 0.5


@dataclass
class DemoWatch(ABC):
    """Looks at jobs."""

    client: Client  # of the scheduler
    began_s: float = field(default_factory=time.monotonic)  # when the demo did
    names: dict[int, str] = field(default_factory=dict)  # jobs by number
    _told: dict[int, int] = field(default_factory=dict)
    _last: dict[int, str] = field(default_factory=dict)

    @property
    @abstractmethod
    def tells(self) -> frozenset[str]:
        """Reasons of changes that are told."""

    @abstractmethod
    def note(self, number: int, job: JobObject, now_s: float) -> None:
        """Keep what a look at a live job shows."""

    def submit(self, name: str, request: JobRequestObject, **env: str) -> int:
        """Start a job."""
        whole = {**request, "name": name, "env": {**os.environ, **env}}
        number = self.client.submit(whole)
        self.names[number] = name
        return number

    def look(self) -> dict[int, JobObject]:
        """Look at all live jobs, and tell what was decided about them since."""
        live = {job["id"]: job for job in self.client.live_jobs() if job["id"] in self.names}
        for number, job in live.items():
            now_s = time.monotonic() - self.began_s
            self.note(number, job, now_s)
            for line in job["story"][self._told.get(number, 0) :]:
                sentence = line["sentence"]
                # A move of several states for one reason is told once.
                if line["why"] in self.tells and sentence != self._last.get(number):
                    output.note(f"{now_s:5.1f} s  {self.names[number]}: {sentence}")
                    self._last[number] = sentence
            self._told[number] = len(job["story"])
        return live

    def until(self, stack: LocalEngine, is_done: Callable[[dict[int, JobObject]], bool], max_s: float) -> bool:
        """Look until something is so, for so long at most; whether it came to be."""
        deadline_s = time.monotonic() + max_s
        while time.monotonic() < deadline_s:
            if is_done(self.look()):
                return True
            stack.watch(LOOK_EVERY_S)
        return False
