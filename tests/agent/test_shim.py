from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.agent import processes
from colane.agent.files.logs import read_log, segments
from colane.agent.running.outcome import classify
from colane.agent.supervisor import shim, shim_files
from colane.agent.supervisor.command import Command
from tests.agent.shims import QUICK_GRACE_S, launch, run, write_command
from tests.agent.waiting import read_state, until, until_gone
from tests.disks import disk_of_a_megabyte

pytestmark = pytest.mark.live

MIB = 2**20
STUBBORN = 'trap "" TERM; while :; do sleep 1000; done'


def test_a_command_that_ends_well(tmp_path: Path, marker: str) -> None:
    before_s = time.time()
    supervised = run(tmp_path, "sh", "-c", "echo out; echo err >&2; pwd", marker=marker)
    record = supervised.end()
    assert (record["outcome"], record["exit_code"], record["signal"]) == ("exited", 0, None)
    assert before_s <= record["start_s"] <= record["end_s"] <= time.time()
    assert supervised.output() == f"out\nerr\n{tmp_path}\n".encode()
    assert (record["log_bytes"], record["log_truncated"]) == (len(supervised.output()), False)
    assert not record["stopped"]


def test_cpu_time_of_the_whole_tree_is_counted(tmp_path: Path, marker: str) -> None:
    burn = "import time\nwhile time.process_time() < 0.15: pass"
    record = run(tmp_path, "sh", "-c", 'python3 -S -c "$0" & python3 -S -c "$0"; wait', burn, marker=marker).end()
    assert record["cpu_s"] >= 0.3
    assert record["rss_bytes_max"] > MIB


