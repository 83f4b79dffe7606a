"""Training as libraries and public scripts do it, beyond the plain loops: what an adaptor could break by being there.

Arguments as of `loops`; each also prints what its script would print, losses to the last digit.
"""

# ruff: noqa: T201

from __future__ import annotations

import copy
import io
import os
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, Dataset, IterableDataset

sys.path.insert(0, str(Path(__file__).parent))
import loops  # type: ignore[import-not-found]
from loops import Net, kernels, setup


def say(*losses: torch.Tensor | float) -> None:
    told = " ".join(f"{float(loss.detach() if isinstance(loss, torch.Tensor) else loss):.9g}" for loss in losses)
    sys.stdout.write(f"loss: {told}\n")  # at once: two ranks write here
    sys.stdout.flush()


class _Accelerated(torch.optim.Optimizer):  # type: ignore[misc]
    """As Accelerate wraps an optimizer: an Optimizer itself that shares its groups, and steps when gradients are in."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.syncs = inner, True

    @property
    def state(self) -> Any:
        return self.inner.state

    @property
    def param_groups(self) -> Any:
        return self.inner.param_groups

    @property
    def defaults(self) -> Any:
        return self.inner.defaults

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        if self.syncs:
            self.inner.zero_grad() if set_to_none is None else self.inner.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:
        if self.syncs:
            self.inner.step(closure)


def accelerated(steps: int) -> int:
    """Of four batches one ends in a step; the wrapped optimizer and its scheduler are asked at each."""
    net, inner, x = setup()
    optimizer = _Accelerated(inner)
    scheduler = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 1 / (1 + step))
    for batch in range(4 * steps):
        optimizer.syncs = batch % 4 == 3
        loss = net(x).sum() / 4
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if optimizer.syncs:
            scheduler.step()
        optimizer.zero_grad()
    say(loss)
    return steps


def scaled_and_skipped(steps: int) -> int:
    """fp16's scaler with accumulation, clipping and overflows, two optimizers of one scaler."""
    one, two, scaler = setup(), setup(), torch.amp.GradScaler("cuda", init_scale=2.0**4, growth_interval=3)
    for step in range(steps):
        for net, _, x in (one, two):
            for part in range(2):
                with torch.amp.autocast("cpu", dtype=torch.bfloat16):
                    loss = net(x).float().sum() * (float("inf") if (step + part) % 7 == 6 else 1.0)
                scaler.scale(loss).backward()
        for net, optimizer, _ in (one, two):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
        scaler.update()
        for _, optimizer, _ in (one, two):
            optimizer.zero_grad(set_to_none=True)
    say(scaler.get_scale())
    return steps


