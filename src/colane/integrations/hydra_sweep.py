"""A sweep of Hydra's as one array, for the launcher `hydra_plugins.colane_launcher`."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from getpass import getuser
from pathlib import Path
from typing import Any, Final

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, filter_overrides, run_job, setup_globals
from omegaconf import OmegaConf, open_dict

from colane.client.futures import JobExecutor

log = logging.getLogger(__name__)
OF_LAUNCHER: Final = frozenset({"at_once", "folder", "fields"})
"""What is set of the launcher itself; all else are fields of its jobs."""


class HydraJob:
    """What runs in a job: one list of overrides, numbered.

    Args:
        given: Hydra's context, the function and the configuration of the sweep.
        state: What Hydra keeps of itself.
    """

    def __init__(self, given: Mapping[str, Any], state: Any) -> None:  # noqa: ANN401 - Hydra's
        self.given = given
        self.state = state

    def __call__(self, item: tuple[list[str], int]) -> JobReturn:
        """Run it, as Hydra's own launchers do."""
        overrides, number = item
        Singleton.set_state(self.state)
        setup_globals()
        context, config = self.given["hydra_context"], self.given["config"]
        sweep = context.config_loader.load_sweep_config(config, overrides)
        with open_dict(sweep):
            sweep.hydra.job.id = os.environ.get("COLANE_JOB_ID", "")
            sweep.hydra.job.num = number
        return run_job(
            hydra_context=context, task_function=self.given["task_function"], config=sweep,
            job_dir_key="hydra.sweep.dir", job_subdir_key="hydra.sweep.subdir",
        )  # fmt: skip


def launch(
    asked: Mapping[str, Any], given: Mapping[str, Any], job_overrides: Sequence[Sequence[str]], first: int
) -> Sequence[JobReturn]:
    """Run a job for each list of overrides; return what came of them, in order.

    Args:
        asked: Options of the launcher.
        given: As `HydraJob` takes it.
        job_overrides: Of each job.
        first: Number of the first job.

    Raises:
        JobFailed: A job has ended without a result, as one that was killed.
        SchedulerError: The scheduler refuses, or does not answer.
    """
    config, options = given["config"], OmegaConf.to_container(OmegaConf.create(dict(asked)), resolve=True)
    assert isinstance(options, dict)  # noqa: S101 - as it was made
    directory = Path(str(config.hydra.sweep.dir)).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    name = str(config.hydra.job.name)
    fields = {str(key): value for key, value in options.items() if key not in OF_LAUNCHER and value is not None}
    fields |= {"name": name, "family": f"{name}@{_hash(getuser(), str(Path.cwd()))}", **(options.get("fields") or {})}
    log.info("Colane runs %d jobs, results in %s", len(job_overrides), directory)
    for number, overrides in enumerate(job_overrides, first):
        log.info("\t#%d : %s", number, " ".join(filter_overrides(overrides)))
    items = [(list(overrides), number) for number, overrides in enumerate(job_overrides, first)]
    with JobExecutor(options.get("folder") or directory / ".colane", **fields) as jobs:
        runs = jobs.array(HydraJob(given, Singleton.get_state()), items, at_once=options.get("at_once"))
        return [run.result() for run in runs]


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