@pytest.mark.parametrize("code", [1, 3, 255])
def test_exit_codes(tmp_path: Path, marker: str, code: int) -> None:
    record = run(tmp_path, "sh", "-c", f"exit {code}", marker=marker).end()
    assert (record["outcome"], record["exit_code"], record["signal"]) == ("exited", code, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_signals(tmp_path: Path, marker: str, number: int) -> None:
    record = run(tmp_path, "sh", "-c", f"kill -{int(number)} $$", marker=marker).end()
    assert (record["outcome"], record["exit_code"], record["signal"]) == ("signalled", None, number)
    assert not record["stopped"], "it was not asked to stop"


@pytest.mark.parametrize("how", ["alone", "together"])
def test_a_job_that_uses_more_memory_than_it_may_is_ended_as_out_of_memory(
    tmp_path: Path, marker: str, how: str
) -> None:
    one = f"held = bytearray({(150 if how == 'alone' else 75) * MIB}); import time; time.sleep(60)"
    line = 'python3 -S -c "$0"' if how == "alone" else 'python3 -S -c "$0" & python3 -S -c "$0"; wait'
    record = run(tmp_path, "sh", "-c", line, one, marker=marker, memory_limit_bytes=120 * MIB).end()
    assert record["outcome"] == "out-of-memory"
    assert "MB of host memory and had asked for 126 MB (--host-memory)" in record["detail"]
    assert record["signal"] == signal.SIGKILL
    assert classify(record, "").name == "out-of-memory"


def test_a_job_that_is_to_use_less_memory_than_it_could_at_its_start_is_bounded_by_that(
    tmp_path: Path, marker: str
) -> None:
    code = f"held = bytearray({75 * MIB}); print('has it', flush=True); import time; time.sleep(60)"
    supervised = run(tmp_path, "python3", "-S", "-c", code, marker=marker, memory_limit_bytes=120 * MIB)
    until(lambda: b"has it" in supervised.output(), "the job holds its memory")
    assert supervised.job.memory_limit_bytes() == 120 * MIB
    supervised.job.limit_memory(60 * MIB)
    assert supervised.job.memory_limit_bytes() == 60 * MIB
    record = supervised.end()
    assert record["outcome"] == "out-of-memory"
    assert "MB of host memory and had asked for 63 MB (--host-memory)" in record["detail"]


def test_memory_that_processes_share_counts_once(tmp_path: Path, marker: str) -> None:
    """Three forks of one process with 80 MiB: 320 MiB by what each has mapped, 80 by what there is."""
    code = (
        "import os, time\nheld = bytearray(80 * 2**20)\n"
        "pids = [os.fork() for _ in range(2)]\ntime.sleep(1)\nos._exit(0) if 0 in pids else None\n"
        "[os.wait() for pid in pids]"
    )
    record = run(tmp_path, "python3", "-S", "-c", code, marker=marker, memory_limit_bytes=140 * MIB).end()
    assert (record["outcome"], record["exit_code"]) == ("exited", 0), record


@pytest.mark.parametrize("nodes", [(0,), (0, 1), (200,)])
def test_memory_is_taken_from_its_nodes_first_where_that_is_permitted(
    tmp_path: Path, marker: str, nodes: tuple[int, ...]
) -> None:
    code = f"from colane.agent.supervisor import shim_system; print(shim_system.prefer_memory({nodes}))"
    asked = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    supervised = run(tmp_path, "head", "-n1", "/proc/self/numa_maps", marker=marker, memory_nodes=nodes)
    assert supervised.end()["exit_code"] == 0, "refused or not, the job runs"
    assert (b"prefer" in supervised.output()) == (asked.stdout.strip() == "True")


def test_the_job_gets_default_signals_a_session_of_its_own_and_no_input(tmp_path: Path, marker: str) -> None:
    script = "grep -E '^Sig(Ign|Blk)' /proc/self/status; cat; ps -o sid= -p $$; echo $$"
    supervised = run(tmp_path, "sh", "-c", script, marker=marker)
    assert supervised.end()["exit_code"] == 0
    _, blocked, _, ignored, sid, pid = supervised.output().split()
    assert int(blocked, 16) == int(ignored, 16) == 0
    assert sid == pid


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["colane-no-such-command"], "command 'colane-no-such-command': No such file or directory"),
        (["./missing"], "command './missing': No such file or directory"),
        (["/etc/passwd"], "command '/etc/passwd': Permission denied"),
        (["/etc"], "command '/etc': Permission denied"),
        (["./broken"], "interpreter of its first line"),
        (["./empty"], "Exec format error"),
    ],
)
def test_a_command_that_cannot_be_started(tmp_path: Path, marker: str, argv: list[str], says: str) -> None:
    for name, text in (("broken", "#!/no/such/interpreter\n"), ("empty", "neither a script nor a program\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    record = run(tmp_path, *argv, marker=marker).end()
    assert (record["outcome"], record["exit_code"], record["signal"]) == ("not-started", None, None)
    assert says in record["detail"]
    assert not (tmp_path / "1-1" / shim_files.STARTED).exists()


def test_a_missing_working_directory(tmp_path: Path, marker: str) -> None:
    record = run(tmp_path, "true", marker=marker, workdir="/no/such/place").end()
    assert record["outcome"] == "not-started"
    assert record["detail"] == "working directory '/no/such/place': No such file or directory"


def test_cores_that_are_not_there(tmp_path: Path, marker: str) -> None:
    record = run(tmp_path, "true", marker=marker, cores=(4095,)).end()
    assert record["outcome"] == "not-started"
    assert record["detail"].startswith("cores 4095: ")


def test_affinity_is_inherited_by_the_whole_tree(tmp_path: Path, marker: str) -> None:
    core = min(os.sched_getaffinity(0))
    show = 'sh -c "grep Cpus_allowed_list /proc/self/status"'
    supervised = run(tmp_path, "sh", "-c", show, marker=marker, cores=(core,))
    assert supervised.end()["exit_code"] == 0
    assert supervised.output().split() == [b"Cpus_allowed_list:", str(core).encode()]


def test_the_environment_is_exactly_what_was_given(tmp_path: Path, marker: str) -> None:
    odd = {"PATH": os.environ["PATH"], "EMPTY": "", "ODD": "a=b\nc \udcff", "NUMBER": "1"}
    job = write_command(tmp_path, ["/usr/bin/env", "-0"], marker=marker, env=odd)
    supervised = launch(job)
    assert supervised.end()["exit_code"] == 0
    seen = dict(item.split(b"=", 1) for item in supervised.output().split(b"\0")[:-1])
    name, _, value = marker.partition("=")
    assert seen == {os.fsencode(k): os.fsencode(v) for k, v in {**odd, name: value}.items()}


def test_a_gigabyte_of_output_does_not_fill_the_disk_and_the_job_comes_to_its_end(tmp_path: Path, marker: str) -> None:
    script = "echo first; head -c 1000000000 /dev/zero; echo last"
    supervised = run(tmp_path, "sh", "-c", script, marker=marker, log_cap_bytes=16 * MIB)
    record = supervised.end()
    assert (record["exit_code"], record["log_bytes"], record["log_truncated"]) == (0, 1_000_000_011, True)
    kept = segments(supervised.job.path)
    assert sum(segment.size for segment in kept) <= 16 * MIB
    assert read_log(supervised.job.path, 0, 8).data == b"first\n\0\0"
    assert read_log(supervised.job.path, -6, 6).data == b"\0last\n"


def test_sigterm_stops_a_job(tmp_path: Path, marker: str) -> None:
    supervised = run(tmp_path, "sleep", "1000", marker=marker)
    supervised.stop()
    record = supervised.end()
    assert (record["outcome"], record["signal"], record["stopped"]) == ("signalled", signal.SIGTERM, True)


def test_a_job_may_end_itself_within_the_grace_time(tmp_path: Path, marker: str) -> None:
    script = 'trap "echo saved; exit 7" TERM; echo ready; while :; do sleep 0.01; done'
    supervised = run(tmp_path, "sh", "-c", script, marker=marker, grace_s=20.0)
    until(lambda: supervised.output() == b"ready\n")
    supervised.stop()
    record = supervised.end()
    assert (record["outcome"], record["exit_code"], record["stopped"]) == ("exited", 7, True)
    assert supervised.output().endswith(b"saved\n")


def test_a_job_that_ignores_sigterm_is_killed(tmp_path: Path, marker: str) -> None:
    supervised = run(tmp_path, "sh", "-c", f"echo ready; {STUBBORN}", marker=marker, grace_s=QUICK_GRACE_S)
    until(lambda: supervised.output() == b"ready\n")
    supervised.stop()
    record = supervised.end()
    assert (record["outcome"], record["signal"], record["stopped"]) == ("signalled", signal.SIGKILL, True)
    assert record["end_s"] - record["start_s"] >= QUICK_GRACE_S


def test_a_stopped_process_is_woken_to_end(tmp_path: Path, marker: str) -> None:
    supervised = run(tmp_path, "sh", "-c", "kill -STOP $$; sleep 1000", marker=marker, grace_s=20.0)
    until(lambda: read_state(supervised.main.pid) == "T")
    supervised.stop()
    assert supervised.end()["signal"] == signal.SIGTERM


@pytest.mark.parametrize("end", ["exit 0", "sleep 1000"])
def test_daemons_of_a_job_do_not_outlive_it(tmp_path: Path, marker: str, end: str) -> None:
    (tmp_path / "daemon.sh").write_text(f"echo $$ >pid.new; mv pid.new pid; {STUBBORN}")
    (tmp_path / "detach.sh").write_text("setsid sh daemon.sh >/dev/null 2>&1 &")
    script = f"setsid sh detach.sh; while ! [ -e pid ]; do sleep 0.01; done; {end}"
    supervised = run(tmp_path, "sh", "-c", script, marker=marker, grace_s=3.0)  # which the daemon ignores
    path = tmp_path / "pid"
    until(path.exists)
    pid = int(path.read_text())
    asked = end != "exit 0"
    if asked:
        supervised.stop()
    record = supervised.end()
    assert processes.identify(pid) is None
    assert (record["exit_code"], record["signal"]) == ((None, signal.SIGTERM) if asked else (0, None))


def test_a_fork_bomb_is_stopped(tmp_path: Path, marker: str) -> None:
    bomb = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n"
        "end = time.monotonic() + 30\n"
        "while time.monotonic() < end:\n"
        "    if os.fork() == 0:\n        os.setsid()\n    else:\n        time.sleep(0.02)\n        os._exit(0)"
    )
    supervised = run(tmp_path, "python3", "-S", "-c", bomb, marker=marker, grace_s=QUICK_GRACE_S)
    until(lambda: supervised.output() == b"ready\n")
    record = supervised.end()
    assert record["outcome"] == "exited"
    assert not processes.marked(marker.encode())


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))


