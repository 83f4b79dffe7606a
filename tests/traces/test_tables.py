"""Measured tables: the numbers their papers and our arithmetic name, and what is said of bad files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from colane.lab.traces.tables import gavel, salus, scaling, synergy, topology
from colane.lab.traces.tables.gavel import GavelJob
from colane.lab.traces.tables.topology import TopologyJob
from colane.settings.input_file import InputFileError

File = Callable[..., Path]

R18, R50 = "ResNet-18", "ResNet-50"


def test_gavel_pairs_give_the_speed_ups_of_paper_a(data: Path) -> None:
    table = gavel.read_json(data / "A" / "gavel_v100_throughputs.json.gz")

    def delta(one: str, batch: int, other: str) -> float | None:
        return table.delta("v100", GavelJob(one, batch, 1), GavelJob(other, batch, 1))

    assert delta(R18, 64, R18) == pytest.approx(2.00, abs=0.005)
    assert delta(R18, 128, R18) == pytest.approx(1.56, abs=0.005)
    assert delta(R18, 256, R18) == pytest.approx(1.27, abs=0.005)
    assert delta(R18, 64, R50) == pytest.approx(0.956, abs=0.0005)
    assert delta(R50, 64, R50) == pytest.approx(0.996, abs=0.0005)
    assert delta("Absent", 64, R50) is None


def test_gavel_forms_agree_and_pairs_are_symmetric(data: Path) -> None:
    flat = gavel.read_isolated(data / "A" / "gavel_isolated.csv")
    full = gavel.read_json(data / "A" / "gavel_v100_throughputs.json.gz")
    assert len(full.alone_steps_per_s) == 166
    assert all(flat.alone_steps_per_s[key] == speed for key, speed in full.alone_steps_per_s.items())
    for spot, job, other in full.pair_steps_per_s:
        mine = full.together(spot.gpu_type, job, other, consolidated=spot.consolidated)
        turned = full.together(spot.gpu_type, other, job, consolidated=spot.consolidated)
        assert mine == (None if turned is None else (turned[1], turned[0]))


def test_gavel_lookups(data: Path) -> None:
    flat = gavel.read_isolated(data / "A" / "gavel_isolated.csv")
    assert flat.alone("k80", GavelJob(R18, 16, 1)) == 4.795294551566172
    assert flat.alone("k80", GavelJob(R50, 128, 2)) == 0  # measured as not fitting
    assert flat.alone("h100", GavelJob(R18, 16, 1)) is None
    assert len(flat.jobs()) == 26
    assert len(flat.jobs(4)) == 19
    full = gavel.read_json(data / "A" / "gavel_v100_throughputs.json.gz")
    assert full.together("v100", GavelJob(R18, 16, 1), GavelJob(R18, 16, 4)) is None
    alone = full.alone("v100", GavelJob(R18, 64, 4))
    spread = full.alone("v100", GavelJob(R18, 64, 4), consolidated=False)
    assert alone is not None
    assert spread is not None
    assert spread < alone


def test_topology_profile_gives_the_ratios_of_paper_c(data: Path) -> None:
    table = topology.read(data / "C" / "prof_from_experiments.json")
    two = TopologyJob("bvlc_alexnet", 1, 2)
    near, far = table.solo(two), table.solo(two, one_socket=False)
    assert near == 127.415
    assert far is not None
    assert far / near == pytest.approx(1.249, abs=0.0005)
    together = table.next_to(two, two)
    assert together is not None
    assert together / near == pytest.approx(1.32, abs=0.005)
    assert table.solo(TopologyJob("bvlc_alexnet", 1, 1), one_socket=False) is None  # 0 in the file
    assert table.step_s(two) == pytest.approx(127.415 / 4000)
    assert table.step_s(TopologyJob("absent", 1, 2)) is None


def test_synergy_matrix(data: Path) -> None:
    table = synergy.read_matrix(data / "traces" / "synergy-cpu" / "tput_matrix.csv")
    assert len(table.matrices) == 33
    assert table.relative_speed("res18", 1, 1) == 0.37
    assert table.relative_speed("res18", 1, 3) == 1.0
    assert table.relative_speed("res18", 1, 9) == 2.4
    assert table.relative_speed("res18", 1, 7.5) == pytest.approx((1.75 + 2.4) / 2)
    assert table.relative_speed("res18", 1, 3, memory_step=0) == 0.1
    assert table.relative_speed("bert", 1, 1) == 1.0
    assert table.relative_speed("res18", 4, 12) == 1.0  # 3 cores for each of 4 GPUs
    assert table.relative_speed("alexnet", 2, 48) is None  # 24 for each GPU: 0 in the file
    assert table.relative_speed("alexnet", 1, 0.5) is None
    assert table.relative_speed("absent", 1, 3) is None
    matrix = table.matrices[synergy.SynergyJob("alexnet", 2)]
    assert (matrix.step_s, matrix.batch_size, matrix.best_cores_per_gpu) == (0.6, 512, 9)
    assert {len(row) for row in matrix.rows} == {4}


def test_salus_memory_and_geometry_agree(data: Path) -> None:
    memory = salus.read_memory(data / "B" / "salus_mem-baseline.csv")
    table = salus.read_geometry(data / "B" / "workload_geometry.csv")
    assert (len(memory), len(table.geometry), len(table.models())) == (96, 33, 33)
    assert memory["resnet152_75"].persistent_bytes / 2**20 == pytest.approx(822.2, abs=0.05)
    assert memory["resnet152_75"].ephemeral_bytes / 2**30 == pytest.approx(13.84, abs=0.005)
    for name, one in table.geometry.items():
        assert one.memory.persistent_bytes == pytest.approx(memory[name].persistent_bytes, rel=0.001)
        assert one.memory.ephemeral_bytes == pytest.approx(memory[name].ephemeral_bytes, rel=0.001)
    found = table.of("resnet50", 25)
    assert found is not None
    assert found.step_s == 0.12537
    assert table.of("resnet50", 26) is None


def test_scaling_has_a_speed_for_each_measured_size(data: Path) -> None:
    table = scaling.read(data / "E" / "calibrated_f.json")
    assert table.speed("ResNet-50", 6) == 4.6175
    assert table.speed("ResNet-50", 7) is None
    assert table.speed("absent", 1) is None
    assert "CALIBRATED" in table.note


GAVEL_HEADER = "gpu_type,consolidated,model,batch_size,scale_factor,steps_per_s\n"
SYNERGY_HEADER = ",".join((*synergy.FIXED_COLUMNS, "m0", "m1", "m2", "m3", "m4", *synergy.HEADER_TAIL)) + "\n"


def f_of(speeds: str) -> str:
    return f'{{"f": {{"m": {speeds}}}, "launch_s": 1, "checkpoint_plus_stop_s": 1}}'


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (gavel.read_isolated, GAVEL_HEADER + "v100,1,A3C,,1,fast\n", ":2: column 'steps_per_s': expected a number"),
        (gavel.read_isolated, GAVEL_HEADER + "v100,1,A3C,,1,1\n" * 2, ":3: A3C stands in the table twice"),
        (gavel.read_json, '{"v100": {"A3C": 1}}', "is not a table of throughputs"),
        (gavel.read_json, "[]", "is not a table of throughputs"),
        (gavel.read_json, "{", "is not JSON"),
        (topology.read, '{"solo": {}}', "is not a profile of solo and collocated times: KeyError"),
        (synergy.read_matrix, "a,b\n", "expected a header from 'model' to 'placement_penalty'"),
        (synergy.read_matrix, SYNERGY_HEADER + "a,1,0,1\n", ":2: has 4 cells, expected 13"),
        (
            synergy.read_matrix,
            SYNERGY_HEADER + "a,1,1,1,1,1,1,1,1,1,1,1,1,1\n",
            ":2: expected row 0 of a on 1 GPU, got 1",
        ),
        (
            synergy.read_matrix,
            SYNERGY_HEADER + "a,1,0,1,1,1,1,1,1,1,1,1,1,1\n",
            "has 1 row of a on 1 GPU, expected 9",
        ),
        (salus.read_memory, "Network,Persistent Mem (MB),Peak\na,1,x\n", ":2: column 'Peak': expected a number"),
        (salus.read_memory, "Network,Peak\na,1\n", r"has no column 'Persistent Mem \(MB\)'"),
        (salus.read_geometry, "workload\na\na\n", "id 'a' stands in line 2 already"),
        (scaling.read, f_of("[0, 2, -1]"), r"column 'f.m\[2\]': must be more than 0"),
        (scaling.read, f_of("[0, 2, 0]"), r"column 'f.m\[2\]': must be more than 0"),
        (scaling.read, f_of("[0, 2, NaN, 3]"), r"column 'f.m\[2\]': expected a finite number, got nan"),
        (scaling.read, f_of("[0, 2, 1e999]"), r"column 'f.m\[2\]': expected a finite number, got inf"),
        (scaling.read, f_of("[0, null, 3]"), r"column 'f.m\[1\]': expected a finite number, got nothing; .*1 GPU"),
        (scaling.read, f_of("[1, 2]"), r"column 'f.m\[0\]': must be 0"),
        (scaling.read, f_of("[]"), "column 'f.m': must be a list of speeds"),
        (scaling.read, f_of("[0, 1]").replace('"launch_s": 1', '"launch_s": -1'), "launch_s and"),
        (gavel.read_json, '{"v100": {"A3C": {"null": NaN}}}', "v100, A3C on 1 GPU: expected a finite number, got nan"),
        (gavel.read_json, '{"v100": {"A3C": {"null": -2}}}', "v100, A3C on 1 GPU: must not be negative"),
        (scaling.read, '{"f": 3}', "is not a table of speeds by number of GPUs"),
    ],
)
def test_a_bad_table_is_refused(file: File, read: Callable[[Path], object], text: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        read(file(text, "table.csv"))
