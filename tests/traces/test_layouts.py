"""Which format a file is told to be; one with a wrong column, or cut off, is never read as if it were whole."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from colane.lab.traces.check import check_trace
from colane.lab.traces.read import CUT, FORMATS, read
from colane.lab.traces.readers import colane_csv
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId
from colane.settings.input_file import InputFileError
from tests.traces.formats import FILES, HELIOS, SALUS, VARIANTS

File = Callable[..., Path]
TEXTS = FILES | VARIANTS
CHOSEN = {"sacct", "swf", "supercloud", "pm100", "f-data", "google-2019"}
"""Of no fixed columns: whoever prints or exports them chooses, or lines are numbers alone (`test_columns.py`)."""
TABLES = [name for name, text in TEXTS.items() if text[0] not in "[{" and name not in CHOSEN]
DOCUMENTS = [name for name in TEXTS if name not in TABLES and name not in CHOSEN]
BARE = {"alibaba-2020", "azure-vm", "synergy", "shockwave", *(name for name in TEXTS if name.startswith("gavel"))}
"""Without a header."""
CUTS = 30


def form_of(name: str) -> str:
    return name.partition(",")[0]


def rows(text: str) -> tuple[str, list[list[str]]]:
    delimiter = "\t" if "\t" in text else ","
    return delimiter, list(csv.reader(io.StringIO(text), delimiter=delimiter))


def table(delimiter: str, cells: list[list[str]]) -> str:
    return "".join(delimiter.join(row) + "\n" for row in cells)


def said(workload: Workload) -> list[TraceJob]:
    """Jobs without what depends on those beside them."""
    return sorted((replace(job, id=JobId(1), line=0) for job in workload.jobs), key=lambda job: job.spec.name)


def outcome(path: Path, *, keep_cpu_only: bool = False) -> Workload | InputFileError:
    """What is read, or what is said of it, in one line."""
    try:
        return read(path, keep_cpu_only=keep_cpu_only)
    except InputFileError as error:
        return error


def refused(path: Path) -> InputFileError:
    error = outcome(path)
    assert isinstance(error, InputFileError)
    assert (error.line, len(str(error).splitlines())) == (1, 1)
    return error


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_is_of_one_format_alone(name: str) -> None:
    assert [form.name for form in FORMATS.values() if form.layout(TEXTS[name]) is not None] == [form_of(name)]


def without(name: str) -> Iterator[tuple[str, str]]:
    """Each column with the file that lacks it."""
    delimiter, cells = rows(TEXTS[name])
    for at, column in enumerate(cells[0]):
        yield column, table(delimiter, [row[:at] + row[at + 1 :] for row in cells])


@pytest.mark.parametrize("name", TABLES)
def test_a_missing_column_is_named_and_never_read_over(file: File, name: str) -> None:
    whole = said(read(file(TEXTS[name])))
    for column, text in without(name):
        cut = outcome(file(text))
        if isinstance(cut, InputFileError):
            assert cut.line == 1
            assert name in BARE or cut.column == column
        else:
            assert cut.format == form_of(name)
            assert name == "colane" or said(cut) == whole


@pytest.mark.parametrize("name", TABLES)
def test_a_doubled_column_is_refused(file: File, name: str) -> None:
    delimiter, cells = rows(TEXTS[name])
    for at, column in enumerate(cells[0]):
        error = refused(file(table(delimiter, [[*row[: at + 1], row[at], *row[at + 1 :]] for row in cells])))
        assert name in BARE or column in str(error)


@pytest.mark.parametrize("name", [name for name in TABLES if name not in BARE])
def test_a_renamed_column_is_named_with_what_stands_there(file: File, name: str) -> None:
    delimiter, cells = rows(TEXTS[name])
    for at, column in enumerate(cells[0]):
        header = [*cells[0][:at], f"{column}_ms", *cells[0][at + 1 :]]
        if column.startswith("label:"):
            continue
        error = refused(file(table(delimiter, [header, *cells[1:]])))
        assert column in str(error)
        assert f"{column}_ms" in str(error)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_missing_or_renamed_key_is_named(file: File, name: str) -> None:
    document = json.loads(TEXTS[name])
    jobs = document if isinstance(document, list) else list(document.values())
    for key in list(jobs[0]):
        kept = [job.pop(key) for job in jobs]
        assert refused(file(json.dumps(document))).column == key
        for job, value in zip(jobs, kept, strict=True):
            job[f"{key}_ms"] = value
        assert f"is it {key}_ms?" in str(refused(file(json.dumps(document))))
        for job in jobs:
            job[key] = job.pop(f"{key}_ms")


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_cut_anywhere_is_refused_or_said_to_be(file: File, name: str) -> None:
    text = TEXTS[name]
    whole = {job.spec.name: job for job in said(read(file(text), keep_cpu_only=True))}
    chosen = random.Random(0).sample(range(1, len(text)), min(CUTS, len(text) - 1))
    for at in [*chosen, len(text) - 1]:
        cut = outcome(file(text[:at]), keep_cpu_only=True)
        if isinstance(cut, InputFileError):
            assert len(str(cut).splitlines()) == 1
            continue
        assert cut.format == form_of(name)
        if CUT not in cut.notes:
            assert text[at - 1] == "\n"
            for job in said(cut):  # dates count from the first
                there = whole[job.spec.name]
                assert replace(job, submit_s=0) == replace(there, submit_s=0)


def test_columns_that_are_not_used_are_told(file: File) -> None:
    workload = read(file(HELIOS))
    assert workload.unused == ("queue",)
    found = {finding.code: finding.message for finding in check_trace(workload)}
    assert found["unused-columns"] == "not used: queue"
    assert "columns not used: queue" in workload.said


def test_a_format_that_is_named_takes_a_file_with_more_columns_and_tells_them(file: File) -> None:
    text = "\n".join(f"{line},{end}" for line, end in zip(SALUS.splitlines(), ("weight", "7", "8"), strict=True)) + "\n"
    assert str(refused(file(text))).endswith(
        "column 'weight': is no column of salus (Salus, job list), which the rest is like: --format salus leaves it out"
    )
    workload = read(file(text), "salus")
    assert workload.unused == ("weight",)
    assert said(workload) == said(read(file(SALUS)))


def test_a_table_without_a_header_and_of_no_known_width_is_counted(file: File) -> None:
    told = str(refused(file("1,2,3,4\n")))
    assert "it has no header, and 4 columns; say by number which columns are what, as in --columns submit=1," in told


def test_milliseconds_are_told_from_seconds(file: File) -> None:
    """Muri's times are milliseconds, Tiresias' seconds; both were once read as Salus' seconds, on one GPU each."""
    muri, tiresias = read(file(FILES["muri"])), read(file(FILES["tiresias"]))
    assert [(job.submit_s, job.duration_s, job.spec.gpus) for job in muri.jobs] == [(0, 478, 8), (15.34, 28.1, 16)]
    assert [(job.submit_s, job.duration_s, job.spec.gpus) for job in tiresias.jobs] == [(0, 164, 1), (30, 147, 8)]
    assert muri.unused == ("interval", "resource_time_0", "resource_time_1", "resource_time_2", "priority")
    in_seconds = FILES["muri"].replace(",28100,", ",28.1,")
    with pytest.raises(InputFileError, match=r":3: column 'duration': 0\.0281 s for iterations of 31\.244 s in all"):
        read(file(in_seconds))


