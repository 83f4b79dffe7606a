"""What Slurm's verbs tell of machines and jobs, against a real agent of two devices."""

from __future__ import annotations

import json
import re
import sys

import pytest

from colane.integrations.slurm.main import INSTEAD
from tests.cli.conftest import until
from tests.integrations.conftest import Shell

pytestmark = pytest.mark.live


def test_machines_are_summed_up_by_their_partition(shell: Shell) -> None:
    head, line = shell("sinfo", "-s").out.splitlines()
    assert head.split() == ["PARTITION", "AVAIL", "TIMELIMIT", "NODES(A/I/O/T)", "NODELIST"]
    assert re.fullmatch(r"default\*\s+up\s+infinite\s+(1/0|0/1)/0/1 here", line), line


@pytest.mark.parametrize("words", [(), ("--gres=gpu:1",)], ids=str)
def test_exclusive_means_the_machine(shell: Shell, words: tuple[str, ...]) -> None:
    first = shell("sbatch", "--parsable", "--exclusive", *words, "--wrap", "sleep 60").out.strip()
    second = shell("sbatch", "--parsable", "--wrap", "true").out.strip()
    assert shell("sbatch", "--wait", "--test-only", "-w", "there", "--wrap", "true").err == (
        "sbatch: error: --nodelist: must be some of pool default: here\n"
    )
    assert shell("squeue", "-h", "-j", second, "-o", "%t").out.strip() == "PD"
    assert shell("scancel", first).code == 0
    assert shell("sbatch", "--wait", "-w", "here", "--wrap", "true").code == 0


COLANE = (sys.executable, "-m", "colane.cli")


@pytest.mark.parametrize(
    ("submit", "words", "told"),
    [
        ("colane", (), "QOS=normal Requeue=1 NumTasks=1"),
        ("colane", ("--qos", "sweep"), "QOS=sweep Requeue=1 NumTasks=1"),
        ("sbatch", ("-q", "debug", "-n", "3"), "QOS=debug Requeue=1 NumTasks=3"),
        ("sbatch", ("--no-requeue", "--ntasks-per-node=2"), "QOS=normal Requeue=0 NumTasks=2"),
        ("sbatch", ("--requeue",), "QOS=normal Requeue=1 NumTasks=1"),
    ],
)
def test_a_job_is_told_as_it_was_submitted(shell: Shell, submit: str, words: tuple[str, ...], told: str) -> None:
    rest = ("submit", "--hold", "--json", *words, "--", "true")
    slurms = ("sbatch", "--hold", "--parsable", *words, "--wrap", "true")
    said = shell(*((*COLANE, *rest) if submit == "colane" else slurms))
    number = str(json.loads(said.out)["id"]) if submit == "colane" else said.out.strip()
    shown = shell("scontrol", "show", "job", number).out
    assert " ".join(re.findall(r"(?:QOS|Requeue|NumTasks)=\S+", shown)) == told
    qos = told.split(maxsplit=1)[0].partition("=")[2]
    assert shell("squeue", "-h", "-j", number, "-o", "%q").out.strip() == qos
    assert shell("scancel", number).code == 0


UNTIL_MEASURED = "until sacct -X -n -P -j $SLURM_JOB_ID -o TotalCPU | grep -q :; do :; done"


def test_a_job_is_told_as_it_was(shell: Shell) -> None:
    """It goes on until its use of cores is known."""
    options = ("--exclusive", "--gres=gpu:2", "-q", "debug", "-t", "5", "-o", "/dev/null")
    said = shell("sbatch", "--parsable", "--wait", *options, "--wrap", UNTIL_MEASURED)
    number = said.out.strip()
    assert said.code == 0, said
    assert " QOS=debug" in shell("scontrol", "show", "job", number).out
    names = "QOS,NNodes,NCPUS,MaxRSS,TotalCPU,CPUTime,CPUTimeRAW"
    told = shell("sacct", "-X", "-n", "--parsable2", "-j", number, "-o", names).out.strip()
    clock = "[0-9]{2}:[0-9]{2}:[0-9]{2}"
    assert re.fullmatch(rf"debug\|1\|[1-9][0-9]*\|[1-9][0-9]*K\|{clock}\|{clock}\|[0-9]+", told), told
    seen = shell("seff", number).out
    assert seen.startswith(f"Job ID: {number}\n")
    assert re.search(r"^State: COMPLETED \(exit code 0:0\)$", seen, re.MULTILINE), seen
    assert re.search(r"^CPU Efficiency: [0-9.]+% of [0-9]+ cores?$", seen, re.MULTILINE), seen
    assert re.search(r"^Memory Utilized: [0-9.]+ GB$", seen, re.MULTILINE), seen


