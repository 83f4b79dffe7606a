"""A number and its noun go through `words.count` or a sentence's `{cores:core}`: no text says `1 GPUs`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from colane.model.words import count

SOURCES = Path(__file__).parents[2] / "src" / "colane"
NOUNS = (
    "agent", "array", "channel", "client", "co-runner", "core", "device", "element", "event", "family", "file", "GPU",
    "group", "job", "lane", "line", "node", "pair", "place", "pool", "process", "rank", "record", "restart", "retry",
    "row", "sample", "server", "size", "socket", "step", "thread", "trial", "user", "worker",
)  # fmt: skip
COUNTED = re.compile(rf" (?:other |more |such |whole )?({'|'.join(count(2, noun)[2:] for noun in NOUNS)})\b")
SEVERAL = {
    "agent/gate/gate.py: steps": "more than any job does",
    "agent/launch/gang.py: ranks": "a word that the agent does not know",
    "agent/loop.py: GPUs": "one job on one GPU is what MPS is for",
    "agent/running/host_memory.py: processes": "one could be moved",
    "lab/demo/elastic.py: devices": "the demo asks for several",
    "lab/demo/mixed.py: cores": "of several devices",
    "lab/demo/plan.py: steps": "of a training job worth the name",
    "cli/jobs/objects.py: jobs": "one was asked for",
    "cli/jobs/show.py: GPUs": "sizes of an elastic job",
    "lab/commands/profile.py: jobs": "at least two are profiled together",
    "lab/commands/simulate.py: events": "each job is two",
    "cli/submit/scripts.py: lines": "`#SBATCH lines`",
    "core/cluster/to_host.py: GPUs": "one could be moved",
    "core/reducers/suspicions.py: jobs": "of several users in a row",
    "core/reducers/suspicions.py: users": "of several users in a row",
    "model/sentences.py: jobs": "a set that is measured together has several",
    "model/sentences.py: nodes": "a gang that is brought together was on several",
    "model/field_values.py: GPUs": "one is split evenly",
    "lab/report/mixed.py: cores": "a device there is made of several",
    "lab/report/elastic_plots.py: devices": "said of several alone",
    "lab/report/timeline.py: devices": "the busiest of many",
    "scheduling/mechanisms/topology/connected.py: sockets": "one and two are words",
    "scheduling/mechanisms/topology/connected.py: nodes": "one is named by its sockets",
    "server/submitting/admission.py: GPUs": "one is split evenly",
    "server/submitting/dependencies.py: jobs": "more than a job may wait for",
    "lab/commands/simulation.py: jobs": "one is `it`",
    "lab/traces/contents.py: jobs": "one is said otherwise",
    "lab/traces/contents.py: steps": "of several jobs",
    "lab/traces/clusters.py: GPUs": "its type is missing, which one alone may lack",
    "lab/traces/units.py: GPUs": "numbers that are too large",
    "lab/traces/units.py: cores": "numbers that are too large",
    "lab/traces/units.py: jobs": "a trace is judged by many",
    "lab/traces/units.py: steps": "numbers that are too large",
    "lab/traces/workload.py: records": "a verb",
}
"""Where it is never one, and why."""
NO_ROOMS = ("lab/papers", "workloads")
"""What is printed there is of fixed numbers."""


def uncounted(path: Path) -> Iterator[str]:
    """Nouns in the plural behind numbers that may be one."""
    name = path.relative_to(SOURCES)
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for value, text in pairwise(node.values):
                found = COUNTED.match(str(text.value)) if isinstance(text, ast.Constant) else None
                if found and isinstance(value, ast.FormattedValue) and _may_be_one(value):
                    yield f"{name}: {found[1]}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            for found in re.finditer(rf"{{\w+}}{COUNTED.pattern}", node.value):
                yield f"{name}: {found[1]}"


def _may_be_one(value: ast.FormattedValue) -> bool:
    """Not so a constant of the code, or a number with decimals."""
    is_constant = isinstance(value.value, ast.Name) and value.value.id.isupper()
    form = "" if value.format_spec is None else ast.unparse(value.format_spec)
    return not is_constant and not re.search(r"\.[1-9]", form)


def test_numbers_and_their_nouns_agree() -> None:
    others = [SOURCES / room for room in NO_ROOMS]
    paths = [path for path in SOURCES.rglob("*.py") if not any(map(path.is_relative_to, others))]
    found = {place for path in paths for place in uncounted(path)}
    assert found - SEVERAL.keys() == set(), "say count(number, noun)"
    assert SEVERAL.keys() - found == set(), "these are said no more"
