"""DeepSpeed itself, on a cpu: its ZeRO steps an optimizer of PyTorch's in ways of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.adaptor.conftest import Trained
from tests.adaptor.forks import Forks
from tests.adaptor.jobs import SMALL
from tests.needs import needs

needs("deepspeed", "the scripts train with it")

STEPS, PARTS = 10, 2

SCRIPT = """
import os, sys, warnings
warnings.simplefilter("ignore")
import deepspeed
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # it would be compiled, for ranks of one machine
store = "file://" + os.path.abspath("store")
deepspeed.init_distributed("gloo", auto_mpi_discovery=False, init_method=store, rank=0, world_size=1)
parts = [list(part.parameters()) for part in (model[0], model[2])]
opt = torch.optim.AdamW([{"params": one} for one in parts] if groups == 2 else sum(parts, []), lr=0.01)
engine, *_ = deepspeed.initialize(model=model, optimizer=opt, config=dict(
    train_micro_batch_size_per_gpu=32, gradient_accumulation_steps=parts_of_a_step, bf16=dict(enabled=stage > 0),
    zero_optimization=dict(stage=stage), zero_allow_untested_optimizer=True,
))
x, y = (one.to(next(engine.parameters()).dtype) for one in (x, y))
for i in range(steps * parts_of_a_step):
    engine.backward(torch.nn.functional.mse_loss(engine(x), y)); engine.step()
print("steps:", engine.global_steps)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("deepspeed", env={"DS_ACCELERATOR": "cpu"}) as made:
        yield made


@pytest.mark.parametrize(("stage", "groups"), [*itertools.product(range(4), (1, 2))])
def test_each_stage_counts_its_steps_whatever_groups_its_parameters_have(
    trained: Trained, stage: int, groups: int
) -> None:
    env = {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": "0"}
    job = trained(f"{SMALL}stage, groups, steps, parts_of_a_step = {stage}, {groups}, {STEPS}, {PARTS}{SCRIPT}", **env)
    assert f"steps: {STEPS}" in job.out
    assert job.steps() == STEPS
    assert "colane" not in job.errors
