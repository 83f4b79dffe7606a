"""What people of other systems type for a command, and what does it here: better than the word spelt most alike."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

MEANT: Final = (
    ("squeue queue list ls jobs status stat top qstat", "see colane ps and colane nodes"),
    ("sacct history", "see colane ps --all"),
    ("sbatch run launch exec qsub srun", "use colane submit -- COMMAND; -W waits for its end"),
    ("scancel kill stop delete rm qdel", "use colane cancel JOB; services end with Ctrl-C"),
    ("sinfo gpus devices workers", "see colane nodes"),
    ("log tail output attach", "see colane logs -f JOB"),
    ("explain reason", "see colane why JOB"),
    ("info describe get scontrol", "see colane show JOB and colane why JOB"),
    ("hold pause", "use colane suspend JOB"),
    ("release unpause continue", "use colane resume JOB"),
    ("requeue restart retry", "cancel the job and submit it again; submit --retries N does so for failures"),
    ("start serve", "use colane up for scheduler and agent, colane server for the scheduler alone"),
    ("help", "see colane --help"),
    ("version", "see colane --version"),
    ("words", "see colane glossary"),
)
"""Words, and the advice for each of them."""


OPTIONS: Final = (
    ("--time --timeout --walltime --duration", ("--time-limit", "--limit")),
    ("--memory --ram --mem-per-cpu", ("--host-memory", "--gpu-memory")),
    ("--vram --gpu-mem --mem-per-gpu", ("--gpu-memory",)),
    ("--cpus --cpus-per-task --cpu --ncpus --ntasks --cpus-per-gpu --threads", ("--cores",)),
    ("--gres --gpus-per-node --ngpus --num-gpus --gpus-per-task --devices", ("--gpus",)),
    ("--nodes --nnodes --num-nodes", ("--multi-node",)),
    ("--job-name --jobname", ("--name",)),
    ("--partition --queue --constraint", ("--pool",)),
    ("--chdir --cwd --dir", ("--workdir",)),
    ("--nice", ("--priority",)),
    ("--requeue --restart --max-retries", ("--retries",)),
    ("--exclusive", ("--no-share",)),
    ("--account --tag --tags --comment", ("--label",)),
    ("--batch --batchsize --bs", ("--batch-size",)),
    ("--steps --epochs --iterations", ("--iters", "--steps-total")),
    ("--tail --lines -n", ("--lines",)),
    ("--output --dir --directory", ("--out",)),
    ("--verbose", ()),
    ("--me --mine", ("--user",)),
    ("--state --status --states", ("--all",)),
)
"""Options of other systems, and ours that mean the same, the likeliest first; said where the command has them."""

ELSEWHERE: Final = (
    ("--array", "submit once for each, or name several jobs in a file (colane submit jobs.yaml)"),
    (
        "--dependency --after --depends",
        "submit -W waits for a job's end, so 'colane submit -W ... && colane submit ...'",
    ),
    ("--output --error", "a job's output is kept for it: colane logs JOB"),
)
"""What no option of ours does, and what does it instead."""


def meant_option(option: str, known: Sequence[str], command: str) -> str:
    """Return which of a command's options was meant by one that it does not have; empty where nothing is near."""
    same = [ours for words, all_ours in OPTIONS if option in words.split() for ours in all_ours if ours in known]
    near = same or sorted(known, key=lambda name: -_likeness(option, name))[:1]
    if near and (same or _likeness(option, near[0]) >= LIKE_ENOUGH):
        return f"did you mean {' or '.join(near)}?"
    advice = next((said for words, said in ELSEWHERE if option in words.split()), "")
    return advice if command == "submit" else ""


LIKE_ENOUGH: Final = 0.75


def _likeness(typed: str, name: str) -> float:
    """0 to 1; that one begins with the other counts for much, as endings are left out or put on."""
    ratio = difflib.SequenceMatcher(None, typed, name).ratio()
    return max(ratio, 0.75 + ratio / 4) if min(len(typed), len(name)) > 3 and _begins(typed, name) else ratio


def _begins(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def meant_by(word: str) -> str | None:
    """Return what to say to somebody who typed this command; None where nothing better than its spelling is known."""
    return next((advice for words, advice in MEANT if word.lower() in words.split()), None)
