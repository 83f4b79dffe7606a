"""Figures of progress are of all that a job does, also between its steps: from its steps file to what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from colane.adaptor import wire
from colane.agent.files.jobdir import LaunchFacts
from colane.agent.measuring.telemetry import AttemptMeter
from colane.facts.job import job_facts
from tests.facts.test_job import job

BEGIN_S = 1_000.0
WARM_S, STEP_S = 20.0, 0.01
STEADY = (STEP_S,) * 999
MADE = {
    "steady": STEADY,
    "bursts": (1.5, *(STEP_S,) * 127) * 7,
    "evaluation": ((STEP_S,) * 249 + (4.0,)) * 4,
    "saving": ((STEP_S,) * 499 + (9.0,)) * 2,
    "warm-up": (5.0, 5.0, 1.0, *STEADY),
}
"""Durations of a job's steps after its first."""
TRUE_S = {name: sum(made) for name, made in MADE.items()} | {"warm-up": sum(STEADY)}
COUNTED = {name: len(made) for name, made in MADE.items()} | {"warm-up": len(STEADY)}
PAUSE_MAX_S = {"steady": 5.0, "bursts": 5.0, "evaluation": 8.0, "saving": 18.0, "warm-up": 5.0}
"""So long no step is no stall."""


@pytest.mark.parametrize("kind", MADE)
def test_rate_and_time_left_are_those_of_the_whole(kind: str, tmp_path: Path) -> None:
    path, total = tmp_path / "steps", 100_000
    wire.create(path)
    writer, at_s = wire.Writer(str(path), total), BEGIN_S
    for step_s in (WARM_S, *MADE[kind]):
        at_s += step_s
        writer.step(at_s, step_s)
    writer.close()
    meter = AttemptMeter(path, LaunchFacts("boot", 0.0, (0,), (0,), cpu_devices=True))
    running = job(since_s=BEGIN_S, spec={"steps_total": total})
    true_per_s = COUNTED[kind] / TRUE_S[kind]
    for no_step_s, is_stalled in ((PAUSE_MAX_S[kind] - 0.1, False), (PAUSE_MAX_S[kind] + 0.1, True)):
        sample = meter.last(at_s + no_step_s, BEGIN_S, 1.0)
        told = job_facts(running, sample, None, at_s + no_step_s)
        if is_stalled:
            assert (told["now_steps_per_s"], told["left_s"]) == (0, None)
        else:
            assert told["now_steps_per_s"] == pytest.approx(true_per_s, rel=0.02)
            assert told["left_s"] == pytest.approx((total - len(MADE[kind]) - 1) / true_per_s, rel=0.02)
