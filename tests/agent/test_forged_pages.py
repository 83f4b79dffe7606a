"""Pages in which a job has written what it likes: an agent and a scheduler do no more for them than for others."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from colane.adaptor import wire, writer
from colane.agent.files.jobdir import LaunchFacts
from colane.agent.gate.page import ControlPage
from colane.agent.measuring.telemetry import AttemptMeter
from colane.api.of_record import as_object
from colane.api.wire_nodes import ReportBody
from colane.core import ClusterState, Core
from colane.core.events import Ended, Launched, NodeRegistered, Progressed, Submitted
from colane.model.job import Exit, JobId, JobSpec, JobState
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from colane.server.writer.changes import _to_progress
from tests.core.worlds import make_node
from tests.examples import examples

CONTROL: Final = writer.CONTROL_OFFSET // 8
RECORDS: Final = tuple(offset // 8 for offset in writer.RECORD_OFFSETS)
KINDS: Final = {
    "ranks": (
        writer.PID_WORD, writer.REFORMS_WORD, writer.RANKS_WORD, writer.FORMED_WORD, writer.BESIDE_WORD,
        writer.PHASE_WORD, CONTROL + writer.RANKS_WANTED,
    ),
    "steps": (
        writer.TOTAL_WORD, writer.FIRST_WORD, writer.COUNT_WORD, writer.REFUSED_WORD, writer.RESTORED_WORD,
        writer.SAVES_WORD, writer.SAVED_STEPS_WORD, writer.UNCOUNTED_WORD, writer.UNTIMED_WORD, writer.ANSWERS_WORD,
    ),
    "times": (
        writer.HEARTBEAT_WORD, writer.SAVED_WORD, writer.SAVE_FAILED_WORD, writer.YIELDED_WORD, writer.RESUMED_WORD,
        writer.IDLE_WORD, writer.STILL_WORD, *RECORDS, *range(writer.RING_OFFSET // 8, writer.RING_OFFSET // 8 + 6),
    ),
    "sizes": (
        *[record + word for record in RECORDS for word in range(1, 6)], writer.STAYS_WORD, writer.FLUSHED_WORD,
        writer.NOISE_WORD, writer.SAVE_ERROR_WORD,
    ),
}  # fmt: skip
MUTATIONS: Final = examples(25).max_examples
"""Of each kind; `COLANE_FUZZ=30` makes it 3,000 pages."""
NUMBERS: Final = [
    *(0, 1, 2, 3, 4, 255, 256, 8192, 2**31, 2**32, 2**53, 2**63, 2**64 - 1),
    *(
        struct.unpack("=Q", struct.pack("=d", value))[0]
        for value in (-1.0, 1e-308, 0.5, 1003.0, 2e9, 1e12, 1e308, float("inf"), float("nan"))
    ),
]
NONE_CAME: Final = 2**22 - 1
"""A pid that is never given out."""
AT_S: Final = 2e9
PLACED: Final = LaunchFacts("boot", 0.0, (0, 1), (0, 1), cpu_devices=True)
PAGE_CALLS_MAX: Final = 2 * (writer.RING_STEPS + writer.ANSWERS_KEPT) + 1000
"""What two pages cost that are full, of steps and of answers."""
WAKES_MAX: Final = 40
"""A minute of a scheduler's own timers, whatever a page says."""


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count calls of Python functions."""
    calls = [0]

    def note(_frame: object, event: str, _argument: object) -> None:
        calls[0] += event == "call"

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def page(path: Path) -> None:
    wire.create(path)
    made = wire.Writer(str(path), 100)
    for number in range(1, 4):
        made.step(1000.0 + number, 0.5, 1.0)
    made.close()


@dataclass
class Job:
    """A running job of two ranks, as its agent and its scheduler see it."""

    steps: Path

    def __post_init__(self) -> None:
        self.paths = [wire.rank_path(self.steps, rank) for rank in range(2)]
        for path in self.paths:
            page(path)
        self.whole = [path.read_bytes() for path in self.paths]

    def forge(self, rng: Random, words: tuple[int, ...]) -> None:
        for path, whole in zip(self.paths, self.whole, strict=True):
            path.write_bytes(whole)
            with path.open("r+b") as file:
                for _ in range(rng.randrange(1, 8)):
                    number = rng.choice(NUMBERS) if rng.random() < 0.8 else rng.getrandbits(64)
                    os.pwrite(file.fileno(), struct.pack("=Q", number), rng.choice(words) * 8)

    def seen(self) -> dict[str, Any]:
        """What the agent does with the pages in a round."""
        for path in self.paths:
            control = ControlPage(path)
            for look in (control.counters, control.times, control.last_step_s, control.rests, control.has_answered):
                look()
            control.close()
        return dict(as_object(AttemptMeter(self.steps, PLACED).sample(AT_S, NONE_CAME, {})))


def scheduled(sample: dict[str, Any]) -> int:
    """What a scheduler does with it: the report is read, the core takes it and is asked at each of its timers."""
    job = {"id": 1, "attempt": 1, "phase": "launched", "pid": 1, "start_s": 1e9, "progress": sample}
    report = {"agent_id": "a", "at_s": AT_S, "jobs": [job]}
    body = ReportBody.model_validate_json(json.dumps(report, allow_nan=False))
    spec = JobSpec(name="j", family="f", gpus=2, sizes=(1, 2), retries=1)
    core = Core(create("colane"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n", 2)), Submitted(JobId(1), spec), Submitted(JobId(2), spec)], AT_S - 60)
    core.step([Launched(JobId(1), 1, 1, AT_S - 59)], AT_S - 59)
    told = body.jobs[0].progress
    assert told is not None
    progress = _to_progress(told, 0.0, AT_S - 59, AT_S)
    outcome, wakes = core.step([Progressed(JobId(1), 1, progress, "n")], AT_S), 0
    while outcome.wake_s is not None and outcome.wake_s < AT_S + 60:
        wakes += 1
        assert wakes <= WAKES_MAX, sample
        outcome = core.step([], max(outcome.wake_s, AT_S))
    left = core.state.jobs.get(JobId(1))
    if left is not None and left.state is JobState.STOPPING:
        core.step([Ended(JobId(1), 1, "signalled", Exit(None, 15), AT_S - 59, AT_S + 1)], AT_S + 60)
        assert JobId(1) not in core.state.jobs or core.state.jobs[JobId(1)].totals.failures == 1
    return wakes


@pytest.mark.parametrize("kind", KINDS)
def test_no_page_costs_more_than_another(kind: str, tmp_path: Path) -> None:
    """Calls are counted, and nothing is timed: of a page as a job writes it, and of the same with words of others."""
    job, rng = Job(tmp_path / "steps"), Random(f"{kind} 1")

    def cost(what: Callable[[], Any]) -> tuple[int, Any]:
        with counted() as calls:
            found = what()
        return calls[0], found

    _, usual = cost(job.seen)
    scheduled(usual)
    usual_calls, _ = cost(partial(scheduled, usual))
    for _ in range(MUTATIONS):
        job.forge(rng, KINDS[kind])
        calls, sample = cost(job.seen)
        assert calls <= PAGE_CALLS_MAX, (calls, sample)
        calls, _ = cost(partial(scheduled, sample))
        assert calls <= 3 * usual_calls + 1000, (calls, sample)
