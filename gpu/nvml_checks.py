"""What only a real GPU can prove of the agent: discovery, admission, out of memory, MPS, GPM, memory given back.

    python gpu/nvml_checks.py [--part PART] [--minutes 8] [--out DIR] [--tiny | --small]

Each part starts a scheduler and an agent as `colane up` does, and checks what they make of the GPU. `--tiny` runs
what makes sense on a cpu device. Without a GPU it says so and ends with 0.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from colane.api.jobs import JobObject

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that the script can be run by its path as well
    sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402
from gpu.harness import NODE, Object, Run, Script, job_env, main  # noqa: E402

from colane.client.client import Client  # noqa: E402
from colane.client.errors import Refused  # noqa: E402
from colane.client.profiling import ENDED_STATES, Profiler, Rules, Subject  # noqa: E402
from colane.devices import discover  # noqa: E402
from colane.devices.gpu import RECOVERY_ACTION  # noqa: E402
from colane.devices.nvml import load_nvml  # noqa: E402
from colane.model.profile import ProfileKey, Value  # noqa: E402

Found = TypeVar("Found")

PATIENCE_S: Final = 60.0
LOOK_EVERY_S: Final = 0.1
MPS_CONTROL: Final = "nvidia-cuda-mps-control"
MPS_DAEMONS: Final = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")

FOREIGN_RATIO: Final = 0.25
"""Part of the GPU that a stranger takes."""
SEEN_RATIO: Final = 0.9
"""NVML counts at least this much of what a process has allocated."""

SEES: Final = """
import json, os, torch
seen = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS",
        "CUDA_MPS_PIPE_DIRECTORY", "COLANE_JOB_ID")}
seen["cores"] = sorted(os.sched_getaffinity(0))
seen["devices"] = torch.cuda.device_count()
if seen["devices"]:
    one = torch.cuda.get_device_properties(0)
    seen |= {"name": one.name, "memory_bytes": one.total_memory, "uuid": str(getattr(one, "uuid", ""))}
print(json.dumps(seen))
"""

HOLDS: Final = """
import sys, time, torch
kept = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda").fill_(1)
torch.cuda.synchronize()
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""

RUNS_OUT: Final = """
import torch
kept = []
while True:
    kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda").fill_(1))
"""

RUNS_OUT_ON_CPU: Final = """
import torch
raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
"""

LOAD_SIZES, SMALL_LOAD_SIZES = (8192, 1 << 29), (64, 1 << 12)
"""Width of the matrices that are multiplied, and length of the vector that is copied."""
LOADS: Final = """
import sys, torch
import colane.adaptor as colane
steps = colane.attach()
width, length = map(int, sys.argv[2:])
a = torch.randn(width, width, device="cuda", dtype=torch.bfloat16)
b = torch.randn(length, device="cuda")
work = {"gemm": lambda: a @ a, "stream": lambda: b.mul_(1.0001)}[sys.argv[1]]
while True:
    for _ in range(20):
        work()
    torch.cuda.synchronize()
    steps.step()
"""


def discovery(run: Run) -> Object:
    """Compare what the agent registers with what NVML, CUDA and nvidia-smi say."""
    with run.stack() as stack, stack.client() as scheduler:
        node = scheduler.node(NODE)
        seen = _job_says(run, scheduler, SEES)
    registered = {gpu["uuid"]: gpu for gpu in node["gpus"]}
    run.check("every GPU is registered", set(registered) == {gpu.uuid for gpu in run.gpus}, sorted(registered))
    run.check("types and memory agree", all(_agrees(registered[g.uuid], g) for g in run.gpus), run.gpus)
    cores = sorted(os.sched_getaffinity(0))
    run.check("cores are ours", all(set(gpu["cores"]) <= set(cores) for gpu in node["gpus"]), cores)
    run.check("every GPU is healthy", all(gpu["healthy"] for gpu in node["gpus"]), node["messages"])
    if not run.on_cpu:
        _compare_with_cuda(run, seen)
        run.check("nvidia-smi agrees", _smi_uuids() in (None, {gpu.uuid for gpu in run.gpus}), _smi_uuids())
    return {"node": node, "job_saw": seen}


