"""Slurm's verbs against a real scheduler and agent: as people type them, and as other programs do."""

from __future__ import annotations

import re
import resource
import sys
import time
from datetime import datetime
from getpass import getuser
from pathlib import Path

import pytest

from tests.cli.conftest import Gate, Up, until
from tests.integrations.conftest import Shell

pytestmark = pytest.mark.live


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def submitted(shell: Shell, *words: str) -> int:
    said = shell("sbatch", "--parsable", *words)
    assert said.code == 0, said
    return int(said.out)


def test_a_script_runs_as_slurm_runs_it(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH -J hello -o %x-%j.out -e %x-%5j.err\n#SBATCH\t--gres=gpu:1 --time=10 --wckey=x\n"
        "#COLANE --gpu-memory 1GB\n"
        'echo "$SLURM_JOB_NAME $SLURM_JOB_ID $SLURM_JOB_NUM_NODES $SLURM_GPUS $SLURM_JOB_NODELIST [$1] '
        '${SLURM_STEP_ID:-no step}"\necho bad >&2\n#SBATCH --mem=1\n'
    )
    said = shell("sbatch", "--wait", "job.sh", "a b")
    job = said.out.split()[-1]
    assert said.out == f"Submitted batch job {job}\n"
    assert said.code == 0
    assert "job.sh: lines behind the first command are not read: 7" in said.err
    assert "without effect here: --wckey" in said.err
    assert (tmp_path / f"hello-{job}.out").read_text() == f"hello {job} 1 1 here [a b] no step\n"
    assert (tmp_path / f"hello-{job.zfill(5)}.err").read_text() == "bad\n"
    assert shell("sacct", "-j", job, "-o", "JobID,State,NodeList,ExitCode", "--parsable2").out == (
        f"JobID|State|NodeList|ExitCode\n{job}|COMPLETED|here|0:0\n"
    )
    assert shell("squeue", "-h", "-j", job, "-t", "all", "-o", "%i|%j|%T|%N").out == f"{job}|hello|COMPLETED|here\n"
    for named in (("job", job), (f"job={job}",), ("jobid", "-dd", job), (f"JobId={job}",)):
        assert f"JobId={job} JobName=hello" in shell("scontrol", "show", *named).out
    shown = shell(sys.executable, "-m", "colane.cli", "show", job).out
    assert "command    /bin/bash, a batch script of 7 lines with 'a b': echo \"$SLURM_JOB_NAME" in shown


def test_a_script_that_fails_or_comes_from_elsewhere(shell: Shell, tmp_path: Path) -> None:
    said = shell("sbatch", "-W", "--wrap", "echo here; exit 3")
    assert said.code == 3
    assert (tmp_path / f"slurm-{said.out.split()[-1]}.out").read_text() == "here\n"
    said = shell("sbatch", "--wait", "-o", "out", given="#!/bin/sh\ncat <<X\nfrom a pipe\nX\n")
    assert (said.code, (tmp_path / "out").read_text()) == (0, "from a pipe\n")
    said = shell("sbatch", "-W", "-o", "out/of/it", "--wrap", "true")
    assert said.code == 1, "a file is in its way"
    past = shell("sbatch", "--begin=2020-01-01", "--wrap", "true").err
    assert past == "sbatch: --begin 2020-01-01 has passed: the job may start at once\n"
    dos = shell("sbatch", given="#!/bin/sh\r\ntrue\r\n").err
    assert dos.startswith("sbatch: error: sbatch has DOS line breaks")
    assert shell("sbatch", "-p", "nope", "--wrap", "true").err == (
        "sbatch: error: --partition must be a pool of machines here: default; got 'nope'\n"
    )
    assert shell("sattach").code == 1


def test_directories_of_output_are_made(shell: Shell, tmp_path: Path) -> None:
    """Submitit makes those that bear a job's id once it knows that, when the job may have begun."""
    script = "srun -o steps/%j/%t echo step; echo bad >&2; echo said"
    job = submitted(shell, "-W", "-o", "logs/%j/out", "-e", "errors/%j/err", "--wrap", script)
    told = [f"logs/{job}/out", f"errors/{job}/err", f"steps/{job}/0"]
    assert [(tmp_path / path).read_text() for path in told] == ["said\n", "bad\n", "step\n"]
    assert shell("sbatch", "-W", "-e", "alone/%j", "--wrap", "echo bad >&2").code == 0
    assert [path.read_text() for path in (tmp_path / "alone").iterdir()] == ["bad\n"]


