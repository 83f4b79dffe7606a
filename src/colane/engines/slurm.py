"""Pilots: jobs of Slurm's, of one node each, that hold an agent.

Slurm gives them their GPUs and their time; which jobs run there is Colane's. A pilot whose time is nearly over is
drained, and a new one is asked for; one that is lost is replaced. They are always new jobs: a pilot that Slurm requeued
would come back as one that is known. Which pilots there are, Slurm knows, by their names: nothing is noted here.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from colane.client.client import Client
from colane.client.errors import SchedulerError
from colane.client.hosts import is_loopback
from colane.client.locate import TOKEN_FILE
from colane.engines import EngineError
from colane.engines.ssh import script
from colane.engines.tidy import cancel_jobs, revoke_tokens
from colane.model.quantities import parse_duration_s

Tell = Callable[[str], None]

LOOK_EVERY_S: Final = 5.0  # between two questions to Slurm: one for all pilots
ANSWER_MAX_S: Final = 60.0
ESTIMATE_EVERY_S: Final = 300.0
SHORT_S: Final = 60.0  # a pilot that ran for less has failed; each further one in a row is asked for later
PAUSE_S, PAUSE_MAX_S = 5.0, 600.0
END_MAX_S: Final = 60.0  # from scancel until Slurm has none of them any more
ENDING_S: Final = 30.0  # of the time before a pilot's end, what its agent has after its jobs have left
WAITS: Final = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
GONE: Final = frozenset({"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE"})
"""Ended, and not COMPLETING: slurmd has said that all processes are gone. It does not for NODE_FAIL and BOOT_FAIL."""
CONFINED: Final = "proctrack/cgroup"
"""By it slurmd finds all processes of a job, also those that have made themselves a session of their own."""
LIVES: Final = WAITS | {"CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING"}
IN_VAIN: Final = ("Partition", "BadConstraints", "Invalid", "ReqNodeNotAvail", "Nodes_required", "QOS", "Assoc")
"""What Slurm's reasons begin with that name a limit, or what is down (squeue(1)): a person has to look."""
AGENT_SCRIPT: Final = r"""#!/bin/sh
# What Slurm says of the pilot is not said of the jobs in it.
for each in $(env | sed -n 's/^\(\(SLURM\|SLURMD\|SBATCH\|SRUN\)_[A-Za-z0-9_]*\)=.*/\1/p'); do unset "$each"; done
unset COLANE_URL COLANE_TOKEN COLANE_TOKEN_FILE COLANE_STATE
export COLANE_CONFIG={config}
exec {python} -m colane.cli agent
"""
MUNGE_DOWN: Final = "Munge encode failed"
UNKNOWN_GRES: Final = "Invalid generic resource"
ESTIMATED = re.compile(r"to start at (\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotConfig:
    """What pilots are."""

    folder: Path  # where each has its files, on a file system that nodes share with this machine
    count: int  # how many there are to be
    time_s: float  # how long each may run
    lead_s: float  # how long before its end it is drained
    url: str  # of the scheduler, as nodes reach it
    gres: str | None = None  # what it holds, as sbatch takes it
    partition: str | None = None  # Slurm's; None for its default
    options: Sequence[str] = ()  # further words for sbatch
    # settings of its agent, by their names in `colane.toml`
    agent: Mapping[str, str | float | bool] = field(default_factory=dict)
    keep: bool = False  # leave them running at the end; the next ones of this scheduler take them over


class Pilot(NamedTuple):
    """A pilot as Slurm has it."""

    number: int  # its number among this scheduler's
    job: str  # Slurm's id
    state: str  # Slurm's word
    left_s: float | None  # until its limit; None where Slurm does not say
    reason: str  # why it waits

    @property
    def node(self) -> str:
        """The name of its node."""
        return f"slurm-{self.number}"


class SlurmEngine:
    """Keeps pilots of one scheduler there."""

    def __init__(self, config: PilotConfig, client: Callable[[], Client], tell: Tell) -> None:
        self.config = config
        self._client = client
        self._tell = tell
        with client() as scheduler:
            self._name = f"colane-{(scheduler.health().get('cluster_id') or 'cluster')[:8]}-"
        self._known: dict[int, Pilot] = {}
        self._ran_s: dict[int, float] = {}
        self._ended: set[int] = set()
        self._ids: dict[int, str] = {}
        self._next = 1
        self._looked_s = -math.inf
        self._estimate = (-math.inf, 0.0)
        self._failed = 0
        self._not_before_s = 0.0
        self._said: dict[str, str] = {}

    def start(self) -> None:
        """Ask Slurm for the pilots that are missing; it gives them when it has room.

        Raises EngineError: Slurm does not answer, or refuses them.
        """
        self.config.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_loopback(urlsplit(self.config.url).hostname or ""):
            self._tell("the scheduler listens on loopback, which pilots on other machines do not reach: --host 0.0.0.0")
        self._look()
        if self._known:
            self._tell(f"pilots from before: {_jobs(self._known.values())}")
        try:
            for _ in range(self.config.count - len(self._staying())):
                self._submit()
        except BaseException:
            self.stop()
            raise

    def watch(self, max_s: float | None = None) -> None:
        """Replace pilots that end, and drop the nodes of those that have."""
        deadline_s = math.inf if max_s is None else time.monotonic() + max_s
        while True:
            if time.monotonic() >= self._looked_s + LOOK_EVERY_S:
                self._tend()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, LOOK_EVERY_S))

    def stop(self) -> None:
        """Cancel the jobs on pilots, then the pilots; with `keep` neither."""
        if self.config.keep:
            return
        try:
            self._look()
            cancel_jobs(self._client, {pilot.node for pilot in self._known.values()})
            if self._known:
                _slurm("scancel", *(pilot.job for pilot in self._known.values()))
            deadline_s = time.monotonic() + END_MAX_S
            while self._known and time.monotonic() < deadline_s:
                time.sleep(0.2)
                self._look()
        except EngineError as error:
            self._tell(f"{error}; these may run on: scancel {_jobs(self._known.values())}")
        self._drop_ended()

    def _tend(self) -> None:
        try:
            self._look()
        except EngineError as error:
            self._say_once("slurm", f"{error}; pilots that run go on")
            return
        if self._said.pop("slurm", None):
            self._tell("Slurm answers again")
        for pilot in self._known.values():
            if pilot.state in WAITS and pilot.reason.startswith("JobHeld"):
                self._say_once(pilot.node, f"pilot {pilot.job} is held ({pilot.reason}): scontrol release {pilot.job}")
            elif pilot.state in WAITS and pilot.reason.startswith(IN_VAIN):
                self._say_once(
                    pilot.node,
                    f"pilot {pilot.job} waits for what time alone may not bring ({pilot.reason}): "
                    f"scontrol show job {pilot.job}",
                )
        self._drop_ended()
        for _ in range(self.config.count - len(self._staying())):
            if time.monotonic() < self._not_before_s:
                return
            try:
                self._submit()
            except EngineError as error:
                self._say_once("sbatch", str(error))
                self._put_off()
                return
            self._said.pop("sbatch", None)

    def _look(self) -> None:
        """See which pilots there are."""
        self._looked_s = time.monotonic()
        text = _slurm("squeue", "-h", "-u", str(os.geteuid()), "-o", "%i|%j|%T|%L|%r")
        found = {pilot.number: pilot for pilot in filter(None, (self._read(line) for line in text.splitlines()))}
        now_s = time.monotonic()
        for pilot in found.values():
            if pilot.state == "RUNNING":
                self._ran_s.setdefault(pilot.number, now_s)
        for number in self._known.keys() - found.keys():
            self._has_ended(self._known[number], now_s)
        self._known = found
        self._ended -= found.keys()  # one that Slurm has taken though its answer was lost
        self._next = max([self._next, *(number + 1 for number in found)])

    def _read(self, line: str) -> Pilot | None:
        job, name, state, left, reason = (line.strip().split("|", 4) + [""] * 5)[:5]
        number = name.removeprefix(self._name)
        if number == name or not number.isdecimal() or state not in LIVES:
            return None
        with suppress(ValueError):
            return Pilot(int(number), job, state, parse_duration_s(left) if ":" in left else None, reason)
        return Pilot(int(number), job, state, None, reason)

    def _has_ended(self, pilot: Pilot, now_s: float) -> None:
        self._ended.add(pilot.number)
        self._ids[pilot.number] = pilot.job
        began_s = self._ran_s.pop(pilot.number, None)
        if began_s is not None and now_s >= began_s + SHORT_S:
            self._failed = 0
        else:
            self._failed += 1
            self._put_off()
        last = _last(self.config.folder / str(pilot.number) / "log")
        self._tell(f"pilot {pilot.job} ({pilot.node}) has ended{f': {last}' if last else ''}")

    def _put_off(self) -> None:
        pause_s = 0.0 if self._failed == 1 else min(PAUSE_S * 2 ** max(self._failed - 2, 0), PAUSE_MAX_S)
        self._not_before_s = time.monotonic() + pause_s

    def _staying(self) -> list[Pilot]:
        """Those that are still there when one that is asked for now begins."""
        running = any(pilot.left_s is not None and pilot.state == "RUNNING" for pilot in self._known.values())
        ahead_s = self.config.lead_s + (min(self._wait_s(), self.config.time_s / 2) if running else 0.0)
        return [
            pilot
            for pilot in self._known.values()
            if pilot.state in WAITS or pilot.left_s is None or pilot.left_s > ahead_s
        ]

    def _wait_s(self) -> float:
        """How long Slurm says that a new pilot would wait."""
        asked_s, wait_s = self._estimate
        now_s = time.monotonic()
        if now_s < asked_s + ESTIMATE_EVERY_S:
            return wait_s
        wait_s = 0.0
        with suppress(EngineError, ValueError):
            said = _slurm("sbatch", "--test-only", *self._words(0), sent="#!/bin/sh\n", wants_errors=True)
            if found := ESTIMATED.search(said):
                wait_s = max(0.0, (datetime.fromisoformat(found[1]) - datetime.now()).total_seconds())  # noqa: DTZ005 - Slurm's clock has no zone
        self._estimate = (now_s, wait_s)
        return wait_s

    def _words(self, number: int) -> list[str]:
        config = self.config
        return [
            f"--job-name={self._name}{number}",
            "--no-requeue",
            "--nodes=1",
            "--ntasks=1",
            f"--time={max(1, math.ceil(config.time_s / 60))}",
            f"--signal=B:USR1@{max(1, round(config.lead_s))}",
            f"--output={config.folder / str(number) / 'log'}",
            *([f"--gres={config.gres}"] if config.gres else []),
            *([f"--partition={config.partition}"] if config.partition else []),
            *config.options,
        ]

    def _submit(self) -> None:
        number, self._next = self._next, self._next + 1
        folder = self.config.folder / str(number)
        folder.mkdir(mode=0o700, exist_ok=True)
        node = f"slurm-{number}"
        try:
            with self._client() as scheduler:
                token = scheduler.make_token(node=node)
        except SchedulerError as error:
            raise EngineError(f"no token could be made for a pilot: {error}") from error
        for name, content in self._files(folder, node, token).items():
            path = folder / name
            path.touch(mode=0o700)
            path.write_text(content, encoding="utf-8")
        keep = f"#!/bin/sh\nexec sh {shlex.quote(str(folder / 'keep'))} {shlex.quote(str(folder))}\n"
        try:
            job = _slurm("sbatch", "--parsable", *self._words(number), sent=keep).strip().partition(";")[0]
        except EngineError as error:
            self._ended.add(number)  # its token; should Slurm have taken it all the same, the next look finds it
            if self.config.gres and UNKNOWN_GRES in str(error):
                raise EngineError(
                    f"--gres: {self.config.gres} is nothing that this Slurm has ({error}): sinfo -o '%P %G' shows what "
                    "is there, and without --gres a pilot is a node without GPUs"
                ) from error
            raise
        self._known[number] = Pilot(number, job, "PENDING", None, "")
        self._tell(f"pilot {job} ({node}) is asked for")

    def _files(self, folder: Path, node: str, token: str) -> dict[str, str]:
        settings = {
            **self.config.agent,
            "name": node,
            "url": self.config.url,
            "host": "127.0.0.1" if is_loopback(urlsplit(self.config.url).hostname or "") else "0.0.0.0",  # noqa: S104 - it has a secret
            "state": str(folder / "state"),
            "token_file": str(folder / TOKEN_FILE),
            "replaced": True,
            "drain_on_stop": f"{max(self.config.lead_s - ENDING_S, self.config.lead_s / 2):g}s",
        }
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()]
        agent = AGENT_SCRIPT.format(config=shlex.quote(str(folder / "colane.toml")), python=shlex.quote(sys.executable))
        return {
            "colane.toml": "\n".join(["[agent]", *lines, ""]),
            TOKEN_FILE: f"{token}\n",
            "agent": agent,
            "keep": script("keep.sh"),
        }

    def _drop_ended(self) -> None:
        """Forget nodes of pilots that have ended, once nothing can run there any more, and their tokens."""
        with suppress(SchedulerError), self._client() as scheduler:
            for number in sorted(self._ended):
                node = scheduler.node_if_known(f"slurm-{number}")
                is_gone = node is not None and bool(node["jobs"]) and self._is_gone(number)
                if node is not None and node["jobs"] and not is_gone:
                    continue  # until it counts as lost: what runs there may outlive its pilot for its lease
                revoke_tokens(scheduler, f"slurm-{number}")
                if node is not None:
                    scheduler.remove_node(node["name"], is_gone=is_gone)
                self._ended.discard(number)
                self._ids.pop(number, None)

    def _is_gone(self, number: int) -> bool:
        """Whether Slurm vouches that no process of a pilot that has ended is left."""
        job = self._ids.get(number)
        if job is None:
            return False
        try:
            config, shown = _slurm("scontrol", "show", "config"), _slurm("scontrol", "-o", "show", "job", job)
        except EngineError:  # it has forgotten the job, or does not answer
            return False
        tracked = (line.partition("=") for line in config.splitlines())
        is_confined = any(name.strip() == "ProctrackType" and value.strip() == CONFINED for name, _, value in tracked)
        states = [word.partition("=")[2] for word in shown.split() if word.startswith("JobState=")]
        return is_confined and bool(states) and GONE.issuperset(states)

    def _say_once(self, about: str, text: str) -> None:
        if self._said.get(about) != text:
            self._said[about] = text
            self._tell(text)


def _slurm(program: str, *words: str, sent: str = "", wants_errors: bool = False) -> str:
    """Call a program of Slurm's. Raises EngineError: it is not there, does not answer, or refuses; one line."""
    try:
        done = subprocess.run(
            [program, *words],
            input=sent,
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_MAX_S,
            process_group=0,  # Ctrl-C is for us
        )
    except FileNotFoundError as error:
        raise EngineError(
            f"there is no {program} here: --engine slurm is for a machine where Slurm's commands are"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"Slurm does not answer ({program}, {ANSWER_MAX_S:.0f} s)") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        why = lines[-1] if lines else f"{program} ended with {done.returncode}"
        hint = ": is munge running here (systemctl status munge)?" if MUNGE_DOWN in done.stderr else ""
        raise EngineError(f"Slurm: {why}{hint}")
    return done.stderr if wants_errors else done.stdout


def _jobs(pilots: Iterable[Pilot]) -> str:
    return " ".join(sorted(pilot.job for pilot in pilots))


def _last(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
