"""submitit's `cluster="colane"`: functions as jobs and arrays, saved and queued again as submitit does it.

submitit finds it by the entry points of this package, where both are installed. It is used where it is named alone:
`AutoExecutor(folder, cluster="colane")`; parameters of its own begin with `colane_`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

from submitit.core import core, job_environment, utils

from colane.client.client import Client
from colane.client.errors import Refused
from colane.client.shell import shell_environment
from colane.model.arrays import element_id
from colane.verbs.of_jobs import REQUEUE

NAME: Final = "colane"
STATES: Final[Mapping[str, str]] = {
    "queued": "PENDING", "succeeded": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELLED",
    "timed-out": "TIMEOUT", "out-of-memory": "OUT_OF_MEMORY",
}  # fmt: skip
"""submitit knows Slurm's words; a job in any other state runs."""

GB: Final = 10**9
MINUTE_S: Final = 60
LOOK_MAX_S: Final = 5
"""The scheduler is asked at least so often whether a job that leaves no result has ended; results are seen in 1 s."""


def _number(job_id: str) -> int:
    """The id of a job that submitit names `12`, or `12_3` for an element; arrays of ours begin at 0."""
    array, _, index = job_id.partition("_")
    return element_id(int(array), int(index)) if index else int(array)


class ColaneWatcher(core.InfoWatcher):  # type: ignore[misc] # submitit has no types
    """Asks the scheduler how jobs are."""

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return a state in Slurm's words."""
        return str(self.get_info(job_id, mode=mode).get("State", "UNKNOWN"))

    def update(self) -> None:
        """Ask for all jobs that have not ended."""
        import time  # noqa: PLC0415 - as its base

        self._num_calls += 1
        with Client() as client:
            for job_id in self._registered - self._finished:
                with suppress(Refused):  # forgotten by the scheduler: what is on disk counts
                    job = client.job(_number(job_id))
                    state = STATES.get(job["state"], "RUNNING")
                    self._info_dict[job_id] = {"State": state, "NodeList": ",".join(job.get("nodes") or [])}
        self._last_status_check = time.time()
        done = {job_id for job_id in self._registered if self.is_done(job_id, mode="cache")}
        self._finished |= done


class ColaneJob(core.Job[Any]):  # type: ignore[misc] # as above
    """A job of Colane's as submitit has it."""

    watcher = ColaneWatcher(delay_s=LOOK_MAX_S)

    def cancel(self, check: bool = True) -> None:
        """Cancel it."""
        with Client() as client:
            try:
                client.cancel(_number(self.job_id))
            except Refused:
                if check:
                    raise

    def _interrupt(self, timeout: bool = False) -> None:
        """Have it save its state and wait anew, as when it gives way to another."""
        del timeout
        with Client() as client:
            client.act(REQUEUE, _number(self.job_id))


class ColaneJobEnvironment(job_environment.JobEnvironment):  # type: ignore[misc] # as above
    """What a job of Colane's knows of itself."""

    _env: ClassVar[dict[str, str]] = {
        "job_id": "COLANE_JOB_ID", "array_job_id": "COLANE_ARRAY_ID", "array_task_id": "COLANE_ARRAY_INDEX",
        "num_tasks": "WORLD_SIZE", "num_nodes": "NNODES", "node": "NODE_RANK", "global_rank": "RANK",
        "local_rank": "LOCAL_RANK",
    }  # fmt: skip

    def _requeue(self, countdown: int) -> None:
        """Its state is saved: it is queued again by the scheduler that asked for that, or because it asks itself."""
        del countdown
        with Client() as client, suppress(Refused):  # refused while it is on its way out already
            client.act(REQUEUE, int(os.environ[self._env["job_id"]]))


