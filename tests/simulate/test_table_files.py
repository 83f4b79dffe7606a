"""Any of Gavel's throughput files, by whatever name, of whatever GPU type; and what tables do not say, said once."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from colane.cli import app
from colane.lab.commands.simulation import gaps_of
from colane.lab.simulate.gavel_speeds import GavelSpeeds
from colane.lab.simulate.table_files import gavel_models, has_sources, read_sources
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import Sources
from colane.lab.simulate.world import Running
from colane.lab.traces.tables import gavel
from colane.model.hardware import GpuId
from colane.settings.input_file import InputFileError

from .scenes import job

BIG, SMALL = "Big (batch size 4)", "Small (batch size 2)"


def sized(model: str, gpus: int = 1) -> str:
    return str((model, gpus))


def table(**types: Mapping[str, Any]) -> str:
    return json.dumps(types)


A100 = {
    sized(BIG): {"null": 10.0, sized(SMALL): [8.0, 3.0]},
    sized(SMALL): {"null": 4.0, sized(SMALL): [2.0, 2.0]},
    sized(BIG, 2): {"null": 16.0},
    sized(BIG, 4): {"null": 24.0},
}


def running(gpu_type: str, gpus: int = 1, **needs: Any) -> Running:
    made = job(1, 0, None, steps=100, family="Big", batch_size=4, **{"gpus": gpus} | needs)
    return Running(made, gpu_type, tuple(GpuId("n", number) for number in range(gpus)))


def world_of(path: Path, *jobs: Any, types: tuple[str, ...] = ()) -> TableWorld:
    return TableWorld(read_sources(path), jobs, None, types)


@pytest.mark.parametrize("name", ["measured_on_our_a100s.json", "throughputs.json.gz", "notes.txt"])
def test_a_file_of_any_name_and_gpu_type_is_a_table(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = table(A100=A100).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert world_of(path).steps_per_s(running("a100"), ()) == 10
    assert {model.family: model.steps_per_s for model in gavel_models(path)} == {"Big": 10.0, "Small": 4.0}
    assert all(model.gpu_memory_bytes is None for model in gavel_models(path))  # what an a100 holds is not said


def test_in_a_directory_a_table_is_known_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"name": "no table", "null": 3}')
    assert not has_sources(tmp_path / "elsewhere")
    (tmp_path / "ours.json").write_text(table(a100=A100))
    (tmp_path / "cluster.json").write_text("not even JSON")
    assert world_of(tmp_path).steps_per_s(running("NVIDIA A100-SXM4-40GB"), ()) == 10


def test_files_of_one_gpu_name_jobs_by_their_type_alone(tmp_path: Path) -> None:
    path = tmp_path / "oracle.json"
    path.write_text(table(k80={BIG: {"null": 3.0, SMALL: [2.0, 1.0]}, SMALL: {"null": 2.0}}))
    world = world_of(path)
    assert world.steps_per_s(running("k80"), ()) == 3
    beside = Running(job(2, 0, None, steps=5, family="Small", batch_size=2), "k80", (GpuId("n", 0),))
    assert world.steps_per_s(running("k80"), [beside]) == pytest.approx(2)


@pytest.mark.parametrize("document", [{"64:0:0": {"fifo": 2.3}}, {"a100": {sized(BIG): {}}}, [1, 2]])
def test_what_is_no_table_is_said_with_its_name(tmp_path: Path, document: object) -> None:
    path = tmp_path / "cutoffs.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputFileError, match=r"cutoffs\.json: is not a table of throughputs"):
        read_sources(path)


def test_a_job_of_several_sizes_has_the_speed_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(table(a100=A100))
    speeds = GavelSpeeds(gavel.read_any(path))
    asked = job(1, 0, None, steps=100, family="Big", batch_size=4, gpus=2, sizes=(1, 2, 3, 4, 8))

    def alone(gpus: int) -> float | None:
        return speeds.alone(Running(asked, "a100", tuple(GpuId("n", number) for number in range(gpus))))

    assert [alone(gpus) for gpus in (1, 2, 3, 4, 8)] == [10, 16, 20, 24, 24]


def test_zeros_strangers_and_other_types_are_said_once_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(table(a100=A100, k80={sized(BIG): {"null": 0.0}, sized(SMALL): {"null": 1.0}}))
    known = [job(n, 0, None, steps=100, family="Big", batch_size=4) for n in (1, 2)]
    recorded, lost = job(3, 0, 60, steps=60, family="other"), job(4, 0, None, steps=60, family="elsewhere")
    world = world_of(path, *known, types=("a100", "h100", "k80"))
    said = list(gaps_of(world, [*known, recorded, lost], ("a100", "h100", "k80")))
    assert said == [
        "other: in no table; their jobs (1) go as fast alone as recorded",
        "elsewhere: in no table, and their jobs (1) have no durations: refused",
        "h100: no table has it, only a100, k80; jobs go there as recorded, else as on the fastest",
        "Big b4: throughput 0 or none on k80, though measured elsewhere: taken not to fit there",
    ]
    assert world.steps_per_s(running("h100"), ()) == world.steps_per_s(running("a100"), ()) == 10
    assert world.steps_per_s(running("k80"), ()) == 0
    assert world.refusal(known[0], ("h100",)) is None
    assert world.refusal(lost, ("a100",)) is not None


def test_tables_that_say_all_leave_nothing_to_say(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(table(a100=A100))
    known = [job(1, 0, None, steps=100, family="Big", batch_size=4)]
    assert list(gaps_of(world_of(path, *known, types=("a100",)), known, ("a100",))) == []
    said = list(gaps_of(TableWorld(Sources(())), [job(1, 0, None)], ("a100",)))
    assert [sentence.partition(",")[0] for sentence in said] == ["job-1: neither duration nor steps"]


def test_the_command_takes_a_file_and_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.json").write_text(table(a100=A100))
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,steps,model,batch_size\n0,100,Big,4\n0,100,nobody,\n")
    words = ["simulate", "-c", "dgx-a100", "-t", str(trace), "-p", "fifo", "--tables", str(tmp_path / "t.json")]
    assert app.run(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("Not known: nobody: in no table, and their jobs (1) have no durations: refused.") == 1
    assert "1 of 2 jobs" in said
