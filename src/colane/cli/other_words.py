"""What people of other systems type for a command, and what does it here: better than the word spelt most alike."""

from __future__ import annotations

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


def meant_by(word: str) -> str | None:
    """Return what to say to somebody who typed this command; None where nothing better than its spelling is known."""
    return next((advice for words, advice in MEANT if word.lower() in words.split()), None)
