"""A LightningModule and a Trainer that accumulates gradients."""

import hashlib
import sys
import warnings

import pytorch_lightning
import torch

steps, parts = int(sys.argv[1]), 2
torch.set_num_threads(1)
warnings.simplefilter("ignore")
pytorch_lightning.seed_everything(5)


class Regression(pytorch_lightning.LightningModule):  # type: ignore[misc]
    """A little network."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], _number: int) -> torch.Tensor:
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.net(inputs), targets)

    def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
        self.log("loss", self.training_step(batch, number))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


data = torch.utils.data.TensorDataset(torch.randn(8 * parts * steps // 2, 16), torch.randn(8 * parts * steps // 2, 1))
batches = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
trainer = pytorch_lightning.Trainer(
    max_epochs=2, accumulate_grad_batches=parts, limit_val_batches=5, accelerator="cpu", logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
model = Regression()
trainer.fit(model, batches, torch.utils.data.DataLoader(data, batch_size=8))
weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
print("weights", hashlib.sha256(weights).hexdigest())