def test_lists_by_other_names_and_as_json(shell: Shell) -> None:
    number = shell("sbatch", "--parsable", "--hold", "--mail-type=END", "-J", "seen", "--wrap", "true")
    assert number.err.startswith("sbatch: without effect here: --mail-type (no mail is sent, as this scheduler was")
    job = number.out.strip()
    (told,) = json.loads(shell("squeue", "-j", job, "--json").out)["jobs"]
    assert (told["job_id"], told["job_state"], told["name"]) == (int(job), ["PENDING"], "seen")
    assert told["time_limit"] == {"set": False, "infinite": True, "number": 0}
    assert shell("squeue", "-h", "-j", job, "-O", "jobid:6,tres-alloc:20").out.split() == [job, "cpu=1,node=1"]
    assert shell("sprio", "-h", "-j", job).out.split()[0] == job
    assert shell("sstat", "-n", "-a", "-j", job).out == ""
    assert shell("sinfo", "-h", "-O", "partition:10,statecompact:8,cpus").out.split()[0] == "default*"
    assert shell("sinfo", "-h", "-R").out == ""
    assert shell(*COLANE, "drain", "here", "--reason", "a fan").code == 0
    line = shell("sinfo", "-h", "-R").out
    assert shell(*COLANE, "undrain", "here").code == 0
    assert re.fullmatch(r"\s+a fan\s+\S+ \S+T\S+ here\n", line), line
    assert shell("scancel", job).code == 0


def test_each_word_about_jobs_and_machines_tells_what_slurms_does_or_names_the_way(shell: Shell) -> None:
    runs = shell("sbatch", "--parsable", "--gres=gpu:1", "-n", "2", "--wrap", "sleep 300").out.strip()
    waits = shell("sbatch", "--parsable", "--hold", "--priority=7", "--wrap", "true").out.strip()
    until(lambda: shell("squeue", "-h", "-j", runs, "-o", "%t").out == "R\n", "it runs")
    until(lambda: "GPU Utilized" in shell("seff", runs).out, "its use was measured")
    told = {
        ("sprio", "-h", "-j", waits, "-o", "%i %Y"): rf"{waits} -?[0-9]+",
        ("sprio", "-l"): r"(?s) *JOBID PARTITION .*",
        ("sstat", "-n", "-P", "-j", runs, "-o", "JobID,NTasks"): rf"{runs}\|2",
        ("sstat", "-n", "-P", "-j", f"{runs}.batch", "-o", "JobID,AvePages"): rf"{runs}\|",
        ("sinfo", "-h", "-o", "%C"): r"[0-2]/[0-2]/0/2",
        ("sinfo", "-h", "-O", "cpusstate:9,partitionname:8"): r"[0-2]/[0-2]/0/2 +default *",
        ("sinfo", "-h", "-N", "-l"): r" *here +1 +default\* +mix",
        ("squeue", "-h", "-M", "all", "-j", runs, "-O", "jobid:8,tres-alloc:30"): rf"{runs} +cpu=1,node=1,gres/gpu=1 *",
        ("seff", runs): rf"(?s)Job ID: {runs}\n.*State: RUNNING.*GPU Utilized: .* of 1",
    }
    for words, expected in told.items():
        assert re.fullmatch(expected, (said := shell(*words)).out.rstrip("\n")), said
    ways = {
        ("sprio", "-w"): "--weights is not done here: a job's priority is the number that its owner asked for",
        ("sinfo", "--json"): "--json is not done here: see colane nodes --json",
        ("sacct", "--json"): "--json is not done here: see colane ps --all --json",
        ("squeue", "--yaml"): "--yaml is not done here: see colane ps --json",
        ("squeue", "-M", "b"): "-M b is not done here: there is one cluster, that of COLANE_URL",
        ("scontrol", "show", "job", runs, "--json"): "--json is not done here: see colane show JOB --json, ",
        ("scontrol", "reconfigure"): "reconfigure is not done here: 'colane config reload' reads limits and channels",
    }
    for words, way in ways.items():
        assert (said := shell(*words)).code == 1
        assert said.err.startswith(f"{words[0]}: error: {way}"), said
        assert len(said.err.splitlines()) == 1
    assert shell("scancel", runs, waits).code == 0


def test_what_is_not_done_names_another_way(shell: Shell) -> None:
    assert shell("seff", "99999").err == "seff: error: there is no job 99999\n"
    assert shell("seff").err == "seff: error: name a job: seff 12\n"
    for verb, way in INSTEAD.items():
        assert (told := shell(verb, "-a")).code == 1
        assert told.err == f"{verb}: error: is not done here: {way}\n"
