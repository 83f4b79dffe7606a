"""`colane profile` against a real scheduler and agent, with jobs that only sleep."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colane.cli.app import run
from colane.client.client import Client
from colane.client.knowledge import decode_profile
from colane.client.profile_session import Session, modes_for, sets_of
from colane.client.profiling import AloneRun, Profiler, Rules, SetRun, Subject
from colane.engines.local import LocalConfig, LocalEngine
from colane.lab.commands.profile_output import scaling_of
from colane.lab.commands.profile_subjects import Asked, parse_batch_sizes, read_subjects
from colane.model.job_spec import JobSpec
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.server.ground.access import user_name
from colane.server.submitting.family import derive_family

STEPPER = textwrap.dedent("""
    import sys, time
    import colane.adaptor as colane
    steps = colane.attach()
    for _ in range(100_000):
        time.sleep(float(sys.argv[1]) / 1000)
        steps.step()
""")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    state = tmp_path_factory.mktemp("state")
    config = LocalConfig.of(state, "n", devices="cpu:1:8GB", heartbeat=0.1, policy="fifo", others="ignore")
    with LocalEngine(config) as stack:  # other tests run beside: what they disturb would teach nothing
        yield stack


@pytest.fixture
def colane(stack: LocalEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run one command line; give exit code, output and errors. The agent reports every 0.1 s here."""
    quick = partial(Rules, reports_s=0.3, look_every_s=0.05)
    monkeypatch.setattr("colane.client.profiling.Rules", quick)
    monkeypatch.setenv("COLANE_URL", stack.url)
    monkeypatch.setenv("COLANE_TOKEN", stack.token or "")
    monkeypatch.setenv("COLUMNS", "200")

    def command(*words: object) -> tuple[int, str, str]:
        code = run(["profile", *map(str, words)])
        return code, *capsys.readouterr()

    return command


def job_file(folder: Path, name: str, step_ms: int) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"family": name, "command": [sys.executable, "-c", STEPPER, str(step_ms)]}))
    return path


@pytest.mark.live
def test_a_command_alone_in_every_form(colane: Command, tmp_path: Path) -> None:
    code, out, err = colane("--steps", 10, "--family", "slow", "--", sys.executable, "-c", STEPPER, 20)
    assert (code, err) == (0, "slow alone\n")
    fields = dict(line.split("  ", 1) for line in out.splitlines() if line and not line.startswith(" "))
    assert fields["profile"].strip() == "slow on cpu"
    assert "ms (mean of its steps)" in fields["step time"]
    assert "(measured by cpu-time" in fields["C"]
    assert "needs NVML GPM" in fields["M"]
    code, out, _ = colane("--steps", 10, "--family", "slow", "--json", "--", sys.executable, "-c", STEPPER, 20)
    known = json.loads(out)["profiles"][0]
    assert code == 0
    assert known["step_sampled_s"] == pytest.approx(0.02, abs=0.01)
    assert known["step_s"]["samples"] >= 20  # both runs

    code, out, err = colane(
        "--steps", 10, "--family", "swept", "--batch-sizes", "5,10", "--out", tmp_path / "out", "--",
        sys.executable, "-c", STEPPER, "{batch_size}",
    )  # fmt: skip
    assert (code, err) == (0, "swept b5 alone\nswept b10 alone\n")
    assert (tmp_path / "out" / "throughput.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.live
def test_sets_and_what_is_kept_of_them(colane: Command, tmp_path: Path) -> None:
    a, b, c = (job_file(tmp_path, name, ms) for name, ms in (("a", 10), ("b", 20), ("c", 20)))
    code, out, err = colane("--steps", 10, "--out", tmp_path / "out", "--together", a, b)
    assert code == 0
    assert err == "a alone\nb alone\na + b together\na + b: stopping\n"
    assert "Sharing pays (delta >= 1) for 1 of 1 set measured: a + b (1." in out
    assert (tmp_path / "out" / "speedup_2_cpu.png").is_file()
    code, out, err = colane("--steps", 10, "--json", "--all-pairs", f"{a},{b}", c)
    found = json.loads(out)
    assert code == 0
    assert err.count(" alone") == 1  # the others' profiles are known
    assert sorted(each["set"] for each in found["sets"]) == ["a + b", "a + c", "b + c"]
    assert found["notes"] == ["no speed-up is fitted for cpu on cpu: 3 of 5 sets with known C measured"]
    code, out, _ = colane("--list")
    assert code == 0
    assert "b + c  cpu" in out
    listed = json.loads(colane("--list", "--json")[1])
    assert len(listed["measurements"]) >= 4, "each run teaches in one window or several"


@pytest.mark.live
def test_kernels_of_a_trace(colane: Command, tmp_path: Path) -> None:
    args = {"est. achieved occupancy %": 50}
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 100, "args": args}
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [event]}))
    job = ("--model", "resnet18", "--dataset", "synthetic", "--gpu-type", "V100", "--batch-size", 64)
    code, out, _ = colane("--kernels", trace, "--out", tmp_path / "out", *job)
    assert code == 0
    assert "5e+03 % us over two steps (torch.profiler)" in out
    assert "not in the trace of torch.profiler" in out
    assert (tmp_path / "out" / "kernels_occupancy.png").is_file()
    found = json.loads(colane("--kernels", trace, "--json", *job)[1])
    assert found["profile"]["occupancy"]["by"] == "torch.profiler"
    trace.write_text("nothing")
    assert colane("--kernels", trace, *job)[0] == 2


