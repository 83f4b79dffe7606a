"""The operator's own programs on this node: before a job starts, after it has ended, and every minute.

Each is run as this agent's user and has so long; what it starts may run on. One that fails or takes longer drains the
node, with its last line as the reason: after a health check until that does well again, else until the agent starts
anew. A job that finds its prolog failing goes elsewhere, as after any fault of a node.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from colane.agent.config import EPILOG, HEALTH_CHECK, PROLOG
from colane.agent.reconcile import Key

CHECKED_EVERY_S: Final = 60.0
SAID_BYTES: Final = 4096
REASON_MAX: Final = 200


class HookRun(NamedTuple):
    """How a program has ended: its exit code, None where it took too long or could not be run; the end of its words."""

    code: int | None
    said: str


async def run_within(command: Sequence[str], limit_s: float, variables: Mapping[str, str] | None = None) -> HookRun:
    """Run a program for so long at most; then it is killed with all it has started that has not left its session."""
    with tempfile.TemporaryFile() as words:  # a pipe would wait for all that hold it, as daemons that were started
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True,
                env={**os.environ, **(variables or {})},
            )  # fmt: skip
        except OSError as error:
            return HookRun(None, f"cannot be run: {error.strerror}")
        try:
            code: int | None = await asyncio.wait_for(process.wait(), limit_s)
        except TimeoutError:
            code = None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        words.seek(max(0, words.seek(0, os.SEEK_END) - SAID_BYTES))
        return HookRun(code, words.read().decode(errors="replace"))


class NodeHooks:
    """Runs them, each once for an attempt of a job.

    Args:
        programs: By their kind, those there are.
        limit_s: How long one may take.
        shut: Told of a kind why the node takes no jobs, or None where nothing is wrong any more.
        nudge: Called when one has ended.
    """

    def __init__(
        self, programs: Mapping[str, Path | None], limit_s: float, shut: Callable[[str, str | None], None],
        nudge: Callable[[], None],
    ) -> None:  # fmt: skip
        self._programs = {kind: program for kind, program in programs.items() if program is not None}
        self._limit_s = limit_s
        self._shut = shut
        self._nudge = nudge
        self._runs: dict[tuple[str, Key], asyncio.Task[str]] = {}
        self._about: dict[Key, Mapping[str, str]] = {}
        self._checking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look after the node from now on."""
        if HEALTH_CHECK in self._programs:
            self._checking = asyncio.create_task(self._check_on())

    async def close(self) -> None:
        """Run none any more."""
        tasks = [*self._runs.values(), *([self._checking] if self._checking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def problem(self, kind: str, key: Key, user: str = "") -> str | None:
        """Return what is wrong by the program of a kind for a job: nothing (empty), or None while it runs."""
        if kind not in self._programs:
            return ""
        about = self._about.setdefault(key, {"SLURM_JOB_USER": user, "COLANE_JOB_USER": user} if user else {})
        run = self._runs.get((kind, key))
        if run is None:
            words = {**about, "COLANE_JOB_ID": str(key.job), "SLURM_JOB_ID": str(key.job), "COLANE_HOOK": kind}
            run = self._runs[kind, key] = asyncio.create_task(self._run(kind, words))
            run.add_done_callback(lambda _: self._nudge())
        if not run.done():
            return None
        if problem := run.result():
            self._shut(kind, problem)
        return problem

    def forget(self, key: Key) -> None:
        """A job is over, or does not start here."""
        self._about.pop(key, None)
        for kind in (PROLOG, EPILOG):
            self._runs.pop((kind, key), None)

    async def _check_on(self) -> None:
        while True:
            self._shut(HEALTH_CHECK, await self._run(HEALTH_CHECK, {"COLANE_HOOK": HEALTH_CHECK}) or None)
            await asyncio.sleep(CHECKED_EVERY_S)

    async def _run(self, kind: str, variables: Mapping[str, str]) -> str:
        """Return why a program has not done well; empty where it has."""
        ran = await run_within([str(self._programs[kind])], self._limit_s, variables)
        if ran.code == 0:
            return ""
        lines = ["".join(char for char in line if char.isprintable()).strip() for line in ran.said.splitlines()]
        last = next((line for line in reversed(lines) if line), f"it ended with {ran.code}")
        is_hung = ran.code is None and not ran.said.startswith("cannot be run")
        return f"{kind}: {f'it took longer than {self._limit_s:g} s, and was killed' if is_hung else last}"[:REASON_MAX]
