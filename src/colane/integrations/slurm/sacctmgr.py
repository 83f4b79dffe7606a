"""`sacctmgr`: QoS alone, as there are no accounts: lists of anything else are empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from colane.integrations.slurm import contact, getopt
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.rows import duration

if TYPE_CHECKING:
    from colane.api.nodes import QosObject

QOS: Final[Mapping[str, tuple[str, Callable[[QosObject], object]]]] = {
    "name": ("Name", lambda one: one["name"]),
    "priority": ("Priority", lambda one: one["priority"]),
    "maxwall": ("MaxWall", lambda one: "" if one["time_limit_max_s"] is None else duration(one["time_limit_max_s"])),
    "maxtres": ("MaxTRES", lambda one: "" if one["gpus_max"] is None else f"gres/gpu={one['gpus_max']}"),
}


def run(words: Sequence[str], shims: str) -> int:
    """List QoS, and nothing of accounts, which programs take for leave to name any; return the exit code.

    Raises SlurmError: something is to be changed, or a column is not known.
    """
    del shims
    asked = getopt.read(
        words, "", "-n,--noheader -p,--parsable -P,--parsable2 -s,--associations -i,--immediate -Q -r -v -o"
    )
    verb, *what = asked.rest or [""]
    if verb not in {"show", "list"}:
        raise SlurmError(
            f"{verb or 'a command'} is not done here: there are no accounts (--account is a label of the job); what "
            "users may have is set with 'colane server --limits'"
        )
    if what[:1] != ["qos"]:
        return 0
    said = next((word.partition("=")[2] for word in what if word.lower().startswith("format=")), ",".join(QOS))
    names = [name.partition("%")[0].lower() for name in said.split(",")]
    if unknown := [name for name in names if name not in QOS]:
        raise SlurmError(f"format: {unknown[0]} is not known; these are: {', '.join(QOS)}")
    with contact.client() as scheduler:
        rows = [[str(QOS[name][1](one)) for name in names] for one in scheduler.qos()]
    rows = rows if asked.has("noheader") else [[QOS[name][0] for name in names], *rows]
    is_bare = asked.has("parsable") or asked.has("parsable2")
    contact.print_lines(*("|".join(row) if is_bare else " ".join(f"{word:>10}" for word in row) for row in rows))
    return 0
