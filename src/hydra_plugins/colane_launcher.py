"""Hydra's launcher `colane`: `python app.py -m hydra/launcher=colane lr=0.1,0.01` runs a sweep as one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.plugins.launcher import Launcher

from colane.integrations import hydra_config  # noqa: F401 - it makes the launcher's options known


class ColaneLauncher(Launcher):  # type: ignore[misc] # hydra has no types
    """Runs the jobs of a sweep as jobs of Colane's."""

    def __init__(self, **asked: Any) -> None:  # noqa: ANN401 - as `ColaneLauncherConf` has them
        self.asked = asked
        self.given: dict[str, Any] = {}

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:  # noqa: ANN401 - Hydra's
        """Take what the jobs need."""
        self.given = {"hydra_context": hydra_context, "task_function": task_function, "config": config}

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[Any]:
        """Run a job for each list of overrides; return what came of them, in order."""
        from colane.integrations.hydra_sweep import launch  # noqa: PLC0415 - Hydra reads all plugins at each start

        return launch(self.asked, self.given, job_overrides, initial_job_idx)
