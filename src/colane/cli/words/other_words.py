"""What people of other systems type for a command, and what does it here: better than the word spelt most alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from colane.model.nearest import nearest
from colane.verbs.of_jobs import REQUEUE

MEANT: Final = (
    ("squeue queue list ls jobs status stat qstat", "see colane ps and colane nodes"),
    ("htop nvtop nvitop gpustat seff", "see colane top, and colane eff JOB"),
    ("sacct history", "see colane ps --all"),
    ("sbatch run launch exec qsub srun", "use colane submit -- COMMAND; -W waits for its end"),
    ("scancel kill stop delete rm qdel", "use colane cancel JOB; services end with Ctrl-C"),
    ("sinfo gpus devices workers", "see colane nodes"),
    ("log tail output", "see colane logs -f JOB"),
    ("explain reason", "see colane why JOB"),
    ("info describe get scontrol", "see colane show JOB and colane why JOB"),
    ("hold pause", "use colane suspend JOB; submit --hold for one that is not to start yet"),
    ("unpause continue", "use colane resume JOB"),
    ("restart retry rerun", f"colane again JOB, or colane {REQUEUE.deed} JOB; --retries N does so for failures"),
    ("start serve", "use colane up for scheduler and agent, colane server for the scheduler alone"),
    ("help", "see colane --help"),
    ("version", "see colane --version"),
    ("words", "see colane glossary"),
    ("quota quotas limits budget", "see colane usage; a file of them is given to colane server --limits"),
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
    ("--partition --queue --constraint --nodelist", ("--pool",)),
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
    ("--me --mine", ("--mem", "--user")),
    ("--owner --users --uid", ("--user",)),
    ("--dependency --depends --depends-on", ("--after",)),
    ("--state --status --states", ("--all",)),
)
"""Options of other systems, and ours that mean the same, the likeliest first; said where the command has them."""

ELSEWHERE: Final = (
    ("--wrap", "a line of a shell is a command: colane submit -- sh -c 'LINE'"),
    ("--error", "what a job prints goes to one place: colane logs JOB, and a copy to --output FILE"),
    ("--mail-user --mail-type --reservation --licenses", "there is nothing of the kind here"),
)
"""What no option of ours does, and what does it instead."""

BEFORE: Final = frozenset({"--url", "--token-file", "--ca-file"})  # options that stand before a command


SHORT: Final = (
    ("-N", ("--multi-node",)),
    ("-d", ("--after",)),
    ("-n", ("--cores", "--lines", "--limit")),
    ("-q", ("--qos",)),
    ("-w", ("--pool",)),
    ("-A", ("--label",)),
    ("-D", ("--workdir",)),
    ("-m", ("--host-memory", "--gpu-memory")),
)
"""Options of one letter that other systems have and we do not, and ours that mean the same."""


def meant_option(option: str, known: Sequence[str], command: str) -> str:
    """Return which of a command's options was meant by one that it does not have; empty where nothing is near."""
    advice = next((said for words, said in ELSEWHERE if option in words.split()), "")
    if advice and command == "submit" and option not in known:
        return advice
    if option in BEFORE and option not in known:
        return f"it stands before the command: colane {option} ... {command}"
    if option in known:
        near = [option]
    elif len(option) > 2:
        near = _same(OPTIONS, option, known) or nearest(option, known)
    else:
        other_case = [name for name in known if name == option.swapcase()]
        longer = [name for name in known if name.startswith(f"--{option[1].lower()}")]
        near = other_case + _same(SHORT, option, known) or longer[:LETTER_MAX]
    return f"did you mean {' or '.join(near)}?" if near else ""


def _same(table: Sequence[tuple[str, Sequence[str]]], option: str, known: Sequence[str]) -> list[str]:
    return [ours for words, all_ours in table if option in words.split() for ours in all_ours if ours in known]


LETTER_MAX: Final = 3  # more options than that of one letter are no help


def meant_by(word: str) -> str | None:
    """Return the advice for a command of other tools; None where nothing better than its spelling is known."""
    return next((advice for words, advice in MEANT if word.lower() in words.split()), None)