def adapters(steps: int) -> int:
    """As PEFT trains: a frozen base, adapters beside it, generation between steps, adapters saved alone."""

    class Adapted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, base: Net) -> None:
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down, self.up = torch.nn.Linear(4, 2, bias=False), torch.nn.Linear(2, 1, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.up(self.down(x))

    net, x = Adapted(Net()).to("cuda"), torch.randn(8, 4).to("cuda")
    optimizer = torch.optim.AdamW([one for one in net.parameters() if one.requires_grad], lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            net.eval()
            with torch.inference_mode():
                for _ in range(3):
                    net(x)
            net.train()
            torch.save({name: one for name, one in net.state_dict().items() if "base" not in name}, io.BytesIO())
            say(loss)
    return steps


def critics_first(steps: int) -> int:
    """A Wasserstein GAN: five steps of the critic with a gradient penalty for one of the generator."""
    critic, maker = setup(), setup()
    for step in range(steps):
        net, optimizer, x = critic
        optimizer.zero_grad()
        x = x.detach().requires_grad_()
        score = net(x).sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        (score + (slope.norm() - 1) ** 2).backward()
        optimizer.step()
        if step % 5 == 4:
            net, optimizer, x = maker
            optimizer.zero_grad()
            (-critic[0](x)).mean().backward()
            loss = net(x).sum()
            loss.backward()
            optimizer.step()
            say(loss)
    return steps


def actors_and_learner(steps: int) -> int:
    """As IMPALA: actors call the model under a lock, the learner trains on what they queue, and loads its weights."""
    net, optimizer, x = setup()
    acting = copy.deepcopy(net).eval()
    lock, queued, wanted = threading.Lock(), deque[torch.Tensor](), threading.Semaphore(0)
    ready = threading.Semaphore(0)

    def act() -> None:
        while True:
            wanted.acquire()
            with lock, torch.no_grad():
                queued.append(acting(x).detach())
            ready.release()

    for _ in range(2):
        threading.Thread(target=act, daemon=True).start()
    for step in range(steps):
        wanted.release()
        ready.acquire()
        optimizer.zero_grad()
        loss = (net(x) - queued.popleft()).pow(2).sum() + net(x).sum()
        loss.backward()
        optimizer.step()
        with lock:
            acting.load_state_dict(net.state_dict())
        if step % 10 == 9:
            say(loss)
    return steps


class _Rows(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 64

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.full((4,), float(at))


class _Endless(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[torch.Tensor]:
        at = 0
        while True:
            yield torch.full((4,), float(at % 5))
            at += 1


def loaded(steps: int) -> int:
    """Workers that persist, prefetch and a sampler of its own; then an endless stream, left in the middle."""
    net, optimizer, _ = setup()
    found = DataLoader(
        _Rows(), batch_size=8, num_workers=2, persistent_workers=True, prefetch_factor=2, shuffle=True,
        generator=torch.Generator().manual_seed(3), multiprocessing_context="fork",
    )  # fmt: skip
    made = 0
    while made < steps // 2:
        for batch in found:
            loops.train(net, optimizer, batch.to("cuda", non_blocking=True))
            made += 1
            if made == steps // 2:
                break
    for batch in DataLoader(_Endless(), batch_size=8, num_workers=1, multiprocessing_context="fork"):
        loss = loops.train(net, optimizer, batch.to("cuda"))
        made += 1
        if made == steps:
            break
    say(loss)
    return steps


def generates(steps: int) -> int:
    """The loop is a generator that somebody else drives, as callbacks and notebooks do; it is closed, not ended."""
    net, optimizer, x = setup()

    def training() -> Generator[torch.Tensor, None, None]:
        try:
            while True:
                yield loops.train(net, optimizer, x)
        finally:
            print("closed", flush=True)

    run = training()
    for _ in range(steps):
        loss = next(run)
    run.close()
    say(loss)
    return steps


def steps_in_backward(steps: int) -> int:
    """Each parameter has an optimizer of its own, which steps as soon as its gradient is there, and frees it."""
    net, x = Net().to("cuda"), torch.randn(8, 4).to("cuda")
    own = {one: torch.optim.SGD([one], lr=0.01) for one in net.parameters()}

    def step_now(one: torch.Tensor) -> None:
        own[one].step()
        own[one].zero_grad()

    for one in net.parameters():
        one.register_post_accumulate_grad_hook(step_now)
    for _ in range(steps):
        loss = net(x).sum()
        loss.backward()
    say(loss, sum(one.grad is None for one in net.parameters()))
    return steps


def copied_and_pickled(steps: int) -> int:
    """A model is copied, averaged, saved whole with its optimizer and loaded, in the middle of training."""
    net, optimizer, x = setup()
    mean = torch.optim.swa_utils.AveragedModel(net)
    for step in range(steps):
        loss = loops.train(net, optimizer, x)
        mean.update_parameters(net)
        if step == steps // 2:
            place = io.BytesIO()
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, place)
            print("bytes:", place.tell(), len(net._forward_hooks), len(net._forward_pre_hooks), flush=True)
            whole = io.BytesIO()
            torch.save((net.first, copy.deepcopy(optimizer)), whole)
            whole.seek(0)
            first, other = torch.load(whole, weights_only=False)
            print("same:", torch.equal(first.weight, net.first.weight), type(other).__name__, flush=True)
            place.seek(0)
            kept = torch.load(place)
            net = copy.deepcopy(net)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            net.load_state_dict(kept["net"])
            optimizer.load_state_dict(kept["optimizer"])
    print("scripted:", torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())).code, flush=True)
    say(loss, torch.func.functional_call(net, dict(net.named_parameters()), (x,)).sum())
    return steps


def retries(steps: int) -> int:
    """A step that fails in the middle is caught, and begun again with a smaller batch, as for want of memory."""

    def fail() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    net, optimizer, x = setup()
    failed = 0
    for step in range(steps):
        size = 8
        while True:
            try:
                optimizer.zero_grad()
                loss = net(x[:size]).sum()
                if step % 10 == 4 and size == 8:
                    fail()
                loss.backward()
                optimizer.step()
                break
            except torch.OutOfMemoryError as error:
                print(error, flush=True)
                torch.cuda.empty_cache()
                size, failed = size // 2, failed + 1
    say(loss, failed)
    return steps


def checkpoints_activations(steps: int) -> int:
    """Forward runs again within backward."""
    net, optimizer, x = setup()
    x.requires_grad_()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False).sum()
        loss.backward()
        optimizer.step()
    say(loss)
    return steps