def test_a_log_that_cannot_grow_does_not_hold_the_job_up(tmp_path: Path, marker: str) -> None:
    job = write_command(tmp_path, ["sh", "-c", "head -c 5000000 /dev/zero; echo done"], marker=marker)
    supervised = launch(job, preexec=limit_file_size)
    record = supervised.end()
    assert (record["exit_code"], record["log_bytes"], record["log_truncated"]) == (0, 5_000_005, True)
    kept = segments(supervised.job.path)
    assert kept[0].size == 64 * 1024


def test_a_job_that_fills_its_disk_still_ends_on_record(tmp_path: Path, marker: str) -> None:
    fill = "cat /dev/zero >fill; head -c 3000000 /dev/zero; exit 5"
    with disk_of_a_megabyte(tmp_path / "disk") as place:
        supervised = run(place, "sh", "-c", fill, marker=marker)
        record = supervised.end()
        assert (record["exit_code"], record["log_truncated"]) == (5, True)
        assert record["log_bytes"] > 3_000_000


def test_a_directory_is_run_once(tmp_path: Path, marker: str) -> None:
    job = write_command(tmp_path, ["sh", "-c", "echo ran; sleep 1000"], marker=marker)
    first = launch(job)
    until(lambda: first.output() == b"ran\n")
    claimed_by = first.supervisor
    second = launch(job)
    assert second.supervisor == claimed_by
    first.stop()
    first.end()
    launch(job)
    assert first.output().count(b"ran\n") == 1


