"""Which column in another unit is noticed, of every format: refused, said in one line, or known not to be knowable."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest

from colane.cli import app
from colane.lab.traces.check import Level, check_trace
from colane.lab.traces.read import read
from colane.lab.traces.units import odd_units
from colane.settings.input_file import InputFileError

FACTORS = (1000.0, 3600.0, 60.0, 1 / 60, 1 / 1000)
JOBS = 60
Row = dict[str, object]


def jobs(seed: int = 0) -> Iterator[tuple[int, int, int, int, datetime]]:
    """Number, GPUs, submission and run time in seconds, and the same submission as a date."""
    draw, now_s = random.Random(seed), 0
    for number in range(JOBS):
        run_s = max(30, round(draw.lognormvariate(6.5, 1.2)))
        yield (
            number,
            draw.choice((1, 1, 1, 2, 4, 8)),
            now_s,
            run_s,
            datetime(2020, 4, 1, tzinfo=UTC) + timedelta(0, now_s),
        )
        now_s += draw.randint(30, 330)


def logged(zone: str = "") -> Iterator[Row]:
    for number, gpus, _, run_s, submitted in jobs():
        start, end = submitted + timedelta(seconds=7), submitted + timedelta(seconds=7 + run_s)
        moments = {"submit_time": submitted, "start_time": start, "end_time": end}
        dates = {name: f"{at:%Y-%m-%d %H:%M:%S}{zone}" for name, at in moments.items()}
        yield {"job_id": number, "user": "u", "gpu_num": gpus, "cpu_num": 6 * gpus, "node_num": 1, "state": "COMPLETED",
               "duration": run_s, "queue": 7} | dates  # fmt: skip


def gavel(number: int, gpus: int, submit_s: int, run_s: int) -> Row:
    return {"job_type": "ResNet-18 (batch size 64)", "command": "python3", "working_directory": "w",
            "num_steps_arg": "--num_steps", "needs_data_dir": number % 2, "total_steps": 25 * run_s,
            "scale_factor": gpus, "priority_weight": 1, "slo": 1.2, "arrival_time": submit_s}  # fmt: skip


def shockwave(row: Row, run_s: int) -> Row:
    names = list(row)
    order = [*names[:7], "mode", "priority_weight", "slo", "duration", "arrival_time"]
    return {name: ({"mode": "static", "duration": run_s} | row)[name] for name in order}


def listed(number: int, gpus: int, submit_s: int, run_s: int, unit: int) -> Row:
    return {"job_id": number, "num_gpu": gpus, "submit_time": unit * submit_s, "iterations": 4 * run_s,
            "model_name": "vgg16", "batch_size": 32, "duration": unit * run_s, "interval": 0,
            "iteration_time": unit // 4, "resource_time_0": 1, "resource_time_1": 1, "resource_time_2": 1,
            "priority": 0}  # fmt: skip


def spaced(rows: list[Row]) -> list[Row]:
    """Tiresias' columns, with the intervals to the next."""
    for row, after in zip(rows, [*rows[1:], rows[-1]], strict=True):
        row["interval"] = int(str(after["submit_time"])) - int(str(row["submit_time"]))
    names = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")
    return [{name: row[name] for name in names} for row in rows]