def test_an_array_waits_runs_and_is_cancelled(shell: Shell, gate: Gate, slurm_up: Up) -> None:
    array = submitted(shell, "--array=0-5%1", "-J", "sweep", "-o", "o.%A.%a", "--wrap", f"cat '{gate.path}'")
    rows = shell("squeue", "-h", "-n", "sweep", "-o", "%i %t").out.splitlines()
    assert rows[1:] == [f"{array}_[1-5%1] PD"]
    assert rows[0].split()[0] == f"{array}_0"
    waiting = shell("squeue", "-hr", "-n", "sweep", "-t", "PD", "-O", "jobarrayid,reason").out.splitlines()
    assert [line.split() for line in waiting] == [[f"{array}_[{index}]", "JobArrayTaskLimit"] for index in range(1, 6)]
    assert shell("scancel", f"{array}_[3-4]", f"{array}_5").code == 0
    told = shell("sacct", "-n", "-P", "-j", str(array), "-o", "JobID,State").out.splitlines()
    assert [f"{array}_{index}|CANCELLED" in told for index in range(6)] == [False, False, False, True, True, True]
    assert f"{array}_0|RUNNING" in told
    assert shell("scancel", "--name", "sweep").code == 0
    slurm_up.wait_for(array, "cancelled")
    told = shell("sacct", "-n", "-P", "-X", "-j", str(array), "-o", "State").out.split()
    assert told == ["CANCELLED"] * 6


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("--me", "-t", "PENDING"), {"0": "RUNNING"}),
        (("-t", "RUNNING", "{array}"), {"1": "PENDING", "2": "PENDING"}),
        (("-t", "PENDING", "{array}_[0,2]"), {"0": "RUNNING", "1": "PENDING"}),
        (("-u", "another", "{array}"), {"0": "RUNNING", "1": "PENDING", "2": "PENDING"}),
    ],
)
def test_filters_end_what_they_take_of_an_array_and_no_more(
    shell: Shell, gate: Gate, slurm_up: Up, words: tuple[str, ...], left: dict[str, str]
) -> None:
    array = submitted(shell, "--array=0-2%1", "-J", "sweep", "--wrap", f"cat '{gate.path}'")

    def states() -> dict[str, str]:
        lines = shell("squeue", "-hr", "-n", "sweep", "-O", "arraytaskid,state").out.splitlines()
        return dict(line.split() for line in lines)

    until(lambda: states() == {"0": "RUNNING", "1": "PENDING", "2": "PENDING"}, "the first has its machine")
    hold = ("scontrol", "hold", f"{array}_[1-2]")  # so that none takes the place of what is ended
    assert shell(*hold).code == 0
    assert shell("scancel", *(word.format(array=array) for word in words)).code == 0
    until(lambda: states() == left, "what is left")
    assert shell("scancel", str(array)).code == 0
    slurm_up.wait_for(array, "cancelled")


def test_elements_with_gaps_between_their_indexes_are_listed_and_say_where_they_write(
    shell: Shell, tmp_path: Path, slurm_up: Up
) -> None:
    array = submitted(shell, "--array=2-11:4%1", "--hold", "-J", "gaps", "-o", "%x-%A-%3a.out", "--wrap", "echo said")
    assert shell("squeue", "-h", "-n", "gaps", "-o", "%i").out == f"{array}_[2,6,10%1]\n"
    each = shell("squeue", "-hr", "-n", "gaps", "-o", "%i").out.split()
    assert each == [f"{array}_[{index}]" for index in (2, 6, 10)]
    assert shell("scontrol", "release", str(array)).code == 0
    slurm_up.wait_for(array, "succeeded")
    for index in (2, 6, 10):
        told = shell("scontrol", "show", "job", f"{array}_{index}").out
        (path,) = (line.split("=", 1)[1] for line in told.split() if line.startswith("StdOut="))
        assert (path, Path(path).read_text()) == (str(tmp_path / f"gaps-{array}-{index:03}.out"), "said\n")
        assert f"WorkDir={tmp_path}" in told.split()