def test_many_at_once_run_it_once(tmp_path: Path, marker: str) -> None:
    job = write_command(tmp_path, ["sh", "-c", "echo ran"], marker=marker)
    supervised = launch(job, times=6)
    assert supervised.end()["exit_code"] == 0
    assert supervised.output() == b"ran\n"


def test_the_job_dies_with_its_supervisor(tmp_path: Path, marker: str) -> None:
    supervised = run(tmp_path, "sleep", "1000", marker=marker)
    main = supervised.main
    os.kill(supervised.supervisor.pid, signal.SIGKILL)
    until_gone(main)
    assert supervised.job.exit_record() is None


def test_it_outlives_whoever_started_it(tmp_path: Path, marker: str) -> None:
    supervised = run(tmp_path, "sleep", "1000", marker=marker)
    stat = Path(f"/proc/{supervised.supervisor.pid}/stat").read_text().rpartition(")")[2].split()
    assert int(stat[1]) != os.getpid()
    assert os.getsid(supervised.supervisor.pid) != os.getsid(0)
    supervised.stop()
    supervised.end()


def test_a_directory_that_vanishes_does_not_keep_the_supervisor(tmp_path: Path, marker: str) -> None:
    supervised = run(tmp_path, "sleep", "1000", marker=marker)
    supervisor = supervised.supervisor
    for path in supervised.job.path.iterdir():
        path.unlink()
    supervised.job.path.rmdir()
    os.kill(supervisor.pid, signal.SIGTERM)
    until_gone(supervisor)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(
    argv=st.lists(texts, min_size=1, max_size=4),
    env=st.dictionaries(texts.filter(lambda name: name and "=" not in name), texts, max_size=4),
    cores=st.lists(st.integers(0, 1000), max_size=4),
    nodes=st.lists(st.integers(0, 300), max_size=3),
    limit=st.integers(0, 2**50),
)
def test_a_command_is_read_back_as_it_was_written(
    argv: list[str], env: dict[str, str], cores: list[int], nodes: list[int], limit: int
) -> None:
    command = Command(tuple(argv), "/some/place", env, tuple(cores), 1234, 1.5, tuple(nodes), limit)
    read = shim.ShimCommand(command.encode())
    assert Command(**{**vars(read), "argv": tuple(read.argv)}) == command


def test_what_an_agent_of_0_2_0_has_written_is_read() -> None:
    """Its jobs are still there when it is upgraded: their limits, cgroups and environments are looked up here."""
    data = b"/w\0/cg\x000,1\0\x007,8\x0067108864\x002.5\x001000\x002\0sleep\x009\0A=b\0"
    run_as, cores = (7, 8), (0, 1)
    written = Command(("sleep", "9"), "/w", {"A": "b"}, cores, 2**26, 2.5, (), 1000, run_as, "/cg")
    assert vars(shim.ShimCommand(data)) == vars(shim.ShimCommand(written.encode()))


