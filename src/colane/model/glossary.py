"""Words of commands and reports, for new readers; `docs/reference/glossary.md` has all, for developers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WORDS: Final[Mapping[str, str]] = {
    "job": "one command to be run, with what it needs. It keeps its number however often it is started.",
    "step": "one iteration of training, or one request answered: what progress and speed are counted in.",
    "node": "a machine that runs jobs. pool: nodes that serve the same jobs.",
    "GPU": "a device that jobs run on; cores of the machine stand in where there is none (cpu device).",
    "lane": "a part of a GPU. Jobs in different lanes run at once; jobs in one lane take turns, step by step.",
    "turn": "the steps one job of a lane makes before the next one does.",
    "co-location": "jobs run at once on one GPU, in lanes of their own.",
    "family": "jobs that behave alike (same script, same names of arguments), so what one teaches holds for all.",
    "profile": "what is known of a family: time of a step, memory, how much of a GPU it keeps busy.",
    "speed-up": "of jobs run together: time one after another over time together; above 1 sharing pays. Also: delta.",
    "slowdown": "time of a step now over that of the job alone.",
    "queue": "from submission to the first start.",
    "jct": "job completion time: from submission to end.",
    "run span": "from the first start to the end.",
    "makespan": "of a set of jobs: from the first submission to the last end.",
    "policy": "what decides which waiting job runs where and when (colane up --policy).",
    "preemptible": "said of a job that saves its state and goes on from there, so that it may be stopped for others.",
    "protected": "just launched or come back (running-protected): for three launch times no policy moves or stops it.",
    "parked": "made to wait between two steps for another job, its process alive; it goes on where it was.",
    "suspended": "made to wait by its user, until the user resumes it.",
    "gang": "a job of several processes: all of them run, or none does.",
}
"""Each in a sentence or two."""
