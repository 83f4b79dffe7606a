"""Scripts with optimizers, none of which knows of Colane: the count must be exactly theirs."""

from __future__ import annotations

import sys

import pytest

from colane.adaptor import wire, writer
from tests.adaptor.conftest import Trained
from tests.adaptor.jobs import SMALL, Job

SGD = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"

PLAIN = f"""{SMALL}{SGD}
for i in range(20):
    opt.zero_grad(); loss = loss_of(); loss.backward(); opt.step()
print(loss.item())
"""
ACCUMULATION = f"""{SMALL}{SGD}
for i in range(16):
    (loss_of() / 4).backward()
    if i % 4 == 3:
        opt.step(); opt.zero_grad()
"""
SCHEDULER = f"""{SMALL}{SGD}
schedule = torch.optim.lr_scheduler.StepLR(opt, 3)
for i in range(7):
    opt.zero_grad(); loss_of().backward(); opt.step(); schedule.step()
"""
GAN = f"""{SMALL}
other = torch.nn.Linear(8, 1)
first = torch.optim.Adam(model.parameters()); second = torch.optim.Adam(other.parameters())
for i in range(9):
    first.zero_grad(); loss_of().backward(); first.step()
    second.zero_grad(); loss_of(other).backward(); second.step()
"""
CRITIC = f"""{SMALL}
other = torch.nn.Linear(8, 1)
critic = torch.optim.RMSprop(model.parameters()); generator = torch.optim.RMSprop(other.parameters())
for i in range(20):
    critic.zero_grad(); loss_of().backward(); critic.step()
    if i % 5 == 4:
        generator.zero_grad(); loss_of(other).backward(); generator.step()
"""
TWO_TRAININGS = f"""{SMALL}
for fold in range(3):
    model = torch.nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(4):
        opt.zero_grad(); loss_of(model).backward(); opt.step()
"""
LBFGS = f"""{SMALL}
opt = torch.optim.LBFGS(model.parameters(), max_iter=4)
def closure():
    opt.zero_grad(); loss = loss_of(); loss.backward(); return loss
for i in range(5):
    opt.step(closure)
"""
CLOSURE_RAISES = f"""{SMALL}
opt = torch.optim.LBFGS(model.parameters()); other = torch.optim.SGD(model.parameters(), lr=0.1)
def closure():
    raise ArithmeticError
for i in range(3):
    try:
        opt.step(closure)
    except ArithmeticError:
        pass
for i in range(6):
    other.zero_grad(); loss_of().backward(); other.step()
"""
NESTED_RAISES = f"""{SMALL}
class Outer(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, dict())
        self.inner = inner
    def step(self, closure=None):
        try:
            self.inner.step(fails)
        except ArithmeticError:
            self.inner.step()
def fails():
    raise ArithmeticError
opt = Outer(torch.optim.SGD(model.parameters(), lr=0.1))
for i in range(6):
    opt.zero_grad(); loss_of().backward(); opt.step()
"""
SAM = f"""{SMALL}
class SAM(torch.optim.Optimizer):
    def __init__(self, params, base):
        super().__init__(params, dict(rho=0.05))
        self.base = base(self.param_groups, lr=0.1)
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        closure()
        self.base.step()
        closure()
        self.base.step()
opt = SAM(model.parameters(), torch.optim.SGD)
def closure():
    opt.zero_grad(); loss = loss_of(); loss.backward(); return loss
for i in range(8):
    opt.step(closure)
"""
SCALER = f"""{SMALL}{SGD}
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for i in range(10):
    opt.zero_grad()
    loss = loss_of() * (float("inf") if i in (2, 5) else 1.0)
    scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
"""
IN_BACKWARD = f"""{SMALL}
opts = {{p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}}
def hook(p):
    opts[p].step(); opts[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(hook)
model.train()
for i in range(6):
    loss_of().backward()
"""
THREADS = f"""{SMALL}
import threading
def train():
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(12):
        opt.zero_grad(); loss_of().backward(); opt.step()
thread = threading.Thread(target=train); thread.start(); thread.join()
"""
COMPILED_MODEL = f"""{SMALL}
fast = torch.compile(model, backend="eager", fullgraph=True)
opt = torch.optim.SGD(fast.parameters(), lr=0.1)
for i in range(5):
    opt.zero_grad(); loss_of(fast).backward(); opt.step()
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
COMPILED_STEP = f"""{SMALL}{SGD}
@torch.compile(backend="eager")
def train():
    loss = loss_of(); loss.backward(); opt.step(); opt.zero_grad()
torch._dynamo.config.error_on_recompile = True
for i in range(6):
    train()
"""
EVALUATES = f"""{SMALL}{SGD}
model.eval()
with torch.no_grad():
    for i in range(5):
        model(x)
for epoch in range(2):
    model.train()
    for i in range(4):
        opt.zero_grad(); loss_of().backward(); opt.step()
    model.eval()
    with torch.no_grad():
        for i in range(5):
            model(x)
