"""Scripts that are told of their time limit, and that ask to come back, against a real agent."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.integrations.conftest import Shell

pytestmark = pytest.mark.live

BEGIN = "#!/bin/bash\n#SBATCH -J again -o out --open-mode=append\n"
TOLD = "#SBATCH -t 0:10 --signal=B:USR1@4\n"
"""A shell has set its trap within 6 s on a busy machine, too."""
COLANE = f"{sys.executable} -m colane.cli"
IS_BACK = '[ -z "$SLURM_RESTART_COUNT" ] || { echo back $SLURM_RESTART_COUNT; exit 0; }\n'
REQUEUE = "scontrol requeue $SLURM_JOB_ID; echo asked $?"
WAITS = "sleep 60 & wait; wait\n"

ENDS = {"with 0": "exit 0", "with 1": "exit 1", "killed": "kill -9 $$", "at the limit": ":"}
WHEN = {
    "at once": (BEGIN, "{asks}; {end}\n"),
    "told": (BEGIN + TOLD, "trap '{asks}; {end}' USR1\n"),
    "saves": (
        BEGIN + "#SBATCH --signal=B:USR1@60\n",
        "trap '{asks}; {end}' USR1; " + COLANE + " requeue $SLURM_JOB_ID >&2\n",
    ),
}


def run(shell: Shell, tmp_path: Path, text: str, *options: str) -> tuple[str, str]:
    """Run a script to its end, and return its state and what it has written."""
    (tmp_path / "job.sh").write_text(text)
    said = shell("sbatch", "--parsable", "--wait", *options, "job.sh")
    number = said.out.strip()
    assert number.isdecimal(), said
    state = shell("sacct", "-X", "-n", "--parsable2", "-o", "State", "-j", number).out.strip()
    return state, (tmp_path / "out").read_text()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("when", WHEN)
def test_a_script_that_asks_for_its_requeue_comes_back(shell: Shell, tmp_path: Path, when: str, end: str) -> None:
    head, body = WHEN[when]
    text = head + IS_BACK + body.format(asks=REQUEUE, end=ENDS[end]) + WAITS
    state, said = run(shell, tmp_path, text)
    assert (state, said.splitlines()[-1]) == ("COMPLETED", "back 1")
    assert "asked 1" not in said  # it may be stopped before it hears the answer


@pytest.mark.parametrize("end", ["exit 0", ":"])
def test_a_users_requeue_of_a_job_that_was_told_of_its_limit_brings_it_back(
    shell: Shell, tmp_path: Path, end: str
) -> None:
    """The script ends once the user has asked, or is stopped."""
    os.mkfifo(tmp_path / "told")
    os.mkfifo(tmp_path / "asked")
    limit = "#SBATCH -t 0:20 --signal=B:USR1@18\n"
    trap = f"trap 'echo >told; cat asked; {end}' USR1\n"
    (tmp_path / "job.sh").write_text(f"{BEGIN}{limit}{IS_BACK}{trap}{WAITS}")
    said = shell("sbatch", "--parsable", "job.sh")
    assert said.code == 0, said
    number = said.out.strip()
    (tmp_path / "told").read_text()
    assert shell("scontrol", "requeue", number).code == 0
    (tmp_path / "asked").write_text("asked\n")
    assert shell(sys.executable, "-m", "colane.cli", "wait", number).code == 0
    assert (tmp_path / "out").read_text().splitlines()[-1] == "back 1"


LIGHTNINGS = """
import os, signal, subprocess, sys, time
def requeue(number, frame):
    print("saved", flush=True)
    code = subprocess.call(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]])
    print("asked", code, flush=True)
if os.environ.get("SLURM_RESTART_COUNT"):
    print("back", os.environ["SLURM_RESTART_COUNT"])
    sys.exit()
signal.signal(signal.SIGUSR1, requeue)
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM passed over", flush=True))
print("begins", flush=True)
while True:
    signal.pause()
"""


def test_lightnings_automatic_requeue_of_a_step(shell: Shell, tmp_path: Path) -> None:
    """It saves in its handler, asks for its requeue, and trains on until it is killed."""
    (tmp_path / "train.py").write_text(LIGHTNINGS)
    text = f"{BEGIN}#SBATCH -t 0:10 --signal=SIGUSR1@4\nsrun {sys.executable} train.py\n"
    state, said = run(shell, tmp_path, text)
    assert (state, said.splitlines()[-1]) == ("COMPLETED", "back 1")
    assert said.index("begins") < said.index("saved") < said.index("asked")


@pytest.mark.parametrize("options", [(), ("--no-requeue",)], ids=str)
def test_a_script_that_ends_with_0_after_its_signal_is_completed(
    shell: Shell, tmp_path: Path, options: tuple[str, ...]
) -> None:
    text = f"{BEGIN}{TOLD}trap 'echo told; exit 0' USR1\n{WAITS}"
    assert run(shell, tmp_path, text, *options) == ("COMPLETED", "told\n")


@pytest.mark.parametrize(("to", "reached"), [("B:", False), ("", True)])
def test_b_is_for_the_script_alone(shell: Shell, tmp_path: Path, to: str, *, reached: bool) -> None:
    (tmp_path / "step.py").write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(print('step told', flush=True)))\n"
        "signal.pause()\n"
    )
    text = f"{BEGIN}#SBATCH -t 0:10 --signal={to}USR1@4\ntrap 'echo script told' USR1\n{sys.executable} step.py\n"
    _, said = run(shell, tmp_path, text)
    assert ("step told" in said, "script told" in said) == (reached, reached)  # a shell acts after its command


def test_a_requeue_of_one_that_is_cancelled_is_refused(shell: Shell, tmp_path: Path) -> None:
    text = f"{BEGIN}trap '' TERM; {COLANE} cancel $SLURM_JOB_ID; {REQUEUE}\n"
    state, said = run(shell, tmp_path, text)
    assert (state, "asked 1" in said, "is on its way out, as cancelled" in said) == ("CANCELLED", True, True)


def test_a_job_that_is_not_to_be_queued_again_is_not(shell: Shell, tmp_path: Path) -> None:
    state, said = run(shell, tmp_path, f"{BEGIN}{REQUEUE}\n", "--no-requeue")
    assert (state, "asked 1" in said) == ("COMPLETED", True), said
    assert "was submitted with --no-requeue" in said
