"""Measures what tells most first, within a budget, and packs all results into few files.

    gpu/run [--minutes 8.5] [--budget 25] [--tiny | --small] [--out gpu/results] [--plan NAME,...] [--all]

One call takes less than `--minutes`; call it again until it says that nothing is left. The parts of the budget come
first, each in a process of its own; what failed is tried again after what was not tried yet. `results.json` in `--out`
has every part of every script, `figures.tar.gz` the rest. Brought to another machine in the same folder, they are gone
on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpu.harness import RESULTS, ROOT, SIZES, STOP_S, Object, read_result, run_apart, write_result

from colane.devices.nvml import GpuLostError, NvmlUnavailableError, load_nvml

RESULTS_FILE, FIGURES_FILE, LOG_FILE = "results.json", "figures.tar.gz", "log.txt"
SUMMARY_S: Final = 60.0
SMALL_TIMES: Final = 3
"""A rehearsal judges no figure, and what it runs on may be slow: a part gets so many times its minutes."""
PACK_S: Final = 10.0
"""Left of a call for summing up and packing."""


class Step(NamedTuple):
    """A part of a script, and the longest it may take, in minutes."""

    script: str
    part: str
    minutes: float

    @property
    def name(self) -> str:
        """As `--plan` has it."""
        return f"{self.script}:{self.part}"

    @property
    def limit_s(self) -> float:
        """Until it is killed."""
        return self.minutes * 60 + STOP_S


DECIDING: Final = (
    Step("facts", "machine", 0.2),
    Step("loops", "captures", 2.2),
    Step("loops", "stays", 0.6),
    Step("loops", "beside", 1),
    Step("nvml_checks", "mps-kill", 0.6),
    Step("nvml_checks", "state", 0.3),
    Step("suspend", "copies", 0.5),
    Step("turns", "kills", 0.7),
    Step("turns", "thirds", 0.5),
    Step("lanes", "flush", 0.8),
    Step("loops", "parked", 0.6),
    Step("paper_a", "best-pairs-mps", 1.2),
)
"""What was never seen on a GPU and decides most, first: whether the adaptor breaks a graph, whether what is booked of a
job is what it holds, whether turns are kept and seen to be, whether MPS outlives the end of a client, what slows moves.
Together less than fourteen minutes."""

FIRST: Final = (
    Step("facts", "machine", 0.35),
    Step("nvml_checks", "discovery", 0.25),
    Step("lanes", "overhead", 2),
    Step("turns", "pair", 1.3),
    Step("turns", "by-step", 0.7),
    Step("loops", "shapes", 1.5),
    Step("loops", "parked", 1),
    Step("loops", "trainers", 2),
    Step("paper_a", "best-pairs", 1.5),
    Step("paper_a", "best-pairs-mps", 2),
    Step("memory", "truth", 0.5),
    Step("suspend", "cycle", 1.3),
)
"""What the machine is and has, overhead, handoff, steps counted and timed, parking, the best pairs, memory, suspending.