def test_jobs_are_held_released_and_not_there(shell: Shell) -> None:
    job = submitted(shell, "--hold", "-o", "/dev/null", "--wrap", "true")
    assert shell("squeue", "-h", "-j", str(job), "-o", "%t %r").out == "PD JobHeldUser\n"
    assert str(job) in shell("squeue", "--me", "--start").out
    later = submitted(shell, "--begin=now+2hours", "-o", "/dev/null", "--wrap", "true")
    told = shell("squeue", "-h", "--start", "-j", f"{job},{later}", "-o", "%i %S").out.split()
    assert told[:3] == [str(job), "N/A", str(later)]
    assert datetime.fromisoformat(told[3]).timestamp() == pytest.approx(time.time() + 7200, abs=600)
    shell("scancel", str(later))
    assert shell("scontrol", "release", str(job)).code == 0
    other = submitted(shell, "-d", f"afterok:{job}", "-W", "-o", "/dev/null", "--wrap", "true")
    assert other > job
    refused = shell("scontrol", "suspend", str(other))
    assert (refused.code, refused.err.count(f"job {other}")) == (1, 1), refused
    assert shell("scancel", "999999").err == (
        "scancel: error: Kill job error on job id 999999: Invalid job id specified\n"
    )
    assert shell("squeue", "-j", "999999").code == 1


def test_limits_are_updated(shell: Shell) -> None:
    array = submitted(shell, "--hold", "--array=0-9%2", "-t", "10", "-o", "/dev/null", "--wrap", "true")
    assert shell("scontrol", "update", f"JobId={array}", "TimeLimit=1:00:00", "ArrayTaskThrottle=4").code == 0
    assert shell("squeue", "-h", "-j", str(array), "-o", "%i %l").out == f"{array}_[0-9%4] 1:00:00\n"
    assert shell("scontrol", "update", f"job={array}", "timelimit-=15").code == 0
    assert "change" in shell("scontrol", "update", f"jobid={array}_3", "TimeLimit=unlimited").err
    assert shell("scontrol", "update", f"jobid={array}", "StartTime=now+2hours").code == 0
    assert shell("squeue", "-h", "-j", str(array), "-o", "%l %r").out == "45:00 BeginTime\n"
    for words, said in (
        (["TimeLimit+=soon"], "TimeLimit must be a time as 30 (minutes)"),
        (["TimeLimit-=45"], f"TimeLimit-=45: nothing is left of the 45:00 of job {array}"),
        (["Nodes=2"], "update nodes is not done here, only TimeLimit, ArrayTaskThrottle, StartTime"),
        ([], "update needs what to change"),
    ):
        told = shell("scontrol", "update", f"JobId={array}", *words)
        assert (told.code, said in told.err) == (1, True), told
    assert shell("scontrol", "update", "NodeName=here", "State=drain").code == 1
    assert shell("scancel", str(array)).code == 0


def test_a_script_is_only_tested(shell: Shell) -> None:
    said = shell("sbatch", "--test-only", "-G1", "--wrap", "true")
    assert (said.code, said.out) == (0, "")
    told = re.fullmatch(r"sbatch: Job (\d+) to start at (\S+): would start at once on here/\d.*\n", said.err)
    assert told is not None, said
    assert datetime.fromisoformat(told[2]).timestamp() == pytest.approx(time.time(), abs=600)
    assert shell("squeue", "-j", told[1]).code == 1
    said = shell("sbatch", "--test-only", "--hold", "--wrap", "true")
    assert "would not start yet: JobHeldUser" in said.err
    said = shell("sbatch", "--test-only", "-G", "99", "--wrap", "true")
    assert (said.code, "gpus: asks for 99" in said.err) == (1, True), said


def test_srun_starts_tasks_and_submits_where_there_is_no_job(shell: Shell) -> None:
    said = shell("srun", "-n2", "-l", "sh", "-c", "echo $SLURM_PROCID of $SLURM_NTASKS step $SLURM_STEP_ID; exit 4")
    assert sorted(said.out.splitlines()) == ["0: 0 of 2 step 0", "1: 1 of 2 step 0"]
    assert said.code == 4


def test_srun_parts_what_tasks_write(shell: Shell, tmp_path: Path) -> None:
    """Within a job and without one: by number of the task, and errors from the rest."""
    both = ["sh", "-c", "cat; echo out of $SLURM_PROCID; echo err of $SLURM_PROCID >&2"]
    (tmp_path / "given").write_text("given ")
    said = shell("srun", "-n2", "-i", "given", "--output=o-%t", "--error=e-%t", *both)
    assert (said.code, said.out) == (0, ""), said
    assert [(tmp_path / f"o-{rank}").read_text() for rank in (0, 1)] == ["given out of 0\n", "given out of 1\n"]
    assert [(tmp_path / f"e-{rank}").read_text() for rank in (0, 1)] == ["err of 0\n", "err of 1\n"]
    said = shell("srun", "--label", "--error", "alone", *both)
    assert (said.code, said.out, (tmp_path / "alone").read_text()) == (0, "0: out of 0\n", "err of 0\n")
    (tmp_path / "job.sh").write_text(
        "#!/bin/sh\n#SBATCH --array=7 -o b-%A_%a\nsrun --unbuffered --output %A_%a_%t.out --error %A_%a_%t.err "
        "sh -c 'echo step; echo bad >&2'\nsrun -o none echo unheard\n"
    )
    said = shell("sbatch", "--parsable", "--wait", "job.sh")
    array = said.out.strip()
    assert said.code == 0, said
    told = [(tmp_path / f"{array}_7_0.{kind}").read_text() for kind in ("out", "err")]
    assert (told, (tmp_path / f"b-{array}_7").read_text()) == (["step\n", "bad\n"], "")
    assert shell("srun", "--open-mode=often", "true").err == (
        "srun: error: --open-mode must be append or truncate, got 'often'\n"
    )