# -- a copy of the output, and an input


def test_output_is_copied_to_a_file_whose_directories_are_made(tmp_path: Path, marker: str) -> None:
    path = tmp_path / "logs" / "deep" / "job.out"
    supervised = run(tmp_path, "sh", "-c", "echo out; echo err >&2", marker=marker, output="logs/deep/job.out")
    assert supervised.end()["exit_code"] == 0
    assert path.read_bytes() == supervised.output() == b"out\nerr\n"


@pytest.mark.parametrize(("adds", "expected"), [(False, "new\n"), (True, "old\nnew\n")])
def test_what_an_earlier_attempt_wrote_is_kept_where_it_should_be(
    tmp_path: Path, marker: str, adds: bool, expected: str
) -> None:
    (tmp_path / "out").write_text("old\n")
    assert run(tmp_path, "echo", "new", marker=marker, output="out", adds=adds).end()["exit_code"] == 0
    assert (tmp_path / "out").read_text() == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output": "file/out"}, "output 'file/out': "),
        ({"output": "."}, "output '.': Is a directory"),
        ({"output": "pipe"}, "output 'pipe': "),
        ({"input": "nowhere"}, "input 'nowhere': No such file or directory"),
    ],
)
def test_files_that_cannot_be_opened_are_named(tmp_path: Path, marker: str, change: dict[str, str], said: str) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    record = run(tmp_path, "true", marker=marker, **change).end()
    assert record["outcome"] == "not-started"
    assert record["detail"].startswith(said)


def test_a_file_that_takes_nothing_costs_the_job_nothing(tmp_path: Path, marker: str) -> None:
    supervised = run(tmp_path, "sh", "-c", "echo one; exit 3", marker=marker, output="/dev/full")
    assert supervised.end()["exit_code"] == 3
    assert b"one\n" in supervised.output()
    assert b"colane: /dev/full lacks some of what follows: No space left on device\n" in supervised.output()


def test_a_job_waits_for_a_file_that_is_slow_and_loses_nothing(tmp_path: Path, marker: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    supervised = run(tmp_path, "head", "-c", str(8 * MIB), "/dev/zero", marker=marker, output="pipe")
    seen = 0
    while data := os.read(reader, MIB):
        seen += len(data)
    os.close(reader)
    assert seen == 8 * MIB
    assert supervised.end()["exit_code"] == 0


def test_a_job_whose_file_hangs_is_ended_all_the_same(tmp_path: Path, marker: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    supervised = run(tmp_path, "cat", "/dev/zero", marker=marker, output="pipe", grace_s=QUICK_GRACE_S)
    main = supervised.main
    supervised.stop()
    until_gone(main)
    os.close(reader)
    assert supervised.end()["stopped"]


@pytest.mark.parametrize("is_halted", [False, True])
def test_a_job_that_waits_for_its_input_can_be_ended(tmp_path: Path, marker: str, *, is_halted: bool) -> None:
    """As one whose directory is on a file system that hangs: its command has not started, and has nothing to save."""
    root = tmp_path / "jobs"
    root.mkdir()
    os.mkfifo(root / "in")
    job = write_command(root, ["cat"], marker=marker, input="in")
    soon_s = shim_files.since_boot_s() + (1.0 if is_halted else 1000.0)
    (tmp_path / shim_files.LEASE).write_bytes(shim_files.lease_line(soon_s, soon_s))
    with ThreadPoolExecutor() as pool:
        launched = pool.submit(launch, job)
        supervisor = until(lambda: by if (by := job.claimed_by()) and by.pid else None, "the supervisor's claim")
        (main,) = until(
            lambda: processes.read_tree(supervisor.pid).processes[1:], "the process that is to become the command"
        )
        if is_halted:
            until(lambda: read_state(main.pid) == "T")
        job.order_end({"cause": "cancelled by a test"})
        os.kill(supervisor.pid, signal.SIGTERM)
        record = launched.result().end()
    assert record["stopped"]
    assert record["signal"] == signal.SIGKILL


def test_standard_input_is_the_file_that_was_named(tmp_path: Path, marker: str) -> None:
    (tmp_path / "in").write_text("given\n")
    supervised = run(tmp_path, "cat", marker=marker, input="in")
    supervised.end()
    assert supervised.output() == b"given\n"
