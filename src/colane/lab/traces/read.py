"""Read a trace of any known format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from colane.lab.traces.layout import HEAD_CHARS, Document, FileLayout, Misfit, first_row, is_header
from colane.lab.traces.readers import colane_csv, columns, gavel, google, lists, openb, pai, philly, topo
from colane.lab.traces.readers.assemble import Options
from colane.lab.traces.workload import Note, Workload, collector_held
from colane.model.nearest import did_you_mean
from colane.settings.input_file import InputFileError, read_text


class Format(NamedTuple):
    """A format of traces: its name, what it is, how its files are laid out and read, and the unit of its times."""

    name: str
    title: str
    layouts: Sequence[FileLayout]
    read: Callable[[Path, str, Options], Workload]
    times: str = "seconds"

    def layout(self, head: str) -> FileLayout | None:
        """The layout of a file that begins like this; None where it has none of them."""
        return next((layout for layout in self.layouts if layout.fits(head)), None)

    def nearest(self, head: str) -> FileLayout:
        """The layout of a file that is read as this format because the user named the format."""
        return self.layout(head) or max(self.layouts, key=lambda layout: _likeness(layout.misfit(head)))

    def misfit(self, head: str) -> Misfit | None:
        """What is wrong with a file that is nearly of this format."""
        return max((layout.misfit(head) for layout in self.layouts), key=_likeness)


def _likeness(misfit: Misfit | None) -> float:
    return misfit.likeness if misfit else 0.0


def _listed(jobs: lists.JobList, title: str, times: str = "seconds") -> Format:
    return Format(jobs.name, title, jobs.layouts, jobs.read, times)


LOCAL = "dates without a zone, and seconds"
TOLD = "dates, or seconds"
ZONED = "dates with their offset from UTC, and seconds"

FORMATS = {
    form.name: form
    for form in (
        Format(colane_csv.NAME, "Colane's own CSV", colane_csv.LAYOUTS, colane_csv.read),
        Format(philly.CSV_NAME, "Microsoft Philly, filtered CSV", philly.CSV_LAYOUTS, philly.read_csv, LOCAL),
        Format(
            philly.JSON_NAME, "Microsoft Philly, original cluster_job_log", philly.JSON_LAYOUTS, philly.read_json, LOCAL
        ),
        Format(pai.NAME, "Alibaba PAI 2020, pai_task_table and pai_job_table", pai.LAYOUTS, pai.read),
        Format(openb.NAME, "Alibaba 2023, openb_pod_list", openb.LAYOUTS, openb.read),
        _listed(lists.HELIOS, "SenseTime Helios, cluster_log.csv", LOCAL),
        _listed(lists.LUCID, "Lucid, cluster_log.csv or cluster_full_log.csv", LOCAL),
        _listed(lists.ACME, "Shanghai AI Laboratory's Acme, trace_*.csv", ZONED),
        Format(gavel.NAME, "Gavel, tab separated", gavel.LAYOUTS, gavel.read),
        Format(gavel.SHOCKWAVE_NAME, "Shockwave, tab separated", gavel.SHOCKWAVE_LAYOUTS, gavel.read_shockwave),
        _listed(lists.MURI, "Muri, job list", "milliseconds"),
        _listed(lists.TIRESIAS, "Tiresias, job list"),
        _listed(lists.SYNERGY, "Synergy, deploy trace"),
        _listed(lists.SALUS, "Salus, job list"),
        Format(topo.NAME, "Topology-aware scheduling (SC 2017), workloads-*.json", topo.LAYOUTS, topo.read),
        _listed(lists.POLLUX, "Pollux, workload-*.csv"),
        Format(columns.SACCT, "Slurm, sacct -p", columns.SACCT_LAYOUTS, columns.read_sacct, LOCAL),
        Format(columns.SWF, "Standard Workload Format", columns.SWF_LAYOUTS, columns.read_swf),
        *(Format(one.name, one.title, (one.layout,), one.read) for one in columns.PUBLISHED),
        Format(google.NAME, "Google 2019, instance_events", google.LAYOUTS, google.read, "microseconds"),
    )
}
"""Known formats by name; no file has the layout of two."""

CUT = Note(1, "last line", "has no line end: the file may be cut short")
NEW_LINE = "\n"
SAMPLE = Path(__file__).parent / "samples" / "small.csv"  # a small made-up trace that ships with Colane


def read(
    path: str | Path, format_name: str | None = None, *, skip_bad_rows: bool = False, keep_cpu_only: bool = False
) -> Workload:
    """Read a trace; `.gz` is unpacked on the way.

    Args:
        path: The file.
        format_name: A name of `FORMATS`, which takes a file with columns more, or with those missing that are not read,
            or `columns:` and what `--columns` says;
            None takes the one format whose header the file has, and the workload says so.
        skip_bad_rows: Leave bad rows out and count them in the notes; else the first one is an error.
        keep_cpu_only: Keep jobs that ask for no GPU; else they are left out and counted in the notes, but in Colane's
            own format, which always keeps them.

    Raises:
        InputFileError: The file cannot be read, has no format's header (the column to blame is named), a row is bad, or
            no job is left.
    """
    path = Path(path)
    text = _uncommented(read_text(path))
    head = text[:HEAD_CHARS]
    form = _told(path, head) if format_name is None else _named(path, format_name)
    with collector_held():
        workload = form.read(path, text, Options(skip_bad_rows, keep_cpu_only))
    layout = form.nearest(head)
    is_cut = (not isinstance(layout, Document) or layout.is_lines) and not text.endswith(("\n", "\r"))
    notes = (*workload.notes, CUT) if is_cut else workload.notes
    unused = (*layout.unused(head), *workload.unused)
    return replace(workload, guessed=format_name is None, notes=notes, times=form.times, unused=unused)


def sample() -> Workload:
    """Return the made-up trace that ships with Colane."""
    return replace(read(SAMPLE, colane_csv.NAME), name="small", source="the sample that comes with Colane")


def _named(path: Path, name: str) -> Format:
    if name.startswith(columns.PREFIX):
        try:
            told = columns.parse_columns(name.removeprefix(columns.PREFIX))
        except ValueError as error:
            raise InputFileError(path, f"--columns: {error}") from error
        return Format(
            columns.NAMED, "by --columns", (columns.TableByColumns(told),), partial(columns.read_told, told), TOLD
        )
    if name not in FORMATS:
        raise InputFileError(path, f"unknown format {name!r}{did_you_mean(name, FORMATS)}; known: {', '.join(FORMATS)}")
    return FORMATS[name]


def _told(path: Path, head: str) -> Format:
    if not head.strip():
        raise InputFileError(path, "is empty")
    for form in FORMATS.values():
        if form.layout(head) is not None:
            return form
    misfits = [(form, misfit) for form in FORMATS.values() if (misfit := form.misfit(head)) is not None]
    if misfits:
        form, misfit = max(misfits, key=lambda each: each[1].likeness)
        rest = f"{misfit.message}; the rest is like {_called(form)}"
        if misfit.is_more:
            rest = f"is no column of {_called(form)}, which the rest is like: --format {form.name} leaves it out"
        raise InputFileError(path, rest, line=1, column=misfit.column)
    known = ", ".join(FORMATS)
    raise InputFileError(
        path, f"is of no known format: {_beginning(head)}{columns.offered(head)}; known formats: {known}", line=1
    )


def _uncommented(text: str) -> str:
    """The file with lines blank that begin with `#` before a header."""
    found = re.match(r"(?:#.*\n|\s*\n)+", text)
    rest = "" if found is None else text[found.end() :][:HEAD_CHARS]
    is_said = found is not None and "#" in found[0] and is_header(first_row(rest, columns.delimiter_of(rest)))
    return found[0].count(NEW_LINE) * NEW_LINE + text[found.end() :] if found is not None and is_said else text


def _called(form: Format) -> str:
    return f"{form.name} ({form.title})"


def _beginning(head: str) -> str:
    """What the file begins with; of a table without a header, how many columns it has."""
    row = first_row(head, "\t" if "\t" in head.partition("\n")[0] else ",")
    if len(row) > 1 and not is_header(row):
        return f"it has no header, and {len(row)} columns"
    return f"its first line is {head.lstrip().partition(NEW_LINE)[0][:80]!r}"
