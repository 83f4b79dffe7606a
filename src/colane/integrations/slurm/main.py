"""Where the verbs begin: `main("sbatch")` runs one on the words of its command line."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from colane.client.errors import SchedulerError
from colane.integrations.slurm.contact import SlurmError

VERBS: Final = (
    "sbatch", "srun", "squeue", "scancel", "sinfo", "sacct", "scontrol", "sacctmgr", "sshare", "seff",
    "salloc", "sattach", "sstat", "sprio", "sdiag", "sreport", "sbcast", "strigger",
)  # fmt: skip
INSTEAD: Final = {
    "sattach": "follow a job with 'colane attach JOB', which also comes back to a terminal (srun --pty)",
    "sdiag": "'colane check' looks at the service, and its /metrics count what it does",
    "sreport": "'colane usage' sums up what users have had",
    "sbcast": "copy files where the script runs; its directory is there on each machine if they share it",
    "strigger": "the service sends word of jobs and nodes: docs/how-to/notify.md",
}
"""Verbs that are refused, with Colane's own way."""
# verbs that are others with these options before their own
AS: Final = {
    "sstat": ("sacct", ("--state=RUNNING", "--format=JobID,NTasks,AveCPU,AveRSS,MaxRSS,Elapsed,NodeList")),
    "sprio": ("squeue", ("--states=PENDING", "--format=%.15i %.9P %.8u %.10Q")),
}
VERSION: Final = "slurm 25.11.0-colane"  # what `--version` says: programs that depend on Slurm read a number from it
INTERRUPTED: Final = 130


def main(verb: str, shims: str = "", words: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code.

    Args:
        verb: One of `VERBS`.
        shims: Directory that it was called from, where the scripts it submits find the others.
        words: Of the command line; None takes this process's.
    """
    words = sys.argv[1:] if words is None else words
    if list(words[:1]) in (["--version"], ["-V"]):
        sys.stdout.write(f"{VERSION}\n")
        return 0
    try:
        code = _run(verb, shims, words)
        sys.stdout.flush()
    except SlurmError as error:
        return _complain(verb, str(error))
    except SchedulerError as error:
        return _complain(verb, str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    gc.freeze()
    return code


def _run(verb: str, shims: str, words: Sequence[str]) -> int:
    if verb in INSTEAD:
        raise SlurmError(f"is not done here: {INSTEAD[verb]}")
    if verb == "sshare":  # there are no accounts, so there are no shares in them
        return 0
    if verb == "sprio":
        if {"-w", "--weights"} & set(words):
            raise SlurmError("--weights is not done here: a job's priority is the number that its owner asked for")
        words = [word.replace("%Y", "%Q") for word in words]
    verb, before = AS.get(verb, (verb, ()))
    code: int = import_module(f"colane.integrations.slurm.{verb}").run([*before, *words], shims)
    return code


def _complain(verb: str, text: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"{verb}: error: {' '.join(text.split())}\n")
    return 1