class ColaneExecutor(core.PicklingExecutor):  # type: ignore[misc] # as above
    """Submits functions as jobs of Colane's.

    Args:
        folder: Where functions, results and logs lie, which all machines see; `%j` is the job's id.
        python: What runs them; None: this Python.
    """

    job_class = ColaneJob

    def __init__(self, folder: str | Path, python: str | None = None) -> None:
        super().__init__(folder)
        self.python = shlex.quote(sys.executable) if python is None else python

    @classmethod
    def name(cls) -> str:
        """By which it is asked for."""
        return NAME

    @classmethod
    def affinity(cls) -> int:
        """It is there, and is used where it is named."""
        return 0

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return {"array_parallelism", "fields"}

    def _internal_update_parameters(self, **kwargs: Any) -> None:  # noqa: ANN401 - submitit's
        if kwargs.get("nodes", 1) > 1:
            raise ValueError("nodes: a job runs on one machine; for several see colane submit --multi-node")
        tasks, gpus = kwargs.get("tasks_per_node", 1), kwargs.get("gpus_per_node", 0)
        if tasks not in {1, gpus}:
            raise ValueError(f"tasks_per_node: must be 1, or one for each GPU (gpus_per_node={gpus}), got {tasks}")
        super()._internal_update_parameters(**kwargs)

    def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[core.Job[Any]]:
        """Submit calls: several as one array."""
        parameters, count = self.parameters, len(delayed_submissions)
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        pickles = [folder / f"{uuid4().hex}.pkl" for _ in delayed_submissions]
        for delayed, path in zip(delayed_submissions, pickles, strict=True):
            delayed.set_timeout(parameters.get("timeout_min", 5), self.max_num_timeout)
            delayed.dump(path)
        try:
            with Client() as client:
                first = client.submit(self._request(count))
        except BaseException:
            for path in pickles:
                path.unlink(missing_ok=True)
            raise
        tasks = list(range(self._num_tasks()))
        names = [str(first)] if count == 1 else [f"{first}_{index}" for index in range(count)]
        jobs = [ColaneJob(folder=self.folder, job_id=name, tasks=tasks) for name in names]
        for job, path in zip(jobs, pickles, strict=True):
            job.paths.move_temporary_file(path, "submitted_pickle")
        return jobs

    def _request(self, count: int) -> dict[str, Any]:
        asked, gpus = self.parameters, self.parameters.get("gpus_per_node", 0)
        name = asked.get("name", "submitit")
        place = str(utils.JobPaths(self.folder).stdout).replace("%j", "%j" if count == 1 else "%A_%a")
        request: dict[str, Any] = {
            "name": name,
            "command": [*shlex.split(self.python), "-u", "-m", "submitit.core._submit", str(self.folder)],
            "env": {**shell_environment()[0], "SUBMITIT_EXECUTOR": NAME},
            "workdir": str(Path.cwd()),
            "family": f"{name}@{Path.cwd()}",
            "gpus": gpus,
            "time_limit_s": asked.get("timeout_min", 5) * MINUTE_S,
            "checkpoint": "submitit",
            "output": place.replace("%t", "0"),
        }
        if asked.get("cpus_per_task"):
            request["cores"] = asked["cpus_per_task"] * self._num_tasks()
        if asked.get("mem_gb"):
            request["host_memory_bytes"] = int(asked["mem_gb"] * GB)
        if self._num_tasks() > 1:
            request["ranks"] = "per-gpu"
        if count > 1:
            at_once = asked.get("array_parallelism")
            request["array"] = f"0-{count - 1}" + (f"%{at_once}" if at_once else "")
        return {**request, **asked.get("fields", {})}

    def _num_tasks(self) -> int:
        tasks: int = self.parameters.get("tasks_per_node", 1)
        return tasks

    # What writes and sends a submission file elsewhere: jobs are submitted without one.

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        raise NotImplementedError(f"{NAME} has no submission files: {command} {uid}")

    def _make_submission_command(self, submission_file_path: Path) -> Sequence[str]:
        raise NotImplementedError(f"{NAME} has no submission files: {submission_file_path}")

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        raise NotImplementedError(f"{NAME} has no submission files: {string!r}")
