"""Runs the parts of a GPU script unattended: each in a process of its own, within its time, restartable.

A part is a function that measures, checks what it measured, and returns an object. It is written to
`RESULTS/SCRIPT/PART.json`; a part whose file says `complete` is not run again. A part that runs out of time keeps
what it has and says `incomplete`; the next call goes on from there. `RESULTS/SCRIPT.json` has everything.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from colane.cli.errors import FailureError
from colane.cli.stack import Stack, StackConfig, interruptible
from colane.client.errors import SchedulerError
from colane.client.profiling import ProfileError
from colane.devices import DeviceSpecError, discover
from colane.model.hardware import Gpu

Object = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "gpu" / "results"

NO_GPU: Final = "no GPU"
MINUTES: Final = 8.0
STOP_S: Final = 45.0
"""A part that has used up its time gets this long to write down what it has and to stop its processes."""

TINY_DEVICES: Final = "cpu:1:16GB"
NODE: Final = "measured"
HEARTBEAT_S: Final = 0.5
"""Reports four times as often as in service: a set of fast jobs is measured in fewer steps."""

JOB_VARIABLES: Final = (
    "PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV", "CUDA_HOME",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """Something a script proves about itself or the machine."""

    name: str
    passed: bool
    detail: str


@dataclass(slots=True, kw_only=True)
class Run:
    """One part while it runs.

    Attributes:
        part: Its name.
        gpus: The GPUs; in tiny mode, cpu devices.
        tiny: Whether everything is scaled down for a CPU.
        deadline_s: Unix time at which it must have written what it has.
        out_dir: For figures.
        state_dir: The scheduler's, kept between parts: profiles and measured sets live in it.
        data: Directory of CIFAR-10, None for synthetic data.
        checks: What was checked so far.
        notes: What a reader must know.
    """

    part: str
    gpus: Sequence[Gpu]
    tiny: bool
    deadline_s: float
    out_dir: Path
    state_dir: Path
    data: Path | None = None
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def check(self, name: str, passed: object, detail: object = "") -> None:
        """Keep the outcome of a check."""
        self.checks.append(Check(name, bool(passed), str(detail)))

    @property
    def left_s(self) -> float:
        """Time left."""
        return max(self.deadline_s - time.time(), 0.0)

    @contextmanager
    def stack(self, policy: str = "fifo", *, mps: str = "auto", gpus_max: int | None = None) -> Iterator[Stack]:
        """Have a scheduler and an agent on these devices."""
        visible = ",".join(gpu.uuid for gpu in self.gpus[:gpus_max])
        config = StackConfig(
            state_dir=self.state_dir,
            node=NODE,
            policy=policy,
            devices=TINY_DEVICES if self.tiny else "gpu",
            mps="off" if self.tiny else mps,
            heartbeat_s=HEARTBEAT_S,
            env={} if self.tiny else {"CUDA_VISIBLE_DEVICES": visible},
        )
        with Stack(config) as stack:
            yield stack


PartFunction = Callable[[Run], Object]
"""Measures and returns what goes into the result; may return `{"status": "incomplete", ...}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script and its parts.

    Attributes:
        name: Of its results.
        about: First line of its help.
        parts: By name, in order.
        tiny_parts: Those that tiny mode runs.
        summary: Makes the last word of all parts' results.
    """

    name: str
    about: str
    parts: Mapping[str, PartFunction]
    tiny_parts: Sequence[str]
    summary: Callable[[Mapping[str, Object], Path], Object] = lambda _results, _out: {}


def main(script: Script, argv: Sequence[str] | None = None) -> int:
    """Run a script; 0 when nothing failed, also where there is no GPU."""
    options = _parse(script, argv)
    gpus = _find_devices(tiny=options.tiny)
    if not gpus:
        _say({"script": script.name, "status": NO_GPU})
        return 0
    if options.part != "all":
        return _run_here(script, options, gpus)
    names = script.tiny_parts if options.tiny else list(script.parts)
    for name in names:
        if _is_complete(_result_path(script, options, name)) and not options.again:
            _say({"part": name, "status": "complete already"})
        else:
            _run_apart(script, options, name)
    return _summarise(script, options, names, gpus)


def job_env() -> dict[str, str]:
    """Return the variables jobs need of this shell."""
    return {name: value for name, value in os.environ.items() if name in JOB_VARIABLES}


def _parse(script: Script, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"gpu/{script.name}.py", description=script.about)
    parser.add_argument("--part", default="all", choices=["all", *script.parts], metavar="PART", help=_names(script))
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"for each part (default {MINUTES:g})")
    parser.add_argument("--tiny", action="store_true", help="the whole logic on the CPU, in a minute")
    parser.add_argument("--again", action="store_true", help="also parts that are complete")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the results")
    parser.add_argument("--state", type=Path, help="directory of the scheduler (short: MPS keeps sockets in it)")
    parser.add_argument("--data", type=Path, help="directory of CIFAR-10; synthetic images without it")
    options = parser.parse_args(argv)
    if options.minutes <= 0:
        parser.error("--minutes must be more than 0")
    options.state = options.state or Path(tempfile.gettempdir()) / f"colane-{script.name}-{os.getuid()}"
    return options


def _names(script: Script) -> str:
    return f"one of {', '.join(script.parts)}; all of them by default, each in a process of its own"


def _find_devices(*, tiny: bool) -> tuple[Gpu, ...]:
    try:
        found = discover(TINY_DEVICES if tiny else "gpu").observe()
    except DeviceSpecError:
        return ()
    return tuple(gpu for gpu in found if gpu.healthy)


def _result_path(script: Script, options: argparse.Namespace, part: str) -> Path:
    return Path(options.out) / script.name / f"{part}.json"


def _run_apart(script: Script, options: argparse.Namespace, part: str) -> None:
    """Run one part in a process of its own; one that crashes or hangs costs only itself."""
    words = [sys.executable, "-m", f"gpu.{script.name}", "--part", part, "--minutes", str(options.minutes)]
    words += ["--out", str(Path(options.out).absolute()), "--state", str(options.state.absolute())]
    words += ["--tiny"] if options.tiny else []
    words += ["--data", str(options.data.absolute())] if options.data else []
    path = _result_path(script, options, part)
    before = path.stat().st_mtime_ns if path.exists() else None
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    process = subprocess.Popen(words, cwd=ROOT, env=env, start_new_session=True)
    try:
        code = process.wait(options.minutes * 60 + STOP_S)
        how = f"exit code {code}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        how = "it hung and was killed"
    except BaseException:
        process.terminate()
        process.wait(STOP_S)
        raise
    after = path.stat().st_mtime_ns if path.exists() else None
    if after == before:
        _write(path, {"part": part, "status": "failed", "error": f"no result was written: {how}", "checks": []})


def _run_here(script: Script, options: argparse.Namespace, gpus: Sequence[Gpu]) -> int:
    start_s = time.time()
    run = Run(
        part=options.part,
        gpus=gpus,
        tiny=options.tiny,
        deadline_s=start_s + options.minutes * 60,
        out_dir=Path(options.out) / script.name / options.part,
        state_dir=options.state / ("tiny" if options.tiny else gpus[0].uuid),
        data=options.data,
    )
    try:
        with interruptible():
            found: Object = {"status": "complete"} | script.parts[options.part](run)
    except (ProfileError, SchedulerError, FailureError, OSError) as error:
        found = {"status": "failed", "error": str(error)}
    if any(not check.passed for check in run.checks):
        found["status"] = "failed"
    found = {
        "part": options.part,
        **found,
        "seconds": round(time.time() - start_s, 1),
        "device": gpus[0].type,
        "gpus": len(gpus),
        "tiny": options.tiny,
        "notes": run.notes,
        "checks": [{"name": c.name, "passed": c.passed, "detail": c.detail} for c in run.checks],
    }
    _write(_result_path(script, options, options.part), found)
    _say({name: found.get(name) for name in ("part", "status", "seconds", "error") if found.get(name) is not None})
    return int(found["status"] == "failed")


def _summarise(script: Script, options: argparse.Namespace, names: Sequence[str], gpus: Sequence[Gpu]) -> int:
    results = {name: json.loads(_result_path(script, options, name).read_text(encoding="utf-8")) for name in names}
    out_dir = Path(options.out) / script.name
    whole = {
        "script": script.name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": _environment(gpus),
        "parts": {name: {"status": each["status"], "seconds": each.get("seconds")} for name, each in results.items()},
        "failed_checks": [
            {"part": name, **check} for name, each in results.items() for check in each["checks"] if not check["passed"]
        ],
        **script.summary(results, out_dir),
    }
    path = Path(options.out) / f"{script.name}.json"
    _write(path, whole)
    statuses = [each["status"] for each in results.values()]
    _say({"script": script.name, "report": str(path)} | {s: statuses.count(s) for s in dict.fromkeys(statuses)})
    return int("failed" in statuses)


def _environment(gpus: Sequence[Gpu]) -> Object:
    packages: dict[str, str | None] = {}
    for name in ("colane", "torch", "nvidia-ml-py"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    kinds = [gpu.type for gpu in gpus]
    return {"gpus": kinds, "memory_bytes": gpus[0].memory_bytes, "python": platform.python_version(), **packages}


def _is_complete(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["status"] == "complete")
    except (OSError, ValueError, KeyError):
        return False


def _write(path: Path, body: Object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    fresh.replace(path)


def _say(body: Object) -> None:
    print(json.dumps(body, ensure_ascii=False), flush=True)
