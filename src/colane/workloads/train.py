"""Trains one model on one dataset for a number of steps, and reports each of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import colane.adaptor as colane
from colane.workloads import data, models
from colane.workloads.checkpoints import Training
from colane.workloads.progress import Log, say
from colane.workloads.statefile import StateFile


class DeviceError(Exception):
    """The device asked for is not there."""


def run(job: Mapping[str, Any], log_every: int) -> None:
    """Train as the completed job object says; prints progress every `log_every` steps.

    Raises:
        DeviceError: CUDA was asked for and there is none.
        cifar10.DatasetError: the dataset cannot be read.
        UnusableStateError: the saved state is that of another training, or may not be read.
        torch.OutOfMemoryError: the model does not fit the GPU.
    """
    device = pick_device(job["device"])
    seed = _determined(job["seed"])
    # As many threads as the agent gave: there may be one number for each nesting level.
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if given.isdecimal() and int(given) > 0:
        torch.set_num_threads(int(given))
    model = models.build(job["model_name"], job["num_class"], job["width"]).to(device)
    optimizer = make_optimizer(job, model)
    folder = Path(job["dataset_path"]).expanduser()
    samples = data.load(job["dataset"], folder, job["num_class"], job["image_size"], job["seed"] or 0)
    steps = colane.attach(total_steps=job["iters"])
    job = {**job, "batch_size": steps.batch_size(job["batch_size"])}
    say(_title(job, model, device))
    training = _training(job, model, optimizer, seed)
    done = steps.restore(training.load) if training is not None else 0
    taken = training.samples_taken(done) if training is not None else 0
    batches = _batches(job, samples, training.seed if training is not None else seed, (done, taken), device)
    save = partial(steps.save, training.save, job["checkpoint_every_s"]) if training is not None else _save_nothing
    _train(model, optimizer, _on_device(batches, device), steps, Log(job, log_every, done), save)


def _training(job: Mapping[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> Training | None:
    """What can be saved and taken up again, where there is a directory for it."""
    if not job["checkpoint_dir"]:
        return None
    return Training(model, optimizer, seed, StateFile(_state_path(job)), job["batch_size"])


def _state_path(job: Mapping[str, Any]) -> Path:
    """Each job has a file of its own, which all its attempts find."""
    folder = Path(job["checkpoint_dir"]).expanduser()
    with suppress(OSError):  # said when a state is saved
        folder.mkdir(parents=True, exist_ok=True)
    name = f"{job['model_name']}-{os.environ.get('COLANE_JOB_ID', 'alone')}.state"
    return folder / name


def _save_nothing() -> None:
    """A training without a directory for its state is one that cannot be stopped and go on."""


def _train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Tensor, Tensor]],
    steps: colane.Reporter,
    log: Log,
    save: Callable[[], None],
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
        save()
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


def _determined(seed: int | None) -> int:
    """Seed everything random, by chance where no seed is given; the seed."""
    if seed is None:
        torch.backends.cudnn.benchmark = True
        return int(torch.seed()) % 2**63
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    return seed


def _batches(
    job: Mapping[str, Any], samples: data.Samples, seed: int, done: tuple[int, int], device: torch.device
) -> Iterable[tuple[Tensor, Tensor]]:
    augmented = data.Augmented(samples, job["image_size"], flip=data.flips(job["dataset"]), rotations=job["augment"])
    pinned = device.type == "cuda"
    batches: Iterable[tuple[Tensor, Tensor]] = data.loader(
        augmented, job["batch_size"], job["iters"], job["workers"], seed, done=done, pin_memory=pinned
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
