"""What a job cannot get out of: on doubled directories, and really where this machine permits it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from colane.agent.files.jobdir import JobDir
from colane.agent.launch.cage import MOUNTS, OWN, PROCESSES_MAX, Cages, own_cgroup
from colane.agent.reconcile import DesiredJob, Key
from colane.agent.supervisor import shim_files
from colane.agent.supervisor.command import Command
from colane.devices.device_filter import DeviceNumber, program, reject
from colane.devices.makers import NVIDIA_MAJOR, Amd, minors_of
from colane.model.hardware import Gpu
from tests.agent.shims import run

KEY = Key(7, 1)
COMMAND = Command(("true",), "/", {})
ZERO, NULL = DeviceNumber(1, 5), DeviceNumber(1, 3)
FILES = {f"GPU-{letter}": (DeviceNumber(NVIDIA_MAJOR, minor),) for minor, letter in enumerate("abc")}
AGENT_ID = "a" * 32


def gpu(uuid: str) -> Gpu:
    return Gpu(index=0, uuid=uuid, type="A100", memory_bytes=1)


def doubled(root: Path, controllers: str) -> Path:
    """A cgroup whose children may use these controllers, as a kernel shows it."""
    root.mkdir()
    (root / "cgroup.subtree_control").write_text(controllers)
    return root


def test_where_it_is() -> None:
    mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    assert own_cgroup("4:memory:/x\n0::/service/agent\n", mounts) == Path("/sys/fs/cgroup/unified/service/agent")
    assert own_cgroup("0::/\n", mounts) == Path("/sys/fs/cgroup/unified")
    assert own_cgroup("4:memory:/x\n", mounts) is None
    assert own_cgroup("0::/\n", "tmpfs / tmpfs rw 0 0\n") is None


def test_minors_are_as_the_driver_tells_them(tmp_path: Path) -> None:
    for number, bus in enumerate(("0000:3b:00.0", "0000:86:00.0")):
        (tmp_path / bus).mkdir()
        text = f"Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-{number}\nDevice Minor: \t {1 - number}\n"
        (tmp_path / bus / "information").write_text(text)
    assert minors_of(tmp_path) == {"GPU-0": 1, "GPU-1": 0}
    assert minors_of(tmp_path / "none") == {}


def test_memory_and_processes_are_bounded_where_controllers_are_delegated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cages = Cages(AGENT_ID, doubled(tmp_path / "own", "cpu memory pids"), {})
    root = tmp_path / "own" / ("colane-" + "a" * 12)
    assert (root / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert cages.around(KEY, COMMAND, []) is COMMAND, "nothing to bound"
    made = Path.mkdir

    def make(path: Path, *, exist_ok: bool = False) -> None:
        made(path, exist_ok=exist_ok)
        for name in ("memory.max", "pids.max"):
            (path / name).touch()

    monkeypatch.setattr(Path, "mkdir", make)
    limited = cages.around(KEY, Command(("true",), "/", {}, memory_limit_bytes=12345), [])
    assert limited.cgroup == str(root / "7-1")
    assert (root / "7-1" / "memory.max").read_text() == "12345"
    assert (root / "7-1" / "pids.max").read_text() == str(PROCESSES_MAX)
    assert "is bounded by the kernel (cgroup): one that uses more ends as" in cages.memory_message()
    assert cages.messages() == []


def placed(limit_bytes: int) -> DesiredJob:
    """A job that runs, as its node's agent is told of it."""
    return DesiredJob(KEY, run=True, memory_limit_bytes=limit_bytes)


@pytest.mark.parametrize("is_caged", [True, False])
def test_the_bound_of_a_job_that_books_less_is_lowered_and_outlives_the_agent(tmp_path: Path, is_caged: bool) -> None:
    (cage := tmp_path / "cage").mkdir()
    (cage / "memory.max").write_text("4000")
    (path := tmp_path / str(KEY)).mkdir()
    command = Command(("true",), "/", {}, memory_limit_bytes=4000, cgroup=str(cage) if is_caged else "")
    (path / shim_files.COMMAND).write_bytes(command.encode())
    job, cages = JobDir(path), Cages(AGENT_ID, None, {})

    def bound(by: Cages, limit_bytes: int) -> tuple[int, str]:
        by.follow([placed(limit_bytes)], lambda _key: job)
        return job.memory_limit_bytes(), (cage / "memory.max").read_text()

    assert bound(cages, 4000) == (4000, "4000")
    assert not (path / shim_files.MEMORY_LIMIT).exists(), "as it was started"
    lowered = (1000, "1000" if is_caged else "4000")
    assert bound(cages, 1000) == lowered
    (cage / "memory.max").write_text("as it was left")
    assert bound(Cages(AGENT_ID, None, {}), 1000) == (1000, "as it was left"), "the next agent finds it in force"
    (path / shim_files.MEMORY_LIMIT).unlink()
    assert bound(Cages(AGENT_ID, None, {}), 1000)[1] == ("1000" if is_caged else "as it was left"), "died in between"