Most have run on an H100, where they took half of their time (gpu/results).
"""

THEN: Final = (
    Step("suspend", "features", 0.5),
    Step("nvml_checks", "environment", 1),
    Step("nvml_checks", "admission", 2),
    Step("nvml_checks", "out-of-memory", 2),
    Step("nvml_checks", "memory-back", 2),
    Step("nvml_checks", "mps", 2),
    Step("nvml_checks", "gpm", 2),
    Step("lanes", "resident", 4),
    Step("lanes", "pairs-64", 6.5),
    Step("paper_a", "alone-64", 4),
    Step("paper_a", "pairs-64", 6.5),
    Step("paper_a", "pairs-64-mps", 6.5),
    Step("paper_a", "best-2", 6.5),
)
"""What is measured when the budget allows it, or with `--all`."""

TINY: Final = (
    Step("facts", "machine", 0.35),
    Step("lanes", "overhead", 4), Step("turns", "by-step", 3), Step("paper_a", "best-pairs", 6),
    Step("nvml_checks", "out-of-memory", 3), Step("suspend", "features", 1),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; 0 when every part that was run did well."""
    options = _parse(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    unpack(options.out)
    steps = _chosen(options)
    start_s, ran = time.time(), set()
    whole_s = min(options.minutes * 60, _budget_left_s(options)) - SUMMARY_S - PACK_S
    for step in due(steps, options.out, resume=options.resume):
        if time.time() - start_s + step.limit_s > whole_s:
            _say(options, {"step": step.name, "status": "no time is left for it in this call"})
            continue  # one that is shorter may fit
        ran.add(step.script)
        _run(step, options)
        pack(options.out)
    _note_spent(options, time.time() - start_s)
    _sum_up(ran, options)
    pack(options.out)
    return _report(steps, options)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu/run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--minutes",
        type=float,
        default=8.5,
        help="of this call (default 8.5: a call of ten minutes has room for the install)",
    )
    parser.add_argument("--budget", type=float, default=25.0, help="minutes of all calls together (default 25)")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--tiny", action="store_true", help="the whole logic on a cpu device")
    sizes.add_argument("--small", action="store_true", help="a rehearsal on a GPU: small sizes, no figure is judged")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the results")
    parser.add_argument("--plan", help="these alone, as turns:pair,suspend:cycle")
    parser.add_argument("--all", action="store_true", help="every part, what decides most first, whatever the budget")
    parser.add_argument("--resume", action="store_true", help="after a cut: what it cut short goes first")
    parser.add_argument("--state", type=Path, help="directory of the scheduler (short: MPS keeps sockets in it)")
    options = parser.parse_args(argv)
    if options.minutes <= 0 or options.budget <= 0:
        parser.error("--minutes and --budget must be more than 0")
    known = {step.name for step in (*DECIDING, *FIRST, *THEN, *TINY)}
    wrong = [name for name in (options.plan or "").split(",") if name and name not in known]
    if wrong:
        parser.error(f"--plan: there is no {wrong[0]!r}; there are {', '.join(sorted(known))}")
    return options


def _chosen(options: argparse.Namespace) -> tuple[Step, ...]:
    order = (*DECIDING, *FIRST, *THEN) if options.all else (*FIRST, *THEN, *DECIDING)
    named: dict[str, Step] = {}
    for step in TINY if options.tiny else order:
        named.setdefault(step.name, step._replace(minutes=step.minutes * (SMALL_TIMES if options.small else 1)))
    steps = tuple(named.values())
    names = [name for name in (options.plan or "").split(",") if name]
    return tuple(step for step in steps if not names or step.name in names)


def due(steps: Sequence[Step], out: Path, *, resume: bool = False) -> Iterator[Step]:
    """What is not complete: first what was never tried, then what ran out of time, then what failed, as planned.

    To resume is to begin with what ran out of time.
    """
    rank = {None: 0, "incomplete": -1 if resume else 1, "failed": 2}
    open_ = [(rank.get(_status(step, out), 2), at, step) for at, step in enumerate(steps)]
    for _, _, step in sorted(one for one in open_ if _status(one[2], out) != "complete"):
        yield step


def _status(step: Step, out: Path) -> str | None:
    found = read_result(_path(step, out))
    return str(found["status"]) if "status" in found else None


def _path(step: Step, out: Path) -> Path:
    return out / step.script / f"{step.part}.json"


def _run(step: Step, options: argparse.Namespace) -> None:
    """One part in a process of its own: whatever becomes of it, the others are measured."""
    path = _path(step, options.out)
    before = path.stat().st_mtime_ns if path.exists() else None
    words = [sys.executable, "-m", f"gpu.{step.script}", "--part", step.part, "--minutes", str(step.minutes)]
    how = run_apart(_words(words, options), dict(os.environ), step.limit_s)
    after = path.stat().st_mtime_ns if path.exists() else None
    kept = read_result(path)
    if after == before or how != "exit code 0":
        _blame(path, step, kept, how, wrote=after != before)
    _say(options, {"step": step.name, "status": _status(step, options.out), "ended": how})