"""
LOOKS_AT_DATA_FIRST = f"""{SMALL}
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
mean = sum(float(batch.mean()) for batch, _ in data)
{SGD}
for batch, target in data:
    opt.zero_grad(); torch.nn.functional.mse_loss(model(batch), target).backward(); opt.step()
"""

GROUPS = f"""{SMALL}
groups = [list(part.parameters()) for part in (model[0], model[2])]
opt = torch.optim.AdamW([{{"params": one}} for one in groups], lr=0.1)
class Zero:  # as DeepSpeed's stages 1 to 3: no optimizer of PyTorch's, it steps the inner one for each group
    def step(self):
        everything = opt.param_groups
        for group in everything:
            opt.param_groups = [group]
            opt.step()
        opt.param_groups = everything
zero = Zero()
for i in range(20):
    loss_of().backward(); zero.step(); opt.zero_grad()
"""
HYBRID = f"""{SMALL}
opts = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2])]
for i in range(12):
    loss_of().backward()
    for opt in opts:
        opt.step(); opt.zero_grad()
"""
BY_HAND = f"""{SMALL}{SGD}
loss_of().backward(); opt.step()
for i in range(99):
    for p, grad in zip(model.parameters(), torch.autograd.grad(loss_of(), list(model.parameters()))):
        p.grad = grad
    opt.step()
"""
HYBRID_OF_MANY = f"""{SMALL}
opts = [torch.optim.SGD([p], lr=0.1) for p in model.parameters()]
for i in range(12):
    loss_of().backward()
    for opt in opts:
        opt.step()
    for opt in opts:
        opt.zero_grad()
"""
MUON = f"""{SMALL}
muon = torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=0.01)
adam = torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2], lr=0.01)
def train(steps, *order):  # a bias steps every so many steps, as the embedding of some recipes
    for i in range(1, steps + 1):
        loss_of().backward()
        for opt, each in order:
            if i % each == 0:
                opt.step(); opt.zero_grad()
"""
MUON_INSIDE = f"""{MUON}
class Both(torch.optim.Optimizer):
    def __init__(self):
        super().__init__(model.parameters(), dict(lr=0.01))
    def step(self, closure=None):
        muon.step(); adam.step()
opt = Both()
for i in range(12):
    opt.zero_grad(); loss_of().backward(); opt.step()
"""
APEX = f"""{SMALL}
import contextlib
class Amp:  # as Apex' FP16_Optimizer: the steps are those of 32-bit masters
    def __init__(self, params):
        self.params = list(params)
        self.masters = [p.detach().float().clone().requires_grad_() for p in self.params]
        self.inner = torch.optim.SGD(self.masters, lr=0.1)
    @contextlib.contextmanager
    def scaled(self, loss):
        yield loss * 128
        for p, master in zip(self.params, self.masters):
            master.grad, p.grad = p.grad.float() / 128, None
    def step(self):
        self.inner.step()
        with torch.no_grad():
            for p, master in zip(self.params, self.masters):
                p.copy_(master)
    def __getattr__(self, name):
        return getattr(self.inner, name)
model.bfloat16(); x, y = x.bfloat16(), y.bfloat16(); opt = Amp(model.parameters())
for i in range(12):
    with opt.scaled(loss_of()) as loss:
        loss.backward()
    opt.step(); opt.zero_grad()
"""
PATCHED = f"""{SMALL}{SGD}
scaler, own = torch.amp.GradScaler("cpu", init_scale=4.0), opt.step
def step(*args, **kwargs):  # as accelerate learns whether the scaler has called it
    return own(*args, **kwargs)
for i in range(10):
    scaler.scale(loss_of() * (float("inf") if i in (2, 5) else 1.0)).backward()
    opt.step = step; scaler.step(opt); scaler.update(); opt.step = own; opt.zero_grad()
"""
SCALED_HYBRID = f"""{HYBRID}
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for i in range(10):
    scaler.scale(loss_of() * (float("inf") if i in (2, 5) else 1.0)).backward()
    for opt in opts:
        scaler.step(opt); opt.zero_grad()
    scaler.update()
"""
RELEASED = f"""{SMALL}
from torch.distributed.optim import _apply_optimizer_in_backward
_apply_optimizer_in_backward(torch.optim.SGD, model[0].parameters(), dict(lr=0.1))
rest = torch.optim.SGD(model[2].parameters(), lr=0.1)
for i in range(8):
    loss_of().backward(); rest.step(); rest.zero_grad()
"""
SHARDED = f"""{SMALL}
import os
from torch.distributed.optim import ZeroRedundancyOptimizer
torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=0, world_size=1)
opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
for i in range(8):
    opt.zero_grad(); loss_of().backward(); opt.step()