def tables() -> dict[str, list[Row]]:
    """Rows of each format, with usual numbers."""
    known = list(jobs())
    helios = [row | {"vc": "a"} for row in logged()]
    milli = [listed(*each[:4], unit=1000) for each in known]
    return {
        "colane": [
            {"id": f"j{n}", "submit_s": at, "duration_s": run, "gpus": g, "gpu_ratio": 1, "cores": 4 * g,
             "host_memory_bytes": g << 34, "gpu_memory_bytes": 8 << 30, "steps": 4 * run} for n, g, at, run, _ in known
        ],
        "philly-csv": [
            {"timestamp": f"{day:%Y-%m-%d %H:%M:%S}", "duration": run, "num_gpus": g, "gpu_time": g * run,
             "cluster": "a"} for _, g, _, run, day in known
        ],
        "alibaba-2020": [
            {"job_name": f"j{n}", "task_name": "worker", "inst_num": g, "status": "Terminated", "start_time": at + 7,
             "end_time": at + 7 + run, "plan_cpu": 600, "plan_mem": 29.3, "plan_gpu": 50 * (n % 2 + 1),
             "gpu_type": "T4"} for n, g, at, run, _ in known
        ],
        "alibaba-2023": [
            {"name": f"p{n}", "cpu_milli": 8200, "memory_mib": 30517, "num_gpu": 1, "gpu_milli": 460 + 540 * (n % 2),
             "gpu_spec": "", "qos": "LS", "pod_phase": "Running", "creation_time": at, "deletion_time": at + 7 + run,
             "scheduled_time": at + 7} for n, _, at, run, _ in known
        ],
        "helios": helios,
        "lucid": [row | {"jobname": f"n{n}"} for n, row in enumerate(helios)],
        "acme": [row | {"type": "Other", "gpu_time": 1} for row in logged("+08:00")],
        "gavel": [gavel(*each[:4]) for each in known],
        "shockwave": [shockwave(gavel(*each[:4]), each[3]) for each in known],
        "muri": milli,
        "tiresias": spaced([listed(*each[:4], unit=1) for each in known]),
        "synergy": [{"job_id": n, "model": "gnmt", "arrival": at, "steps": 4 * run, "gpus": g}
                    for n, g, at, run, _ in known],
        "salus": [{"job_id": n, "model_name": "vgg11_25", "iterations": 4 * run, "submit_time": at, "duration": run}
                  for n, _, at, run, _ in known],
        "topology": [{"id": n, "arrival": at, "gpus": g % 4 + 1, "mem": 2, "minimal_utility": 0.5, "size": 4,
                      "tasks": 1, "type": "a"} for n, g, at, _, _ in known],
        "pollux": [{"name": f"n{n}", "time": at, "application": "bert", "num_replicas": g, "batch_size": 12 * g}
                   for n, g, at, _, _ in known],
    }  # fmt: skip


TABLES = tables()
NO_HEADER = {"gavel", "shockwave", "synergy", "alibaba-2020"}
NOT_READ = {"queue", "gpu_time", "mem", "interval", "needs_data_dir", "priority", "job_id", "id"} | {
    f"resource_time_{at}" for at in range(3)
}
"""No numbers of jobs, or such as no reader takes."""


def columns() -> list[tuple[str, str]]:
    return [
        (name, column)
        for name, rows in TABLES.items()
        for column, value in rows[0].items()
        if not isinstance(value, str) and (column not in NOT_READ or (name, column) == ("philly-csv", "gpu_time"))
    ]


def text(name: str, rows: list[Row]) -> str:
    if name == "topology":
        return json.dumps({str(row["id"]): row for row in rows})
    out, delimiter = StringIO(), "\t" if name in {"gavel", "shockwave"} else ","
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerows(([] if name in NO_HEADER else [list(rows[0])]) + [list(row.values()) for row in rows])
    return out.getvalue()


def times(value: object, factor: float) -> object:
    scaled = float(str(value)) * factor
    return int(scaled) if scaled.is_integer() else scaled


def noticed(path: Path) -> set[str]:
    """What is said besides counts: errors, warnings, and notes of what was changed."""
    try:
        workload = read(path)
    except InputFileError as error:
        return {"refused"} if len(str(error).splitlines()) == 1 else set()
    found = {(finding.code, finding.message) for finding in check_trace(workload) if finding.level is not Level.INFO}
    assert all(len(message.splitlines()) == 1 for _, message in found)
    return {code for code, _ in found} | {note.what.partition(" (")[0] for note in workload.notes}


def seen(file: Callable[..., Path], name: str, column: str, factor: float) -> bool:
    rows = [row | {column: times(row[column], factor)} for row in TABLES[name]]
    return bool(noticed(file(text(name, rows))) - noticed(file(text(name, TABLES[name]), "whole.csv")))


Cells = dict[tuple[str, str], tuple[float, ...]]