def environment(run: Run) -> Object:
    """A job sees its own device alone, by UUID, and runs on the cores near it."""
    with run.stack() as stack, stack.client() as scheduler:
        gpu = scheduler.node(NODE)["gpus"][0]
        seen = _job_says(run, scheduler, SEES)
    run.check("CUDA_VISIBLE_DEVICES", seen["CUDA_VISIBLE_DEVICES"] == ("" if run.on_cpu else gpu["uuid"]), seen)
    run.check("CUDA counts devices in PCI order", seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", seen["CUDA_DEVICE_ORDER"])
    run.check("PyTorch sees one device", seen["devices"] == (0 if run.on_cpu else 1), seen["devices"])
    run.check("cores", seen["cores"] == gpu["cores"], seen["cores"])
    run.check("threads", seen["OMP_NUM_THREADS"] == str(len(gpu["cores"])), seen["OMP_NUM_THREADS"])
    run.check("no MPS unless asked for", seen["CUDA_MPS_PIPE_DIRECTORY"] is None, seen["CUDA_MPS_PIPE_DIRECTORY"])
    return {"job_saw": seen}


def admission(run: Run) -> Object:
    """Memory that strangers hold is not given to jobs; it is as soon as they let go of it."""
    memory_bytes = run.gpus[0].memory_bytes
    with run.stack() as stack, stack.client() as scheduler:
        _refuses_what_never_fits(run, scheduler, memory_bytes)
        if run.on_cpu:
            return {"memory_bytes": memory_bytes}
        taken = int(memory_bytes * FOREIGN_RATIO)
        with _stranger(taken):
            foreign = _until(lambda: _foreign_bytes(scheduler) >= taken * SEEN_RATIO or None)
            foreign_bytes = _foreign_bytes(scheduler)
            run.check("a stranger's memory is seen", foreign, f"{foreign_bytes} of {taken} bytes")
            job = _submit(run, scheduler, ["true"], gpu_memory_bytes=memory_bytes - taken // 2)
            why = _until(lambda: _waits_for_memory(scheduler, job))
            run.check("a job that does not fit beside it waits", why, scheduler.why(job)["sentence"])
        ended = _ended(scheduler, job)
        run.check("it starts when the stranger has gone", ended["state"] == "succeeded", ended["reason"])
    return {"memory_bytes": memory_bytes, "taken_bytes": taken, "foreign_bytes": foreign_bytes}


def out_of_memory(run: Run) -> Object:
    """A job that takes too much ends as out-of-memory, and leaves its GPU free."""
    with run.stack() as stack, stack.client() as scheduler:
        code = RUNS_OUT_ON_CPU if run.on_cpu else RUNS_OUT
        job = _ended(scheduler, _submit(run, scheduler, [sys.executable, "-c", code]))
        run.check("it ends as out-of-memory", job["state"] == "out-of-memory", f"{job['state']}: {job['reason']}")
        run.check("the reason quotes CUDA", "CUDA out of memory" in (job["reason"] or ""), job["reason"])
        after = _ended(scheduler, _submit(run, scheduler, ["true"]))
        run.check("the device takes the next job", after["state"] == "succeeded", after["reason"])
        if not run.on_cpu:
            free = _until(lambda: _foreign_bytes(scheduler) < run.gpus[0].memory_bytes * 0.02 or None)
            run.check("its memory came back", free, _foreign_bytes(scheduler))
    return {"reason": job["reason"]}


def memory_back(run: Run) -> Object:
    """Cancelled and killed jobs give their memory back, and nothing of them goes on."""
    size = int(run.gpus[0].memory_bytes * FOREIGN_RATIO)
    times = {}
    with run.stack() as stack, stack.client() as scheduler:
        for how in ("cancelled", "killed"):
            used = run.used_bytes
            job = _submit(run, scheduler, [sys.executable, "-c", HOLDS, str(size), "600"])
            held = _until(lambda used=used: run.used_bytes >= used + size * SEEN_RATIO or None)  # type: ignore[misc]
            run.check(f"{how}: the job holds its memory", held, run.used_bytes - used)
            start_s = time.monotonic()
            if how == "cancelled":
                scheduler.cancel(job)
            else:
                _kill_holders(size)
            back = _until(lambda used=used: run.used_bytes < used + size * (1 - SEEN_RATIO) or None)  # type: ignore[misc]
            times[how] = round(time.monotonic() - start_s, 3)
            run.check(f"{how}: its memory came back", back, f"{times[how]} s")
            ended = _ended(scheduler, job)
            run.check(f"{how}: it has ended", ended["state"] in ("cancelled", "failed"), ended["reason"])
    return {"memory_back_s": times}


def mps(run: Run) -> Object:
    """The daemon is started when a job asks, serves it, is started anew when it dies, and ends with the agent."""
    if not shutil.which(MPS_CONTROL):
        run.notes.append(f"{MPS_CONTROL} is not installed")
        return _mps_missing(run)
    before = _daemons()
    with run.stack(mps="auto") as stack, stack.client() as scheduler:
        seen = _job_says(run, scheduler, SEES, mps=True)
        run.check("the job is led to the daemon", seen["CUDA_MPS_PIPE_DIRECTORY"], seen)
        run.check("PyTorch sees the GPU through it", seen["devices"] == 1, seen["devices"])
        shared = _until(lambda: scheduler.node(NODE)["gpus"][0]["sharing"] == "mps" or None)
        run.check("the node says mps", shared, scheduler.node(NODE)["messages"])
        ours = _daemons() - before
        run.check("there is a daemon of ours", ours, sorted(ours))
        plain = _job_says(run, scheduler, SEES)
        run.check("a job that does not ask is not led to it", plain["CUDA_MPS_PIPE_DIRECTORY"] is None, plain)
        for pid in ours:
            psutil.Process(pid).kill()
        again = _job_says(run, scheduler, SEES, mps=True)
        fell_back = scheduler.node(NODE)["messages"]
        run.check(
            "after its death it is started anew, or said so", again["CUDA_MPS_PIPE_DIRECTORY"] or fell_back, again
        )
    gone = _until(lambda: not (_daemons() - before) or None)
    run.check("no daemon outlives the agent", gone, sorted(_daemons() - before))
    return {"job_saw": seen, "after_death": again}


def mps_kill(run: Run) -> Object:
    """A client of MPS that is ended while its kernels run leaves the one beside it whole."""
    if not shutil.which(MPS_CONTROL):
        run.notes.append(f"{MPS_CONTROL} is not installed")
        return {"status": "incomplete", "because": f"{MPS_CONTROL} is not installed"}
    sizes = SMALL_LOAD_SIZES if run.small else LOAD_SIZES
    words = [sys.executable, "-c", LOADS, "gemm", *map(str, sizes)]
    with run.stack("pack", mps="auto") as stack, stack.client() as scheduler:
        held_bytes = 2**30 if run.small else 2**33
        jobs = [_submit(run, scheduler, words, mps=True, gpu_memory_bytes=held_bytes) for _ in range(2)]
        both = _until(lambda: all((scheduler.job(job)["progress"] or {}).get("steps") for job in jobs) or None)
        messages = scheduler.node(NODE)["messages"]
        run.check("both run at once", both, [*(scheduler.job(job)["reason"] for job in jobs), *messages])
        before = (scheduler.job(jobs[1])["progress"] or {}).get("steps") or 0
        began_s = time.monotonic()
        scheduler.cancel(jobs[0])
        ended = _ended(scheduler, jobs[0])
        took_s = time.monotonic() - began_s
        run.check("it has ended", ended["state"] == "cancelled", ended["reason"])
        goes_on = _until(lambda: ((scheduler.job(jobs[1])["progress"] or {}).get("steps") or 0) > before + 20 or None)
        run.check("the other goes on", goes_on, scheduler.job(jobs[1])["reason"])
        scheduler.cancel(jobs[1])
        _ended(scheduler, jobs[1])
    return {"ended_after_s": took_s}


def state(run: Run) -> Object:
    """Compute mode and recovery action as the driver tells them, and what the node says of them."""
    command = ["nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader"]
    told = subprocess.run(command, capture_output=True, text=True, check=False) if shutil.which("nvidia-smi") else None
    with run.stack() as stack, stack.client() as scheduler:
        gpus = scheduler.node(NODE)["gpus"]
    modes = told.stdout.split() if told is not None else []
    is_exclusive = [mode.startswith("Exclusive") for mode in modes]
    agrees = not modes or is_exclusive == [gpu["sharing"] == "exclusive" for gpu in gpus]
    run.check("a GPU is exclusive where its driver says so", agrees, (modes, [gpu["sharing"] for gpu in gpus]))
    nvml = load_nvml()
    actions = [nvml.fields(handle, (RECOVERY_ACTION,)).get(RECOVERY_ACTION) for handle in nvml.handles()]
    run.check("a GPU that must be reset is not healthy", all(gpu["healthy"] for gpu in gpus) or any(actions), actions)
    return {"modes": modes, "recovery_actions": actions, "healthy": [gpu["healthy"] for gpu in gpus]}


def gpm(run: Run) -> Object:
    """NVML GPM tells a load on the arithmetic units from one on the memory."""
    with run.stack() as stack, stack.client() as scheduler:
        profiler = Profiler(scheduler, Rules(steps=60, deadline_s=run.deadline_s - 20))
        found = {name: profiler.alone(_load(run, name)).profile for name in ("gemm", "stream")}
    if discover("gpu").utilization_by != "nvml-gpm":
        run.notes.append("this GPU or driver has no GPM: C and M come from traces")
        run.check("nothing is made up", all(p.occupancy is None and p.bandwidth is None for p in found.values()))
        return {"gpm": False}
    ratios = {name: _ratios(p.step_s, p.occupancy, p.bandwidth) for name, p in found.items()}
    run.check("both are measured", all(None not in pair for pair in ratios.values()), ratios)
    gemm, stream = ratios["gemm"][1] or 0.0, ratios["stream"][1] or 0.0
    if run.small:
        return {"gpm": True, "occupancy_and_bandwidth_ratio": ratios}
    run.check("copying uses more bandwidth than multiplying", stream > gemm, ratios)
    run.check("copying uses most of the bandwidth", stream > 0.4, ratios)
    return {"gpm": True, "occupancy_and_bandwidth_ratio": ratios}


def _compare_with_cuda(run: Run, seen: Mapping[str, Any]) -> None:
    gpu = run.gpus[0]
    run.check("CUDA gives the same name", seen["name"] == gpu.type, f"{seen['name']}, {gpu.type}")
    ratio = seen["memory_bytes"] / gpu.memory_bytes
    run.check("CUDA gives about the same memory", 0.9 < ratio < 1.1, f"{seen['memory_bytes']}, {gpu.memory_bytes}")
    if seen["uuid"]:
        run.check("CUDA gives the same UUID", gpu.uuid.endswith(seen["uuid"].removeprefix("GPU-")), seen["uuid"])


def _agrees(body: Mapping[str, Any], gpu: Any) -> bool:  # noqa: ANN401 - model.Gpu
    return bool(body["type"] == gpu.type and body["memory_bytes"] == gpu.memory_bytes)


def _smi_uuids() -> set[str] | None:
    """UUIDs as nvidia-smi lists them; None where it is not installed."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return set(listed.stdout.split())


def _refuses_what_never_fits(run: Run, scheduler: Client, memory_bytes: int) -> None:
    try:
        _submit(run, scheduler, ["true"], gpu_memory_bytes=memory_bytes + 1)
    except Refused as refused:
        fields = [problem.field for problem in refused.problems]
        run.check("a job larger than the GPU is refused", fields == ["gpu_memory_bytes"], refused)
    else:
        run.check("a job larger than the GPU is refused", passed=False)


@contextmanager
def _stranger(size: int) -> Iterator[None]:
    """Hold GPU memory in a process that the agent did not start."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(size), "600"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "held\n":
            raise OSError("the process that was to hold GPU memory ended; is PyTorch with CUDA installed?")
        yield
    finally:
        process.kill()
        process.wait()


def _foreign_bytes(scheduler: Client) -> int:
    return int(scheduler.node(NODE)["gpus"][0]["foreign_bytes"])


def _waits_for_memory(scheduler: Client, job: int) -> bool | None:
    why = scheduler.why(job)
    return True if scheduler.job(job)["state"] == "queued" and why["why"] == "no-memory" else None


def _kill_holders(size: int) -> None:
    """Kill the job's own process, as a fault would."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if HOLDS in words and str(size) in words:
            process.kill()


def _daemons() -> set[int]:
    """Pids of MPS daemons and servers of this user."""
    found = psutil.process_iter(["name", "cmdline", "uids"])
    return {
        process.pid
        for process in found
        if process.info["uids"] and process.info["uids"].real == os.getuid() and _is_daemon(process.info)
    }


def _is_daemon(info: Mapping[str, Any]) -> bool:
    program = Path((info["cmdline"] or [info["name"] or ""])[0]).name
    return program in MPS_DAEMONS


def _mps_missing(run: Run) -> Object:
    """Where there is no MPS the job runs all the same, and the node says why it shares by time slicing."""
    with run.stack(mps="auto") as stack, stack.client() as scheduler:
        seen = _job_says(run, scheduler, SEES, mps=True)
        said = _until(lambda: [m for m in scheduler.node(NODE)["messages"] if "MPS" in m] or None)
    run.check("the fall-back is reported", said, said)
    return {"job_saw": seen, "messages": said}


def _load(run: Run, name: str) -> Subject:
    kind = run.gpus[0].type
    request = {
        **_common(run),
        "command": [sys.executable, "-c", LOADS, name, *map(str, SMALL_LOAD_SIZES if run.small else LOAD_SIZES)],
        "family": f"load-{name}",
        "gpu_type": kind,
    }
    return Subject(key=ProfileKey(f"load-{name}", None, 1, kind), request=request)


def _ratios(step_s: Value | None, *sums: Value | None) -> list[float | None]:
    """Back from C and M, percent x us over two steps, to the ratios they were made of."""
    whole = (step_s.value if step_s else 0.0) * 2e8
    return [None if value is None or not whole else round(value.value / whole, 4) for value in sums]


def _common(run: Run) -> Object:
    return {"name": f"check-{run.part}", "workdir": str(ROOT), "env": job_env()}


def _submit(run: Run, scheduler: Client, command: Sequence[str], **fields: Any) -> int:  # noqa: ANN401 - of a job
    return scheduler.submit({**_common(run), "command": list(command), **fields})


def _ended(scheduler: Client, job: int) -> JobObject:
    found = _until(lambda: each if (each := scheduler.job(job))["state"] in ENDED_STATES else None)
    return found or scheduler.job(job)


def _job_says(run: Run, scheduler: Client, code: str, **fields: Any) -> Object:  # noqa: ANN401 - of a job
    """Run a job and return the JSON of the last line it printed."""
    job = _submit(run, scheduler, [sys.executable, "-c", code], **fields)
    ended = _ended(scheduler, job)
    lines = scheduler.log(job).data.decode(errors="replace").strip().splitlines() or [""]
    if ended["state"] != "succeeded":
        raise OSError(f"a job of the check ended as {ended['state']}: {ended['reason']}: {lines[-1]}")
    return dict(json.loads(lines[-1]))


def _until(look: Callable[[], Found | None]) -> Found | None:
    """Look until there is something; None when that takes too long."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (found := look()) is None and time.monotonic() < deadline_s:
        time.sleep(LOOK_EVERY_S)
    return found


SCRIPT: Final = Script(
    name="nvml_checks",
    about="What only a real GPU can prove of the agent.",
    parts={
        "discovery": discovery,
        "environment": environment,
        "admission": admission,
        "out-of-memory": out_of_memory,
        "memory-back": memory_back,
        "mps": mps,
        "mps-kill": mps_kill,
        "state": state,
        "gpm": gpm,
    },
    tiny_parts=("discovery", "environment", "admission", "out-of-memory"),
)

if __name__ == "__main__":
    sys.exit(main(SCRIPT))
