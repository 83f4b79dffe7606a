"""What others do on this machine while jobs run: a run beside other work is slower, and a comparison must say so."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import psutil

WORTH_SAYING_RATIO: Final = 0.05
"""Other work on a smaller part of the cores does not change what is compared."""


class OtherLoad:
    """Cores that are used by neither this process, nor those it has started, nor the jobs, since it was made."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._used_s = machine_cpu_s() - own_cpu_s()

    def cores(self, jobs_cpu_s: float) -> float:
        """Return the mean number of cores, given the CPU time that the jobs have used meanwhile."""
        others_s = machine_cpu_s() - own_cpu_s() - self._used_s - jobs_cpu_s
        return max(0.0, others_s) / max(time.monotonic() - self._start_s, 1e-9)


def machine_cpu_s() -> float:
    """CPU time of everything on this machine since it started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def own_cpu_s() -> float:
    """CPU time of this process and of all that it has started and that live, with those they have waited for."""
    total_s = 0.0
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        with suppress(psutil.Error):
            total_s += sum(process.cpu_times()[:4])
    return total_s


def remark(cores: Mapping[str, float], all_cores: int | None = None) -> str:
    """Say how busy others kept the machine in each run; empty where they did not.

    Args:
        cores: Mean cores that others used, by run.
        all_cores: Of the machine; None counts them.
    """
    whole = all_cores or os.cpu_count() or 1
    if max(cores.values(), default=0.0) < WORTH_SAYING_RATIO * whole:
        return ""
    said = ", ".join(f"{used:.1f} in the run of {name}" for name, used in cores.items())
    return (
        f"The machine was busy with other work: of its {whole} cores others used {said}. Times are longer for it, and "
        "sharing gains less than on a quiet machine."
    )
