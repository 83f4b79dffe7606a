"""Jobs for `loops.py` that know nothing of Colane: trainers of libraries, and loops as their documents show them.

Arguments: `amp`, `compiled`, `transformers` or `lightning`, the number of steps, and `large` or `small`. Prints one
JSON object: how many updates the trainer itself counts, and seconds of wall time per step over the last half of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import torch

from colane.workloads.models import build

WIDTHS = {"large": 1.0, "small": 0.0625}
BATCHES = {"large": 128, "small": 2}
LAYERS = {"large": (8192, 512, 6), "small": (64, 16, 2)}
"""Width, batch and layers of what is compiled."""
TOKENS = {"large": (512, 8, 512, 16), "small": (32, 2, 16, 2)}
"""Width, layers, length and batch of the language model."""


class Clock:
    """Notes when each step ended on the host, and says what the last half took, once the GPU is done."""

    def __init__(self, steps: int) -> None:
        self.half, self.done = steps // 2, 0
        self.half_s = 0.0

    def step(self) -> None:
        self.done += 1
        if self.done == self.half:
            torch.cuda.synchronize()
            self.half_s = time.perf_counter()

    def tell(self, counted: int) -> None:
        torch.cuda.synchronize()
        wall_s = (time.perf_counter() - self.half_s) / max(self.done - self.half, 1)
        print(json.dumps({"steps": counted, "wall_step_s": wall_s}), flush=True)


def amp(steps: int, size: str) -> None:
    """Mixed precision with a gradient scaler, data from worker processes."""
    model = build("resnet50", width=WIDTHS[size]).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    images = torch.utils.data.TensorDataset(
        torch.randn(steps * BATCHES[size], 3, 32, 32), torch.randint(10, (steps * BATCHES[size],))
    )
    loader = torch.utils.data.DataLoader(images, BATCHES[size], num_workers=2, pin_memory=True)
    clock = Clock(steps)
    for image, kind in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(model(image.to("cuda", non_blocking=True)), kind.to("cuda"))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        clock.step()
    clock.tell(steps)


def compiled(steps: int, size: str) -> None:
    """A network that is compiled in its first step, which takes tens of seconds."""
    width, batch, layers = LAYERS[size]
    net: list[torch.nn.Module] = []
    for _ in range(layers):
        net += [torch.nn.Linear(width, width), torch.nn.GELU()]
    model = torch.nn.Sequential(*net).to("cuda")
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(batch, width, device="cuda")
    clock = Clock(steps)
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(data).float().square().mean()
        loss.backward()
        optimizer.step()
        clock.step()
    clock.tell(steps)


def transformers(steps: int, size: str) -> None:
    """Hugging Face's Trainer on a small GPT-2, two micro-batches a step."""
    import transformers as hf

    width, layers, length, batch = TOKENS[size]
    config = hf.GPT2Config(n_embd=width, n_layer=layers, n_head=4, n_positions=length, vocab_size=2048)
    model = hf.GPT2LMHeadModel(config)
    clock = Clock(steps)

    class Told(hf.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.step()

    tokens = torch.randint(2048, (256, length))
    data = [{"input_ids": one, "labels": one} for one in tokens]
    with tempfile.TemporaryDirectory() as folder:
        wanted = hf.TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=batch, gradient_accumulation_steps=2, bf16=True,
            report_to=[], disable_tqdm=True, save_strategy="no", logging_steps=10,
        )  # fmt: skip
        trainer = hf.Trainer(model=model, args=wanted, train_dataset=data, callbacks=[Told()])
        trainer.train()
        clock.tell(trainer.state.global_step)


def lightning(steps: int, size: str) -> None:
    """Lightning's Trainer, mixed precision, with a validation each 20 steps."""
    import lightning as pl

    clock = Clock(steps)

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = build("resnet18", width=WIDTHS[size])

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch: Any, _: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-4)

        def on_train_batch_end(self, *_: Any) -> None:
            clock.step()

    def loader(batches: int) -> Any:
        count = batches * BATCHES[size]
        images = torch.utils.data.TensorDataset(torch.randn(count, 3, 32, 32), torch.randint(10, (count,)))
        return torch.utils.data.DataLoader(images, BATCHES[size])

    trainer = pl.Trainer(
        max_steps=steps, accelerator="gpu", devices=1, precision="bf16-mixed", logger=False, val_check_interval=20,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=1,
    )  # fmt: skip
    trainer.fit(Module(), loader(60), loader(4))
    clock.tell(trainer.global_step)


ROLES = {one.__name__: one for one in (amp, compiled, transformers, lightning)}

if __name__ == "__main__":
    ROLES[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
