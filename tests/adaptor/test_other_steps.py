"""Scripts without an optimizer that PyTorch knows: inference, training by hand, other frameworks."""

from __future__ import annotations

import pytest

from tests.adaptor.conftest import Trained
from tests.adaptor.jobs import SMALL

INFERENCE = f"""{SMALL}
model.eval()
with torch.no_grad():
    for i in range(10):
        model(x)
"""
TWO_MODELS = f"""{SMALL}
other = torch.nn.Linear(1, 1).eval(); model.eval()
with torch.inference_mode():
    for i in range(10):
        other(model(x))
"""
PART_OF_A_ROOT = f"""{SMALL}
model[0].eval(); model.to(torch.float32)
with torch.no_grad():
    for i in range(10):
        model(x)
"""
RAISES = f"""{SMALL}
model.eval()
with torch.no_grad():
    for i in range(10):
        try:
            model(x if i % 2 else x[:, :3])
        except RuntimeError:
            pass
"""
FORGOT_NO_GRAD = f"""{SMALL}
model.eval()
for i in range(10):
    model(x)
"""
ONE_CALL = f"""{SMALL}
with torch.no_grad():
    model.eval()(x)
"""
COMPILED = f"""{SMALL}
model.eval()
fast = torch.compile(model, backend="eager", fullgraph=True)
with torch.no_grad():
    for i in range(10):
        fast(x)
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
COMPILED_THEN_EVAL = f"""{SMALL}
fast = torch.compile(model, backend="eager", fullgraph=True)
fast.eval()
with torch.no_grad():
    for i in range(10):
        fast(x)
"""
BY_HAND = f"""{SMALL}
model.train()
for i in range(10):
    loss_of().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad; p.grad = None
"""
BY_HAND_WITH_EVALUATION = f"""{SMALL}
for epoch in range(2):
    model.train()
    for i in range(5):
        loss_of().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad; p.grad = None
    model.eval()
    with torch.no_grad():
        for i in range(79):
            model(x)
"""
EVALUATION = """
model.eval()
with torch.no_grad():
    for i in range(79):
        model(x)
model.train()
"""
EVALUATED_FIRST = f"""{SMALL}{EVALUATION}
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(10):
    opt.zero_grad(); loss_of().backward(); opt.step()
"""
EVALUATED_FIRST_BY_HAND = f"""{SMALL}{EVALUATION}
for i in range(10):
    loss_of().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad; p.grad = None
"""
EVALUATED_BETWEEN = f"""{SMALL}
for training in range(2):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(5):
        opt.zero_grad(); loss_of().backward(); opt.step()
    del opt
    {EVALUATION.strip().replace(chr(10), chr(10) + "    ")}
"""
OWN_OPTIMIZER = f"""{SMALL}
class Own:
    def __init__(self, params): self.params = list(params)
    def step(self):
        with torch.no_grad():
            for p in self.params:
                p -= 0.1 * p.grad; p.grad = None
model.train(); opt = Own(model.parameters())
for i in range(10):
    loss_of().backward(); opt.step()
"""
REGRESSION = f"""{SMALL}
for i in range(10):
    model.zero_grad()
    loss_of().backward()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(p.grad, alpha=-0.1)
"""
NO_MODULE = f"""{SMALL}
weights = torch.zeros(8, 1, requires_grad=True)
for i in range(10):
    torch.autograd.backward(((x @ weights - y) ** 2).mean())
    weights.data -= 0.1 * weights.grad
    weights.grad = None
"""
CHECKPOINTED = f"""{SMALL}
from torch.utils.checkpoint import checkpoint
for i in range(10):
    hidden = x.clone().requires_grad_()
    for layer in model:
        hidden = checkpoint(layer, hidden, use_reentrant=True)
    torch.nn.functional.mse_loss(hidden, y).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad; p.grad = None
"""
LOADER_BY_HAND = f"""{SMALL}
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
for epoch in range(2):
    for batch, target in data:
        torch.nn.functional.mse_loss(model(batch), target).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad; p.grad = None
"""
REINFORCE = f"""{SMALL}
opt = torch.optim.Adam(model.parameters())
for episode in range(10):
    chosen = []
    for moves in range(5):
        spread = torch.distributions.Categorical(logits=model(x).T)
        move = spread.sample()
        chosen.append(-spread.log_prob(move).sum())
    opt.zero_grad()
    torch.stack(chosen).sum().backward()
    opt.step()
