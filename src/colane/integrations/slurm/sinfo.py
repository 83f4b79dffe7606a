"""`sinfo`: machines and their pools."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from colane.facts.node import booked_by, slurm_word
from colane.integrations.slurm import contact, getopt
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.rows import duration, long_duration, moment
from colane.integrations.slurm.squeue import by_names
from colane.model.hardware import DEFAULT_POOL

if TYPE_CHECKING:
    from colane.api.nodes import NodeObject, PoolObject, ReservedObject


class SlurmNode(NamedTuple):
    """A machine as Slurm tells it."""

    node: NodeObject
    state: str
    most_s: float | None = None
    features: Sequence[str] = ()

    @property
    def pool(self) -> str:
        """Its pool, which Slurm calls a partition; `*` marks the usual one."""
        return f"{self.node['pool']}*" if self.node["pool"] == DEFAULT_POOL else self.node["pool"]

    @property
    def gres(self) -> str:
        """Its GPUs."""
        counts: dict[str, int] = {}
        for gpu in self.node["gpus"]:
            kind = re.sub(r"\W+", "_", gpu["type"]).strip("_").lower() or "gpu"
            counts[kind] = counts.get(kind, 0) + 1
        return ",".join(f"gpu:{kind}:{number}" for kind, number in counts.items()) or "(null)"


LONG_STATES: Final[Mapping[str, str]] = {
    "idle": "idle", "mix": "mixed", "alloc": "allocated", "drain": "drained", "drng": "draining", "down": "down",
}  # fmt: skip

USES: Final = {"alloc": "A", "mix": "A", "idle": "I"}
"""Whether a machine is allocated or idle, by its state; out of use in any other."""


Column = tuple[str, Callable[[Sequence[SlurmNode]], object]]

LETTERS: Final[Mapping[str, Column]] = {
    "P": ("PARTITION", lambda some: some[0].pool),
    "R": ("PARTITION", lambda some: some[0].node["pool"]),
    "a": ("AVAIL", lambda _: "up"),
    "l": ("TIMELIMIT", lambda some: "infinite" if some[0].most_s is None else duration(some[0].most_s)),
    "D": ("NODES", len),
    "t": ("STATE", lambda some: some[0].state),
    "T": ("STATE", lambda some: LONG_STATES[some[0].state]),
    "N": ("NODELIST", lambda some: ",".join(each.node["name"] for each in some)),
    "n": ("HOSTNAMES", lambda some: ",".join(each.node["name"] for each in some)),
    "c": ("CPUS", lambda some: len(some[0].node["cores"])),
    "m": ("MEMORY", lambda some: some[0].node["host_memory_bytes"] // 2**20),
    "G": ("GRES", lambda some: some[0].gres),
    "f": ("AVAIL_FEATURES", lambda some: ",".join(some[0].features) or "(null)"),
    "F": (
        "NODES(A/I/O/T)",
        lambda some: "/".join(
            [*(str([USES.get(each.state, "O") for each in some].count(use)) for use in "AIO"), str(len(some))]
        ),
    ),
    "C": ("CPUS(A/I/O/T)", lambda some: "/".join(map(str, _cores(some)))),
    "E": ("REASON", lambda some: _out_of_use(some[0])[0]),
    "u": ("USER", lambda some: _out_of_use(some[0])[1]),
    "H": ("TIMESTAMP", lambda some: _out_of_use(some[0])[2]),
}
NAMES: Final = {
    "partition": "P", "partitionname": "R", "available": "a", "time": "l", "nodes": "D", "statecompact": "t",
    "state": "T", "statelong": "T", "nodelist": "N", "nodehost": "n", "cpus": "c", "cpusstate": "C", "memory": "m",
    "gres": "G", "features": "f", "nodeaiot": "F", "reason": "E", "user": "u", "timestamp": "H",
}  # fmt: skip
"""What each name of `--Format` stands for, by letters of `--format`."""
USUAL: Final = "%9P %.5a %.10l %.6D %.6t %N"
SUMMARY: Final = "%9P %.5a %.10l %.16F %N"
OF_NODES: Final = "%.12N %.6D %.9P %.6t"
REASONS: Final = "%.20E %.9u %.19H %N"
_LETTER: Final = re.compile(r"%(?P<right>\.?)(?P<width>[0-9]*)(?P<letter>[A-Za-z])")
VALUED: Final = "-p,--partition -n,--nodes -o,--format -O,--Format -t,--states -M,--clusters"
REFUSED: Final = {"--json": "see colane nodes --json", "--yaml": "see colane nodes --json"}
FLAGS: Final = (
    "-h,--noheader -N,--Node -l,--long -s,--summarize -a,--all -e,--exact -v,--verbose -r,--responding "
    "-R,--list-reasons -T,--reservation"
)


def run(words: Sequence[str], shims: str) -> int:
    """List machines; return the exit code. Raises SlurmError: an option is not known."""
    del shims
    asked = getopt.read(words, VALUED, FLAGS, refused=REFUSED)
    with contact.client() as scheduler:
        pools_told = scheduler.pools()
        if asked.has("reservation"):
            contact.print_lines(*_reserved(scheduler.reservations(), header=not asked.has("noheader")))
            return 0
        machines = [_machine(node, pools_told.get(node["pool"])) for node in scheduler.nodes()]
    pools, names, states = asked.all("partition"), asked.all("nodes"), {each.lower() for each in asked.all("states")}
    found = [
        each for each in machines
        if (not pools or each.node["pool"] in pools) and (not names or each.node["name"] in names)
        and (not states or {each.state, LONG_STATES[each.state]} & states)
    ]  # fmt: skip
    is_summary, is_reasons = asked.has("summarize"), asked.has("list-reasons")
    found = [each for each in found if not is_reasons or each.state in {"drain", "drng", "down"}]
    usual = SUMMARY if is_summary else REASONS if is_reasons else OF_NODES if asked.has("Node") else USUAL
    text, long = asked.last("format") or usual, asked.last("Format")
    is_each = asked.has("Node") or "%n" in text or is_reasons or "nodehost" in (long or "").lower()
    groups: dict[tuple[str, ...], list[SlurmNode]] = {}
    for each in found:
        told = each.features if "%f" in text or "features" in (long or "").lower() else ()
        key = (each.node["pool"], "" if is_summary else each.state, each.node["name"] if is_each else "", *told)
        groups.setdefault(key, []).append(each)
    if long is not None:
        contact.print_lines(*by_names(list(groups.values()), long, LETTERS, NAMES, header=not asked.has("noheader")))
        return 0
    for match in _LETTER.finditer(text):
        if match["letter"] not in LETTERS:
            raise SlurmError(f"--format: %{match['letter']} is not known; these are: {' '.join(sorted(LETTERS))}")
    if not asked.has("noheader"):
        contact.print_lines(_line(text, lambda letter: LETTERS[letter][0]))
    for group in groups.values():
        contact.print_lines(_line(text, lambda letter, group=group: LETTERS[letter][1](group)))  # type: ignore[misc]
    return 0


def _machine(node: NodeObject, pool: PoolObject | None) -> SlurmNode:
    if pool is None:
        return SlurmNode(node, state_of(node))
    features = [name for name, nodes in pool.get("features", {}).items() if node["name"] in nodes]
    return SlurmNode(node, state_of(node), pool["time_limit_max_s"], features)


def _reserved(known: Sequence[ReservedObject], *, header: bool) -> list[str]:
    """Reservations that are not over, a line each."""
    if not known:
        return ["No reservations in system"] if header else []
    rows = [("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")] if header else []
    rows += [(one["name"], *times_of(one), ",".join(one["nodes"])) for one in known]
    return [
        f"{name:<14} {state:>10} {begin:>19} {end:>19} {took:>11} {nodes}"
        for name, state, begin, end, took, nodes in rows
    ]


def times_of(one: ReservedObject) -> tuple[str, str, str, str]:
    """Return the state of a reservation, its begin, its end and its length, as Slurm has them."""
    state = "ACTIVE" if one["from_s"] <= time.time() else "INACTIVE"
    return state, moment(one["from_s"], ""), moment(one["to_s"], ""), long_duration(one["to_s"] - one["from_s"])


def _out_of_use(each: SlurmNode) -> tuple[str, str, str]:
    """Why a machine takes no jobs, by whose word, and since when; `none` of one that takes some."""
    drain = each.node["drain"] or each.node["notice"]
    if drain is not None:
        return drain["reason"] or "no reason given", drain["by"] or "root", moment(drain["since_s"], "Unknown")
    said = "Not responding" if each.state == "down" else "none"
    return said, "root" if each.state == "down" else "Unknown", "Unknown"


def state_of(node: NodeObject) -> str:
    """Return Slurm's word for what a machine does."""
    return slurm_word(node["state"], len(node["gpus"]), booked_by(node["jobs"])["gpus"], has_jobs=bool(node["jobs"]))


def _cores(some: Sequence[SlurmNode]) -> tuple[int, int, int, int]:
    """How many cores are booked, idle, on machines that take no jobs, and there."""
    all_, booked = (sum(each) for each in zip(*map(_total_and_booked, some), strict=True))
    idle = sum(total - held for total, held in map(_total_and_booked, (each for each in some if each.state in USES)))
    return booked, idle, all_ - booked - idle, all_


def _total_and_booked(each: SlurmNode) -> tuple[int, int]:
    return len(each.node["cores"]), booked_by(each.node["jobs"])["cores"]


def _line(text: str, value: Callable[[str], object]) -> str:
    def fit(match: re.Match[str]) -> str:
        word = str(value(match["letter"]))
        if not match["width"]:
            return word
        size = int(match["width"])
        return word[:size].rjust(size) if match["right"] else word[:size].ljust(size)

    return _LETTER.sub(fit, text)
