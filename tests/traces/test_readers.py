"""Formats by small made-up files, and what is said of bad ones."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colane.lab.traces.check import check_trace
from colane.lab.traces.read import FORMATS, read, sample
from colane.lab.traces.readers import colane_csv
from colane.lab.traces.workload import Workload
from colane.settings import input_file
from colane.settings.input_file import InputFileError
from tests.traces.formats import FILES, HELIOS, OPENB, OWN, PHILLY, TASKS, VARIANTS, attempt, philly_job

File = Callable[..., Path]

HELIOS_CPU = "".join(line for line in HELIOS.splitlines(keepends=True) if line.startswith(("job_id", "13,")))


SALUS_HEADER = "job_id,model_name,iterations,submit_time,duration\n"
PHILLY_HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def notes(workload: Workload) -> list[str]:
    return [str(note) for note in workload.notes]


def test_philly_json(file: File) -> None:
    workload = read(file(json.dumps(PHILLY, indent=1), "cluster_job_log.json"))
    assert workload.format == "philly-json"
    assert [job.spec.name for job in workload.jobs] == ["a", "b"]
    assert [job.submit_s for job in workload.jobs] == [0, 30]
    assert [(job.spec.gpus, job.duration_s) for job in workload.jobs] == [(1, 10), (16, 3660)]
    assert (workload.jobs[0].spec.pool, workload.jobs[0].spec.user, workload.jobs[0].outcome) == (
        "ee9e8c",
        "u1",
        "Pass",
    )
    assert notes(workload) == [
        "1 CPU-only job left out (--cpu-jobs keeps them)",
        "2 jobs without a finished attempt left out",
        "1 job whose attempts list no servers, taken as CPU-only",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"submitted_time": "yesterday"}, "column 'submitted_time': expected a date and time"),
        ({"attempts": [{"start_time": "x"}]}, "job a has a bad attempt"),
        ({"attempts": [attempt("2017-10-07 01:12:00", "2017-10-07 01:00:00", 1)]}, "it ends 720 s before it starts"),
        (
            {"attempts": [attempt("2017-10-07 01:12:00", "2017-10-07 01:00:00", 1), PHILLY[0]["attempts"][1]]},
            "it ends 720 s before it starts",
        ),
        ({"jobid": "b"}, "id 'b' stands in line"),
    ],
)
def test_a_bad_philly_job_is_named_with_its_line(file: File, change: dict[str, Any], message: str) -> None:
    jobs = [PHILLY[0], PHILLY[1] | change]
    path = file(json.dumps(jobs, indent=1), "log.json")
    with pytest.raises(InputFileError, match=message) as caught:
        read(path)
    lines = path.read_text().splitlines()
    assert caught.value.line is not None
    assert '"jobid"' in lines[caught.value.line - 1]
    assert caught.value.line > len(lines) / 2
    assert [job.spec.name for job in read(path, skip_bad_rows=True).jobs] == ["b"]


def test_helios(file: File) -> None:
    workload = read(file(HELIOS))
    assert workload.format == "helios"
    assert [job.spec.name for job in workload.jobs] == ["11", "12"]
    second = workload.jobs[1]
    assert (second.submit_s, second.duration_s, second.spec.gpus, second.spec.cores) == (26, 248, 16, 64)
    assert (second.spec.labels, second.spec.pool, second.outcome, second.line) == ({"nodes": "2"}, "vcB", "FAILED", 2)
    assert notes(workload) == ["1 CPU-only job left out (--cpu-jobs keeps them)"]
    assert len(read(file(HELIOS), keep_cpu_only=True).jobs) == 3


HELIOS_HEADER = HELIOS.partition("\n")[0] + "\n"
HELIOS_ODD = (
    HELIOS_HEADER
    + """1,u1,vcA,1,1,1,RUNNING,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
