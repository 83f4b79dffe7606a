"""Runs the parts of a GPU script unattended: each in a process of its own, within its time, restartable.

A part is a function that measures, checks what it measured, and returns an object. It is written to
`RESULTS/SCRIPT/PART.json`; a part whose file says `complete` is not run again. A part that runs out of time keeps
what it has and says `incomplete`; the next call goes on from there. One that fails, by an assertion as by anything
else, writes what it has, its checks and where it failed; one that is killed loses what it found since it last kept it.
`RESULTS/SCRIPT.json` has everything.
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
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import Any, Final

from colane.cli.errors import FailureError
from colane.cli.service.terminal import interruptible
from colane.client.errors import SchedulerError
from colane.client.profiling import ProfileError
from colane.devices import DeviceSpecError, discover
from colane.devices.types import Devices, MemoryUse
from colane.engines.local import LocalConfig, LocalEngine
from colane.model.hardware import Gpu

Object = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "gpu" / "results"

NO_GPU: Final = "no GPU"
MINUTES: Final = 8.0
STOP_S: Final = 45.0
"""A part that has used up its time gets this long to write down what it has and to stop its processes."""

TRACE_LINES: Final = 6

SIZES: Final = ("--tiny", "--small")
"""Options that scale a script down: on a cpu device, and on a GPU."""
TINY_DEVICES: Final = "cpu:1:16GB"
SMALL_ENV: Final = {"COLANE_OTHERS": "ignore"}
"""In small, numbers prove nothing, and other work on the machine must not keep a part from its end."""
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
        gpus: The GPUs; cpu devices with `on_cpu`.
        small: Whether everything is scaled down and no figure is judged: a rehearsal.
        on_cpu: Whether a cpu device stands in for a GPU.
        deadline_s: Unix time at which it must have written what it has.
        out_dir: For figures.
        state_dir: The scheduler's, kept between parts: profiles and measured sets live in it.
        data: Directory of CIFAR-10, None for synthetic data.
        path: Where its result is written.
        checks: What was checked so far.
        notes: What a reader must know.
    """

    part: str
    gpus: Sequence[Gpu]
    small: bool
    on_cpu: bool
    deadline_s: float
    out_dir: Path
    state_dir: Path
    data: Path | None = None
    path: Path | None = None
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def check(self, name: str, passed: object, detail: object = "") -> None:
        """Keep the outcome of a check."""
        self.checks.append(Check(name, bool(passed), str(detail)))

    def keep(self, found: Object) -> None:
        """Write down what was measured so far, so that a kill costs no more than what comes after."""
        if self.path is not None:
            write_result(self.path, _result(self, {**found, "status": "incomplete"}))

    def kept(self) -> Object:
        """What an earlier call of this part has measured; empty where it was complete, or there is none."""
        known = {} if self.path is None else read_result(self.path)
        return known if known.get("status") != "complete" else {}

    @property
    def left_s(self) -> float:
        """Time left."""
        return max(self.deadline_s - time.time(), 0.0)

    @property
    def memory_use(self) -> MemoryUse:
        """What is free of the first GPU, and what each process holds of it, as the agent reads it.

        Raises:
            OSError: The GPU does not tell.
        """
        use = _gpus_here().memory(self.gpus[0].index)
        if use is None:
            raise OSError(f"{self.gpus[0].uuid} does not tell how its memory is used")
        return use

    @property
    def used_bytes(self) -> int:
        """Memory in use on the first GPU."""
        return self.gpus[0].memory_bytes - self.memory_use.free_bytes

    @property
    def devices(self) -> str:
        """What an agent manages here."""
        return TINY_DEVICES if self.on_cpu else "gpu"

    @contextmanager
    def stack(self, policy: str = "fifo", *, mps: str = "auto", gpus_max: int | None = None) -> Iterator[LocalEngine]:
        """Have a scheduler and an agent on these devices."""
        visible = ",".join(gpu.uuid for gpu in self.gpus[:gpus_max])
        config = LocalConfig.of(
            self.state_dir,
            NODE,
            policy=policy,
            devices=self.devices,
            mps="off" if self.on_cpu else mps,
            heartbeat=HEARTBEAT_S,
            env=(SMALL_ENV if self.small else {}) | ({} if self.on_cpu else {"CUDA_VISIBLE_DEVICES": visible}),
        )
        with LocalEngine(config) as stack:
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
    if options.summarise:
        return _summarise(script, options, list(script.parts), gpus)
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
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--tiny", action="store_true", help="the whole logic on the CPU, in a minute")
    sizes.add_argument("--small", action="store_true", help="a rehearsal on a GPU: small sizes, no figure is judged")
    parser.add_argument("--summarise", action="store_true", help="measure nothing, sum up the results there are")
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


@cache
def _gpus_here() -> Devices:
    return discover("gpu")


def _result_path(script: Script, options: argparse.Namespace, part: str) -> Path:
    return Path(options.out) / script.name / f"{part}.json"


