"""A job may write anything where it reports its steps: the scheduler takes its node's report all the same."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from colane.adaptor import wire
from colane.adaptor.writer import IDENTITY, RESTORED_WORD, RING_OFFSET
from colane.agent.files.jobdir import LaunchFacts
from colane.agent.measuring.telemetry import AttemptMeter
from colane.api.of_record import as_object
from colane.api.wire_nodes import ReportBody

PLACED = LaunchFacts("boot", 0.0, (0,), (0, 1), cpu_devices=True)
NONE_CAME = 2**22 - 1
"""A pid that is never given out."""

ODD_NUMBERS = [
    *(0, 1, 2, 100, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**63, 2**64 - 1),
    *(
        struct.unpack("=Q", struct.pack("=d", value))[0]
        for value in (-1.0, -0.0, 1e-308, 0.5, 1e12, 2e12, 1e308, float("inf"), float("nan"))
    ),
]
FIRST_WRITABLE = IDENTITY.size // 8
Words = dict[int, int]
Spoilt = st.dictionaries(
    st.integers(FIRST_WRITABLE, RING_OFFSET // 8 + 8), st.sampled_from(ODD_NUMBERS), min_size=1, max_size=12
)


@given(ranks=st.lists(Spoilt, min_size=1, max_size=3))
@example(ranks=[{RESTORED_WORD: 2**53}])
def test_a_report_with_whatever_a_job_wrote_is_taken(ranks: list[Words]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps"
        for rank, words in enumerate(ranks):
            write(wire.rank_path(path, rank), words)
        meter = AttemptMeter(path, PLACED)
        now = as_object(meter.sample(2e9, NONE_CAME, {}))
    job = {"id": 1, "attempt": 1, "phase": "launched", "pid": 1, "start_s": 1e9, "progress": now}
    report = {"agent_id": "a", "at_s": 2e9, "jobs": [job]}
    ReportBody.model_validate_json(json.dumps(report, allow_nan=False))


def write(path: Path, words: Words) -> None:
    """Report some steps as a job does, and spoil what was written."""
    wire.create(path)
    writer = wire.Writer(str(path), 100)
    for number in range(1, 4):
        writer.step(1000.0 + number, 0.5, 1.0)
    writer.close()
    with path.open("r+b") as file:
        for word, number in words.items():
            os.pwrite(file.fileno(), struct.pack("=Q", number), word * 8)
