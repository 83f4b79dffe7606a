"""Users' policies in `colane simulate`: the documents' own, and each that fails, which ends the run in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colane.cli import app

from .files import BAD, EXAMPLE, written

SIMULATE = ("simulate", "--world", "factors", "--trace", "heavy-load:jobs=40,load=2")
FLAW = "plans nonsense"


@pytest.mark.parametrize("case", [case for case in BAD if case != FLAW])
def test_a_failing_policy_ends_the_run_in_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tail, expected = BAD[case]
    assert app.run([*SIMULATE, "-p", written(tmp_path, tail), "--policy-budget", "200ms"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"colane: policy: {tmp_path}/mine.py")
    assert expected in said
    assert len(said.splitlines()) == 1


def test_a_plan_that_is_refused_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no failure where others were carried out, and all jobs have ended."""
    tail, _ = BAD[FLAW]
    assert app.run([*SIMULATE, "-p", written(tmp_path, tail)]) == 0
    said = "".join(capsys.readouterr())
    assert "refused as impossible, the first at" in said
    assert "(no-such-gpu)" in said
    assert "Flaw(" not in said
    assert "mine finished 40 of 40 jobs" in said


def test_the_policy_of_the_documents_is_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    chosen = ["-p", "fifo", "-p", f"{EXAMPLE}:FewestRunning"]
    assert app.run([*SIMULATE, *chosen, "--policy-budget", "30s", "--json", "--out", str(out)]) == 0
    fifo, own = json.loads(capsys.readouterr().out)["runs"]
    assert (own["policy"], own["finished"]) == ("fewest-running", fifo["finished"])
    assert own["queue_s"] != fifo["queue_s"]
    assert (out / "jobs-fewest-running.csv").exists()


def test_two_policies_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "copy.py").write_text(EXAMPLE.read_text())
    assert app.run([*SIMULATE, "-p", f"{EXAMPLE}:FewestRunning", "-p", f"{tmp_path}/copy.py:FewestRunning"]) == 2
    assert "are both named 'fewest-running'; name one of them otherwise" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", "fifo", "--policy-budget", "3s"], "bounds a policy of your own"),
        (["-p", f"{EXAMPLE}:FewestRunning", "--policy-budget", "0s"], "must be more than 0"),
        (["-p", f"{EXAMPLE}:FewestRunning", "--policy-budget", "soon"], "--policy-budget: "),
    ],
)
def test_a_wrong_budget_is_refused(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*SIMULATE, *words]) == 2
    assert expected in capsys.readouterr().err
