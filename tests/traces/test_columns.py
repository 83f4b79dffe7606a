"""Tables whose columns are told by rows: Slurm's, the Standard Workload Format, and any by `--columns`."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.cli import app
from colane.lab.traces.read import read
from colane.lab.traces.readers.columns import PUBLISHED
from colane.settings.input_file import InputFileError
from tests.traces.formats import FILES, SACCT, SWF

ORIGIN = datetime(2026, 1, 1)  # noqa: DTZ001 - as logs have it
TOLD = "columns:submit=When,duration=Ran,gpus=Devices,id=Job,user=Who,cores=Cores,state=How"


def clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


MOMENTS: dict[str, Callable[[int], str]] = {
    "seconds": str,
    "date": lambda at: (ORIGIN + timedelta(seconds=at)).isoformat(),
    "zoned": lambda at: (ORIGIN + timedelta(seconds=at)).isoformat(" ") + "+08:00",
}
LENGTHS: dict[str, Callable[[int], str]] = {"seconds": str, "decimal": lambda ran: f"{ran}.0", "clock": clock}
GPUS: dict[str, Callable[[int], str]] = {
    "number": str,
    "tres": lambda gpus: f"billing=9,cpu=8,gres/gpu={gpus},mem=4G" if gpus else "billing=9,cpu=8",
    "typed": lambda gpus: f"gres/gpu:a100={gpus}" if gpus else "",
    "gres": lambda gpus: f"gpu:h100_80gb:{gpus}" if gpus else "N/A",
}
JOBS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 64)), min_size=1, max_size=9)


@given(
    JOBS, st.sampled_from(",;|\t"), st.sampled_from([*MOMENTS]), st.sampled_from([*LENGTHS]), st.sampled_from([*GPUS])
)
def test_the_same_jobs_come_of_every_way_to_write_them(
    tmp_path_factory: pytest.TempPathFactory,
    jobs: list[tuple[int, int, int]],
    delimiter: str,
    moment: str,
    length: str,
    gpus: str,
) -> None:
    path = tmp_path_factory.mktemp("told") / "jobs.txt"
    lines = [["Job", "When", "Ran", "Devices", "Who", "Cores", "How", "Other"]]
    for number, (at, ran, many) in enumerate(jobs):
        devices = GPUS[gpus](many)
        cell = f'"{devices}"' if delimiter == "," and "," in devices else devices
        lines.append([f"j{number}", MOMENTS[moment](at), LENGTHS[length](ran), cell, "ann", "4", "COMPLETED", "x"])
    path.write_text("".join(delimiter.join(line) + "\n" for line in lines))
    found = read(path, TOLD, keep_cpu_only=True)
    first = min(at for at, _, _ in jobs)
    assert {job.spec.name: (job.submit_s, job.duration_s, job.spec.gpus) for job in found.jobs} == {
        f"j{number}": (at - first, ran, many) for number, (at, ran, many) in enumerate(jobs)
    }
    assert {(job.spec.user, job.spec.cores, job.outcome) for job in found.jobs} == {("ann", 4, "COMPLETED")}
    assert found.unused == ("Other",)


@pytest.mark.parametrize("end", ["", "|"])
def test_what_sacct_prints_is_known_by_its_columns(tmp_path: Path, end: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(SACCT.format(end=end))
    found = read(path)
    assert found.format == "sacct"
    assert [(job.spec.name, job.submit_s, job.duration_s, job.spec.gpus, job.outcome) for job in found.jobs] == [
        ("1", 0.0, 3600.0, 2, "COMPLETED"), ("4_1", 420.0, 86403.0, 4, "CANCELLED"),
    ]  # fmt: skip
    assert [job.spec.labels.get("nodes") for job in found.jobs] == [None, "2"]
    assert {(note.many, note.what) for note in found.notes} == {
        (1, "of jobs, left out"), (1, "not ended when the log was taken, left out"), (1, "that never ran, left out"),
    }  # fmt: skip


def test_sacct_without_a_column_that_is_needed_says_what_to_print(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("JobID|State|Submit|Elapsed\n1|COMPLETED|2026-01-01T00:00:00|00:10:00\n")
    with pytest.raises(InputFileError, match="no column says gpus: print it by sacct -p -a -X -o JobID"):
        read(path)


def test_a_file_of_the_parallel_workloads_archive(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    found = read(path)
    assert found.format == "swf"
    assert [(job.spec.name, job.submit_s, job.duration_s, job.spec.gpus, job.outcome) for job in found.jobs] == [
        ("1", 0.0, 100.0, 4, "COMPLETED"), ("3", 20.0, 60.0, 4, "FAILED"),
    ]  # fmt: skip
    path.write_text(SWF + "4 x 5 1 4 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1\n")
    with pytest.raises(InputFileError, match=r":6: column 'submit': expected a date and time"):
        read(path)


@pytest.mark.parametrize(
    "names", ["Submit;Elapsed;AllocGPUS", "submit_s;duration_s;gpus", "Submit Time;Run Time (s);GPU"]
)
def test_an_unknown_table_is_refused_with_a_line_that_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: str
) -> None:
    path = tmp_path / "ours.csv"
    path.write_text(f"Key;{names}\n7;2026-01-01 00:00:00;10:00;1\n8;2026-01-01 00:00:10;3600;2\n")
    assert app.run(["trace", "check", str(path)]) == 2
    (offered,) = shlex.split(capsys.readouterr().err.partition("--columns ")[2].partition(" (it has")[0])
    assert offered == ",".join(map("=".join, zip(("submit", "duration", "gpus"), names.split(";"), strict=True)))
    assert app.run(["trace", "check", str(path), "--columns", f"{offered},id=Key"]) == 0
    assert app.run(["simulate", "-t", str(path), "--columns", offered, "-p", "fifo", "--json"]) == 0


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("submit=Submit,duraton=Elapsed", r"'duraton' is no field \(did you mean duration\?\); known: submit, "),
        ("submit=Submit,gpus", r"expected FIELD=COLUMN, got 'gpus'"),
        ("submit=Submit,submit=Submit", "submit is given twice"),
        ("duration=Elapsed", "needs submit and gpus"),
        ("submit=Submit,start=Elapsed,gpus=AllocGPUS", "needs duration, or start and end"),
        ("submit=Sumit,duration=Elapsed,gpus=AllocGPUS", r"has no column 'Sumit' \(did you mean Submit\?\)"),
    ],
)
def test_what_is_told_wrongly_is_named(tmp_path: Path, told: str, message: str) -> None:
    path = tmp_path / "ours.csv"
    path.write_text("Submit,Elapsed,AllocGPUS\n0,60,1\n")
    with pytest.raises(InputFileError, match=message):
        read(path, f"columns:{told}")


def test_format_and_columns_are_not_both_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--format", "sacct", "--columns", "submit=a,duration=b,gpus=c"]
    assert app.run(["trace", "check", str(tmp_path / "x"), *words]) == 2
    assert "--columns: says what the columns are, as --format does" in capsys.readouterr().err


Jobs = list[tuple[str, float, float | None, int, float, str]]


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("alibaba-2025", [("i_1", 0, 50, 1, 1, ""), ("i_2", 10, 100, 1, 1, "")]),
        (
            "alibaba-spot",
            [("239255", 0, 2764799, 1, 1, ""), ("7", 3, 60, 1, 0.5, ""), ("437260", 9589663, 41060, 16, 1, "")],
        ),
        ("supercloud", [("11", 0, 3600, 2, 1, "COMPLETED")]),
        ("pm100", [("1", 0, 3600, 4, 1, "COMPLETED"), ("2", 10, 1800, 16, 1, "TIMEOUT")]),
        ("f-data", [("a", 0, 3600, 2, 1, ""), ("b", 5, 60, 8, 1, "")]),
    ],
)
def test_published_logs_are_read_by_their_rows(tmp_path: Path, name: str, jobs: Jobs) -> None:
    path = tmp_path / "log.csv"
    path.write_text(FILES[name])
    found = read(path)
    assert found.format == name
    assert [
        (job.spec.name, job.submit_s, job.duration_s, job.spec.gpus, job.gpu_ratio, job.outcome) for job in found.jobs
    ] == jobs


def test_what_a_published_log_does_not_say_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(FILES["alibaba-2025"])
    said = " ".join(read(path).said)
    assert "1 job there before the log began, taken as submitted then" in said
    assert "1 job that never ran, left out" in said
    path.write_text(FILES["azure-vm"])
    machines = read(path)
    assert [job.spec.gpus for job in machines.jobs] == [0, 0]
    assert "2 jobs each of them a virtual machine" in " ".join(machines.said)


def test_events_of_google_become_runs(tmp_path: Path) -> None:
    """As lines of JSON and as a table: what was evicted counts once, by its last run; what did not end is left out."""
    lines = [json.loads(line) for line in FILES["google-2019"].splitlines()]
    names = ["time", "type", "collection_id", "instance_index", "collection_type"]
    rows = [[*(str(one[name]) for name in names), str(one["resource_request"]["cpus"])] for one in lines]
    table = "".join(",".join(row) + "\n" for row in ([*names, "resource_request.cpus"], *rows))
    for name, text in (("events.json", FILES["google-2019"]), ("events.csv", table)):
        (tmp_path / name).write_text(text)
        found = read(tmp_path / name)
        assert found.format == "google-2019"
        (job,) = found.jobs
        assert (job.spec.name, job.submit_s, job.duration_s, job.outcome) == ("373-0", 0.0, 180.0, "FINISH")
        assert (job.spec.gpus, job.spec.cores) == (0, 2)
        said = " ".join(found.said)
        assert "1 instance that did not run to an end, left out" in said
        assert "1 instance that ran more than once, of which the last run counts" in said
    (tmp_path / "events.json").write_text(FILES["google-2019"].replace('"type": 3', '"type": 33', 1))
    with pytest.raises(InputFileError, match=r":4: column 'type': must be one of SUBMIT, "):
        read(tmp_path / "events.json")
    (tmp_path / "events.csv").write_text(table.replace("instance_index", "index", 1))
    with pytest.raises(InputFileError, match="instance_index"):
        read(tmp_path / "events.csv")


@pytest.mark.parametrize("name", ["supercloud", "pm100", "f-data"])
def test_a_column_that_an_export_lacks_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log.csv"
    rows = list(csv.reader(io.StringIO(FILES[name])))
    (published,) = (one for one in PUBLISHED if one.name == name)
    for field, column in published.told.items():
        if column in published.layout.marks:  # type: ignore[union-attr]
            continue
        at = rows[0].index(column)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([*row[:at], *row[at + 1 :]] for row in rows)
        with pytest.raises(InputFileError, match=column):
            read(path)
        assert field


def test_moments_below_zero_count_from_the_first_and_ids_stay_ids(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("id,submit_s,duration_s\n007,-5,60\n1e5,10,60\n")
    told = tmp_path / "other.csv"
    told.write_text("Key;When;Ran;Devices\n007;-5;60;1\n1e5;10;60;1\n")
    for found in (read(path), read(told, "columns:id=Key,submit=When,duration=Ran,gpus=Devices")):
        assert [(job.spec.name, job.submit_s) for job in found.jobs] == [("007", 0.0), ("1e5", 15.0)]


def test_a_part_of_a_gpu_is_read_of_any_table(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("When;Ran;Devices\n0;60;0.5\n1;60;2.5\n2;60;2.0\n")
    found = read(path, "columns:submit=When,duration=Ran,gpus=Devices")
    assert [(job.spec.gpus, round(job.gpu_ratio, 3)) for job in found.jobs] == [(1, 0.5), (3, 0.833), (2, 1.0)]


SLURM_RUNS = """JobID|User|Partition|State|Submit|Start|End|Elapsed|AllocTRES|
12|ann|gpu|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T01:01:00|01:00:00|cpu=8,gres/gpu=2,node=1|
12.batch|||COMPLETED|2024-01-01T00:01:00|2024-01-01T00:01:00|2024-01-01T01:01:00|01:00:00|cpu=8,gres/gpu=2,node=1|
12.extern|||COMPLETED|2024-01-01T00:01:00|2024-01-01T00:01:00|2024-01-01T01:01:00|01:00:00|billing=8,cpu=8,node=1|
12.0|||COMPLETED|2024-01-01T00:01:00|2024-01-01T00:01:00|2024-01-01T01:01:00|01:00:00|cpu=8,gres/gpu=2|
13_3|bob|gpu|TIMEOUT|2024-01-01T00:05:00|2024-01-01T00:06:00|2024-01-02T02:09:04|1-02:03:04|gres/gpu:a100=1,gres/gpu=1|
13_[4-9]|bob|gpu|PENDING|2024-01-01T00:05:00|Unknown|Unknown|00:00:00||
14|bob|gpu|RUNNING|2024-01-01T00:05:00|2024-01-01T00:06:00|Unknown|00:10:00|cpu=4,gres/gpu=1|
15|bob|gpu|CANCELLED by 1001|2024-01-01T00:07:00|None|2024-01-01T00:09:30|00:00:00||
16|bob|gpu|NODE_FAIL|2024-01-01T00:07:00|2024-01-01T00:08:00|2024-01-01T00:09:30|00:01:30|gres/gpu=1|
16|bob|gpu|COMPLETED|2024-01-01T00:09:31|2024-01-01T00:10:00|2024-01-01T00:11:30|01:30.500|gres/gpu=1|
17+1|bob|gpu|CANCELLED by 1001|2024-01-01T00:12:00|2024-01-01T00:12:00|2024-01-01T00:13:00|00:01:00|gres/gpu=1|
"""
"""Steps, an element of an array, one that waits, one that never ran, one that ran twice (`sacct -D`), a part of two."""

ARCHIVE = "; Version: 2.2\n;MaxJobs: 2\n 1 0 5 600 4 1e+05 -1 4 9 -1 1 3 1 -1 1 -1 -1 -1\n; so\n\n"
PLAIN = "JobID           JobName  Partition\n------------ ---------- ----------\n12           a          gpu\n"
COMMENTED = "# exported, 2024\n# by ann\n\nJob Id;Submit Time;Run Time (s);# GPUs\n1;0;600;2\n2;2.5;60;1\n"
BARE = "1,2024-01-01 00:00:00,600,2\n2,2024-01-01 00:00:02.5,60,1\n"

WAYS: dict[str, Callable[[str], str]] = {
    "as-it-is": str,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "byte-order-mark": lambda text: "\ufeff" + text,
    "no-last-bar": lambda text: text.replace("|\n", "\n"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_slurm_logs_of_every_kind_of_job(tmp_path: Path, way: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(WAYS[way](SLURM_RUNS).encode())
    found = read(path)
    jobs = [(job.spec.name, job.submit_s, job.duration_s, job.spec.gpus) for job in found.jobs]
    assert jobs == [("12", 0, 3600, 2), ("13_3", 300, 93784, 1), ("16", 571, 90.5, 1), ("17+1", 720, 60, 1)]
    assert [note.many for note in found.notes] == [3, 2, 1, 1]
    assert found.said[-1].startswith("2 jobs recorded as failed or stopped, simulated for as long as recorded, once")


@pytest.mark.parametrize("way", ["as-it-is", "crlf", "byte-order-mark"])
@pytest.mark.parametrize(
    ("text", "columns", "jobs"),
    [
        (ARCHIVE, None, [(0, 600, 4)]),
        (COMMENTED, "submit=Submit Time,duration=Run Time (s),gpus=# GPUs", [(0, 600, 2), (2.5, 60, 1)]),
        (BARE, "submit=2,duration=3,gpus=4,id=1", [(0, 600, 2), (2.5, 60, 1)]),
    ],
)
def test_comments_odd_headers_and_none(
    tmp_path: Path, way: str, text: str, columns: str | None, jobs: list[tuple[float, float, int]]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(WAYS[way](text).encode())
    found = read(path, columns and f"columns:{columns}").jobs
    assert [(job.submit_s, job.duration_s, job.spec.gpus) for job in found] == jobs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN, "column 'submit': no column says .*: print it by sacct -p"),
        (
            SLURM_RUNS.replace("01:00:00", "UNLIMITED"),
            "column 'Elapsed': .*hours:minutes:seconds, got 'UNLIMITED'",
        ),
        (ARCHIVE.replace(" -1 -1 -1\n", "\n"), "column 'partition': the first job has 15 numbers, expected 18"),
        ("; Version: 2.2\n", "the first job has 0 numbers, expected 18"),
        (COMMENTED, "'submit=Submit Time,duration=Run Time .s.,gpus=# GPUs'"),
        (BARE, "it has no header, and 4 columns; say by number which columns are what"),
    ],
)
def test_an_odd_table_is_refused_in_a_line_with_the_way_to_go(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(InputFileError, match=said) as caught:
        read(path)
    assert "\n" not in str(caught.value)