def test_a_bound_that_cannot_be_set_yet_is_set_in_a_later_round(tmp_path: Path) -> None:
    job, cages = JobDir(tmp_path / str(KEY)), Cages(AGENT_ID, None, {})
    cages.follow([placed(1000)], lambda _key: job)
    job.path.mkdir()
    (job.path / shim_files.COMMAND).write_bytes(Command(("true",), "/", {}, memory_limit_bytes=4000).encode())
    (draft := job.path / f"{shim_files.MEMORY_LIMIT}.new").mkdir()
    cages.follow([placed(1000)], lambda _key: job)
    assert job.memory_limit_bytes() == 4000
    draft.rmdir()
    cages.follow([placed(1000)], lambda _key: job)
    assert job.memory_limit_bytes() == 1000


def test_what_is_not_permitted_is_said_where_there_are_gpus_to_reach_for(tmp_path: Path) -> None:
    for own in (None, tmp_path / "not there"):
        cages = Cages(AGENT_ID, own, FILES)
        assert cages.around(KEY, COMMAND, [gpu("GPU-a")]) is COMMAND
        (said,) = cages.messages()
        assert "is watched, as no cgroup bounds it: one that uses more ends as" in cages.memory_message()
        assert said.startswith("jobs could reach for each other's GPUs: this agent may make no cgroup (version 2)")
        assert Cages(AGENT_ID, own, {"GPU-a": FILES["GPU-a"]}).messages() == []
        assert Cages(AGENT_ID, own, {}).messages() == []


def test_of_amds_gpus_both_files_of_the_others_are_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[DeviceNumber]] = []
    monkeypatch.setattr("colane.agent.launch.cage.reject", lambda _place, denied: asked.append(list(denied)))
    files = Amd({"GPU-a": (0, 128), "GPU-b": (1, 129), "GPU-c": (None, 130)}).files()
    cages = Cages(AGENT_ID, doubled(tmp_path / "own", ""), files)
    cages.around(KEY, COMMAND, [gpu("GPU-b")])
    assert asked == [[DeviceNumber(226, 0), DeviceNumber(226, 128), DeviceNumber(226, 130)]]


def test_all_gpus_but_its_own_are_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, list[DeviceNumber]]] = []
    monkeypatch.setattr("colane.agent.launch.cage.reject", lambda place, denied: asked.append((place, list(denied))))
    cages = Cages(AGENT_ID, doubled(tmp_path / "own", ""), FILES)
    place = tmp_path / "own" / ("colane-" + "a" * 12) / "7-1"
    for granted, others in ((["GPU-b"], [0, 2]), (["GPU-a", "GPU-c"], [1]), ([], [0, 1, 2])):
        command = cages.around(KEY, COMMAND, [gpu(uuid) for uuid in granted])
        assert command.cgroup == str(place)
        assert asked.pop() == (place, [DeviceNumber(NVIDIA_MAJOR, minor) for minor in others])
    assert cages.around(KEY, COMMAND, [gpu(uuid) for uuid in FILES]).cgroup == ""
    assert cages.around(KEY, COMMAND, [gpu("MIG-x")]).cgroup == ""
    assert "does not tell" in cages.messages()[0]
    cages.remove(KEY)
    assert not place.exists()


def test_the_program_says_no_to_what_is_named_and_jumps_past_its_answer() -> None:
    code = program([ZERO, NULL])
    words = [code[at : at + 8] for at in range(0, len(code), 8)]
    assert len(words) == 2 + 2 * 4 + 2
    assert [word[0] for word in words[2:6]] == [0x55, 0x55, 0xB7, 0x95]
    assert [int.from_bytes(word[2:4], "little") for word in words[2:4]] == [3, 2]


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A real one."""
    own = own_cgroup(OWN.read_text(), MOUNTS.read_text())
    if own is None:
        pytest.skip("this machine has no cgroups of version 2")
    place = own / f"colane-test-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield place
    place.rmdir()


@pytest.mark.live
def test_a_job_opens_what_it_is_granted_and_nothing_else(cgroup: Path, tmp_path: Path, marker: str) -> None:
    try:
        reject(cgroup, [ZERO])
    except OSError as error:
        pytest.skip(f"no program can be attached here: {error}")
    look = "head -c 1 /dev/null; echo null $?; head -c 1 /dev/zero; echo zero $?; cat /proc/self/cgroup"
    supervised = run(tmp_path, "sh", "-c", look, marker=marker, cgroup=str(cgroup))
    assert supervised.end()["exit_code"] == 0
    said = supervised.output().decode()
    assert "null 0\n" in said
    assert "zero 1\n" in said
    assert "Operation not permitted" in said
    assert f"/{cgroup.name}\n" in said


@pytest.mark.live
def test_a_cgroup_that_is_gone_is_named(tmp_path: Path, marker: str) -> None:
    gone = tmp_path / "gone"
    record = run(tmp_path, "true", marker=marker, cgroup=str(gone)).end()
    assert (record["outcome"], record["detail"]) == ("not-started", f"cgroup {gone}: No such file or directory")
