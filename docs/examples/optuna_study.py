"""An Optuna study whose trials are jobs: `python optuna_study.py 40`, with a scheduler (`colane up`) that runs.

The study lies in a file (JournalStorage), so that it goes on where it was after this script was stopped, and several
such scripts may work on it at once.
"""

from __future__ import annotations

import sys
from concurrent.futures import FIRST_COMPLETED, wait

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from colane.client.futures import JobExecutor, JobFailed, JobFuture

AT_ONCE = 4


def train(rate: float, depth: int) -> float:
    """A stand-in for training: how far a model with these is off."""
    return abs(rate - 0.03) * 10 + abs(depth - 4)


def main(trials: int) -> None:
    """Work until the study has so many trials."""
    storage = JournalStorage(JournalFileBackend("study.log"))
    study = optuna.create_study(storage=storage, study_name="example", load_if_exists=True)
    running: dict[JobFuture[float], optuna.Trial] = {}
    left = trials - len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE]))
    with JobExecutor(gpus=1, name="trial") as jobs:
        while left > 0 or running:
            while left > 0 and len(running) < AT_ONCE:
                trial, left = study.ask(), left - 1
                rate = trial.suggest_float("rate", 1e-3, 1e-1, log=True)
                running[jobs.submit(train, rate, trial.suggest_int("depth", 1, 8))] = trial
            for run in wait(running, return_when=FIRST_COMPLETED).done:
                trial = running.pop(run)
                try:
                    study.tell(trial, run.result())
                except JobFailed:  # it was killed, or ran out of memory or time
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    print(f"{len(study.trials)} trials, best {study.best_value:.3g} with {study.best_params}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