@pytest.mark.parametrize(
    ("name", "steps", "gpus", "submit_s", "duration_s"),
    [
        ("gavel", [25832, 900], [1, 2], [129, 131], None),
        ("gavel, seven columns", [5061, 17420], [4, 1], [0, 352.5], None),
        ("gavel, six columns", [5061, 17420], [2, 1], [0, 352], None),
        ("shockwave", [13458, 14345], [1, 2], [0, 55], [141, 333]),
        ("synergy", [3349, 26435], [4, 1], [0.123, 0.286], None),
    ],
)
def test_files_without_a_header_are_read_by_place(
    file: File, name: str, steps: list[int], gpus: list[int], submit_s: list[float], duration_s: list[float] | None
) -> None:
    jobs = read(file(TEXTS[name])).jobs
    assert [job.steps for job in jobs] == steps
    assert [job.spec.gpus for job in jobs] == gpus
    assert [job.submit_s for job in jobs] == submit_s
    assert [job.duration_s for job in jobs if job.duration_s is not None] == (duration_s or [])


def test_what_is_not_played_of_gavel_and_shockwave_is_told(file: File) -> None:
    shockwave = read(file(FILES["shockwave"]))
    assert [job.spec.labels.get("mode") for job in shockwave.jobs] == ["gns", None]
    assert shockwave.said[0].startswith("1 job of a mode that changes the batch as it runs, which is not played")
    assert "1 job of no step left out" in read(file(VARIANTS["gavel, six columns"])).said


def test_a_missing_column_of_steps_is_seen_by_its_values(file: File) -> None:
    """Without it, seven columns are six, with the flag of the data in the place of the steps."""
    without_steps = dict(without("gavel, seven columns"))["5061"]
    assert "is 0 or 1 for every job: is a column missing?" in str(refused(file(without_steps)))


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_survives_a_conversion(file: File, tmp_path: Path, name: str) -> None:
    workload = read(file(TEXTS[name]), keep_cpu_only=True)
    colane_csv.write(workload, tmp_path / "converted.csv")
    assert said(read(tmp_path / "converted.csv")) == said(workload)


def test_a_doubled_key_is_refused_since_one_value_would_be_lost(file: File) -> None:
    with pytest.raises(InputFileError, match="has key '0' twice in one object"):
        read(file(FILES["topology"][:-1] + ", " + FILES["topology"][1:]))
    with pytest.raises(InputFileError, match="has key 'vc' twice in one object"):
        read(file(FILES["philly-json"].replace('"vc"', '"vc": "x", "vc"')))
