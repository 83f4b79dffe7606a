"""The emulated CUDA forbids what CUDA forbids while a stream is captured, in each mode and thread."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.adaptor.forks import Forks
from tests.emulated.job.emulated_cuda import capture
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import Machine

CAPTURES = Path(__file__).with_name("captures.py")
FINE = "fine"
UNSAFE = ("query_event", "wait_for_event", "elapsed", "query_stream", "wait_for_stream")
"""Forbidden in the mode `relaxed` to none, in `thread_local` to the capturing thread, in `global` to all."""
NEVER = {
    "query_captured_event": capture.CAPTURED_EVENT,
    "wait_for_captured_event": capture.CAPTURED_EVENT,
    "wait_for_captured_stream": capture.CAPTURING,
    "wait_for_device": capture.CAPTURING,
    "kernel_in_legacy_beside_a_blocking_stream": capture.IMPLICIT,
    "wait_for_work_outside": capture.ISOLATED,
}
ALWAYS = ("nothing", "query_unrecorded_event", "kernel_elsewhere", "kernel_in_legacy", "fork_and_join")

MODES = capture.MODES
CASES = [
    *((rule, mode, "own", capture.CAPTURING if mode != "relaxed" else FINE) for rule in UNSAFE for mode in MODES),
    *((rule, mode, "other", capture.CAPTURING if mode == "global" else FINE) for rule in UNSAFE for mode in MODES),
    *((rule, mode, "own", text) for rule, text in NEVER.items() for mode in ("global", "relaxed")),
    *((rule, mode, "own", FINE) for rule in ALWAYS for mode in ("global", "relaxed")),
    ("take_memory", "global", "own", FINE),
    ("take_memory", "global", "other", capture.CAPTURING),
    ("take_memory", "thread_local", "other", FINE),
    ("read", "global", "own", capture.CAPTURING),
    ("read", "relaxed", "own", capture.CAPTURING),
    ("read", "global", "other", capture.CAPTURING),
    ("read", "thread_local", "other", FINE),
]  # fmt: skip


SPOILT = {":".join(case): [text, FINE if text == FINE else capture.SPOILT] for *case, text in CASES}
OTHERWISE = {
    "fork:global:own": [FINE, capture.UNJOINED],
    "merge:global:own": [capture.MERGED, capture.SPOILT],
    "end_elsewhere:global:own": [capture.UNMATCHED, capture.SPOILT],
    "end_elsewhere:global:other": [capture.OTHER_THREAD, capture.SPOILT],
    "empty_cache:global:own": ["captures_underway.empty() INTERNAL ASSERT FAILED", FINE],
}


@pytest.fixture(scope="module")
def told(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("captures")
    machine = Machine(folder / "gpus", Kind("GPU-0"))
    fork = forks.start(CAPTURES, *SPOILT, *OTHERWISE, env={**os.environ, **machine.env}, cwd=folder)
    assert fork.wait() == 0, fork.errors
    found: dict[str, list[str]] = json.loads(fork.out.replace("CUDA error: ", ""))
    return found


@pytest.mark.parametrize("case", [*SPOILT, *OTHERWISE])
def test_what_is_forbidden_is_refused_and_spoils_the_capture(told: dict[str, list[str]], case: str) -> None:
    assert told[case] == (SPOILT | OTHERWISE)[case]
