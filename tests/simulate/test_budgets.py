"""Budgets of GPU hours in virtual time: what would start once they are used up waits for the next month."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from colane.cli import app

HOUR_S, MONTH_S = 3600.0, 31 * 86_400.0  # the clock of a trace begins on a 1 January
TRACE = "submit_s,duration_s,gpus,user\n0,3600,1,ann\n60,3600,1,ann\n120,600,1,bob\n"
CLUSTER = "name: mine\ngroups: [{name: n, count: 1, gpus: 1, gpu_type: V100, gpu_memory: 16GB}]\n"
BUDGETS = {
    "of a user": "[user.ann]\ngpu_hours_per_month = 1\n",
    "of each user": "[default]\ngpu_hours_per_month = 1\n",
    "of a group": '[group.lab]\nmembers = ["ann"]\ngpu_hours_per_month = 1\n',
    "larger": "[user.ann]\ngpu_hours_per_month = 3\n",
}
STUDY = 'cluster = "mine.yaml"\ntrace = "jobs.csv"\npolicies = ["{policy}"]\nlimits = "limits.toml"\nfiles = ["jobs"]\n'


@pytest.mark.parametrize("whose", BUDGETS)
@pytest.mark.parametrize("policy", ["fifo", "srtf", "easy-backfill", "colane"])
@pytest.mark.parametrize("command", ["simulate", "study"])
def test_what_is_over_a_budget_waits_for_the_next_month(tmp_path: Path, command: str, policy: str, whose: str) -> None:
    files = {"mine.yaml": CLUSTER, "jobs.csv": TRACE, "limits.toml": BUDGETS[whose], "s.toml": STUDY}
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace("{policy}", policy))
    here, out = str(tmp_path), tmp_path / "out"
    said = ["-c", f"{here}/mine.yaml", "-t", f"{here}/jobs.csv", "-p", policy, "--limits", f"{here}/limits.toml"]
    words = ["simulate", *said] if command == "simulate" else ["study", f"{here}/s.toml", "--processes", "1"]
    assert app.run([*words, "--out", str(out)]) == 0
    (path,) = [path for path in out.rglob("*jobs*.csv") if "refused" not in path.name]
    with path.open() as file:
        first_s, second_s, other_s = (float(row["end_s"]) for row in csv.DictReader(file))
    assert first_s <= HOUR_S + 600.0
    assert other_s <= 3 * HOUR_S, "another's budget holds nobody else"
    if whose == "larger":
        assert second_s <= 3 * HOUR_S
    else:
        assert second_s == pytest.approx(MONTH_S + HOUR_S, abs=1.0)
