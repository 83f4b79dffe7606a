"""No two jobs of a lane compute at once: random handovers with first steps, evaluations, saves and kills."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "overlap.py"


@pytest.fixture(scope="module")
def overlap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("overlap_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_overlap_is_found(overlap: ModuleType) -> None:
    span = overlap.ComputeSpan
    long, within, later = span(0.0, 3.0, 1), span(1.0, 1.5, 2), span(2.0, 4.0, 2)
    assert overlap.overlaps([long, within, later]) == [(long, within), (long, later)]
    assert overlap.overlaps([long, span(3.0, 4.0, 2)]) == []
    assert overlap.handovers([long, within, later]) == 1


@pytest.mark.live
@pytest.mark.faults
def test_a_thousand_handovers_overlap_nowhere() -> None:
    argv = [sys.executable, str(BENCHMARK), "--handovers", "1000", "--kill-every-s", "0.3", "--seed", "7"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
