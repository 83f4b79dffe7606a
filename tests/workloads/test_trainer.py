"""The trainer as its users meet it: a process."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from colane.adaptor import wire
from colane.workloads import arguments
from tests.adaptor.forks import Forks
from tests.needs import needs

needs("torch", "the built-in trainer needs PyTorch")
pytestmark = pytest.mark.live

TINY = {
    "--model-name": "resnet18",
    "--width": "0.05",
    "--image-size": "16",
    "--dataset": "synthetic",
    "--batch-size": "4",
    "--iters": "6",
    "--workers": "0",
    "--device": "cpu",
    "--log-every": "2",
}


def words(**options: str) -> list[str]:
    chosen = TINY | {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    return [part for pair in chosen.items() for part in pair]


def command(**options: str) -> list[str]:
    return [sys.executable, "-m", "colane.workloads", *words(**options)]


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **variables}


def train(**options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(**options), env=environment(), capture_output=True, text=True, check=False)


def test_it_trains_prints_and_reports_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "steps"
    wire.create(path)
    monkeypatch.setenv(wire.STEPS_FILE_ENV, str(path))
    ran = train(model_name="ResNet-18")
    assert (ran.returncode, ran.stderr) == (0, "")
    title, *lines, last = ran.stdout.splitlines()
    assert title.startswith("resnet18 scaled to width 0.05: ")
    assert [line.split()[1] for line in lines] == ["2/6", "4/6", "6/6"]
    assert all(re.fullmatch(r"step \d/6 loss \d+\.\d{4} \d+\.\d\d steps/s", line) for line in lines)
    assert last.startswith("done resnet18 6 steps in ")
    steps = wire.read(path)
    assert steps is not None
    assert (steps.steps, steps.steps_total, len(steps.durations_s)) == (6, 6, 6)
    assert steps.loss is not None
    assert last.endswith(f"loss {steps.loss:.4f}")


def losses(text: str) -> list[str]:
    return re.findall(r"loss (\S+)", text)


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Trains in this process, which has PyTorch loaded; gives the losses."""
    from colane.workloads import train as program  # noqa: PLC0415  # it needs PyTorch

    def run(**options: str) -> list[str]:
        program.run(*arguments.parse(words(**options)))
        return losses(capsys.readouterr().out)

    return run


def test_the_same_seed_gives_the_same_losses(here: Callable[..., list[str]]) -> None:
    first, again, other = (here(seed=seed) for seed in ("5", "5", "6"))
    assert len(first) == 4
    assert first == again != other


def test_the_same_seed_gives_the_same_losses_in_another_process_and_with_workers(
    here: Callable[..., list[str]], forks: Forks, tmp_path: Path
) -> None:
    assert losses(train(seed="5").stdout) == here(seed="5")
    (tmp_path / "train.py").write_text("import sys\nfrom colane.workloads import __main__\nsys.exit(__main__.main())")

    def forked() -> list[str]:
        ran = forks.start(tmp_path / "train.py", *words(seed="5", workers="1"), env=environment(), cwd=tmp_path)
        assert ran.wait() == 0, ran.errors
        return losses(ran.out)

    first, again = forked(), forked()
    assert len(first) == 4
    assert first == again


def test_training_lowers_the_loss() -> None:
    pytest.importorskip("sklearn", reason="the digits ship with scikit-learn")
    options = {"dataset": "digits", "width": "0.125", "batch_size": "32", "momentum": "0.9", "seed": "1"}
    values = [float(each) for each in losses(train(iters="60", log_every="30", **options).stdout)]
    assert values[-1] < 0.7 * math.log(10)


@pytest.mark.parametrize("optim", ["adam", "adamw", "rmsprop"])
def test_each_optimizer_trains(optim: str, here: Callable[..., list[str]]) -> None:
    values = [float(loss) for loss in here(optim=optim, iters="2", lr="0.001", seed="1")]
    assert values
    assert all(map(math.isfinite, values))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model_name": "vgg91"}, "--model-name unknown 'vgg91'; did you mean vgg11 or vgg19"),
        ({"batch_size": "-4"}, "--batch-size must be at least 1, got -4"),
        ({"iters": "ten"}, "--iters must be a whole number, got 'ten'"),
        ({"dataset": "cifar10"}, "data is not a directory"),
        ({"device": "cuda"}, "--device cuda"),
        ({"log_every": "0"}, "--log-every"),
        ({"epochs": "3"}, "unrecognized arguments: --epochs"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_2(tmp_path: Path, options: dict[str, str], words: str) -> None:
    ran = subprocess.run(
        command(**options),
        env=environment(CUDA_VISIBLE_DEVICES=""),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (ran.returncode, ran.stdout.count("step")) == (2, 0)
    assert words in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("whole_group", [False, True])
def test_sigterm_ends_it_with_143_and_leaves_no_worker(workers: str, whole_group: bool) -> None:
    process = subprocess.Popen(
        command(iters="1000000", workers=workers),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        while "step" not in process.stdout.readline():
            assert process.poll() is None
        if whole_group:
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (143, "")
    assert "stopped by SIGTERM" in out
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_it_says_what_to_install_without_pytorch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')\n")
    ran = subprocess.run(
        command(), env=environment(PYTHONPATH=str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "needs torch: pip install 'colane[workloads]'" in ran.stderr
