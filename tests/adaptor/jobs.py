"""Runs scripts that know nothing of Colane as an agent would start them, and reads what they reported."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from colane.adaptor import bundle, wire
from tests.adaptor.forks import Fork

DEADLINE_S = 100.0

SMALL = """
import torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
x, y = torch.randn(32, 8), torch.randn(32, 1)
def loss_of(m=model):
    return torch.nn.functional.mse_loss(m(x), y)
"""


@dataclass
class Job:
    """One attempt: a directory with a steps file, and the environment an agent would give."""

    folder: Path
    env: dict[str, str]
    errors: str = ""
    out: str = ""

    @property
    def steps_path(self) -> Path:
        return self.folder / "steps"

    def run(self, *argv: str, **env: str) -> str:
        """Run a command that succeeds; return what it printed."""
        done = subprocess.run(
            argv,
            env={**self.env, **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        self.errors = done.stderr
        return done.stdout

    def ran(self, fork: Fork) -> None:
        """Wait for a fork that succeeds, and keep what it printed."""
        code = fork.wait()
        self.out, self.errors = fork.out, fork.errors
        assert code == 0, self.errors

    def train(self, script: str, *options: str, **env: str) -> str:
        """Run a script as a file."""
        path = self.folder / "train.py"
        path.write_text(script)
        return self.run(sys.executable, *options, str(path), **env)

    def seen(self, rank: int = 0) -> wire.Steps | None:
        """Read what was reported."""
        return wire.read(self.steps_path if rank == 0 else f"{self.steps_path}.{rank}")

    def steps(self, rank: int = 0) -> int:
        """Return how many steps were reported, 0 when no process has registered."""
        seen = self.seen(rank)
        return 0 if seen is None else seen.steps

    def total(self) -> int | None:
        """Return how many steps there will be as far as was reported."""
        seen = self.seen()
        return None if seen is None else seen.steps_total


def make_job(folder: Path, *, pythonpath: str = "") -> Job:
    """Prepare an attempt; its Python finds neither Colane nor whatever this one's path says."""
    folder.mkdir(exist_ok=True, parents=True)
    wire.create(folder / "steps")
    place = bundle.unpack(folder.parent)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COLANE", "COV"))}
    env |= {"PYTHONPATH": bundle.first_on_path(place, pythonpath), bundle.DIR_ENV: str(place)}
    env |= {wire.STEPS_FILE_ENV: str(folder / "steps"), "COLANE_DEBUG": "1", "OMP_NUM_THREADS": "1"}
    return Job(folder, env)
