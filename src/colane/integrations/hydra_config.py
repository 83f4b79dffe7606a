"""What can be set of Hydra's launcher `colane`.

A module of its own: Hydra loads plugins in a way that dataclasses do not take.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from hydra.core.config_store import ConfigStore


@dataclass
class ColaneLauncherConf:
    """What can be set: `hydra.launcher.gpus=2`.

    Attributes:
        gpus: Of each job.
        gpu_memory: On each of them, as 8GB.
        cores: Of each job for it alone.
        time_limit: Of each job, as 2h.
        retries: How often one that fails is tried again.
        at_once: How many may run at once.
        folder: Where functions and results lie, which all machines see; none: in the directory of the sweep.
        fields: Further fields of a job file.
    """

    _target_: str = "hydra_plugins.colane_launcher.ColaneLauncher"
    gpus: Any = 1
    gpu_memory: Optional[str] = None  # noqa: UP045 - omegaconf reads these types
    cores: Optional[int] = None  # noqa: UP045
    time_limit: Optional[str] = None  # noqa: UP045
    retries: int = 0
    at_once: Optional[int] = None  # noqa: UP045
    folder: Optional[str] = None  # noqa: UP045
    fields: dict[str, Any] = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/launcher", name="colane", node=ColaneLauncherConf, provider="colane")
