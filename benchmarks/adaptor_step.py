"""What the adaptor costs: a step that no other waits for, and the start of a process.

    python benchmarks/adaptor_step.py [--steps 4000] [--starts 40]

Each figure is a difference between blocks that alternate, so that what else the machine does meets both alike, and
the mean of the best quarter of them. Steps are CPU time of the thread, by hooks and by the three lines of
`colane.adaptor`; starts are CPU time of a whole process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from colane.adaptor import bundle, wire

BLOCKS = 40
BOUND_US, BOUND_MS = 3.0, 5.0

ATTACH = """
import time, _colane_adaptor.arm as arm
spent, own = [0.0], arm.attach
def attach(*args):
    began = time.thread_time(); own(*args); spent[0] += time.thread_time() - began
arm.attach = attach
import torch, torch._dynamo
print(spent[0] * 1e3)
"""
"""Prints the milliseconds of CPU time that hooking into PyTorch takes beside its own import."""


def best_quarter(values: list[float]) -> float:
    """Return the mean of the smallest quarter."""
    smallest = sorted(values)[: max(len(values) // 4, 1)]
    return sum(smallest) / len(smallest)


def thread_us(loop: Callable[[], None], count: int) -> float:
    """Return microseconds of CPU time per step of a loop of `count`."""
    began = time.thread_time()
    loop()
    return (time.thread_time() - began) / count * 1e6


def alternate(first: Callable[[], float], second: Callable[[], float], blocks: int) -> tuple[float, float]:
    """Return the best quarter of each of two measurements that take turns."""
    taken = [(first(), second()) for _ in range(blocks)]
    return best_quarter([one for one, _ in taken]), best_quarter([other for _, other in taken])


def job_environment(folder: Path) -> dict[str, str]:
    """Return what an agent gives a job, over this environment without it."""
    wire.create(folder / "steps")
    place = bundle.unpack(folder)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("COLANE_", "PYTHONPATH"))}
    path = {"PYTHONPATH": bundle.first_on_path(place, ""), bundle.DIR_ENV: str(place)}
    return {**plain, **path, wire.STEPS_FILE_ENV: str(folder / "steps")}


def hooked(count: int) -> tuple[float, float]:
    """Return microseconds per step of an optimizer without and with the hooks."""
    sys.path.insert(0, os.environ[bundle.DIR_ENV])
    from _colane_adaptor.arm import arm  # type: ignore[import-not-found]  # noqa: PLC0415

    arm()
    import torch  # noqa: PLC0415
    from torch.optim import optimizer as hooks  # noqa: PLC0415

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    tables = (hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks)  # noqa: SLF001
    ours = [dict(table) for table in tables]

    def loop() -> None:
        step = optimizer.step
        for _ in range(count):
            step()

    def measure(*, with_hooks: bool) -> float:
        for table, own in zip(tables, ours, strict=True):
            table.clear()
            table.update(own if with_hooks else {})
        return thread_us(loop, count)

    measure(with_hooks=True)
    return alternate(lambda: measure(with_hooks=False), lambda: measure(with_hooks=True), BLOCKS)


def reported(count: int) -> tuple[float, float]:
    """Return microseconds per turn of a bare loop and of one that reports each step."""
    import colane.adaptor as colane  # noqa: PLC0415

    steps = colane.attach(total_steps=count)

    def bare() -> None:
        for step in range(count):
            float(step)

    def reporting() -> None:
        for step in range(count):
            steps.step(loss=float(step))

    return alternate(lambda: thread_us(bare, count), lambda: thread_us(reporting, count), BLOCKS)


def start_ms(env: dict[str, str]) -> float:
    """Return milliseconds of CPU time, of user and kernel, from the start of a Python process to its end."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], env)
    _, status, used = os.wait4(pid, 0)
    assert status == 0
    return (used.ru_utime + used.ru_stime) * 1e3


def attach_ms(env: dict[str, str], tries: int) -> float:
    """Return milliseconds of CPU time that hooking into PyTorch takes."""
    argv = [sys.executable, "-c", ATTACH]
    told = [float(subprocess.run(argv, env=env, check=True, capture_output=True).stdout) for _ in range(tries)]
    return min(told)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4_000, help="in each of the blocks")
    parser.add_argument("--starts", type=int, default=40)
    options = parser.parse_args()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("COLANE_", "PYTHONPATH"))}
    with tempfile.TemporaryDirectory() as folder:
        env = job_environment(Path(folder))
        start_ms(env)  # compiles the adaptor
        start, started = alternate(lambda: start_ms(plain), lambda: start_ms(env), options.starts)
        attached = attach_ms(env, 3)
        os.environ.update(env)
        bare, reporting = reported(options.steps)
        without, with_hooks = hooked(options.steps)
    print(f"load of the machine        {os.getloadavg()[0]:8.1f}")
    print(
        f"a step found by hooks      {with_hooks - without:8.2f} us  (bound {BOUND_US:g}; optimizer {without:.1f} us)"
    )
    print(f"a step reported by script  {reporting - bare:8.2f} us")
    print(f"a start without framework  {started - start:8.2f} ms  (bound {BOUND_MS:g}; python {start:.1f} ms)")
    print(f"hooking into PyTorch       {attached:8.2f} ms")


if __name__ == "__main__":
    main()
