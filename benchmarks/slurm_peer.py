"""Slurm on this machine for `whole_path.py`: one slurmctld, one slurmd of eight processors, and munge, as root.

Debian: apt-get install slurmctld slurmd slurm-client munge. Nothing of the machine's own configuration is used.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

ARRAY = 100
"""Jobs of one submission."""
WARM_UP = 20
"""Jobs before those that are counted."""
WAIT_MAX_S = 120.0
END_MAX_S = 10.0
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo")

CONFIG = """
ClusterName=peer
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={at_once} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class PeerResult(NamedTuple):
    """What so many jobs took."""

    took_s: float
    slurmctld_s: float
    slurmd_s: float


def is_there() -> bool:
    """Whether Slurm is installed, and we may run it."""
    return os.geteuid() == 0 and all(shutil.which(name, path=PATH) for name in NEEDED)


def jobs_through(jobs: int, at_once: int, folder: Path) -> PeerResult:
    """Return the seconds that so many jobs `true` took, and CPU seconds of slurmctld and of slurmd."""
    with ExitStack() as stack:
        env = stack.enter_context(_running(at_once, folder))
        pids = [_pid(folder / f"{name}.pid") for name in ("slurmctld", "slurmd")]
        _submit(WARM_UP, env)
        _until_done(env)
        before, start_s = [_cpu_s(pid) for pid in pids], time.perf_counter()
        _submit(jobs, env)
        _until_done(env)
        took_s = time.perf_counter() - start_s
        used = [_cpu_s(pid) - was for pid, was in zip(pids, before, strict=True)]
        return PeerResult(took_s, *used)


@contextmanager
def _running(at_once: int, folder: Path) -> Iterator[dict[str, str]]:
    """Start everything; give the environment of its commands."""
    host, config = socket.gethostname().partition(".")[0], folder / "slurm.conf"
    ports = {"ctld_port": _port(), "slurmd_port": _port()}
    config.write_text(CONFIG.format(host=host, folder=folder, at_once=at_once, **ports))
    for name in ("state", "spool"):
        (folder / name).mkdir()
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(config)}
    munge = [f"--{name}={folder / file}" for name, file in (
        ("socket", "munge.socket"), ("key-file", "munge.key"), ("pid-file", "munge.pid"), ("log-file", "munge.log"),
        ("seed-file", "munge.seed"),
    )]  # fmt: skip
    with ExitStack() as stack:
        for words in (["munged", "--foreground", "--force", *munge], ["slurmctld", "-D"], ["slurmd", "-D"]):
            stack.enter_context(_process(words, env))
            _until(lambda words=words: (folder / f"{words[0].replace('munged', 'munge')}.pid").exists())
        _until(lambda: "idle" in _said(["sinfo", "-h", "-o", "%t"], env))
        yield env


@contextmanager
def _process(words: list[str], env: dict[str, str]) -> Iterator[None]:
    with subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """End a process, in a hurry where it takes long."""
    process.terminate()
    try:
        process.wait(END_MAX_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _submit(jobs: int, env: dict[str, str]) -> None:
    for begin in range(0, jobs, ARRAY):
        last = min(ARRAY, jobs - begin) - 1
        _said(["sbatch", f"--array=0-{last}", "-n1", "-o", "/dev/null", "--wrap", "true", "-D", "/"], env)


def _until_done(env: dict[str, str]) -> None:
    _until(lambda: not _said(["squeue", "-h", "-r"], env).strip())


def _said(words: list[str], env: dict[str, str]) -> str:
    return subprocess.run(words, env=env, check=False, capture_output=True, text=True).stdout


def _until(holds: object) -> None:
    assert callable(holds)
    deadline_s = time.monotonic() + WAIT_MAX_S
    while not holds():
        assert time.monotonic() < deadline_s, "Slurm does not get on"
        time.sleep(0.25)


def _pid(file: Path) -> int:
    return int(file.read_text())


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