def test_machines_are_told(shell: Shell) -> None:
    said = shell("sinfo", "-h", "-o", "%P %D %N %G")
    assert said.out == "default* 1 here gpu:cpu:2\n"
    assert "NodeName=here" in shell("scontrol", "show", "node", "here").out


def test_each_verb_answers_at_once(shell: Shell) -> None:
    """300 ms, counted as what it computes: other tests run at the same time. It waits for one short answer besides."""
    for verb in (["squeue"], ["sinfo"], ["sacct"], ["scontrol", "show", "partition"]):
        best_s = min(_computed_s(shell, verb) for _ in range(3))
        assert best_s < 0.3, verb


def _computed_s(shell: Shell, words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert shell(*words).code == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# -- submitit, unmodified

SUBMITIT = """
import submitit
def square(x):
    return x * x
def rank():
    return submitit.JobEnvironment().global_rank
executor = submitit.AutoExecutor(folder="logs/%j", cluster="slurm")
executor.update_parameters(timeout_min=5, slurm_array_parallelism=2, slurm_wckey="w", name="squares")
jobs = executor.map_array(square, range(4))
print([job.result() for job in jobs])
executor.update_parameters(tasks_per_node=2)
print(executor.submit(rank).results())
failing = executor.submit(square, None)
print(type(failing.exception()).__name__)
"""


def test_submitit_maps_an_array(shell: Shell) -> None:
    said = shell(sys.executable, "-c", SUBMITIT)
    assert said.out.splitlines() == ["[0, 1, 4, 9]", "[0, 1]", "FailedJobError"], said


PREEMPTED = """
import os, submitit, sys
class Waits(submitit.helpers.Checkpointable):
    def __call__(self, gate):
        if os.environ.get("SLURM_RESTART_COUNT"):
            return int(os.environ["SLURM_RESTART_COUNT"])
        open(gate, "w").write("here")
        import signal
        while True:
            signal.pause()
executor = submitit.AutoExecutor(folder="logs", cluster="slurm")
executor.update_parameters(timeout_min=60, name="waits", slurm_signal_delay_s=60)
os.mkfifo("gate")
job = executor.submit(Waits(), "gate")
assert open("gate").read() == "here"
if sys.argv[1] == "requeue":
    os.system(f"scontrol requeue {job.job_id}")
else:
    job._interrupt()
print(job.result(), job.state)
"""


@pytest.mark.parametrize("how", ["requeue", "interrupt"])
def test_submitit_saves_and_goes_on(shell: Shell, how: str) -> None:
    said = shell(sys.executable, "-c", PREEMPTED, how)
    assert said.out.split()[0] == "1", said


HYDRA = """
import hydra
@hydra.main(version_base=None, config_path=None)
def main(cfg) -> None:
    open(f"rate-{cfg.rate}", "w").close()
if __name__ == "__main__":
    main()
"""


def test_hydras_submitit_launcher_runs_a_sweep(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HYDRA)
    words = [f"hydra.launcher.{word}" for word in ("timeout_min=5", "gpus_per_node=1", "array_parallelism=2")]
    said = shell(sys.executable, "app.py", "-m", "hydra/launcher=submitit_slurm", *words, "+rate=1,2")
    assert said.code == 0, said.err[-3000:]
    assert {path.name for path in tmp_path.glob("rate-*")} == {"rate-1", "rate-2"}


# -- what workflow programs type: Snakemake's executor 2.8 as it was seen to, Nextflow as its SlurmExecutor is written


def test_snakemakes_command_lines(shell: Shell, tmp_path: Path) -> None:
    """It makes the log's directory, asks for accounts first, and knows its jobs by their name."""
    assert shell("sinfo", "-o", "%P").out.split() == ["PARTITION", "default*"]
    assert shell("sacctmgr", "-n", "-s", "list", "user", getuser(), "format=account%256").out == ""
    assert shell("sshare", "-U", "--format", "Account%256", "--noheader").out == ""
    job = shell(
        "sbatch", "--parsable", "--job-name", "5c3d-run", "--output", f"{tmp_path}/%j.log", "--export=ALL",
        "--comment", "rule_all_wildcards_x", "-A", "lab", "-p", "default", "-t", "5", "--mem", "1000", "--ntasks=1",
        "--cpus-per-task=1", "-D", str(tmp_path), "--wait", "--wrap=echo made > made.txt",
    )  # fmt: skip
    number = job.out.strip()
    assert (job.code, (tmp_path / "made.txt").read_text()) == (0, "made\n")
    told = shell(
        "sacct", "-X", "--parsable2", "--clusters", "all", "--noheader", "--format=JobIdRaw,State", "--starttime",
        "2026-01-01T08:00", "--endtime", "now", "--name", "5c3d-run",
    )  # fmt: skip
    assert told.out == f"{number}|COMPLETED\n"
    told = shell("squeue", "--format=%i|%T", "--states=all", "--noheader", "--name", "5c3d-run")
    assert told.out == f"{number}|COMPLETED\n"


def test_nextflows_command_lines(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / ".command.run").write_text(
        f"#!/bin/bash\n#SBATCH -J nf-hello\n#SBATCH -o {tmp_path}/.command.log\n#SBATCH --no-requeue \n"
        "#SBATCH --signal B:USR2@30\n#SBATCH -c 1\n#SBATCH -t 00:10:00\n#SBATCH --mem 100M\n"
        "NXF_CHDIR=.\necho done > .exitcode\n"
    )
    said = shell("sbatch", "--wait", ".command.run")
    job = said.out.removeprefix("Submitted batch job ").strip()
    assert (said.code, (tmp_path / ".exitcode").read_text()) == (0, "done\n")
    lines = shell("squeue", "--noheader", "-o", "%i %t", "-t", "all", "-u", getuser()).out.splitlines()
    assert f"{job} CD" in lines
    lines = shell("squeue", "--noheader", "-o", "%i %t", "-t", "all", "--only-job-state").out.splitlines()
    assert f"{job} CD" in lines


def test_what_is_no_list_of_accounts_is_refused(shell: Shell) -> None:
    assert shell("sacctmgr", "-nP", "show", "qos", "format=name,maxwall").out.splitlines() == [
        "debug|30:00", "normal|", "sweep|",
    ]  # fmt: skip
    assert shell("sacctmgr", "list", "qos").out.split()[:6] == [
        "Name",
        "Priority",
        "MaxWall",
        "MaxTRES",
        "debug",
        "100",
    ]
    assert "format: flags is not known; these are: name" in shell("sacctmgr", "show", "qos", "format=Flags%20").err
    said = shell("sacctmgr", "add", "account", "lab")
    assert said.code == 1
    assert said.err.startswith("sacctmgr: error: add is not done here: there are no accounts")


LIGHTNING = """
from lightning_fabric.plugins.environments import SLURMEnvironment
assert SLURMEnvironment.detect()
env = SLURMEnvironment()
print(env.global_rank(), env.local_rank(), env.node_rank(), env.world_size(), bool(env.main_port), flush=True)
"""


def test_lightning_sees_its_two_ranks(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(LIGHTNING)
    (tmp_path / "job.sh").write_text(
        f"#!/bin/bash\n#SBATCH --ntasks-per-node=2 -o out-%j -J bash\nsrun -o ranks-%t {sys.executable} ranks.py\n"
    )
    said = shell("sbatch", "--wait", "job.sh")
    assert said.code == 0, [path.read_text() for path in tmp_path.glob("*-*")]
    told = [(tmp_path / f"ranks-{rank}").read_text() for rank in (0, 1)]
    assert told == ["0 0 0 2 True\n", "1 1 0 2 True\n"]


def test_interactive_jobs_have_a_terminal_and_end_with_their_command(shell: Shell) -> None:
    said = shell("srun", "--pty", "sh", "-c", "tty; read word; echo $word $SLURM_JOB_ID; exit 4", given="typed\n")
    assert said.code == 4, said.err
    lines = said.out.split()
    assert lines[0].startswith("/dev/pts/")
    assert lines[-2:] == ["typed", said.err.split("job ")[1].split()[0]]
    said = shell("salloc", "-n2", "srun", "sh", "-c", "echo task $SLURM_PROCID of $SLURM_NTASKS")
    assert said.code == 0, said.err
    assert {"task 0 of 2", "task 1 of 2"} <= set(said.out.replace("\r", "").splitlines())
