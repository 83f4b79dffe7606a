"""Sweeps by other software's own ways: submitit's plugin, Hydra's launcher, Optuna, an array from Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integrations.conftest import Shell

pytestmark = pytest.mark.live

EXAMPLES = Path(__file__).parents[2] / "docs/examples"

SUBMITIT = """
import submitit, subprocess, sys
def square(x):
    print("squaring", x)
    return x * x
executor = submitit.AutoExecutor(folder="logs/%j", cluster="colane")
executor.update_parameters(timeout_min=5, name="squares", colane_array_parallelism=2, colane_fields={"retries": 0})
jobs = executor.map_array(square, range(3))
results = [job.result() for job in jobs]
array, element = jobs[0].job_id.split("_")
subprocess.run([sys.executable, "-m", "colane.cli", "wait", f"{array}[{element}]"], check=True, capture_output=True)
state = jobs[0].watcher.get_state(jobs[0].job_id, mode="force")  # a result is there before the job's end is known
print(results, jobs[2].stdout().splitlines()[-3:].count("squaring 2"), state)
failing = executor.submit(square, None)
print(type(failing.exception()).__name__, jobs[1].job_id.split("_")[1], submitit.AutoExecutor.which() != "colane")
held = executor.submit(square, 1)
for bad in ({"nodes": 2}, {"tasks_per_node": 3}):
    try:
        executor.update_parameters(**bad)
    except ValueError as error:
        print(str(error).partition(":")[0])
"""


def test_submitit_has_colane_as_a_cluster(shell: Shell) -> None:
    said = shell(sys.executable, "-c", SUBMITIT)
    assert said.out.splitlines() == [
        "[0, 1, 4] 1 COMPLETED", "FailedJobError 1 True", "nodes", "tasks_per_node",
    ], said  # fmt: skip


PREEMPTED = """
import os, signal, submitit
class Waits(submitit.helpers.Checkpointable):
    def __call__(self, gate):
        if int(os.environ["COLANE_ATTEMPT"]) > 1:
            return int(os.environ["COLANE_ATTEMPT"])
        open(gate, "w").write("here")
        while True:
            signal.pause()
executor = submitit.AutoExecutor(folder="logs", cluster="colane")
executor.update_parameters(timeout_min=60, name="waits")
os.mkfifo("gate")
job = executor.submit(Waits(), "gate")
assert open("gate").read() == "here"
job._interrupt()
print(job.result())
other = executor.submit(Waits(), "gate")
assert open("gate").read() == "here"
other.cancel()
other.wait()
print(other.state)
"""


def test_submitit_saves_and_goes_on_or_is_cancelled(shell: Shell) -> None:
    said = shell(sys.executable, "-c", PREEMPTED)
    assert said.out.split() == ["2", "CANCELLED"], said


APP = """
import hydra
from omegaconf import DictConfig
@hydra.main(version_base=None, config_path=None)
def main(cfg: DictConfig) -> float:
    if cfg.rate < 0:
        raise ValueError("below 0")
    open("rate", "w").write(str(cfg.rate))
    return cfg.rate
if __name__ == "__main__":
    main()
"""


def test_hydra_launches_a_sweep_as_an_array(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "rates.py").write_text(APP)
    words = ["hydra/launcher=colane", "hydra.launcher.gpus=0", "hydra.sweep.dir=out", "hydra.job.chdir=True"]
    said = shell(sys.executable, "rates.py", "-m", *words, "hydra.launcher.at_once=2", "+rate=0.1,0.2,0.3")
    assert said.code == 0, said
    assert "Colane runs 3 jobs" in said.out
    assert [(tmp_path / f"out/{number}/rate").read_text() for number in range(3)] == ["0.1", "0.2", "0.3"]
    shown = shell(sys.executable, "-m", "colane.cli", "ps", "--all", "--json")
    (array,) = [job for job in json.loads(shown.out) if job["name"] == "rates"]
    assert (array["elements"]["count"], array["elements"]["throttle"], array["needs"]["gpus"]) == (3, 2, 0)
    said = shell(sys.executable, "rates.py", "-m", *words, "+rate=-1")
    assert said.code == 1
    assert "below 0" in said.err


def test_optunas_trials_are_jobs(shell: Shell) -> None:
    first = shell(sys.executable, str(EXAMPLES / "optuna_study.py"), "3")
    assert first.out.startswith("3 trials, best "), first
    assert shell(sys.executable, str(EXAMPLES / "optuna_study.py"), "4").out.startswith("4 trials, best ")


def test_a_sweep_is_an_array_whose_trials_share(shell: Shell) -> None:
    said = shell(sys.executable, str(EXAMPLES / "sweep.py"), "6")
    assert "6 trials in " in said.out, said
