"""Blox's own rule for LAS in a loop (EuroSys 2024): `python blox_rounds.py [ROUND_S] [QUEUES]`.

Every round the jobs that have had least GPU time get the GPUs; who has waited for 3,600,000 s goes first from then on.
With QUEUES, jobs are ordered by the queue their GPU time falls into, each twice as long as the one before, and in a
queue by arrival: what Colane's `las` does. Prints how long jobs 3,000 to 4,000 took from submission to end.
"""

import sys

import numpy as np
from blox_jobs import jobs

GPUS, PROMOTE_S = 128, 3_600_000
TRACKED = slice(3000, 4001)
SHORTEST_QUEUE_S = 300


def jcts_s(round_s=300, queues=None):
    """JCTs of the tracked jobs."""
    _, submit_s, duration_s, _ = np.array(list(jobs(8.0))).T
    left_s, had_s, ran_s = duration_s.copy(), np.zeros(len(submit_s)), submit_s.copy()
    promoted, end_s = np.zeros(len(submit_s), bool), np.full(len(submit_s), np.nan)
    ends = SHORTEST_QUEUE_S * 2.0 ** np.arange(queues or 0)
    waiting, now_s = np.empty(0, int), 0
    while np.isnan(end_s[TRACKED]).any():
        new = np.searchsorted(submit_s, [now_s - round_s, now_s], side="right") if now_s else (0, 0)
        waiting = np.concatenate([waiting, np.arange(*new)])
        promoted[waiting[now_s - ran_s[waiting] >= PROMOTE_S]] = True
        had = had_s[waiting] if queues is None else np.searchsorted(ends, had_s[waiting], side="right")
        run = waiting[np.lexsort((waiting, had, ~promoted[waiting]))][:GPUS]
        left_s[run] -= round_s
        had_s[run] += round_s
        ran_s[run] = now_s + round_s
        end_s[run[left_s[run] <= 0]] = now_s + round_s
        waiting = waiting[np.isnan(end_s[waiting])]
        now_s += round_s
    return (end_s - submit_s)[TRACKED]


if __name__ == "__main__":
    took_s = jcts_s(*map(int, sys.argv[1:]))
    within = ", ".join(f"{value:,.0f}" for value in np.percentile(took_s, [10, 50, 90]))
    print(f"mean {took_s.mean():,.0f} s; 10, 50 and 90 % within {within} s")