@pytest.mark.live
def test_failures_are_one_line_and_the_round_goes_on(colane: Command, tmp_path: Path) -> None:
    code, out, err = colane("--", sys.executable, "-c", "pass")
    assert (code, out) == (1, "")
    assert "ended without reporting a step" in err.splitlines()[-1]
    good, bad = job_file(tmp_path, "good", 10), tmp_path / "bad.yaml"
    bad.write_text(json.dumps({"family": "bad", "command": [sys.executable, "-c", "raise SystemExit(4)"]}))
    third = job_file(tmp_path, "third", 10)
    code, out, err = colane("--steps", 10, "--all-pairs", good, third, bad)
    assert code == 1
    assert "good + third" in out
    assert "good + bad is left out: bad has no profile" in out
    assert "not measured: bad: job" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give a command"),
        (["--model", "resnet18", "train.py"], "--model or a command"),
        (["missing.yaml"], "no such file"),
        (["--together", "resnet18:64"], "at least 2 jobs"),
        (["--all-triples", "resnet18:64", "vgg11:64"], "at least 3 jobs"),
        (["--together", "resnet18:x", "vgg11:64"], "resnet18:64"),
        (["--together", "resnet81:8", "vgg11:64"], "unknown 'resnet81'"),
        (["--together", "resnet18:8", "vgg11:8", "--json"], "options stand before"),
        (["--together", "--all-pairs", "vgg11"], "not both"),
        (["--together", "--model", "vgg11", "vgg19"], "as words"),
        (["--together", "--gpus", "2", "vgg11", "vgg19"], "on one GPU"),
        (["--gpus", "4..2", "--model", "vgg11"], "the smallest number of GPUs comes first: 2..4"),
        (["--gpus", "1,2", "--model", "vgg11"], "--gpus: 2 is more than any node of pool default has of type V100 (1)"),
        (["--gpus", "0", "--model", "vgg11"], "a profile is of a job on GPUs"),
        (["--together", "--gpus", "1..2", "vgg11", "vgg19"], "on one GPU"),
        (["--batch-sizes", "64,0", "--model", "vgg11"], "'0'"),
        (["--batch-sizes", "64", "--", "python", "x.py"], "{batch_size}"),
        (["--model", "resnet18", "--dataset-path", "/nowhere"], "/nowhere is not a directory"),
        (["--steps", "3", "--model", "resnet18"], "steps"),
    ],
)
def test_misuse_is_one_line_and_code_2(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Client, "nodes", lambda _: [node()])
    common = ["--dataset", "synthetic"] if "--dataset-path" not in words else []
    assert run(["profile", *common, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def node(kind: str = "V100", memory_bytes: int = 16 * 10**9) -> dict[str, Any]:
    gpu = {"type": kind, "memory_bytes": memory_bytes, "foreign_bytes": 10**9}
    return {"name": "n", "pool": "default", "lost": False, "messages": [], "gpus": [gpu]}


def test_a_family_is_forgotten_by_its_name(colane: Command, tmp_path: Path) -> None:
    assert colane("--steps", "10", job_file(tmp_path, "wrong", 20))[0] == 0
    code, out, _ = colane("forget", "wrong")
    assert (code, "its jobs are measured anew" in out) == (0, True)
    left = json.loads(colane("--list", "--json")[1])["profiles"]
    assert "wrong" not in {profile["key"]["family"] for profile in left}
    code, _, err = colane("forget", "wrong")
    assert (code, "nothing is known of family wrong" in err) == (2, True)
    code, _, err = colane("forget")
    assert code == 2
    code, _, err = colane("list")
    assert (code, "colane profile --list" in err) == (2, True)


def profile_body(family: str, gigabytes: int) -> dict[str, Any]:
    value = {"value": gigabytes * 1e9, "source": "measured", "samples": 1, "by": ""}
    key = {"family": family, "batch_size": None, "gpus": 1, "gpu_type": "V100"}
    return {"key": key, "step_s": value, "persistent_bytes": value, "ephemeral_bytes": {**value, "value": 0.0}}


class FakeScheduler:
    """As much of a client as the planning of sets needs."""

    def __init__(self, profiles: list[dict[str, Any]], gpus: int = 1) -> None:
        self.known = profiles
        self.gpus = gpus
        self.sharing = "time-slice"

    def nodes(self) -> list[dict[str, Any]]:
        found = node()
        found["gpus"] = [{**found["gpus"][0], "sharing": self.sharing} for _ in range(self.gpus)]
        return [{**found, "messages": ["MPS on GPU 0 could not be started", "something else"]}]

    def profiles(self) -> list[dict[str, Any]]:
        return self.known


def test_subjects_carry_what_decides_the_key() -> None:
    asked = Asked(["vgg-11:64,resnet18"], {"dataset": "synthetic"}, several=True)
    first, second = read_subjects(asked, FakeScheduler([]))  # type: ignore[arg-type]
    assert first.key == ProfileKey("vgg11 dataset=synthetic", 64, 1, "V100")
    assert second.key == ProfileKey("resnet18 dataset=synthetic", 128, 1, "V100")  # the catalogue's own batch size
    assert second.request["gpu_type"] == "V100"
    assert first.name == "vgg11 dataset=synthetic b64"
    command = read_subjects(Asked(["python", "train.py", "--lr", "1"]), FakeScheduler([]))[0]  # type: ignore[arg-type]
    words = ["python", "train.py", "--lr", "1"]
    assert command.key.family == derive_family(words, str(Path.cwd()), user_name(os.geteuid()))
    assert parse_batch_sizes("64, 128,64") == [64, 128]


def test_a_job_is_measured_at_each_number_of_gpus_as_the_policies_ask_for_it() -> None:
    fake = FakeScheduler([], gpus=4)
    options = {"gpus": "1,2,4", "family": "net", "ranks": "per-gpu"}
    subjects = read_subjects(Asked(["python", "x.py"], options), fake)  # type: ignore[arg-type]
    assert [subject.name for subject in subjects] == ["net", "net x2", "net x4"]
    assert [subject.request["gpus"] for subject in subjects] == [1, 2, 4]
    assert {subject.request["ranks"] for subject in subjects} == {"per-gpu"}
    elastic = JobSpec(name="j", family="net", gpus=4, sizes=(1, 2, 4))
    asked = {gpus: Beliefs().terms(elastic, "V100", gpus).key for gpus in (1, 2, 4)}
    assert list(asked.values()) == [subject.key for subject in subjects]
    known = [Profile(key=key, step_s=Value(1 / gpus, ValueSource.MEASURED)) for gpus, key in asked.items()]
    (curve,) = scaling_of(known).values()
    assert curve.measured == {1: 1.0, 2: 2.0, 4: 4.0}
    assert curve.believed == pytest.approx({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0})
    assert scaling_of(known[:1]) == {}


def test_sets_that_do_not_fit_are_left_out() -> None:
    fake = FakeScheduler([profile_body("big", 10), profile_body("small", 4)])
    subjects = [Subject(key=ProfileKey(name, None, 1, "V100"), request={}) for name in ("big", "small")]
    session = Session(Profiler(fake, Rules()))  # type: ignore[arg-type]
    session.measure_sets([(subjects[0], subjects[0])], (False, True))
    assert session.notes == ["big + big is left out: needs 23.1 GB with a margin, a GPU has 15 GB"]
    assert session.sets == []


class FakeProfiler:
    """Notes what it is asked to run; every set gains."""

    def __init__(self, client: FakeScheduler, *, starts_mps: bool) -> None:
        self.client = client
        self.asked: list[tuple[str, bool]] = []
        self._starts_mps = starts_mps

    def alone(self, subject: Subject, *, mps: bool = False) -> AloneRun:
        self.asked.append((subject.name, mps))
        self.client.sharing = "mps" if mps and self._starts_mps else "time-slice"
        profile = decode_profile(self.client.known[0])
        return AloneRun(profile=profile, sampled_step_s=0.1, steps=30, job=1)

    def together(self, subjects: Sequence[Subject], *, mps: bool = False) -> SetRun:
        self.asked.append((" + ".join(subject.name for subject in subjects), mps))
        keys = tuple(subject.key for subject in subjects)
        measured = SetMeasurement(
            keys=keys,
            sharing=self.client.sharing,
            step_alone_s=(0.1, 0.1),
            step_together_s=(0.1, 0.1),
            steps=(30, 30),
            delta=2.0,
            delta_general=2.0,
            at_s=1.0,
        )
        return SetRun(measurement=measured, jobs=(1, 2))


@pytest.mark.parametrize("starts_mps", [True, False])
def test_with_mps_a_daemon_is_started_before_the_first_set(starts_mps: bool) -> None:
    fake = FakeScheduler([profile_body(name, 1) for name in ("a", "b")])
    profiler = FakeProfiler(fake, starts_mps=starts_mps)
    session = Session(profiler)  # type: ignore[arg-type]
    group = tuple(Subject(key=ProfileKey(name, None, 1, "V100"), request={}) for name in ("a", "b"))
    session.measure_sets([group], (False, True))
    first = [("a + b", False), ("a", True)]
    assert profiler.asked == ([*first, ("a + b", True)] if starts_mps else first)
    assert [m.sharing for m in session.measurements] == ["time-slice", "mps"][: 1 + starts_mps]
    said = ["MPS on GPU 0 could not be started", "no GPU is shared through MPS, so no set is measured with it"]
    assert session.notes == ([] if starts_mps else said)


def test_which_sets_and_with_or_without_mps() -> None:
    on_gpu = [Subject(key=ProfileKey(name, 64, 1, "V100"), request={}) for name in "abcde"]
    assert len(sets_of(on_gpu, 2)) == len(sets_of(on_gpu, 3)) == 10
    assert modes_for(on_gpu, mps=None) == (False, True)
    assert modes_for(on_gpu, mps=True) == (True,)
    assert modes_for([Subject(key=ProfileKey("a", 1, 1, "cpu"), request={})], mps=True) == (False,)