def _run_apart(script: Script, options: argparse.Namespace, part: str) -> None:
    """Run one part in a process of its own; one that crashes or hangs costs only itself."""
    words = [sys.executable, "-m", f"gpu.{script.name}", "--part", part, "--minutes", str(options.minutes)]
    words += ["--out", str(Path(options.out).absolute()), "--state", str(options.state.absolute())]
    words += [size for size in SIZES if getattr(options, size.removeprefix("--"))]
    words += ["--data", str(options.data.absolute())] if options.data else []
    path = _result_path(script, options, part)
    before = path.stat().st_mtime_ns if path.exists() else None
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    how = run_apart(words, env, options.minutes * 60 + STOP_S)
    after = path.stat().st_mtime_ns if path.exists() else None
    if after == before:
        kept = read_result(path) if before is not None else {"part": part, "checks": []}
        write_result(path, {**kept, "status": "failed", "error": f"no result was written: {how}"})


def run_apart(words: Sequence[str], env: Mapping[str, str], limit_s: float) -> str:
    """Run a command with all it starts within its time; how it ended."""
    process = subprocess.Popen(words, cwd=ROOT, env=env, start_new_session=True)
    try:
        return f"exit code {process.wait(limit_s)}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "it hung and was killed"
    except BaseException:
        process.terminate()
        process.wait(STOP_S)
        raise


def _run_here(script: Script, options: argparse.Namespace, gpus: Sequence[Gpu]) -> int:
    start_s = time.time()
    run = Run(
        part=options.part,
        gpus=gpus,
        small=options.tiny or options.small,
        on_cpu=options.tiny,
        deadline_s=start_s + options.minutes * 60,
        out_dir=Path(options.out) / script.name / options.part,
        state_dir=options.state / ("tiny" if options.tiny else gpus[0].uuid),
        data=options.data,
        path=_result_path(script, options, options.part),
    )
    found = _measure(script.parts[options.part], run)
    if any(not check.passed for check in run.checks):
        found["status"] = "failed"
    found = _result(run, {**found, "seconds": round(time.time() - start_s, 1)})
    write_result(_result_path(script, options, options.part), found)
    _say({name: found.get(name) for name in ("part", "status", "seconds", "error") if found.get(name) is not None})
    return int(found["status"] == "failed")


def _measure(part: PartFunction, run: Run) -> Object:
    """What a part found; where it failed or was told to end, what it had kept, and why."""
    try:
        with interruptible():
            return {"status": "complete"} | part(run)
    except (ProfileError, SchedulerError, FailureError, OSError) as error:
        return {**run.kept(), "status": "failed", "error": str(error)}
    except KeyboardInterrupt:
        return {**run.kept(), "status": "incomplete", "error": "it was told to end"}
    except Exception as error:  # noqa: BLE001 - an assertion, too, must not cost what was measured
        trace = traceback.format_exception(error)[-TRACE_LINES:]
        return {**run.kept(), "status": "failed", "error": f"{type(error).__name__}: {error}", "trace": trace}


def _result(run: Run, found: Object) -> Object:
    """What a part found, with all that is kept of every part."""
    return {
        "part": run.part,
        **found,
        "device": run.gpus[0].type,
        "gpus": len(run.gpus),
        "small": run.small,
        "notes": run.notes,
        "checks": [{"name": c.name, "passed": c.passed, "detail": c.detail} for c in run.checks],
    }


def _summarise(script: Script, options: argparse.Namespace, names: Sequence[str], gpus: Sequence[Gpu]) -> int:
    read = {name: read_result(_result_path(script, options, name)) for name in names}
    results = {name: found for name, found in read.items() if found}
    out_dir = Path(options.out) / script.name
    whole = {
        "script": script.name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": _environment(gpus),
        "parts": {
            name: {"status": each.get("status"), "seconds": each.get("seconds")} for name, each in results.items()
        },
        "failed_checks": [
            {"part": name, **check}
            for name, each in results.items()
            for check in each.get("checks", ())
            if not check["passed"]
        ],
        **_last_word(script, results, out_dir),
    }
    path = Path(options.out) / f"{script.name}.json"
    write_result(path, whole)
    statuses = [str(each.get("status")) for each in results.values()]
    _say({"script": script.name, "report": str(path)} | {s: statuses.count(s) for s in dict.fromkeys(statuses)})
    return int("failed" in statuses)


def _last_word(script: Script, results: Mapping[str, Object], out_dir: Path) -> Object:
    """Its summary; one that fails on what there is costs no number."""
    try:
        return script.summary(results, out_dir)
    except Exception as error:  # noqa: BLE001 - the parts' results are kept whatever it stumbles on
        return {"summary_error": f"{type(error).__name__}: {error}"}


def _environment(gpus: Sequence[Gpu]) -> Object:
    packages: dict[str, str | None] = {}
    for name in ("colane", "torch", "nvidia-ml-py"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    kinds = [gpu.type for gpu in gpus]
    return {
        "gpus": kinds,
        "memory_bytes": gpus[0].memory_bytes if gpus else None,
        "python": platform.python_version(),
        **packages,
    }


def _is_complete(path: Path) -> bool:
    return bool(read_result(path).get("status") == "complete")


def read_result(path: Path) -> Object:
    """Return a result; empty where there is none, or half of one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_result(path: Path, body: Object) -> None:
    """Write a result whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    text = json.dumps(_finite(body), indent=1, ensure_ascii=False, allow_nan=False, default=str)
    fresh.write_text(text + "\n", encoding="utf-8")
    fresh.replace(path)


def _finite(value: Any) -> Any:  # noqa: ANN401 - whatever JSON has
    """The same without numbers that JSON lacks, which would cost the whole result."""
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _say(body: Object) -> None:
    print(json.dumps(body, ensure_ascii=False), flush=True)
