"""Write the jobs of Blox's simulations (EuroSys 2024): `python blox_jobs.py JOBS_PER_HOUR [ROUND_S] > blox-8.csv`.

Blox's `workload/` draws them with `random.seed(1)`: run times as Gavel does, then, with the same seed again as it keeps
the run times in a file, gaps between submissions and one of nine models, which nothing uses. Of Philly's log it takes
nothing but their number. Each job has one GPU. With ROUND_S, times are whole rounds, as Blox decides in rounds.
"""

import csv
import math
import random
import sys

JOBS = 20_000
MODELS = 9
SEED = 1


def run_time_s():
    if random.random() >= 0.8:
        return 60 * 10 ** random.uniform(3, 4)
    return 60 * 10 ** random.uniform(1.5, 3)


def jobs(jobs_per_hour, round_s=None):
    random.seed(SEED)
    run_times_s = [run_time_s() for _ in range(JOBS)]
    random.seed(SEED)
    submit_s = 0
    for number, duration_s in enumerate(run_times_s):
        submit_s += math.ceil(-math.log(1 - random.random()) / jobs_per_hour * 3600)
        random.randint(0, MODELS - 1)
        yield number, in_rounds(submit_s, round_s), in_rounds(duration_s, round_s), 1


def in_rounds(time_s, round_s):
    return time_s if round_s is None else math.ceil(time_s / round_s) * round_s


if __name__ == "__main__":
    rows = csv.writer(sys.stdout)
    rows.writerow(["id", "submit_s", "duration_s", "gpus"])
    rows.writerows(jobs(*map(float, sys.argv[1:])))
