"""Scripts with PyTorch Lightning: its Trainer calls optimizers, models and loaders in its own ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adaptor.conftest import Trained
from tests.adaptor.forks import Forks
from tests.needs import needs

needs("pytorch_lightning", "the scripts train with it")


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("pytorch_lightning") as made:
        yield made


MODULE = """
import hashlib, warnings
import torch
import pytorch_lightning
warnings.simplefilter("ignore")
pytorch_lightning.seed_everything(0)
class Module(pytorch_lightning.LightningModule):
    def __init__(self, many=False):
        super().__init__()
        self.automatic_optimization = not many
        self.nets = torch.nn.ModuleList([torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)])
    def loss(self, number, batch):
        x, y = batch
        return torch.nn.functional.mse_loss(self.nets[number](x), y)
    def training_step(self, batch, number):
        if self.automatic_optimization:
            return self.loss(0, batch)
        for number, opt in enumerate(self.optimizers()):
            opt.zero_grad(); self.manual_backward(self.loss(number, batch)); opt.step()
    def validation_step(self, batch, number):
        self.log("loss", self.loss(0, batch))
    def predict_step(self, batch, number):
        return self.nets[0](batch[0])
    def configure_optimizers(self):
        opts = [torch.optim.Adam(net.parameters(), lr=0.01) for net in self.nets]
        return opts[0] if self.automatic_optimization else opts
data = torch.utils.data.TensorDataset(torch.randn(40, 8), torch.randn(40, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
def trainer(**more):
    return pytorch_lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, **more)
"""
FITS = f"""{MODULE}
module = Module()
trainer(accumulate_grad_batches=4).fit(module, loader, loader)
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in module.parameters())).hexdigest())
"""
OPTIMIZES_ITSELF = f"""{MODULE}
trainer(enable_checkpointing=False).fit(Module(many=True), loader)
"""
PREDICTS = f"""{MODULE}
trainer().predict(Module(), loader)
"""


@pytest.mark.parametrize(
    ("script", "count", "total"),
    [(OPTIMIZES_ITSELF, 20, 20), (PREDICTS, 10, None)],
    ids=["two optimizers", "predicts"],
)
def test_steps_are_counted_exactly(trained: Trained, script: str, count: int, total: int | None) -> None:
    job = trained(script)
    assert job.steps() == count
    assert job.total() == total
    assert "colane" not in job.errors


def test_accumulation_counts_steps_and_the_weights_are_the_same_bits(trained: Trained) -> None:
    """Two epochs of ten batches, four of them to a step; the rest of an epoch makes a step as well."""
    job = trained(FITS)
    assert job.steps() == job.total() == 6, "the Trainer says how many there will be"
    assert "colane" not in job.errors
    with_adaptor = job.out.splitlines()[-1]
    assert len(with_adaptor) == 64
    assert trained(FITS, COLANE_ADAPTOR="off").out.splitlines()[-1] == with_adaptor
