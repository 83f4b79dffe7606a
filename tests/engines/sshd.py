"""Machines that ssh reaches: an sshd on loopback each, with own processes, users and files, which leave with it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import until

WHY = "needs root, unshare and sshd (Debian: apt-get install openssh-server; scripts/test installs it as root)"
SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else None)
USER = "ann"

SET_UP = r"""
set -e
name=$1 lab=$2 python=$3 site=$4 port=$5
hostname "$name"
mount -t tmpfs -o mode=755 tmpfs /srv
mkdir -p /srv/python /srv/sites /srv/site /srv/home /srv/small /srv/home/ann
mount --bind "$python" /srv/python
mount --bind "$site" /srv/sites
for each in /srv/sites/*; do  # what Colane needs is there already, Colane is not
    case ${each##*/} in *colane*) ;; *) ln -s "$each" /srv/site/ ;; esac
done
mount -t tmpfs -o size=1m,mode=777 tmpfs /srv/small
mount -t tmpfs tmpfs /run
mkdir /run/sshd
cp "$lab/key.pub" /srv/keys
cp "$lab/$name.sshd" /srv/sshd_config
{ cat /etc/passwd; echo 'ann:x:4242:4242::/srv/home/ann:/bin/sh'; } >/srv/passwd
{ cat /etc/shadow; echo 'ann:*:19000:0:99999:7:::'; } >/srv/shadow
chmod 600 /srv/shadow
chown 4242:4242 /srv/home/ann
mount --bind /srv/passwd /etc/passwd
mount --bind /srv/shadow /etc/shadow
/usr/sbin/sshd -D -e -f /srv/sshd_config &
wait
"""

SSHD_CONFIG = """
ListenAddress 127.0.0.1:{port}
HostKey {lab}/{name}.key
AuthorizedKeysFile /srv/keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
SetEnv PATH=/srv/python/bin:/usr/bin:/bin LD_LIBRARY_PATH=/srv/python/lib PYTHONPATH=/srv/site PIP_NO_INDEX=1 PIP_NO_DEPS=1 PIP_NO_COMPILE=1 PIP_CONFIG_FILE=/dev/null COLANE_OTHERS=ignore
"""  # noqa: E501 - SetEnv is one line

CLIENT_CONFIG = """
Host {name}
    HostName 127.0.0.1
    Port {port}
    User ann
    IdentityFile {lab}/key
    HostKeyAlias {name}
"""
ALL_HOSTS = """
Host *
    IdentitiesOnly yes
    StrictHostKeyChecking yes
    UserKnownHostsFile {lab}/known
    GlobalKnownHostsFile /dev/null
"""


@dataclass
class Lab:
    """Machines by their names.

    Attributes:
        folder: Of keys and configurations.
        ports: Of each.
        pids: The first process of each, outside of it.
    """

    folder: Path
    ports: dict[str, int]
    pids: dict[str, int]

    @property
    def ssh(self) -> str:
        """How ssh is called for them."""
        return f"ssh -F {self.folder}/config"

    def do(self, name: str, line: str) -> str:
        """Return what a shell says there."""
        done = subprocess.run([*self.ssh.split(), name, line], capture_output=True, text=True, check=True)
        return done.stdout

    def processes(self, name: str) -> list[str]:
        """Command lines of what runs there for its user, but for ssh's own and this look."""
        found = self.do(name, "for each in /proc/[0-9]*; do tr '\\0' ' ' <$each/cmdline; echo; done").splitlines()
        return [line.strip() for line in found if "colane" in line]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def lab(folder: Path, *names: str) -> Iterator[Lab]:
    """Start machines of these names, and end them with all that runs there."""
    if os.geteuid() != 0 or SSHD is None or not shutil.which("unshare") or not shutil.which("ssh"):
        pytest.skip(WHY)
    made = Lab(folder, {name: free_port() for name in names}, {})
    for key in ("key", *(f"{name}.key" for name in names)):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(words, check=True)
    texts = [CLIENT_CONFIG.format(name=name, port=port, lab=folder) for name, port in made.ports.items()]
    (folder / "config").write_text("".join([*texts, ALL_HOSTS.format(lab=folder)]))
    (folder / "known").write_text("".join(f"{name} {(folder / f'{name}.key.pub').read_text()}" for name in names))
    with ExitStack() as stack:
        for name, port in made.ports.items():
            (folder / f"{name}.sshd").write_text(SSHD_CONFIG.format(name=name, port=port, lab=folder))
            made.pids[name] = stack.enter_context(_machine(folder, name, port))
        for name in names:
            until(partial(_answers, made, name), f"{name} answers")
        yield made


def _answers(made: Lab, name: str) -> bool:
    words = [*made.ssh.split(), "-o", "BatchMode=yes", name, "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0 and Path(f"/proc/{made.pids[name]}").is_dir() is False:
        pytest.skip(f"no namespaces can be made here: {(made.folder / f'{name}.log').read_text()}")
    return done.returncode == 0


@contextmanager
def _machine(folder: Path, name: str, port: int) -> Iterator[int]:
    (folder / "set_up").write_text(SET_UP)
    found = importlib.util.find_spec("httpx")
    assert found is not None
    assert found.origin is not None
    site = Path(found.origin).parents[1]
    apart = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*apart, "sh", str(folder / "set_up"), name, str(folder), sys.base_prefix, str(site), str(port)],
            stdout=log,
            stderr=log,
        )
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