"""
EXACT = {
    "hybrid of many": (HYBRID_OF_MANY, 12),
    "muon": (MUON + "train(12, (muon, 1), (adam, 1))", 12),
    "muon, rare after": (MUON + "train(12, (muon, 1), (adam, 2))", 12),
    "muon, rare before": (MUON + "train(12, (adam, 3), (muon, 1))", 12),
    "muon inside": (MUON_INSIDE, 12),
    "apex": (APEX, 12),
    "patched step": (PATCHED, 10),
    "scaler of two": (SCALED_HYBRID, 22),
    "released": (RELEASED, 8),
    "sharded": (SHARDED, 8),
    "groups": (GROUPS, 20),
    "hybrid": (HYBRID, 12),
    "backward unseen": (BY_HAND, 100),
    "plain": (PLAIN, 20),
    "accumulation": (ACCUMULATION, 4),
    "scheduler": (SCHEDULER, 7),
    "gan": (GAN, 9),
    "critic": (CRITIC, 20),
    "two trainings": (TWO_TRAININGS, 12),
    "lbfgs": (LBFGS, 5),
    "closure raises": (CLOSURE_RAISES, 6),
    "nested raises": (NESTED_RAISES, 6),
    "sam": (SAM, 8),
    "scaler skips": (SCALER, 10),
    "in backward": (IN_BACKWARD, 6),
    "threads": (THREADS, 12),
    "compiled model": (COMPILED_MODEL, 5),
    "compiled step": (COMPILED_STEP, 6),
    "evaluates": (EVALUATES, 8),
    "looks at data first": (LOOKS_AT_DATA_FIRST, 8),
}


@pytest.mark.parametrize("name", EXACT)
def test_steps_are_counted_exactly(trained: Trained, name: str) -> None:
    script, count = EXACT[name]
    job = trained(script)
    assert job.steps() == count
    assert "colane" not in job.errors


@pytest.mark.parametrize("name", ["plain", "gan", "lbfgs", "scaler skips", "compiled step"])
def test_what_a_script_computes_is_bit_for_bit_the_same(trained: Trained, name: str) -> None:
    told = (
        "\nfor p in model.parameters():\n    print([value.hex() for value in p.detach().double().flatten().tolist()])"
    )
    with_adaptor = trained(EXACT[name][0] + told).out
    assert with_adaptor.count("0x") == 161
    assert trained(EXACT[name][0] + told, COLANE_ADAPTOR="off").out == with_adaptor


def test_what_is_reported_of_a_step(trained: Trained) -> None:
    seen = trained(PLAIN).seen()
    assert seen is not None
    assert seen.first_step_s is not None
    assert seen.last_step_s is not None
    assert seen.heartbeat_s == seen.last_step_s > seen.first_step_s
    assert len(seen.durations_s) == 20
    assert seen.persistent_bytes is not None
    assert seen.peak_bytes is not None
    assert 10_000_000 < seen.persistent_bytes <= seen.peak_bytes
    assert (seen.phase, seen.loss, seen.steps_total) == (writer.IN_STEP, None, None)


def test_the_switch_leaves_a_job_alone(trained: Trained) -> None:
    assert trained(PLAIN, COLANE_ADAPTOR="off").seen() is None


EXPLICIT = f"""{SMALL}{SGD}
from _colane_adaptor.reporter import attach
steps = attach(total_steps=5)
for i in range(10):
    opt.zero_grad(); loss = loss_of(); loss.backward(); opt.step()
    if i % 2:
        steps.step(loss=loss.item())
"""


def test_a_script_that_reports_its_steps_is_believed(trained: Trained) -> None:
    seen = trained(EXPLICIT).seen()
    assert seen is not None
    assert (seen.steps, seen.steps_total) == (5, 5)
    assert seen.loss is not None


INSTALLED = EXPLICIT.replace("_colane_adaptor.reporter", "colane.adaptor")


def test_an_installed_colane_speaks_through_the_copy_of_the_agent(trained: Trained) -> None:
    """Two copies in one process would both claim the file, and hooks and script both count."""
    job = trained(INSTALLED + "import sys\nprint('colane.adaptor' in sys.modules)")
    assert (job.out, job.steps()) == ("True\n", 5)


BROKEN = f"""{SMALL}{SGD}
import os
os.truncate(os.environ["COLANE_STEPS_FILE"], 100)
for i in range(4):
    opt.zero_grad(); loss_of().backward(); opt.step()
print("trained")
"""


def test_a_broken_file_costs_the_report_not_the_job(trained: Trained) -> None:
    job = trained(BROKEN)
    assert job.out == "trained\n"
    assert job.errors.count("colane: no more steps are reported") == 1


def test_a_file_of_another_version_leaves_the_job_opaque_and_says_so(trained: Trained, job: Job) -> None:
    with job.steps_path.open("r+b") as file:
        file.seek(8)
        file.write((99).to_bytes(8, sys.byteorder))
    assert "has version 99" in trained(PLAIN).errors
    with pytest.raises(wire.VersionError, match="version 99"):
        job.seen()
    with job.steps_path.open("r+b") as file:  # as an agent of that version would see it
        file.seek(8)
        file.write(writer.VERSION.to_bytes(8, sys.byteorder))
        file.seek(writer.REFUSED_WORD * 8)
        file.write((writer.VERSION + 1).to_bytes(8, sys.byteorder))
    with pytest.raises(wire.VersionError, match=f"adaptor speaks version {writer.VERSION + 1}"):
        job.seen()
