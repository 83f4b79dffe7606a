"""What scripts and command lines of Slurm's say, and what is said to those whose words cannot be done."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from colane.integrations.slurm import quantities
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.install import install, is_shim
from colane.integrations.slurm.main import VERBS
from colane.integrations.slurm.options import OF_SBATCH, parse
from colane.integrations.slurm.request import OPTIONS_OF, build, typed_of
from colane.integrations.slurm.rows import SlurmRow, duration, long_duration, names, rows_of
from colane.integrations.slurm.sacct import COLUMNS
from colane.integrations.slurm.sbatch import read_script
from colane.integrations.slurm.srun import placed
from colane.model.arrays import joined, parse_indexes
from colane.model.hardware import nodes_named
from colane.model.job import Job
from colane.model.job_spec import JobSpec
from colane.model.phases import Array, JobId
from colane.server.board.arrays import array_view

HEAD = "#!/bin/bash\n"


def request(*words: str) -> dict[str, object]:
    return build(parse("sbatch", words), "job.sh", Path("job.sh"))


def test_lines_with_tabs_quotes_comments_and_several_options() -> None:
    script = read_script(
        "job.sh", HEAD + "\n# a word\n#SBATCH\t-J 'my job'\t--time=30 # half an hour\n"
        '#SBATCH --comment="a b" -c4\n##SBATCH --mem=1\n# SBATCH --mem=2\n\ntrue\n',
    )  # fmt: skip
    said = {name: found.value for name, found in script.options.said.items()}
    assert said == {"job-name": "my job", "time": "30", "comment": "a b", "cpus-per-task": "4"}
    assert script.notes == []
    assert script.interpreter == "/bin/bash"


def test_lines_behind_the_first_command_are_told_of_and_not_read() -> None:
    script = read_script("job.sh", HEAD + "#SBATCH --mem=1G\necho\n#SBATCH --time=5\n#SBATCH --foo\n")
    assert list(script.options.said) == ["mem"]
    assert script.notes == ["job.sh: lines behind the first command are not read: 4, 5"]


def test_a_missing_blank_is_told_of_and_read_all_the_same() -> None:
    script = read_script("job.sh", HEAD + "#SBATCH--gres=gpu:2\ntrue\n")
    assert script.options.get("gres") == "gpu:2"
    assert script.notes == ["job.sh:2: a blank is missing behind #SBATCH; it is read all the same"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HEAD + "#SBATCH --tiem=3\n",
            "job.sh:2: --tiem is no option of sbatch that Colane knows; did you mean --time?",
        ),
        (HEAD + "\n#SBATCH --licenses=a\n", "job.sh:3: --licenses is not done here: jobs that share a licence go one"),
        (HEAD + "#SBATCH --time\n", "job.sh:2: --time needs a value"),
        (HEAD + "#SBATCH --requeue=1\n", "job.sh:2: --requeue takes no value, got '1'"),
        (HEAD + "#SBATCH --comment='a\n", "job.sh:2: a quotation mark has no partner"),
        (HEAD + "#SBATCH job\n", "job.sh:2: job is no option"),
        (HEAD + "#SBATCH hetjob\n", "job.sh:2: hetjob is not done here: submit each part as a job, with --dependency"),
        (HEAD + "#COLANE --gras 2\n", "job.sh:2: --gras is no option of colane submit"),
        (HEAD + "#COLANE --retries two\n", "job.sh:2: --retries must be a number, got 'two'"),
        (HEAD.replace("\n", "\r\n") + "true\r\n", "job.sh has DOS line breaks"),
        ("true\n", "its first line must be #!/bin/bash"),
        ("#!/bin/sh\n\0", "job.sh is a program and no script"),
    ],
)
def test_what_cannot_be_is_refused_with_its_file_and_line(text: str, said: str) -> None:
    with pytest.raises(SlurmError, match=r"job\.sh") as refused:
        read_script("job.sh", text)
    assert said in str(refused.value)


def test_our_own_lines() -> None:
    script = read_script("job.sh", HEAD + "#COLANE --gpu-memory 2GB --no-share\n#COLANE -l a=1 -l b=2 --retries=2\n")
    assert script.fields == {"gpu_memory": "2GB", "share": False, "labels": {"a": "1", "b": "2"}, "retries": 2}


def test_what_has_no_effect_is_collected() -> None:
    options = parse("sbatch", ["--wckey=x", "--hint", "ALL", "--propagate", "job.sh", "--wckey=of-the-job"])
    assert (options.without_effect, options.rest) == (
        ["--wckey", "--hint", "--propagate"],
        ["job.sh", "--wckey=of-the-job"],
    )


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("--gres=gpu:a100:2", "-n", "2", "-c4"), {"gpus": 2, "gpu_type": "a100", "cores": 8}),
        (("-G1", "--mem=4G", "-t", "1-12"), {"gpus": 1, "host_memory_bytes": 4 * 2**30, "time_limit_s": 129_600.0}),
        (("--gpus-per-task=1", "--ntasks-per-node=2"), {"gpus": 2}),
        (("--gpus-per-node=1", "--signal=USR2"), {"gpus": 1, "checkpoint": "slurm:SIGUSR2", "checkpoint_lead_s": 60.0}),
        (("--signal=B:SIGUSR1@90",), {"checkpoint": "slurm:B:SIGUSR1", "checkpoint_lead_s": 90.0}),
        (("--signal=RB:10",), {"checkpoint": "slurm:B:SIGUSR1", "checkpoint_lead_s": 60.0}),
        (
            ("--signal=USR2@60", "--no-requeue"),
            {"checkpoint": "slurm:SIGUSR2", "checkpoint_lead_s": 60.0, "preemptible": False},
        ),
        (("--array=0-7%4", "--mem-per-cpu=1000", "-c", "2"), {"array": "0-7%4", "host_memory_bytes": 2000 * 2**20}),
        (("-d", "afterok:12:13_4,singleton"), {"after": "ok:12,ok:13[4]", "singleton": True, "if_never": "hold"}),
        (("-d", "aftercorr:12"), {"after": "each:12", "if_never": "hold"}),
        (("-d", "afterany:3", "--kill-on-invalid-dep=yes"), {"after": "any:3", "if_never": "cancel"}),
        (("--begin=now+2hours", "-H", "-A", "lab", "-p", "a100"),
         {"begin": "now+2h", "hold": True, "labels": {"account": "lab"}, "pool": "a100"}),
        (("-G", "1", "--exclusive"), {"whole_node": True}),
        (("--exclusive",), {"whole_node": True, "gpus": 0}),
        (("-w", "n[1-2]", "-x", "n1", "-C", "a100&ib"), {"nodes": "n2", "features": "a100&ib"}),
        (("-x", "n[1-2]"), {"nodes": "not:n1,n2"}),
        (("-w", "n[1-2]", "-N2", "--gres=gpu:1"), {"nodes": "n1,n2", "gpus_per_node": 1}),
        (("--priority=-5",), {"priority": -5}),
        (("--nice",), {"priority": -100}),
        (("--nice=20", "--priority=5"), {"priority": -15}),
        (("--begin=tomorrow",), {"begin": "tomorrow"}),
        (("--mail-type=END,FAIL", "--mail-user=a@b"), {"labels": {"mail": "a@b", "mail-on": "end,failure"}}),
        (("--mail-type=NONE", "--mail-user=a@b"), {"labels": None}),
        (("--mail-user=a@b",), {"labels": None}),
    ],
)  # fmt: skip
def test_options_as_fields_of_a_request(words: tuple[str, ...], fields: dict[str, object]) -> None:
    made = request(*words)
    assert {name: made.get(name) for name in fields} == fields
    assert ("checkpoint" in made) is ("checkpoint" in fields)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mem=4X",), "--mem must be a size"),
        (("--time=soon",), "--time must be a time as 30"),
        (("--ntasks=0",), "--ntasks must be a number, at least 1"),
        (("--gres=gpu:1", "--gpus=2"), "name different numbers of GPUs"),
        (("--gres=shard:1",), "--gres must be GPUs of one kind"),
        (("--signal=KILL@60",), "--signal must be one of SIGUSR1"),
        (("-d", "afterburstbuffer:1"), "'afterburstbuffer' is not done here"),
        (("-w", "a,b"), "--nodelist names 2 machines, and this job lies on 1"),
        (("-w", "n[1-"), "--nodelist must name nodes as n1,n[3-5]"),
        (("--nice=x",), "--nice must be a whole number"),
        (("--mail-type=OFTEN",), "--mail-type must be of BEGIN, END, FAIL"),
        (("-d", "after:1+5"), "a delay behind a start is not done here"),
        (("-d", "afterok:1?afterok:2"), "'?' (one of several) is not done here"),
    ],
)
def test_values_that_cannot_be(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(SlurmError) as refused:
        request(*words)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_no_job_is_named_as_a_session_is(name: str) -> None:
    made = request("-J", name)
    assert made["name"] == f"{name}-job"


def test_variables_of_the_submitting_job_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_ID", "3")
    monkeypatch.setenv("MINE", "1")
    env = request("--export=ALL,A=2")["env"]
    assert isinstance(env, dict)
    assert ("SLURM_STEP_ID" in env, env["MINE"], env["A"], env["SLURM_JOB_NUM_NODES"]) == (False, "1", "2", "1")
    bare = request("--export=NONE")["env"]
    assert isinstance(bare, dict)
    assert "MINE" not in bare


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800.0), ("1:30", 90.0), ("01:00:00", 3600.0), ("2-0", 172_800.0), ("1-01:01:01", 90_061.0),
     ("UNLIMITED", None)],
)  # fmt: skip
def test_times(text: str, seconds: float | None) -> None:
    assert quantities.seconds(text) == seconds


def test_times_as_they_are_shown() -> None:
    assert [duration(each) for each in (5, 3_600, 90_061, None)] == ["0:05", "1:00:00", "1-01:01:01", "UNLIMITED"]
    assert [long_duration(each) for each in (5, 90_061)] == ["00:00:05", "1-01:01:01"]


def test_names_of_jobs() -> None:
    assert names(["12,13_4", "14_[1,3-4%2]", "15_*", "16.batch"]) == [
        (12, None), (13, {4}), (14, {1, 3, 4}), (15, None), (16, None),
    ]  # fmt: skip
    with pytest.raises(SlurmError, match="Invalid job id specified: x"):
        names(["x"])


def test_names_of_files_and_machines() -> None:
    env = {"SLURM_JOB_ID": "13", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0", "SLURM_PROCID": "1"}
    assert placed("/a/%A_%a_%t_%4j%%.out", env) == "/a/12_0_1_0013%.out"
    assert nodes_named("a,n[01-03,7],b,g[1-2]-ib") == ["a", "n01", "n02", "n03", "n7", "b", "g1-ib", "g2-ib"]


def test_verbs_are_written_beside_nothing_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "slurm"
    theirs.mkdir()
    (theirs / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    (theirs / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{theirs}")
    assert install(ours) == [f"Slurm's own verbs are in {theirs}: the directory that stands first in PATH wins"]
    assert sorted(path.name for path in ours.iterdir()) == sorted(VERBS)
    assert all(is_shim(ours / verb) for verb in VERBS)
    monkeypatch.setenv("PATH", f"{ours}:{theirs}")
    assert install(tmp_path / "second")[1] == f"Colane's are also in {ours}; one such directory is enough"
    with pytest.raises(SlurmError, match="is none of Colane's; name another directory"):
        install(theirs)
    assert (theirs / "sbatch").read_text() == "#!/bin/sh\nexit 1\n"


@pytest.mark.parametrize("text", ["0-5", "1-3", "7", "2-10:4", "1,5-6", "100-119", "0-9:3,20-22,31"])
@pytest.mark.parametrize("seed", range(4))
def test_elements_that_wait_or_were_cut_are_listed_by_their_indexes(text: str, seed: int) -> None:
    drawn, known = random.Random(seed), parse_indexes(text)
    kinds = [drawn.choice(("pending", "cut", "job")) for _ in range(known.size)]
    there = {kind: [one for one in range(known.size) if kinds[one] == kind] for kind in ("pending", "cut")}
    wanted = {kind: [str(known.index_of(one)) for one in ones] for kind, ones in there.items()}
    pending, cut = (joined((one, one) for one in there[kind]) for kind in ("pending", "cut"))
    array = Array(text, known.size, throttle=2, pending=pending, cut=cut)
    view = array_view(Job(JobId(7), JobSpec(name="sweep", family="sweep"), 0.0, array=array))
    told: Any = {"id": 7, "state": "queued", "elements": view}
    each = [row.job.get("array_index", row.waiting) for row in rows_of([told], expand=True)]
    assert [str(index) for index in each] == wanted["pending"] + wanted["cut"]
    for row in rows_of([told]):
        if row.waiting:
            assert row.waiting.endswith("%2")
            ((_, indexes),) = names([f"7_[{row.waiting.removesuffix('%2')}]"])
            assert sorted(indexes or ()) == [*map(int, wanted["pending"])]


@pytest.mark.parametrize(("state", "told"), [("paused", "RUNNING"), ("assigned", "RUNNING"), ("failed", "FAILED")])
def test_a_record_of_a_job_that_waits_for_its_turn_says_that_it_runs(state: str, told: str) -> None:
    """submitit takes SUSPENDED for an end, and a result is not there."""
    job: Any = {"id": 1, "state": state}
    assert COLUMNS["state"][2](SlurmRow(job)) == told


@pytest.mark.parametrize(
    ("words", "field", "typed"),
    [
        (("--gres=gpu:a100:1",), "gpu_type", "--gres"),
        (("--gpus-per-task=a100:1",), "gpus", "--gpus-per-task"),
        (("--mem-per-gpu=1G", "-G1"), "host_memory_bytes", "--mem-per-gpu"),
        (("--cpus-per-gpu=4", "-G1"), "cores", "--cpus-per-gpu"),
        ((), "gpus", "--gpus"),
    ],
)
def test_a_refusal_names_the_option_that_filled_the_field(words: tuple[str, ...], field: str, typed: str) -> None:
    assert typed_of(parse("sbatch", [*words]))[field] == typed


def test_a_refusal_names_the_line_of_a_script() -> None:
    script = read_script("job.sh", HEAD + "#SBATCH --gres=gpu:a100:1\n")
    assert typed_of(script.options)["gpu_type"] == "job.sh:2: --gres"


def test_options_that_fill_fields_are_options_of_sbatch() -> None:
    known = {name.removeprefix("--") for row in OF_SBATCH for name in row.names.replace(",", " ").split()}
    assert {name for names in OPTIONS_OF.values() for name in names} <= known