UNKNOWABLE: dict[str, Cells] = {
    "a minute for a second, or the other way round, where nothing else in the file says when jobs start or how long "
    "a step takes: the load it makes is that of a busier or a calmer cluster": {
        ("colane", "submit_s"): (60, 1 / 60), ("colane", "duration_s"): (1 / 60,),
        ("muri", "submit_time"): (60, 1 / 60),
        ("salus", "submit_time"): (60, 1 / 60), ("salus", "duration"): (1 / 60,), ("tiresias", "duration"): (1 / 60,),
        ("shockwave", "arrival_time"): (60, 1 / 60), ("shockwave", "duration"): (60,),
        ("lucid", "duration"): (60, 1 / 60), ("alibaba-2023", "creation_time"): (1 / 60,),
    },
    "steps 60 times as many make steps of some milliseconds, which small models have": {
        ("colane", "steps"): (60,), ("tiresias", "iterations"): (60,), ("salus", "iterations"): (60,),
    },
    "60 times or a 60th of the memory of a small job is that of a large or a tiny one": {
        ("colane", "host_memory_bytes"): (60,), ("colane", "gpu_memory_bytes"): (60,),
        ("alibaba-2020", "plan_mem"): (1 / 60,),
    },
    "the file holds no run times, so that nothing says how long steps take or how far apart jobs should come; "
    "`colane simulate` says how long they ran by a table": {
        ("gavel", "total_steps"): (1000, 60), ("gavel", "arrival_time"): FACTORS, ("synergy", "arrival"): FACTORS,
        ("synergy", "steps"): (1000, 3600, 60), ("topology", "arrival"): FACTORS, ("pollux", "time"): FACTORS,
    },
    "batches are looked up in measured tables, where another one is said not to be known": {
        ("muri", "batch_size"): (1000, 3600, 60), ("topology", "size"): (1000, 3600, 60),
        ("pollux", "batch_size"): (1000, 3600, 60),
    },
    "of weights and objectives only the relation counts, or a policy that was asked for them": {
        (name, column): FACTORS for name in ("gavel", "shockwave") for column in ("priority_weight", "slo")
    },
    "a lower demand than any other is a demand, too": {("topology", "minimal_utility"): (1 / 60, 1 / 1000)},
    "60 cores for a task are many, and there are nodes that have them": {("topology", "tasks"): (60,)},
    "the column is not used, which is said": {("lucid", "node_num"): FACTORS},
}  # fmt: skip
"""What passes, and why it cannot be told or does no harm."""


@pytest.mark.parametrize(("name", "column"), columns())
def test_a_column_in_another_unit_is_said_unless_it_cannot_be_known(
    file: Callable[..., Path], name: str, column: str
) -> None:
    unseen = tuple(factor for factor in FACTORS if not seen(file, name, column, factor))
    assert unseen == next((cells[name, column] for cells in UNKNOWABLE.values() if (name, column) in cells), ())


@pytest.mark.parametrize("name", TABLES)
def test_usual_numbers_raise_no_doubt(file: Callable[..., Path], name: str) -> None:
    workload = read(file(text(name, TABLES[name])))
    assert (workload.format, odd_units(workload)) == (name, ())


def test_no_genuine_trace_is_doubted(data: Path) -> None:
    root = data / "traces"
    files = [
        *root.glob("*.trace.gz"),
        root / "philly.csv.gz",
        *root.glob("openb_pod*.gz"),
        *root.glob("*/workloads*/*.csv"),
    ]
    files += [*data.glob("C/workloads-*.json"), *data.glob("B/calibrated*.csv")]
    assert len(files) > 10
    assert {path.name: odd_units(read(path)) for path in files if odd_units(read(path))} == {}


def test_thousandths_of_gpus_are_said_by_check_and_simulation(
    file: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Alibaba's newer traces ask for thousandths of a GPU, the one of 2020 for hundredths."""
    milli = [row | {"num_gpu": times(row["num_gpu"], 1000)} for row in TABLES["tiresias"]]
    path = file(text("tiresias", milli))
    line = "no job asks for fewer than 1,000 GPUs: their number may be in a smaller unit, such as thousandths"
    assert app.run(["trace", "check", str(path)]) == 0
    assert line in capsys.readouterr().out
    pai = [row | {"plan_gpu": times(row["plan_gpu"], 1000)} for row in TABLES["alibaba-2020"]]
    assert odd_units(read(file(text("alibaba-2020", pai))))[0] == (
        "60 tasks of 60 ask for up to 1,000 GPUs for one instance, where the largest machine has 8: "
        "plan_gpu may be in a smaller unit than it is read in"
    )
