"""Read a trace of any known format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from colane.traces.errors import TraceError, did_you_mean
from colane.traces.readers import colane_csv, gavel, helios, openb, pai, philly, pollux, salus, topo
from colane.traces.readers.assemble import Options
from colane.traces.sheet import read_text
from colane.traces.workload import Workload, collector_held

HEAD_CHARS = 1 << 16
"""A format is guessed from this much of a file."""


class Format(NamedTuple):
    """A format of traces: its name, what it is, how it is recognised and how it is read."""

    name: str
    title: str
    matches: Callable[[Path, str], bool]
    read: Callable[[Path, str, Options], Workload]


FORMATS = {
    form.name: form
    for form in (
        Format(colane_csv.NAME, "Colane's own CSV", colane_csv.matches, colane_csv.read),
        Format(philly.CSV_NAME, "Microsoft Philly, filtered CSV", philly.matches_csv, philly.read_csv),
        Format(philly.JSON_NAME, "Microsoft Philly, original cluster_job_log", philly.matches_json, philly.read_json),
        Format(pai.NAME, "Alibaba PAI 2020, pai_task_table and pai_job_table", pai.matches, pai.read),
        Format(openb.NAME, "Alibaba 2023, openb_pod_list", openb.matches, openb.read),
        Format(helios.NAME, "SenseTime Helios, cluster_log.csv", helios.matches, helios.read),
        Format(gavel.NAME, "Gavel, tab separated", gavel.matches, gavel.read),
        Format(salus.NAME, "Salus, job list", salus.matches, salus.read),
        Format(topo.NAME, "Topology-aware scheduling (SC 2017), workloads-*.json", topo.matches, topo.read),
        Format(pollux.NAME, "Pollux, workload-*.csv", pollux.matches, pollux.read),
    )
}
"""Known formats by name; the first that matches a file is guessed."""

SAMPLE = Path(__file__).parent / "samples" / "small.csv"
"""A small made-up trace that ships with Colane."""


def read(
    path: str | Path, format_name: str | None = None, *, skip_bad_rows: bool = False, keep_cpu_only: bool = False
) -> Workload:
    """Read a trace; `.gz` is unpacked on the way.

    Args:
        path: The file.
        format_name: A name of `FORMATS`; None guesses it from the header and content, and the workload says so.
        skip_bad_rows: Leave bad rows out and count them in the notes; else the first one is an error.
        keep_cpu_only: Keep jobs that ask for no GPU; else they are left out and counted in the notes, but in Colane's
            own format, which always keeps them.

    Raises:
        TraceError: The file cannot be read, its format is unknown, a row is bad, or no job is left.
    """
    path = Path(path)
    text = read_text(path)
    form = _guess(path, text) if format_name is None else _named(path, format_name)
    with collector_held():
        workload = form.read(path, text, Options(skip_bad_rows, keep_cpu_only))
    return replace(workload, guessed=format_name is None)


def sample() -> Workload:
    """Return the made-up trace that ships with Colane."""
    return replace(read(SAMPLE, colane_csv.NAME), name="small", source="the sample that comes with Colane")


def _named(path: Path, name: str) -> Format:
    if name not in FORMATS:
        raise TraceError(path, f"unknown format {name!r}{did_you_mean(name, FORMATS)}; known: {', '.join(FORMATS)}")
    return FORMATS[name]


def _guess(path: Path, text: str) -> Format:
    head = text[:HEAD_CHARS]
    if not head.strip():
        raise TraceError(path, "is empty")
    for form in FORMATS.values():
        if form.matches(path, head):
            return form
    known = ", ".join(f"{form.name} ({form.title})" for form in FORMATS.values())
    first = head.partition("\n")[0][:80]
    raise TraceError(path, f"is of no known format: its first line is {first!r}; known formats: {known}", line=1)
