"""What frameworks do when they are asked as their presets have it: the real packages, each where it is installed.

Each script is asked to save in the middle, must leave as its preset says, and started again makes every step once.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from colane.agent.reconcile import DesiredJob, Key, SaveRequest
from colane.agent.running.saving import Saver
from colane.agent.supervisor import programs
from colane.model.checkpoint import CHECKPOINT_PRESETS
from tests.agent.shims import run
from tests.agent.waiting import until

STEPS, ASKED_AFTER = 40, 5
LONG_S = 120.0

NOTES = f"""
import os, sys, time
STEPS = {STEPS}
def note(step):
    with open("steps", "a") as lines:
        lines.write(f"{{step}}\\n")
    if os.path.exists("slow"):
        time.sleep(0.05)
"""

LIGHTNING = """
import torch, warnings
import pytorch_lightning as lightning
from pytorch_lightning.callbacks import OnExceptionCheckpoint
warnings.simplefilter("ignore")

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, number):
        note(self.trainer.global_step + 1)
        return self.net(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(STEPS, 4)), batch_size=1)
trainer = lightning.Trainer(
    max_steps=STEPS, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=True,
    callbacks=[OnExceptionCheckpoint("states", filename="last")], num_sanity_val_steps=0,
)
found = "states/last.ckpt"
trainer.fit(Module(), data, ckpt_path=found if os.path.exists(found) else None)
"""

SUBMITIT = """
import signal
from submitit.core import submission, utils

class Train:
    def __init__(self):
        self.done = 0
    def __call__(self):
        while self.done < STEPS:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
            self.done += 1
            note(self.done)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    def checkpoint(self):
        return utils.DelayedSubmission(self)

os.environ |= {"SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": "1", "SUBMITIT_LOCAL_NTASKS": "1"}
os.environ |= {"SUBMITIT_LOCAL_JOB_NUM_NODES": "1", "SUBMITIT_LOCAL_NODEID": "0"}
os.environ |= {"SUBMITIT_LOCAL_GLOBALID": "0", "SUBMITIT_LOCAL_LOCALID": "0"}
if not os.path.exists("1_submitted.pkl"):
    asked = utils.DelayedSubmission(Train())
    asked.set_timeout(60, 3)
    asked.dump("1_submitted.pkl")
submission.process_job(".")
"""

TRANSFORMERS = """
import torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

class Config(PretrainedConfig):
    model_type = "toy"

class Toy(PreTrainedModel):
    config_class = Config
    def __init__(self, config):
        super().__init__(config)
        self.net = torch.nn.Linear(4, 1)
        self.post_init()
    def forward(self, x=None, labels=None):
        out = self.net(x).squeeze(-1)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}

class Note(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        note(state.global_step)
        if os.path.exists("slow"):
            time.sleep(0.25)

data = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(STEPS)]
args = TrainingArguments(
    output_dir="out", max_steps=STEPS, per_device_train_batch_size=1, enable_jit_checkpoint=True, use_cpu=True,
    report_to=[], save_strategy="no", disable_tqdm=True,
)
trainer = Trainer(model=Toy(Config()), args=args, train_dataset=data, callbacks=[Note()])
trainer.train(resume_from_checkpoint=get_last_checkpoint("out") if os.path.isdir("out") else None)
"""

MADE_AGAIN_MAX = {"transformers": 1}
"""It may save in the middle of a step, which is made again."""

SCRIPTS = {
    "transformers": ("transformers", TRANSFORMERS),
    "lightning": ("pytorch_lightning", LIGHTNING),
    "submitit": ("submitit", SUBMITIT),
}


def steps(folder: Path) -> list[int]:
    path = folder / "steps"
    return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


@pytest.mark.live
@pytest.mark.timeout(300)
@pytest.mark.parametrize("preset", list(SCRIPTS))
def test_it_saves_when_it_is_asked_leaves_as_its_preset_says_and_goes_on(
    preset: str, tmp_path: Path, marker: str
) -> None:
    package, script = SCRIPTS[preset]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed, which the tests do not bring: pip install {package}")
    folder, contract = tmp_path / "work", CHECKPOINT_PRESETS[preset]
    folder.mkdir()
    (folder / "train.py").write_text(NOTES + script)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    (folder / "slow").touch()
    first = run(tmp_path, sys.executable, "train.py", marker=marker, workdir=str(folder), env=env)
    until(lambda: len(steps(folder)) >= ASKED_AFTER, "it trains", deadline_s=LONG_S)
    saver = Saver(lambda _: first.job, programs.folder(tmp_path))
    saver.follow([DesiredJob(Key(1, 1), run=True, save=SaveRequest(contract.signal, 1))])
    assert saver.messages() == ()
    assert first.end()["exit_code"] in contract.saved_codes, first.output().decode()
    assert len(steps(folder)) < STEPS
    (folder / "slow").unlink()
    (tmp_path / "again").mkdir()
    second = run(tmp_path / "again", sys.executable, "train.py", marker=marker, workdir=str(folder), env=env)
    assert second.end()["exit_code"] == 0, second.output().decode()
    made = steps(folder)
    assert sorted(set(made)) == list(range(1, STEPS + 1)), second.output().decode()
    assert made == sorted(made)
    assert len(made) - STEPS <= MADE_AGAIN_MAX.get(preset, 0), made
