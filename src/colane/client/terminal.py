"""Sits at the terminal of a job: what is typed here goes there, what it shows comes here."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colane.client.client import Client
from colane.client.errors import Refused, SchedulerUnreachable

if TYPE_CHECKING:
    from colane.api.jobs import JobObject

WAIT_S: Final = 5.0
"""How long one request waits for output: less than a client gives a scheduler where it knows several."""
PAUSE_S: Final = 0.1
UNREACHED_PAUSE_S: Final = 1.0
START_LOOK_S: Final = 0.2
ENDED_LOOK_S: Final = 1.0
TYPED_BYTES: Final = 1024
UNSENT_MAX_BYTES: Final = 2048  # typed while the scheduler cannot be reached; what goes beyond it is lost
END_OF_INPUT: Final = b"\x04"

NOT_REACHED: Final = 503  # nothing was typed
AWAY: Final = 500  # from here on a refusal says that the scheduler, or the job's agent, cannot be asked now

HOW_TO_LEAVE: Final = "Enter ~. leaves it running"

_ENDED, _RESIZED, _TOLD_TO_END = b"e", b"w", b"t"


@dataclass(slots=True)
class _Shown:
    """How far the output of a job has been shown."""

    attempt: int = 0  # of this attempt; 0 before it is known
    offset: int = 0  # up to here
    is_told: bool = False  # the person was told that the scheduler does not answer
    is_last: bool = False  # the job has ended, so that what is shown next is the last


class Seat:
    """A place at the terminal of one job.

    Args:
        connect: Makes a client of the scheduler; each thread has its own.
        job_id: The job.
        say: Tells the person something that does not come of the job.
    """

    def __init__(self, connect: Callable[[], Client], job_id: int, say: Callable[[str], None]) -> None:
        self._connect, self._job_id, self._say = connect, job_id, say
        self._refused: Refused | None = None
        self._is_away = False
        self._wake_fd, self._waking_fd = os.pipe()

    def sit(self, *, ends_job: bool = False) -> bool:
        """Be there until the job has ended or the person leaves it.

        Args:
            ends_job: Whether the job ends with this program, where that is told to end or its own terminal is gone.

        Returns:
            Whether the job has ended.

        Raises:
            Refused: It has no terminal, or is another user's.
            SchedulerUnreachable: The scheduler does not answer while the job has not been started yet.
        """
        with self._connect() as scheduler:
            if not self._await_start(scheduler):
                return True
            try:
                scheduler.terminal(self._job_id, _window())
            except Refused:
                time.sleep(ENDED_LOOK_S)  # one that has just ended is known to have soon, and what it showed is told
                if not _has_ended(scheduler.job(self._job_id)["state"]):
                    raise
            self._say(f"job {self._job_id}: {HOW_TO_LEAVE}; colane attach {self._job_id} comes back")
            threading.Thread(target=self._view, name="colane-terminal", daemon=True).start()
            with _raw() as is_terminal, self._signals(is_terminal=is_terminal):
                word = self._type(scheduler, is_terminal=is_terminal)
            if self._refused is not None:
                raise self._refused
            if word == _TOLD_TO_END and ends_job:
                scheduler.cancel(self._job_id)
        return word == _ENDED

    def _await_start(self, scheduler: Client) -> bool:
        """Wait until its process has been started; whether it ever was. Says once why it waits."""
        has_said = False
        while not _is_started(job := scheduler.job(self._job_id)) and not _has_ended(job["state"]):
            if job["state"] == "queued" and not has_said:
                self._say(f"job {self._job_id} is queued: {scheduler.why(self._job_id)['sentence']}")
                has_said = True
            time.sleep(START_LOOK_S)
        return _is_started(job)

    def _type(self, scheduler: Client, *, is_terminal: bool) -> bytes:
        """Send what is typed; return what ended that."""
        reading, escapes, unsent = [sys.stdin.fileno(), self._wake_fd], Escapes(), b""
        while True:
            ready, _, _ = select.select(reading, [], [], UNREACHED_PAUSE_S if unsent else None)
            if self._wake_fd in ready and (word := os.read(self._wake_fd, 1)) != _RESIZED:
                return word
            is_left = False
            if reading[0] in ready and reading[0] != self._wake_fd:
                try:
                    typed = os.read(reading[0], TYPED_BYTES)
                except OSError:
                    typed = b""
                if is_terminal and not typed:  # it is gone
                    return _TOLD_TO_END
                said, is_left = escapes.parse(typed) if is_terminal else (typed or END_OF_INPUT, False)
                reading = reading if typed else reading[1:]
                unsent = (unsent + said)[:UNSENT_MAX_BYTES]
            if unsent or self._wake_fd in ready:
                unsent = self._unsent(scheduler, unsent)
            if is_left:
                return b""

    def _unsent(self, scheduler: Client, typed: bytes) -> bytes:
        """Send; return what was not sent. What may have arrived is not sent again."""
        if self._is_away:  # by a connection of its own, which is refused: what goes into a broken one may have arrived
            scheduler.close()
        try:
            scheduler.terminal(self._job_id, _window(), typed)
        except SchedulerUnreachable as error:
            return b"" if error.was_sent else typed
        except Refused as refused:  # the thread that reads is told the same, and knows whether the job has ended
            return typed if refused.status == NOT_REACHED else b""
        return b""

    def _view(self) -> None:
        """Show what the job shows, until it has ended."""
        with self._connect() as scheduler:
            shown = _Shown()
            while not self._is_over(scheduler, shown):
                pass
        os.write(self._waking_fd, _ENDED)

    def _is_over(self, scheduler: Client, shown: _Shown) -> bool:
        """Show what comes next, if anything does; whether nothing will any more."""
        soon_s = time.monotonic() + WAIT_S / 2
        asked = {"offset": shown.offset, "wait_s": WAIT_S, **_window()}
        refusal: Refused | None = None
        try:
            try:
                part = scheduler.terminal(self._job_id, asked | ({"attempt": shown.attempt} if shown.attempt else {}))
            except Refused as refused:
                if refused.status >= AWAY:
                    raise
                refusal = refused
            else:
                sys.stdout.buffer.write(part.data)
                sys.stdout.buffer.flush()
                shown.offset, shown.is_told, self._is_away = part.next_offset, False, False
                if part.data or time.monotonic() >= soon_s:
                    return False
            job = scheduler.job(self._job_id)
        except (SchedulerUnreachable, Refused) as error:
            self._is_away = True
            if not shown.is_told:
                self._tell(f"{error}: what is shown meanwhile comes once it answers ({HOW_TO_LEAVE})")
            shown.is_told = True
            time.sleep(UNREACHED_PAUSE_S)
            return False
        if refusal is not None and shown.attempt in {0, job["attempt"]} and not _has_ended(job["state"]):
            self._refused = refusal
            return True
        if shown.attempt and job["attempt"] != shown.attempt:
            self._tell(f"job {self._job_id} is started again")
            shown.offset = 0
        shown.attempt = job["attempt"]
        if not _has_ended(job["state"]) or shown.is_last:
            time.sleep(PAUSE_S)
            return shown.is_last
        shown.is_last = True  # what it showed between the two questions is still to come
        return False

    def _tell(self, text: str) -> None:
        """Say something in a line of its own between what the job shows: a raw terminal moves down alone."""
        sys.stderr.write("\r\n")
        self._say(text)
        sys.stderr.write("\r")
        sys.stderr.flush()

    @contextmanager
    def _signals(self, *, is_terminal: bool) -> Iterator[None]:
        """Be told of another size of the window, and of an order to end."""
        words = {signal.SIGTERM: _TOLD_TO_END, signal.SIGHUP: _TOLD_TO_END}
        words |= {signal.SIGWINCH: _RESIZED} if is_terminal else {}
        before = {number: signal.getsignal(number) for number in words}
        for number, word in words.items():
            signal.signal(number, lambda *_, word=word: os.write(self._waking_fd, word))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Escapes:
    """Finds `~.` at the beginning of a line in what is typed, as ssh does; `~~` is one `~`."""

    def __init__(self) -> None:
        self._is_begin = True
        self._has_tilde = False

    def parse(self, typed: bytes) -> tuple[bytes, bool]:
        """Return what is to be sent, and whether the person leaves."""
        sent = bytearray()
        for byte in typed:
            if self._has_tilde:
                self._has_tilde = False
                if byte == ord("."):
                    return bytes(sent), True
                sent += b"~" if byte == ord("~") else bytes([ord("~"), byte])
            elif byte == ord("~") and self._is_begin:
                self._has_tilde = True
            else:
                sent.append(byte)
            self._is_begin = byte in b"\r\n"
        return bytes(sent), False


def _is_started(job: JobObject) -> bool:
    attempts = job.get("attempts") or []
    return bool(attempts) and attempts[-1]["start_s"] is not None and job["state"] != "queued"


def _has_ended(state: str) -> bool:
    from colane.model.job import ENDED  # noqa: PLC0415 - its dataclasses take some milliseconds

    return state in ENDED


def _window() -> dict[str, int]:
    """How large it is; nothing where there is none."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return {}
    return {"rows": rows, "columns": columns}


@contextmanager
def _raw() -> Iterator[bool]:
    """Hand each key on as it is, where it is a terminal that is typed at; whether it is one."""
    fd = sys.stdin.fileno()
    if not os.isatty(fd):
        yield False
        return
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSADRAIN)  # what was typed meanwhile is kept
    try:
        yield True
    finally:
        with suppress(termios.error):  # it is gone
            termios.tcsetattr(fd, termios.TCSAFLUSH, before)
