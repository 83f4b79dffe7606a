"""Compiled, the decision code decides as its source does; `scripts/test` runs this on what `scripts/compile` makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from colane.core import core
from colane.scheduling.registry import POLICIES

SOURCE = Path(__file__).parents[2] / "src"

pytestmark = pytest.mark.skipif(
    "COLANE_COMPILED" not in os.environ, reason="this is the source; scripts/test runs it over the compiled code"
)


def test_it_is_compiled() -> None:
    assert not core.__file__.endswith(".py")


def simulate(out: Path, **environment: str) -> Path:
    """Every policy on the trace that comes with the package, jobs sharing and stopped as policies like."""
    out.mkdir()
    decisions = out / "decisions.jsonl"
    policies = [word for name in POLICIES for word in ("--policy", name)]
    options = ["--belief", "profiled", "--out", str(out), "--decisions", str(decisions)]
    command = [sys.executable, "-P", "-m", "colane.cli", "simulate", *policies, *options]
    subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True)
    return out


def test_every_policy_decides_as_its_source(tmp_path: Path) -> None:
    ours = simulate(tmp_path / "compiled")
    theirs = simulate(tmp_path / "source", PYTHONPATH=str(SOURCE))
    tables = sorted(path.name for path in ours.glob("*.csv"))
    assert len(tables) >= len(POLICIES)
    for name in [*tables, "decisions.jsonl"]:
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