"""
FUNCTIONAL = f"""{SMALL}
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
weights = torch.zeros(8, 1, requires_grad=True)
for epoch in range(2):
    for batch, target in data:
        (gradient,) = torch.autograd.grad(((batch @ weights - target) ** 2).mean(), weights)
        weights = (weights - 0.1 * gradient).detach().requires_grad_()
"""
LENGTH_KNOWN = f"""{SMALL}
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
for epoch in range(2):
    batches = iter(data)
    for i in range(len(data)):
        batch, target = next(batches)
        del batch
    del batches
"""
LOADER_AND_MODEL = f"""{SMALL}
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
model.eval()
with torch.no_grad():
    for batch, target in data:
        model(batch)
"""

EXACT = {
    "inference": (INFERENCE, 10),
    "two models": (TWO_MODELS, 10),
    "part of a root": (PART_OF_A_ROOT, 10),
    "raises": (RAISES, 10),
    "forgot no_grad": (FORGOT_NO_GRAD, 10),
    "one call": (ONE_CALL, 1),
    "compiled": (COMPILED, 10),
    "compiled, then eval": (COMPILED_THEN_EVAL, 10),
    "by hand": (BY_HAND, 10),
    "by hand, with evaluation": (BY_HAND_WITH_EVALUATION, 10),
    "evaluated first": (EVALUATED_FIRST, 10),
    "evaluated first, by hand": (EVALUATED_FIRST_BY_HAND, 10),
    "evaluated between": (EVALUATED_BETWEEN, 10),
    "own optimizer": (OWN_OPTIMIZER, 10),
    "regression": (REGRESSION, 10),
    "no module": (NO_MODULE, 10),
    "checkpointed": (CHECKPOINTED, 10),
    "loader, by hand": (LOADER_BY_HAND, 16),
    "reinforce": (REINFORCE, 10),
    "functional": (FUNCTIONAL, 16),
    "length known": (LENGTH_KNOWN, 16),
    "loader and model": (LOADER_AND_MODEL, 8),
}


@pytest.mark.parametrize("name", EXACT)
def test_steps_are_counted_exactly(trained: Trained, name: str) -> None:
    script, count = EXACT[name]
    job = trained(script)
    assert job.steps() == count
    assert "colane" not in job.errors


def test_compilation_makes_one_graph_all_the_same(trained: Trained) -> None:
    assert trained(COMPILED).out == "1\n"


SAVED = f"""{SMALL}
import copy, io, pickle
model.eval()
assert model._forward_hooks
for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
    assert not other._forward_hooks and not other._forward_pre_hooks and not other._forward_hooks_always_called
theirs = model.register_forward_hook(print)
assert list(copy.deepcopy(model)._forward_hooks.values()) == [print]
theirs.remove()
file = io.BytesIO()
torch.save(model, file)
assert b"colane" not in file.getvalue()
torch.jit.script(model)(x)
torch.jit.trace(model.eval(), x)(x)
exported = torch.export.export(model, (x,)).module()
assert torch.equal(exported(x), model(x))
model.compile(backend="eager", fullgraph=True)
model(x)
print("done")
"""


def test_a_hooked_model_is_saved_copied_scripted_and_exported_as_ever(trained: Trained) -> None:
    job = trained(SAVED)
    assert job.out == "done\n"
    assert "colane" not in job.errors


NO_HOOKS_LEFT = f"""{SMALL}
model.to(torch.float32)
assert model._forward_hooks
opt = torch.optim.SGD(model.parameters(), lr=0.1)
assert not model._forward_hooks and not model._forward_pre_hooks
model.eval()
assert len(model._forward_hooks) == len(model._forward_pre_hooks) == 1
model.eval()
assert len(model._forward_hooks) == 1
import copy, pickle
for one in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
    assert not one._forward_hooks and not one._forward_pre_hooks
model.train()
assert not model._forward_hooks and not model._forward_pre_hooks
print("done")
"""


def test_a_model_with_an_optimizer_carries_hooks_in_eval_mode_only(trained: Trained) -> None:
    assert trained(NO_HOOKS_LEFT).out == "done\n"
