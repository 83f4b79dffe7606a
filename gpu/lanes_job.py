"""Jobs for `lanes.py`, to be run as a script.

Arguments: `train NOTES MODEL BATCH WIDTH`, `serve NOTES MODEL BATCH WIDTH REQUESTS_PER_S`, `solo STEPS small|large` or
`cache GIB WIDTH`.

`train` notes when each step began and had ended on the device, `serve` when each request came and was answered; `solo`
and `cache` print one JSON object. Of these only `train` knows Colane; steps of the others are found.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import statistics
import sys
import time

import torch

from colane.workloads.models import build

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SOLO_SIZES = {"large": (4096, 4096, 6), "small": (64, 16, 2)}
"""Width, batch and layers: a step of some milliseconds on a large GPU."""
WARM_UP_STEPS = 20
CACHE_ROUNDS = 5


def wait() -> None:
    """Let the device finish."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def batch_of(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of CIFAR-10's shape and their classes."""
    return torch.randn(size, 3, 32, 32, device=DEVICE), torch.randint(10, (size,), device=DEVICE)


def train(notes: str, model_name: str, batch: int, width: float) -> None:
    """Train for ever; the notes of a step are written before its boundary."""
    import colane.adaptor as colane  # noqa: PLC0415 - the other roles must not know it

    torch.manual_seed(0)
    model = build(model_name, width=width).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images, classes = batch_of(batch)
    out = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    steps = colane.attach()
    done = 0
    while True:
        began_s = time.monotonic()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), classes).backward()
        optimizer.step()
        wait()
        done += 1
        os.write(out, b"%d %.6f %.6f\n" % (done, began_s, time.monotonic()))
        steps.step()


def serve(notes: str, model_name: str, batch: int, width: float, requests_per_s: float) -> None:
    """Answer requests for ever that come at random, whether or not the last one has been answered."""
    model = build(model_name, width=width).to(DEVICE).eval()
    images, _ = batch_of(batch)
    out = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    lots = random.Random(notes)  # noqa: S311 - arrivals
    done, due_s = 0, time.monotonic()
    with torch.inference_mode():
        while True:
            due_s += lots.expovariate(requests_per_s)
            time.sleep(max(0.0, due_s - time.monotonic()))
            model(images).cpu()
            done += 1
            os.write(out, b"%d %.6f %.6f\n" % (done, due_s, time.monotonic()))


def solo(count: int, size: str) -> None:
    """Train so many steps: median step time, and a digest of all losses."""
    width, batch, layers = SOLO_SIZES[size]
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(batch, width, device=DEVICE)
    took_s, losses = [], []
    for _ in range(count):
        began_s = time.perf_counter()
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        wait()
        took_s.append(time.perf_counter() - began_s)
    digest = hashlib.sha256(repr(losses).encode()).hexdigest()
    print(json.dumps({"step_s": statistics.median(took_s[WARM_UP_STEPS:]), "losses": digest}))


def cache(size_gib: float, width: int) -> None:
    """Give cached memory back at a boundary: how long that takes, how much comes back, what the next step takes."""
    rows = int(size_gib * 2**30) // (width * 2) // 3
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(3))).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(rows // 4, width, device="cuda", dtype=torch.bfloat16)

    def step() -> float:
        began_s = time.perf_counter()
        optimizer.zero_grad()
        model(data).float().square().mean().backward()
        optimizer.step()
        wait()
        return time.perf_counter() - began_s

    for _ in range(3):
        step()
    torch.cuda.reset_peak_memory_stats()
    usual_s = min(step() for _ in range(CACHE_ROUNDS))
    held, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    reserved = torch.cuda.memory_reserved()
    flushes = []
    for _ in range(CACHE_ROUNDS):
        began_s = time.perf_counter()
        torch.cuda.empty_cache()
        flush_s = time.perf_counter() - began_s
        flushes.append(
            {"flush_s": flush_s, "returned_bytes": reserved - torch.cuda.memory_reserved(), "next_s": step()}
        )
    found = {"persistent_bytes": held, "ephemeral_bytes": peak - held, "reserved_bytes": reserved, "step_s": usual_s}
    print(json.dumps({**found, "flushes": flushes}))


def main(role: str, *words: str) -> None:
    """Play a role."""
    if role == "train":
        train(words[0], words[1], int(words[2]), float(words[3]))
    elif role == "serve":
        serve(words[0], words[1], int(words[2]), float(words[3]), float(words[4]))
    elif role == "solo":
        solo(int(words[0]), words[1])
    else:
        cache(float(words[0]), int(words[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
