"""One machine by ssh: what is asked of it, and what its silence and its refusals mean, in one line."""

from __future__ import annotations

import shlex
import subprocess
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from colane.engines import EngineError

CONNECT_MAX_S: Final = 10
SILENT_MAX_S: Final = 15  # after so long without a word it is asked whether it is there, three times

OPTIONS: Final = (
    *("-o", "BatchMode=yes"),  # a question for a password would wait for ever where no person is
    *("-o", f"ConnectTimeout={CONNECT_MAX_S}"),
    *("-o", f"ServerAliveInterval={SILENT_MAX_S}"),
    "-T",
)
SSH_FAILED: Final = 255  # what ssh ends with when it is ssh that failed, and not what it ran

WHYS: Final = (
    (
        "IDENTIFICATION HAS CHANGED",
        "its host key has changed; if that is right: ssh-keygen -R {host}, then log in once",
    ),
    ("Host key verification failed", "its host key is not known here: log in once by hand (ssh {at})"),
    ("Permission denied", "it refuses your key ({last}): ssh-copy-id {at}"),
    ("Too many authentication failures", "it refuses your keys ({last}): name one with --ssh 'ssh -i FILE'"),
    ("Could not resolve hostname", "there is no host of this name ({last})"),
)


class Host(NamedTuple):
    """A machine that ssh reaches."""

    at: str  # as ssh takes it: `user@host`, or a name in its configuration
    command: tuple[str, ...] = ("ssh",)  # words of ssh itself

    def do(self, verb: str, folder: str, name: str, *words: str, sent: bytes = b"") -> dict[str, str]:
        """Do one thing there (`on_host.sh`), and return what it says.

        Args:
            verb: What.
            folder: Where nodes are kept there; empty for the usual place.
            name: The node's name; empty for the machine's.
            words: Its further words.
            sent: To its standard input.

        Raises:
            EngineError: The host is not reached, or it went wrong there.
        """
        line = shlex.join(["sh", "-c", script("on_host.sh"), "colane", verb, folder, name, *words])
        try:
            done = subprocess.run(
                [*self.command, *OPTIONS, "--", self.at, line], input=sent, capture_output=True, check=False
            )
        except OSError as error:
            raise EngineError(f"{self.at}: {self.command[0]} cannot be run: {error.strerror}") from error
        said = done.stderr.decode(errors="replace")
        if done.returncode == SSH_FAILED:
            raise EngineError(f"{self.at}: {self._why(said)}")
        if done.returncode != 0:
            raise EngineError(f"{self.at}: {_last(said).removeprefix('colane: ') or f'{verb} failed'}")
        lines = done.stdout.decode(errors="replace").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def _why(self, said: str) -> str:
        host, last = self.at.rpartition("@")[2], _last(said)
        for words, why in WHYS:
            if words in said:
                return why.format(at=self.at, host=host, last=last)
        return f"it cannot be reached: {last.removeprefix('ssh: ')}"


@cache
def script(name: str) -> str:
    """Return a shell script of this package."""
    return files("colane.engines").joinpath(name).read_text(encoding="utf-8")


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