2,u1,vcA,1,4,1,SUSPENDED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
3,u1,vcA,1,4,1,RUNNING,2020-06-09 18:41:27,2020-06-09 18:41:27,None,-5,0
4,u1,vcA,8,1,1,CANCELLED,2020-06-09 18:41:28,,,0,0
6,u1,vcA,2,2,1,COMPLETED,2020-06-09 18:51:28,2020-06-09 18:52:28,2020-06-09 18:53:28,999,60
7,u1,vcA,2,2,1,COMPLETED,2020-06-09 18:51:28,2020-06-09 18:50:28,2020-06-09 18:53:28,180,-60
"""
)


def test_helios_rows_that_contradict_themselves_are_told(file: File) -> None:
    workload = read(file(HELIOS_ODD))
    assert [(job.spec.name, job.duration_s) for job in workload.jobs] == [("6", 60), ("7", 180)]
    assert notes(workload) == [
        "3 jobs not ended when the log was taken, left out (the first in line 2)",
        "1 job never started, left out (the first in line 5)",
        "1 job whose duration is not end - start, which is taken (the first in line 6)",
        "1 job started before submitted, taken as submitted (the first in line 7)",
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,,60,0",
            "'end_time': is empty, though the job is COMPLETED",
        ),
        ("FAILED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:40:01,60,0", "'end_time': ends 60 s before it"),
        ("FAILED,2020-06-09 18:41:01,2020-06-09 18:41:01,soon,60,0", "'end_time': expected a date and time"),
    ],
)
def test_a_helios_row_that_cannot_be_is_named_or_skipped(file: File, row: str, message: str) -> None:
    path = file(HELIOS + f"14,ua,vcB,1,1,1,{row}\n")
    with pytest.raises(InputFileError, match=f":5: column {message}"):
        read(path)
    assert len(read(path, skip_bad_rows=True).jobs) == 2


def test_acme_counts_from_utc_and_its_durations_from_the_start(file: File) -> None:
    seren, kalos = read(file(FILES["acme"])), read(file(VARIANTS["acme, kalos"]))
    assert [(job.submit_s, job.duration_s, job.spec.gpus) for job in seren.jobs] == [(0, 117, 8), (336, 2693, 16)]
    assert seren.jobs[1].spec.labels == {"type": "Pretrain", "nodes": "2"}
    assert seren.origin_s == 1677601102  # 2023-02-28 16:18:22 UTC
    assert seren.unused == ("queue", "gpu_time")
    assert [job.duration_s for job in kalos.jobs] == [8]
    assert notes(kalos) == [
        "1 job never started, left out (the first in line 3)",
        "1 job whose duration is not end - start, which is taken (the first in line 2)",
    ]
    bare = FILES["acme"].replace("+08:00", "")
    with pytest.raises(InputFileError, match=":2: column 'submit_time': expected a date and time with its offset"):
        read(file(bare))


def test_lucid_says_what_its_jobs_train_where_it_does(file: File) -> None:
    short, full = read(file(FILES["lucid"])), read(file(VARIANTS["lucid, full"]))
    assert [(job.spec.name, job.model, job.duration_s, job.spec.pool) for job in short.jobs] == [
        ("1", "lucid", 120, "vcA"), ("3", "lucid", 60, "vcB"),
    ]  # fmt: skip
    assert notes(short) == ["1 job not ended when the log was taken, left out"]
    assert [(job.model, job.batch_size) for job in full.jobs] == [("ResNet18", 64)]
    assert {"gmem", "queue", "jobname"} <= set(full.unused)


def test_pods_without_times_are_read_and_said_to_have_none(file: File) -> None:
    workload = read(file(VARIANTS["alibaba-2023, without times"]))
    assert [(job.spec.gpus, job.gpu_ratio, job.submit_s, job.duration_s) for job in workload.jobs] == [
        (1, 0.46, 0, None), (2, 1, 0, None),
    ]  # fmt: skip
    assert "2 pods of a list without times: submitted at once, of unknown duration" in notes(workload)
    assert check_trace(workload)[0].code == "no-length"


def test_a_philly_attempt_without_servers_does_not_make_a_job_cpu_only(file: File) -> None:
    first, second = attempt("2017-10-07 01:12:00", "2017-10-07 01:13:00"), PHILLY[0]["attempts"][1]
    workload = read(file(json.dumps([philly_job("x", "2017-10-07 01:11:39", first, second)])))
    assert [(job.spec.gpus, job.duration_s) for job in workload.jobs] == [(16, 3660)]
    assert notes(workload) == []
    third = attempt("2017-10-07 02:13:30", "2017-10-07 02:14:30", 8)
    workload = read(file(json.dumps([philly_job("x", "2017-10-07 01:11:39", first, second, third)])))
    assert [(job.spec.gpus, job.duration_s) for job in workload.jobs] == [(16, 3720)]
    assert "1 job whose attempts differ in GPUs, of which the first count" in notes(workload)


def test_openb_types_are_required_where_one_is_named_and_told_where_several_are(file: File) -> None:
    row = OPENB.splitlines()[1]
    several = row.replace("p,", "q,").replace("460,,", "460,V100M16|V100M32,")
    workload = read(file(OPENB.replace("460,,", "460,T4,") + several + "\n"))
    assert [(job.spec.gpu_type, job.spec.labels.get("gpu_spec")) for job in workload.jobs] == [
        ("T4", None), (None, "V100M16|V100M32"),
    ]  # fmt: skip
    assert "1 pod that may have one of several GPU types (label gpu_spec), which is not enforced" in notes(workload)


JOBS = """j1,i1,alice,Terminated,100.0,210.0
j2,i2,bob,Terminated,45.0,60.0
"""


@pytest.mark.parametrize(
    ("row", "doubt"),
    [
        ("p,16,1,1,460,,LS,Running,1,5,2", "16 thousandths of a core or less: cpu_milli may be in a larger unit"),
        ("p,8000,1,1,0,,LS,Running,1,5,2", "1 pod with GPUs and a gpu_milli of 0, taken as whole ones"),
        ("p,8000,1,0,0,,LS,Running,1,5,2\nq,8000,1,1,1000,,LS,Running,1,5,2", ""),
    ],
)
def test_openb_thousandths_in_another_unit_are_doubted(file: File, row: str, doubt: str) -> None:
    doubts = read(file(OPENB.partition("\n")[0] + "\n" + row + "\n")).doubts
    assert [doubt in each for each in doubts] == [True] * bool(doubt)


def test_alibaba_2020_joins_tasks_and_jobs(file: File) -> None:
    jobs = file(JOBS, "pai_job_table.csv")
    workload = read(file(TASKS, "pai_task_table.csv"))
    assert workload.format == "alibaba-2020"
    two, one = workload.jobs
    assert (one.spec.name, one.submit_s, one.duration_s, one.spec.user) == ("j1", 100, 105, "alice")
    assert (one.spec.gpus, one.gpu_ratio, one.spec.cores) == (2, 0.5, 14)
    assert one.spec.host_memory_bytes == round((2 * 29.296875 + 1) * 2**30)
    assert (two.spec.gpus, two.gpu_ratio, two.spec.labels) == (2, 1.0, {"gpu_types": "V100"})
    assert notes(workload) == [
        "1 CPU-only job left out (--cpu-jobs keeps them)",
        "1 job without a start or an end left out",
        "1 job not in pai_job_table.csv: submitted when the first task started",
    ]
    assert workload.unused[0] == "task_name"
    assert workload.unused[-1] == "end_time of pai_job_table"
    by_jobs = read(jobs)
    assert by_jobs.jobs == workload.jobs
    assert by_jobs.unused == ("inst_id", "status", "end_time", "task_name of pai_task_table")


def test_alibaba_2020_tells_where_its_tables_disagree(file: File) -> None:
    file("j1,i1,alice,Terminated,107.0,210.0\nj1,i9,eve,Terminated,90.0,210.0", "pai_job_table.csv")
    workload = read(file(TASKS, "pai_task_table.csv"))
    assert [(job.spec.name, job.submit_s, job.spec.user) for job in workload.jobs] == [
        ("j2", 50, ""),
        ("j1", 107, "alice"),
    ]
    assert notes(workload)[2:] == [
        "1 job of which a task started before it was submitted, taken as submitted",
        "1 row of pai_job_table.csv with the job of an earlier row, which counts",
        "2 jobs not in pai_job_table.csv: submitted when the first task started",
        "1 last line of pai_job_table.csv has no line end: the file may be cut short",
    ]


def test_alibaba_2020_without_the_job_table_takes_the_first_start(file: File) -> None:
    workload = read(file(TASKS, "pai_task_table.csv"))
    assert [job.submit_s for job in workload.jobs] == [50, 105]
    assert "without pai_job_table.csv" in notes(workload)[-1]


def test_alibaba_2020_needs_the_task_table(file: File) -> None:
    with pytest.raises(InputFileError, match=r"put pai_task_table\.csv beside it"):
        read(file(JOBS, "pai_job_table.csv"))


def test_a_bad_task_takes_its_whole_job_with_it(file: File) -> None:
    path = file(TASKS.replace("105.0,210.0", "105.0,90.0"), "pai_task_table.csv")
    with pytest.raises(InputFileError, match=r"csv:2: column 'end_time': ends 15 s before it starts"):
        read(path)
    workload = read(path, skip_bad_rows=True)
    assert [job.spec.name for job in workload.jobs] == ["j2"]
    assert "1 bad row skipped" in notes(workload)


def test_own_format(file: File) -> None:
    workload = read(file(OWN))
    assert workload.format == "colane"
    assert [(job.id, job.spec.name, job.line) for job in workload.jobs] == [(1, "c", 4), (2, "b", 2), (3, "a", 3)]
    c, b, a = workload.jobs
    assert (b.spec.gpu_type, b.spec.cores, b.spec.priority, b.spec.share, b.spec.labels) == (
        "V100",
        4,
        -1,
        False,
        {"team": "red"},
    )
    assert (c.duration_s, c.spec.gpus, c.spec.share, c.spec.labels) == (1000, 1, True, {})
    assert (a.duration_s, a.model, a.is_cpu_only) == (None, "unknown", True)


def test_numeric_ids_break_ties_as_numbers(file: File) -> None:
    workload = read(file("id,submit_s\n10,0\n9,0\n"))
    assert [job.spec.name for job in workload.jobs] == ["9", "10"]


def test_own_format_survives_a_round_trip(tmp_path: Path, file: File) -> None:
    for workload in (sample(), read(file(OWN))):
        path = tmp_path / "again.csv"
        colane_csv.write(workload, path)
        again = read(path)
        assert [replace(job, line=0) for job in again.jobs] == [replace(job, line=0) for job in workload.jobs]


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        ("x,nan,1,1", "submit_s", "expected a finite number, got 'nan'"),
        ("x,,1,1", "submit_s", "expected a number, got ''"),
        ("x,1,-0.5,1", "duration_s", "must not be negative"),
        ("x,1,inf,1", "duration_s", "expected a finite number"),
        ("x,1,soon,1", "duration_s", "expected a number, got 'soon'"),
        ("x,1,1,1.5", "gpus", "expected a whole number, got '1.5'"),
        ("x,1,1,-1", "gpus", "must not be negative"),
        ("ok,1,1,1", "id", "id 'ok' stands in line 2 already"),
        ("x,1,1", None, "has 3 cells, expected 4"),
    ],
)
def test_a_bad_row_is_named_or_skipped_and_counted(file: File, row: str, column: str | None, message: str) -> None:
    path = file(f"id,submit_s,duration_s,gpus\nok,0,5,1\n{row}\nlast,9,5,1\n")
    with pytest.raises(InputFileError) as caught:
        read(path)
    assert (caught.value.line, caught.value.column) == (3, column)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:3: ")
    workload = read(path, skip_bad_rows=True)
    assert [job.spec.name for job in workload.jobs] == ["ok", "last"]
    assert notes(workload) == ["1 bad row skipped"]
    assert workload.bad_rows == (str(caught.value),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("submit_s\n", "holds no jobs"),
        (HELIOS_CPU, "holds no GPU jobs, but 1 CPU-only job "),
        ("submit_s,gpu\n1,1\n", r"unknown column 'gpu' \(did you mean gpus\?\)"),
        ("submit_s,zebra\n1,1\n", r"unknown column 'zebra' \(labels are columns named label:NAME\)"),
        ("submit_s,gpus,gpus\n1,1,1\n", "has column 'gpus' twice"),
        ('submit_s,user\n1,"ann\n', "is not a ','-separated table"),
        (
            "who,knows\n1,2\n",
            r"'who,knows'; say which columns are what: --columns submit=COLUMN.*; known formats: colane, ",
        ),
    ],
)
def test_a_file_that_is_no_trace(file: File, text: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        read(file(text))


def test_all_rows_bad(file: File) -> None:
    with pytest.raises(InputFileError, match=r"holds no jobs, but 2 bad rows, first .*:2: "):
        read(file("submit_s\nx\ny\n"), skip_bad_rows=True)


def test_unknown_format_lists_the_known_ones(file: File) -> None:
    with pytest.raises(InputFileError, match=r"unknown format 'gavle' \(did you mean gavel\?\); known: colane, "):
        read(file(OWN), "gavle")


def test_every_format_is_guessed_as_itself(file: File) -> None:
    assert list(FILES) == list(FORMATS)
    for name, text in FILES.items():
        guessed = read(file(text))
        assert (guessed.format, guessed.guessed) == (name, True)
        told = read(file(text), name)
        assert (told.jobs, told.guessed) == (guessed.jobs, False)


def test_gavel_weights_and_objectives_become_labels(file: File) -> None:
    job = read(file("A3C\tpython\trl\t--max-steps\t0\t25832\t1\t2\t1.5\t129\n")).jobs[0]
    assert job.spec.labels == {"weight": "2.0", "slo_ratio": "1.5"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gavel", "A3C\tp\trl\t--x\t0\tmany\t1\t1\t-1\t0\n", "column 'total_steps': expected a number"),
        ("salus", SALUS_HEADER + "0,a_1,0,1,2\n", "'iterations': must be at least 1"),
        ("salus", "job_id,model,iterations,submit_time,duration\n0,a_1,1,1,2\n", "no column 'model_name'"),
        ("topology", '{"0": {"id": 0, "arrival": "NaN"}}', "column 'arrival': expected a finite number"),
        ("topology", '{"0": 1}', "expected a JSON object of jobs by id"),
        ("topology", '{"0": {', ":1: is not JSON"),
        ("philly-json", "[1]", "expected a JSON list of jobs"),
        ("philly-json", '[{"jobid": "a"}]', "a job has no 'submitted_time'"),
        ("philly-csv", PHILLY_HEADER + "2017-13-09,1,1,1,a\n", "expected a date and time"),
        ("philly-csv", PHILLY_HEADER + "2017-10-09 07:01:55,60000,2,120,a\n", "gpu_time': 120 is not num_gpus x dur"),
        ("helios", HELIOS.replace(",248,", ",-1,"), "trace.csv:2: column 'duration': must not be negative"),
        ("pollux", "name,time,application,num_replicas,batch_size\nx,1,c,0,1\n", "'num_replicas': must be at least 1"),
        ("alibaba-2023", OPENB.replace("460", "1460"), "column 'gpu_milli': must be above 0 and at most 1"),
        ("alibaba-2023", OPENB.replace("5,2", "5,7"), "column 'deletion_time': ends 2 s before it starts"),
    ],
)  # fmt: skip
def test_each_reader_names_what_is_wrong(file: File, name: str, text: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        read(file(text), name)


def test_gzip_is_unpacked_and_a_torn_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(OWN.encode()))
    assert len(read(path).jobs) == 3
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputFileError, match="is not a whole gzip file"):
        read(path)


def test_a_nul_byte_is_told_with_its_line(file: File) -> None:
    with pytest.raises(InputFileError, match=r":3: holds a NUL byte"):
        read(file(OWN.replace("a,10", "a\0,10")))


def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(bytes(64 * 2**20)))
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(input_file, "TEXT_BYTES_MAX", 4 * 2**20)
    tracemalloc.start()
    try:
        with pytest.raises(InputFileError, match="is larger than 4 MiB"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="cannot be read: No such file"):
        read(tmp_path / "absent.csv")
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputFileError, match="is not UTF-8 text"):
        read(binary)


ORDERED = "id,submit_s,duration_s,after\na,0,9,\nb,1,9,ok:a\n"


def test_what_jobs_wait_for_is_read_and_written(file: File, tmp_path: Path) -> None:
    workload = read(file(ORDERED + 'c,2,9,"any:b,start:a"\n'))
    assert [job.after for job in workload.jobs] == ["", "ok:a", "any:b,start:a"]
    colane_csv.write(workload, tmp_path / "again.csv")
    assert [job.after for job in read(tmp_path / "again.csv").jobs] == ["", "ok:a", "any:b,start:a"]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("ok:nowhere", "there is no job 'nowhere'"),
        ("ok:d", "job 'd' is not submitted before it"),
        ("any:c", "job 'c' is not submitted before it"),
        ("after:a", "must be conditions as ok:NAME"),
        ("a", "must be conditions as ok:NAME"),
        ("ok:", "must be conditions as ok:NAME"),
    ],
)
def test_a_condition_that_cannot_be_is_named_with_its_row(file: File, cell: str, said: str) -> None:
    path = file(ORDERED + f"c,2,9,{cell}\nd,3,9,\n")
    with pytest.raises(InputFileError) as refused:
        read(path)
    assert (refused.value.line, refused.value.column) == (4, "after")
    assert said in refused.value.message
    skipped = read(path, skip_bad_rows=True)
    assert len(skipped.bad_rows) == 1
    assert all(job.after in {"", "ok:a"} for job in skipped.jobs)
