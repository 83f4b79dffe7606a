"""A real Slurm of several nodes on this machine, with its own processes and name, which leave with it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import until

WHY = "needs root, unshare, Slurm and munge (Debian: munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins)"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "unshare")

CONFIG = """
ClusterName=ci
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={d}/run/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool.%n
SlurmctldPidFile={d}/run/slurmctld.pid
SlurmdPidFile={d}/run/slurmd.%n.pid
SlurmctldLogFile={d}/log/slurmctld.log
SlurmdLogFile={d}/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
ReturnToService=2
KillWait=5
MessageTimeout=2
GresTypes=gpu
NodeName=n[1-{n}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4 RealMemory=1000 Gres=gpu:2 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
"""  # noqa: E501 - a node is one line

START = r"""
set -e
d=$1 n=$2
hostname localhost
export SLURM_CONF=$d/slurm.conf
munged() {
    command munged --foreground --force --key-file="$d/munge.key" --socket="$d/run/munge.socket" --num-threads=2 \
        --pid-file="$d/run/munged.pid" --log-file="$d/log/munged.log" --seed-file="$d/run/munge.seed"
}
munged &
while [ ! -S "$d/run/munge.socket" ]; do sleep 0.05; done
slurmctld -D -i &
echo $! >"$d/run/ctld"
i=1
while [ "$i" -le "$n" ]; do slurmd -D -N "n$i" & i=$((i + 1)); done
while :; do  # what was stopped is started again when this file says it
    while [ ! -s "$d/again" ]; do sleep 0.1; done
    again=$(cat "$d/again")
    rm "$d/again"
    $again &
done
"""


@dataclass
class Slurm:
    """A cluster.

    Attributes:
        folder: Of all its files.
    """

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """What leads its commands to it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def do(self, *words: str) -> str:
        """Return what one of its commands says."""
        env = {**os.environ, **self.env}
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout

    def jobs(self) -> dict[str, str]:
        """States of its jobs, by their names."""
        lines = self.do("squeue", "-h", "-o", "%j %T").splitlines()
        return dict(line.split() for line in lines)

    def stop(self, program: str) -> None:
        """End one of its services, as an operator does."""
        os.kill(self._pid(program), signal.SIGTERM)  # killed, a slurmctld forgets its last jobs

    def start(self, line: str) -> None:
        """Start one of them again."""
        fresh = self.folder / "again.new"
        fresh.write_text(line)
        fresh.rename(self.folder / "again")

    def _pid(self, program: str) -> int:
        """The process of this cluster, as it is called here."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                variables = (entry / "environ").read_bytes()
            except OSError:
                continue
            if words[0].decode().endswith(program) and f"SLURM_CONF={self.folder}".encode() in variables:
                return int(entry.name)
        raise AssertionError(f"no {program} runs")

    def id_of(self, name: str) -> str:
        return self.do("squeue", "-h", "-n", name, "-o", "%i").strip()


def _free_ports(count: int) -> int:
    for first in range(17000, 30000, count):
        held = []
        with suppress(OSError):
            for port in range(first, first + count):
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", port))
        for each in held:
            each.close()
        if len(held) == count:
            return first
    raise AssertionError("no free ports")


@contextmanager
def slurm(folder: Path, nodes: int) -> Iterator[Slurm]:
    """Start a cluster, and end it with all that runs there."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if os.geteuid() != 0 or not all(shutil.which(program, path=path) for program in PROGRAMS):
        pytest.skip(WHY)
    for name in ("state", "log", "run"):
        (folder / name).mkdir()
    (folder / "run").chmod(0o711)
    port = _free_ports(nodes + 1)
    (folder / "slurm.conf").write_text(
        CONFIG.format(d=folder, n=nodes, port=port, first=port + 1, last=port + nodes).lstrip()
    )
    (folder / "gres.conf").write_text(f"AutoDetect=off\nNodeName=n[1-{nodes}] Name=gpu File=/dev/tty[0-1]\n")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n")
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    (folder / "start").write_text(START)
    apart = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    made = Slurm(folder)
    with (folder / "log" / "all").open("ab") as log:
        process = subprocess.Popen(
            [*apart, "sh", str(folder / "start"), str(folder), str(nodes)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": path},
        )
    try:
        until(lambda: _idle(made, process) == nodes, "all nodes are idle")
        yield made
    finally:
        process.kill()
        process.wait()


def _idle(made: Slurm, process: subprocess.Popen[bytes]) -> int:
    if process.poll() is not None:
        pytest.skip(f"no Slurm can be started here: {(made.folder / 'log' / 'all').read_text()[-500:]}")
    try:
        return made.do("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split().count("idle")
    except subprocess.CalledProcessError:
        return 0