def own_hooks(steps: int) -> int:
    """A script's own global hooks, patched `step`, profile functions and exception hook are as it set them."""
    seen: dict[str, int] = {}

    def count(name: str) -> Any:
        def hook(*_: object) -> None:
            seen[name] = seen.get(name, 0) + 1

        return hook

    handles = [
        torch.nn.modules.module.register_module_forward_hook(count("forward")),
        torch.nn.modules.module.register_module_forward_pre_hook(count("before")),
        register_optimizer_step_pre_hook(count("any step")),
    ]
    net, optimizer, x = setup()
    optimizer.register_step_post_hook(count("step"))
    plain_step = optimizer.step

    def timed_step(*args: Any, **kwargs: Any) -> Any:
        seen["timed"] = seen.get("timed", 0) + 1
        return plain_step(*args, **kwargs)

    optimizer.step = timed_step
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(steps):
            loss = loops.train(net, optimizer, x)
    for handle in handles:
        handle.remove()
    named = sorted({one.key for one in profile.key_averages() if "ptimizer" in one.key})
    print("seen:", sorted(seen.items()), named, flush=True)
    say(loss)
    return steps


def static_ddp(steps: int) -> int:
    """DDP with a static graph, gradients as views of buckets, and two backward passes a step."""
    local = loops._in_ranks()
    net = torch.nn.parallel.DistributedDataParallel(
        Net().to(f"cuda:{local}"), static_graph=True, gradient_as_bucket_view=True
    )
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 4).to(f"cuda:{local}")
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(2):
            loss = net(x).sum()
            loss.backward()
        optimizer.step()
    say(loss)
    loops._leave_ranks()
    return steps


def spawned(steps: int) -> int:
    """The training is a process that `torch.multiprocessing` spawns, and the first waits for it."""
    if os.environ.get("SPAWNED"):
        return steps
    os.environ["SPAWNED"] = "1"
    torch.multiprocessing.spawn(_spawned, (steps, loops.each_ns), nprocs=1)
    return steps


def _spawned(_rank: int, steps: int, each_ns: int) -> None:
    loops.each_ns = each_ns
    torch.manual_seed(0)
    net, optimizer, x = setup()
    for _ in range(steps):
        loss = loops.train(net, optimizer, x)
    kernels(1)
    torch.cuda.synchronize()
    say(loss)


SHAPES = {
    one.__name__: one
    for one in (
        accelerated, scaled_and_skipped, adapters, critics_first, actors_and_learner, loaded, generates,
        steps_in_backward, copied_and_pickled, retries, checkpoints_activations, own_hooks,
        spawned, static_ddp,
    )
}  # fmt: skip
loops.SHAPES |= SHAPES

if __name__ == "__main__":
    loops.main(*sys.argv[1:])
