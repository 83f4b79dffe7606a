"""Two versions at once: what a side makes of a word that only the other one knows.

While a cluster is upgraded its scheduler, agents and commands differ in version. Fields that a side does not know are
left aside, wherever they stand. A word of a closed set that it does not know is read as the one that concludes and
promises least, so that the rest of what was said still counts:

* `SHARING`: kept as it is. What is measured under it counts for it alone, and no gain is expected before that.
* `LINKS`: `SYS`, the farthest; a bandwidth that is said with it is believed.
* `PHASES`: `launching`: the attempt is there, and nothing follows from that.
* `TURNS`: empty, as of a job that has its turns as others have. Its agent sees to the memory of its lane by itself.
* `RESTS`: empty: the job is not parked where it makes no step, and one that is stays so until it is resumed.
* `ENDS`: `unknown`: the processes are gone, the job has not succeeded, and it is queued again as after a lost node.
* `ADDRESS_SCHEMES`: the agent has no address: it is not nudged, and asks by itself.
* Of what the scheduler says: a rule of turns is the default one, a kind of job is training, a signal that this machine
  does not have asks no job to save; a job whose `ranks` are started in a way that is not known is not started.
* Of what commands show: a state is shown by its word; a value of unknown source counts as a default.

What people ask for is no such word: it is refused by name. The page of a job and the socket for its turns have version
numbers of their own, and are believed only where these agree (`adaptor.writer`, `adaptor.turns`).
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Final, NamedTuple, TypeVar

E = TypeVar("E", bound=Enum)


@cache
def own_version() -> str:
    """Return the version of this Colane, as it is installed."""
    from importlib.metadata import version  # noqa: PLC0415 - 20 ms, which most commands have no use for

    return version("colane")


class Words(NamedTuple):
    """A closed set of words, and which of them stands for all others."""

    known: tuple[str, ...]
    otherwise: str

    def read(self, word: str) -> str:
        """Return the word, or what stands for one that is not known."""
        return word if word in self.known else self.otherwise


def read_as(kind: type[E], word: object, otherwise: E) -> E:
    """Return the member of an enumeration with this value, or what stands for one that is not known."""
    try:
        return kind(word)
    except ValueError:
        return otherwise


LINKS: Final = Words(("X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS"), "SYS")
PHASES: Final = Words(("launching", "launched"), "launching")
TURNS: Final = Words(("", "running", "waiting", "paused", "ungated", "kept"), "")
RESTS: Final = Words(("", "possible", "asks"), "")
ENDS: Final = Words(
    (
        "exited",
        "signalled",
        "out-of-memory",
        "not-started",
        "supervisor-died",
        "lease-run-out",
        "node-fault",
        "no-memory",
        "stopped",
        "mps-fault",
        "mps-fault-of-other",
        "mps-fault-unknown",
        "gpu-refused",
        "unknown",
    ),
    "unknown",
)
ADDRESS_SCHEMES: Final = Words(("http", "https", ""), "")
