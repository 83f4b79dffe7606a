"""Trains one model on one dataset for a number of steps, and reports each of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import colane.adaptor as colane
from colane.workloads import data, models
from colane.workloads.progress import Log, say


class DeviceError(Exception):
    """The device asked for is not there."""


def run(job: Mapping[str, Any], log_every: int) -> None:
    """Train as the completed job object says; prints progress every `log_every` steps.

    Raises:
        DeviceError: CUDA was asked for and there is none.
        cifar10.DatasetError: the dataset cannot be read.
        torch.OutOfMemoryError: the model does not fit the GPU.
    """
    device = pick_device(job["device"])
    generator = _determined(job["seed"])
    _use_given_threads()
    model = models.build(job["model_name"], job["num_class"], job["width"]).to(device)
    say(_title(job, model, device))
    batches = _batches(job, generator, device)
    steps = colane.attach(total_steps=job["iters"])
    _train(model, make_optimizer(job, model), _on_device(batches, device), steps, Log(job, log_every))


def _train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Tensor, Tensor]],
    steps: colane.Reporter,
    log: Log,
) -> None:
    criterion = nn.CrossEntropyLoss()
    model.train()
    for images, labels in batches:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()
        steps.step(loss=value)
        log.step(value)
    log.end()


def pick_device(name: str) -> torch.device:
    """Return the device by its catalogue name; "auto" is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("--device cuda: PyTorch sees no CUDA device here; use --device cpu or auto")
    return torch.device(name)


def make_optimizer(job: Mapping[str, Any], model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer; momentum means something to sgd and rmsprop only."""
    common = {"params": model.parameters(), "lr": job["lr"], "weight_decay": job["weight_decay"]}
    if job["optim"] == "sgd":
        return torch.optim.SGD(**common, momentum=job["momentum"])
    if job["optim"] == "rmsprop":
        return torch.optim.RMSprop(**common, momentum=job["momentum"])
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[job["optim"]](**common)


def _determined(seed: int | None) -> torch.Generator:
    """Seed everything random, where a seed is given; the loader's workers are seeded from the generator."""
    if seed is None:
        torch.backends.cudnn.benchmark = True
        return torch.Generator().manual_seed(torch.seed() % 2**63)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    return torch.Generator().manual_seed(seed)


def _use_given_threads() -> None:
    """Use as many threads as the agent gave; OMP_NUM_THREADS may list one number per nesting level."""
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if given.isdecimal() and int(given) > 0:
        torch.set_num_threads(int(given))


def _batches(
    job: Mapping[str, Any], generator: torch.Generator, device: torch.device
) -> Iterable[tuple[Tensor, Tensor]]:
    folder = Path(job["dataset_path"]).expanduser()
    side = job["image_size"]
    samples = data.load(job["dataset"], folder, job["num_class"], side, job["seed"] or 0)
    augmented = data.Augmented(samples, side, flip=data.flips(job["dataset"]))
    pinned = device.type == "cuda"
    batches: Iterable[tuple[Tensor, Tensor]] = data.loader(
        augmented, job["batch_size"], job["iters"], job["workers"], generator, pin_memory=pinned
    )
    return batches


def _on_device(batches: Iterable[tuple[Tensor, Tensor]], device: torch.device) -> Iterable[tuple[Tensor, Tensor]]:
    for images, labels in batches:
        yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)


def _title(job: Mapping[str, Any], model: nn.Module, device: torch.device) -> str:
    scaled = "" if job["width"] == 1 else f" scaled to width {job['width']:g}"
    what = f"{job['model_name']}{scaled}: {models.parameters(model):,} parameters"
    images = f"{job['dataset']} {job['image_size']} x {job['image_size']}"
    return f"{what}, {images}, batch {job['batch_size']}, {job['optim']}, on {device.type}"
