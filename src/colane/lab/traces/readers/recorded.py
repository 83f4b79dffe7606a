"""What a batch system's log says of when jobs were submitted, started and ended, and where it contradicts itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from colane.lab.traces import cells
from colane.lab.traces.readers.assemble import span
from colane.lab.traces.sheet import Sheet
from colane.lab.traces.workload import Note

NOT_ENDED = frozenset({"RUNNING", "SUSPENDED", "PENDING"})
"""States of jobs that had not ended when the log was taken."""

NOTHING = frozenset({"", "None", "nan", "NaT"})
"""What stands where there was no such moment."""

SLACK_S = 1.0
"""Moments are whole seconds, so that durations may differ by so much."""


class Moments(NamedTuple):
    """Columns of a log, by row.

    Attributes:
        states: How a job ended.
        submit_s: When it was submitted, in seconds since any one moment.
        start_s: When it started; None is never.
        end_s: When it ended; None is not yet.
        duration_s: How long it ran, as the log says besides.
    """

    states: Sequence[str]
    submit_s: Sequence[float]
    start_s: Sequence[float | None]
    end_s: Sequence[float | None]
    duration_s: Sequence[float | None]


def moments(sheet: Sheet, stamp: Callable[[str], float]) -> Moments:
    """Read the columns `state`, `submit_time`, `start_time`, `end_time` and `duration`.

    Args:
        sheet: The log.
        stamp: Parses a moment.

    Raises:
        InputFileError: A cell is bad (unless rows may be skipped).
    """
    return Moments(
        states=sheet.column("state", cells.word),
        submit_s=sheet.column("submit_time", stamp),
        start_s=sheet.column("start_time", _or_nothing(stamp)),
        end_s=sheet.column("end_time", _or_nothing(stamp)),
        duration_s=sheet.column("duration", _or_nothing(cells.number)),
    )


def run_times(sheet: Sheet, log: Moments) -> tuple[dict[int, float], tuple[Note, ...]]:
    """Return the run time of every job that ended, by row, and what people should know of the others.

    The run time is end - start. Left out and counted: jobs that had not ended, and jobs that never started. Told: jobs
    whose `duration` is another, and jobs that started before they were submitted, each with the line of the first.

    Raises:
        InputFileError: A job ends before it starts, or has ended without an end (unless rows may be skipped).
    """
    ran: dict[int, float] = {}
    unended: list[int] = []
    unstarted: list[int] = []
    for row in list(sheet.good()):
        start, end, state = log.start_s[row], log.end_s[row], log.states[row]
        if state.upper() in NOT_ENDED:
            unended.append(row)
        elif start is None:
            unstarted.append(row)
        elif end is None:
            sheet.fail(row, f"is empty, though the job is {state}", "end_time")
        elif (log.duration_s[row] or 0.0) < 0:
            sheet.fail(row, f"must not be negative, got {log.duration_s[row]:g}", "duration")
        else:
            ran[row] = span(sheet, row, start, end, "end_time")
    ran = {row: run_s for row, run_s in ran.items() if row not in sheet.bad}
    others = [row for row in ran if _differs(log.duration_s[row], ran[row])]
    early = [row for row in ran if (start := log.start_s[row]) is not None and start < log.submit_s[row]]
    return ran, tuple(
        Note(len(rows), "job", f"{what} (the first in line {sheet.lines[rows[0]]})")
        for rows, what in (
            (unended, "not ended when the log was taken, left out"),
            (unstarted, "never started, left out"),
            (others, "whose duration is not end - start, which is taken"),
            (early, "started before submitted, taken as submitted"),
        )
        if rows
    )


def _differs(said_s: float | None, run_s: float) -> bool:
    return said_s is not None and abs(said_s - run_s) > SLACK_S


def _or_nothing(parse: Callable[[str], float]) -> Callable[[str], float | None]:
    return lambda text: None if text in NOTHING else parse(text)