def _blame(path: Path, step: Step, kept: Object, how: str, *, wrote: bool) -> None:
    """Say how a part ended that has not said so itself; what it had kept stays."""
    if not wrote or (kept.get("status") == "incomplete" and "error" not in kept):
        write_result(
            path, {"part": step.part, "checks": [], **kept, "status": "failed", "error": f"it ended with {how}"}
        )


def _words(words: Sequence[str], options: argparse.Namespace) -> list[str]:
    state = ["--state", str(options.state.absolute())] if options.state else []
    sizes = [size for size in SIZES if getattr(options, size.removeprefix("--"))]
    return [*words, "--out", str(options.out.absolute()), *state, *sizes]


def _sum_up(scripts: set[str], options: argparse.Namespace) -> None:
    for script in sorted(scripts):
        if (options.out / script).is_dir():
            words = [sys.executable, "-m", f"gpu.{script}", "--summarise"]
            run_apart(_words(words, options), dict(os.environ), SUMMARY_S)


# -- few files


def pack(out: Path) -> None:
    """Put all results into `results.json`, and figures and tables into one archive."""
    whole: dict[str, Any] = {"spent_s": _spent_s(out), "of": of_what(), "summaries": {}, "parts": {}}
    for path in sorted(out.glob("*.json")):
        if path.name != RESULTS_FILE and not path.name[0].isdigit():  # reports that are kept begin with their date
            whole["summaries"][path.stem] = read_result(path)
    for path in sorted(out.glob("*/*.json")):
        whole["parts"].setdefault(path.parent.name, {})[path.stem] = read_result(path)
    write_result(out / RESULTS_FILE, whole)
    others = [
        path for path in sorted(out.glob("*/**/*")) if path.is_file() and path.suffix in {".png", ".csv", ".html"}
    ]
    if others:
        with tarfile.open(out / FIGURES_FILE, "w:gz") as archive:
            for path in others:
                archive.add(path, path.relative_to(out))


@cache
def of_what() -> Object:
    """Which commit was measured, on which driver; None where that is not told."""
    commit = driver = None
    with suppress(OSError):
        words = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
        commit = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or None
    with suppress(NvmlUnavailableError, GpuLostError):
        driver = load_nvml().call("nvmlSystemGetDriverVersion")
    return {"commit": commit or os.environ.get("COLANE_COMMIT"), "driver": driver}


def unpack(out: Path) -> None:
    """Write down parts that were measured elsewhere, or before, and are not here."""
    for script, parts in read_result(out / RESULTS_FILE).get("parts", {}).items():
        for part, found in parts.items():
            path = out / script / f"{part}.json"
            if not path.exists() and isinstance(found, dict):
                write_result(path, found)


def _spent_s(out: Path) -> float:
    return float(read_result(out / RESULTS_FILE).get("spent_s", 0.0))


def _note_spent(options: argparse.Namespace, seconds: float) -> None:
    path = options.out / RESULTS_FILE
    write_result(path, {**read_result(path), "spent_s": round(_spent_s(options.out) + seconds, 1)})


def _budget_left_s(options: argparse.Namespace) -> float:
    return float("inf") if options.all else options.budget * 60 - _spent_s(options.out)


# -- what is said


def _report(steps: Sequence[Step], options: argparse.Namespace) -> int:
    statuses = {step.name: _status(step, options.out) for step in steps}
    left = [name for name, status in statuses.items() if status != "complete"]
    failed = [name for name, status in statuses.items() if status == "failed"]
    spent_min = _spent_s(options.out) / 60
    _say(options, {"results": str(options.out / RESULTS_FILE), "left": left, "failed": failed, "minutes": spent_min})
    return int(bool(failed))


def _say(options: argparse.Namespace, body: Object) -> None:
    line = json.dumps(body, ensure_ascii=False)
    print(line, flush=True)
    with (options.out / LOG_FILE).open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%H:%M:%S')} {line}\n")


if __name__ == "__main__":
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    sys.exit(main())
