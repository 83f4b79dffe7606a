"""The environment of a job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from colane.adaptor import bundle
from colane.model.hardware import Gpu

BASE_NAMES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "COLANE_CA_FILE",
)
"""What a job gets from the agent's own environment where its request does not say. Nothing else passes: engines
put settings of their own there (Ray, Slurm) that are not meant for jobs."""

OF_THE_USER = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"})
"""Names of those that say something of one user only."""

THREADS_ENV = "COLANE_THREADS"
"""How many threads we gave to pools that the owner has not sized: a job submitted from within has cores of its own."""

OF_A_LAUNCH = frozenset(
    {
        "COLANE_JOB_ID",
        "COLANE_ATTEMPT",
        "COLANE_NODE",
        "COLANE_POOL",
        "COLANE_URL",
        "COLANE_TOKEN_FILE",
        "COLANE_STEPS_FILE",
        "COLANE_GATE",
        "COLANE_SERVES",
        "COLANE_CHECKPOINT_SIGNAL",
        "COLANE_CHECKPOINT_LEAD_S",
        "COLANE_CHECKPOINT_TO_SHELL",
        "COLANE_ARRAY_ID",
        "COLANE_ARRAY_INDEX",
        "COLANE_ARRAY_COUNT",
        "COLANE_ARRAY_MIN",
        "COLANE_ARRAY_MAX",
        "COLANE_BATCH",
        "COLANE_BATCH_SIZE",
        "COLANE_BATCH_SIZE_PER_GPU",
        "COLANE_ADAPTOR_DIR",
        THREADS_ENV,
    }
)
"""What one launch of one job is told. A job that is submitted from within another brings that one's, and would save
at its signal or count its samples where nothing is said of its own."""

THREAD_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Variables that say how many threads a library starts. All the others fall back on the first."""


def job_environment(
    requested: Mapping[str, str],
    own: Mapping[str, str],
    *,
    shown: Mapping[str, str],
    cores: Sequence[int],
    colane: Mapping[str, str],
    mps: Mapping[str, str],
    adaptor: Path | None = None,
    user: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Put a job's whole environment together.

    Args:
        requested: The environment of the submitting shell, or what the request names.
        own: The agent's own environment.
        shown: Variables that show it its devices, see `Maker.visible`.
        cores: The job's cores.
        colane: `COLANE_*` variables.
        mps: Variables that lead to an MPS daemon; empty without one.
        user: What the job's user brings; None where that is the agent's own.
        adaptor: Directory that goes first on Python's path; None leaves the path alone.

    Returns:
        The request's environment. Under it lie the agent's basic names and the sizes of thread pools; over it what
        the placement decides and the job must not: devices, `COLANE_*`, MPS.
    """
    base = {name: own[name] for name in BASE_NAMES if name in own and (user is None or name not in OF_THE_USER)}
    base |= user or {}
    base["PYTHONUNBUFFERED"] = "1"  # else what a job prints is seen when it ends, and lost when it is killed
    kept = owners_own(requested)
    threads = dict.fromkeys(open_pools(kept), str(len(cores))) if cores else {}
    if threads:
        threads[THREADS_ENV] = str(len(cores))
    whole = {**base, **threads, **kept, **shown, **colane, **mps}
    return whole if adaptor is None else {**whole, **adapted(whole, adaptor)}


def owners_own(requested: Mapping[str, str]) -> dict[str, str]:
    """Give what of a request's environment its owner has set: nothing that the launch of another job brought along."""
    kept = {
        name: value
        for name, value in requested.items()
        if name not in OF_A_LAUNCH
        and not name.startswith("CUDA_MPS_")
        and not (name in THREAD_POOLS and value == requested.get(THREADS_ENV))
    }
    adaptor = requested.get(bundle.DIR_ENV)
    if adaptor and "PYTHONPATH" in kept:
        kept["PYTHONPATH"] = os.pathsep.join(
            place for place in kept["PYTHONPATH"].split(os.pathsep) if place != adaptor
        )
        if not kept["PYTHONPATH"]:
            del kept["PYTHONPATH"]
    return kept


def open_pools(requested: Mapping[str, str]) -> tuple[str, ...]:
    """Give the variables of thread pools that are ours to set: none that the request names.

    A job with a thread for each core of the machine on a few of its cores is slow, and slows the others there. A
    request that names the first variable has spoken for all, which follow it.
    """
    return () if THREAD_POOLS[0] in requested else tuple(name for name in THREAD_POOLS if name not in requested)


def adapted(env: Mapping[str, str], adaptor: Path) -> dict[str, str]:
    """Put the adaptor's directory first on Python's path, and name it for environments that load it themselves."""
    path = bundle.first_on_path(adaptor, env.get("PYTHONPATH", ""))
    return {"PYTHONPATH": path, bundle.DIR_ENV: str(adaptor)}


def job_cores(booked: Sequence[int], gpus: Sequence[Gpu], node_cores: Sequence[int]) -> tuple[int, ...]:
    """Cores of a job: those booked for it, else those near its devices, else all of the node's."""
    near = {core for gpu in gpus for core in gpu.cores}
    return tuple(sorted(booked or near or node_cores))
