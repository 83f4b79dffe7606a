from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colane.devices import kernels
from colane.devices.kernels import (
    NCU_BANDWIDTH,
    NCU_DURATION,
    NCU_OCCUPANCY,
    KernelTraceError,
    parse_kineto,
    parse_ncu,
    read_trace,
)


def kernel(dur: float, **args: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.0, "dur": dur, "args": args}


def trace(*events: dict[str, Any]) -> str:
    others = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 1.0, "dur": 500.0, "args": {"bytes": 8}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 700.0, "args": {}},
    ]
    return json.dumps({"schemaVersion": 1, "traceEvents": [*others, *events]})


def steps(*numbers: int) -> list[dict[str, Any]]:
    return [
        {"ph": "X", "cat": cat, "name": f"ProfilerStep#{number}", "ts": 0.0, "dur": 1.0}
        for number in numbers
        for cat in ("user_annotation", "gpu_user_annotation")
    ]


def percent(dur: float, value: float) -> dict[str, Any]:
    return kernel(dur, **{"est. achieved occupancy %": value})


def test_kineto_weighs_occupancy_by_duration_and_leaves_out_what_is_no_kernel() -> None:
    found = parse_kineto(trace(*steps(3, 4), percent(100, 50), percent(10, 20), percent(30, 0)))
    assert found.occupancy == 100 * 50 + 10 * 20
    assert found.bandwidth is None
    assert found.busy_us == 140
    assert found.steps == 2
    assert found.by == "torch.profiler"
    assert found.histogram_values() == {"occupancy": [50, 20, 0], "bandwidth": []}


def test_kineto_is_brought_to_two_steps() -> None:
    events = [percent(100, 50)]
    assert parse_kineto(trace(*steps(1, 2, 3, 4), *events)).occupancy == 2500
    assert parse_kineto(trace(*events), steps=1).occupancy == 10000
    assert parse_kineto(trace(*events)).occupancy == 5000  # unknown counts as two


def test_kineto_of_older_builds_and_failed_estimates() -> None:
    old = kernel(100, **{"est. achieved occupancy": 0.25})
    failed = percent(300, -1.0)
    without = kernel(100)
    found = parse_kineto(trace(old, failed, without))
    assert found.occupancy == 2500
    assert found.occupancy_known_ratio == 0.2
    assert parse_kineto(trace(failed)).occupancy is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ('{"a": 1}', "traceEvents"),
        ("3", "traceEvents"),
        (trace(), "no GPU kernel"),
        (trace({"ph": "X", "cat": "kernel", "name": "k"}), "'k' has no duration"),
    ],
)
def test_kineto_refuses_what_it_cannot_use(text: str, says: str) -> None:
    with pytest.raises(KernelTraceError, match=says):
        parse_kineto(text)


HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC"'
)


def ncu(*rows: str, metrics: tuple[str, ...] = (NCU_BANDWIDTH, NCU_DURATION, NCU_OCCUPANCY), unit: str = "ns") -> str:
    units = {NCU_BANDWIDTH: "%", NCU_DURATION: unit, NCU_OCCUPANCY: "%"}
    header = ",".join([HEAD, *(f'"{metric}"' for metric in metrics)])
    second = ",".join(['""'] * 11 + [f'"{units[metric]}"' for metric in metrics])
    before = ["==PROF== Connected to process 12 (/usr/bin/python3)", "step 1/2 loss 2.3", "==PROF== Disconnected"]
    return "\n".join([*before, header, second, *rows]) + "\n"


def row(number: int, *values: str) -> str:
    fixed = [str(number), "12", "python3", "127.0.0.1", "void f<a, b>(int, float)", "1", "7"]
    cells = [*fixed, "(128, 1, 1)", "(80, 1, 1)", "0", "9.0", *values]
    return ",".join(f'"{cell}"' for cell in cells)


def test_ncu_gives_occupancy_bandwidth_and_time_of_every_launch() -> None:
    found = parse_ncu(ncu(row(0, "40.5", "2,000", "50"), row(1, "10", "500", "80.0")))
    assert found.occupancy == 2 * 50 + 0.5 * 80
    assert found.bandwidth == 2 * 40.5 + 0.5 * 10
    assert found.busy_us == 2.5
    assert found.by == "ncu"
    assert found.kernels[0].name == "void f<a, b>(int, float)"


def test_ncu_passes_over_lines_of_the_job_and_half_a_last_row() -> None:
    found = parse_ncu(ncu(row(0, "40", "1000", "50"), "step 2/2 loss 2.2", row(1, "10", "1000", "70"), '"2","12"'))
    assert [k.occupancy_percent for k in found.kernels] == [50, 70]


@pytest.mark.parametrize(("unit", "us"), [("ns", 1.0), ("nsecond", 1.0), ("us", 1e3), ("usecond", 1e3), ("ms", 1e6)])
def test_ncu_units(unit: str, us: float) -> None:
    assert parse_ncu(ncu(row(0, "40", "1000", "50"), unit=unit)).busy_us == us


def test_ncu_without_bandwidth_gives_occupancy_and_no_m() -> None:
    found = parse_ncu(ncu(row(0, "1000", "50"), metrics=(NCU_DURATION, NCU_OCCUPANCY)), steps=4)
    assert found.bandwidth is None
    assert found.occupancy == 25


def test_ncu_value_that_could_not_be_measured_is_unknown() -> None:
    found = parse_ncu(ncu(row(0, "n/a", "1000", "n/a"), row(1, "nan", "1000", "50")))
    assert found.bandwidth is None
    assert found.occupancy == 50
    assert found.occupancy_known_ratio == 0.5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM", "no table of ncu"),
        (ncu(), "profiled no kernel"),
        (ncu(row(0, "40", "1000", "50"), unit="cycle"), "unknown unit 'cycle'"),
        (ncu(row(0, "40", "50"), metrics=(NCU_BANDWIDTH, NCU_OCCUPANCY)), "no column gpu__time_duration.sum"),
        (ncu(row(0, "40", "n/a", "50")), "has no duration"),
        (f"{HEAD}\n", "no line of units"),
    ],
)
def test_ncu_refuses_what_it_cannot_use(text: str, says: str) -> None:
    with pytest.raises(KernelTraceError, match=says):
        parse_ncu(text)


def test_files_of_both_profilers_are_told_apart(tmp_path: Path) -> None:
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(trace(percent(10, 10)).encode()))
    table = tmp_path / "out.csv"
    table.write_text(ncu(row(0, "40", "1000", "50")))
    assert read_trace(packed).by == "torch.profiler"
    assert read_trace(table).by == "ncu"
    packed.write_bytes(packed.read_bytes()[:20])
    with pytest.raises(KernelTraceError, match="cut short"):
        read_trace(packed)
    packed.write_bytes(gzip.compress(b"0123456789" * 100)[:-8] + bytes(8))
    with pytest.raises(KernelTraceError, match="damaged"):
        read_trace(packed)


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_a_trace_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "trace"
    monkeypatch.setattr(kernels, "TRACE_BYTES_MAX", 2**20)
    path.write_bytes(pack(bytes(2**20 + 1)))
    with pytest.raises(KernelTraceError, match="is larger than 1 MiB; profile fewer steps"):
        read_trace(path)
