"""What records cost: made, copied with one change, hashed and read, as classes written in several ways.

The fields are those of Colane's own `Job`, `Booking` and `Slot`, the classes are written anew in each way, with the
loops that use them beside them, so that compiled loops meet compiled classes. Nanoseconds of CPU, the least of several
rounds in which all ways take turns. msgspec is left out where it is not installed.

    python benchmarks/records.py [--rounds N] [--compiled]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from colane.core.cluster.load import Booking
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec
from colane.model.placement import Slot
from colane.model.profile import ProfileKey
from colane.perf.estimates import BelievedLoad

Shape = Mapping[str, object]
"""Values by field."""

TIMES = 20_000
PLAIN = (bool, int, float, str)
USES = ("make", "change", "hash_of", "read")

LOOPS = """
def make(times: int) -> None:
    for _ in range(times):
        Record({values})

def change(times: int) -> None:
    record = Record({values})
    for _ in range(times):
        {changed}

def hash_of(times: int) -> None:
    record = Record({values})
    for _ in range(times):
        hash(record)

def read(times: int) -> None:
    record = Record({values})
    for _ in range(times):
        record.{first}
        record.{last}
"""


def shape(record: Any) -> Shape:  # noqa: ANN401 - any of the records
    """The fields of a record; what is no plain value is a word in its place, so that its own cost does not count."""
    values = ((one.name, getattr(record, one.name)) for one in fields(record))
    return {name: value if value is None or value == () or type(value) in PLAIN else name for name, value in values}


def shapes() -> dict[str, Shape]:
    """Of Colane's own records."""
    gpu, key = GpuId("node-1", 0), ProfileKey("resnet50", 32, 1, "v100")
    records = {
        "Job": Job(JobId(1), JobSpec(name="job", family="resnet50"), 0.0),
        "Booking": Booking(JobId(1), 0, key, "ada", True, None, None, BelievedLoad(key, None, leans=False)),
        "Slot": Slot(gpu, 0),
    }
    return {name: shape(record) for name, record in records.items()}


def annotated(values: Shape) -> list[str]:
    """Fields with their types: plain ones are told, others are anything."""
    types = {name: type(value).__name__ if type(value) in PLAIN else "Any" for name, value in values.items()}
    return [f"{name}: {types[name]}" for name in values]


def written_out(values: Shape) -> tuple[str, str]:
    """As Colane's are today: an `__init__` and a copy by hand. Returns the class and how to copy with a change."""
    typed, first = annotated(values), next(iter(values))
    lines = ["@final", "@dataclass(init=False, unsafe_hash=True, slots=True)", "class Record:"]
    lines += [f"    {field}" for field in typed]
    lines += ["    def __init__(", "        self,", *(f"        {field}," for field in typed), "    ) -> None:"]
    lines += [f"        self.{name} = {name}" for name in values]
    lines += ["    def copied(self) -> Record:", "        return Record(", *(f"            self.{n}," for n in values)]
    lines += ["        )"]
    return "\n".join(lines), f"fresh = record.copied(); fresh.{first} = {values[first]!r}"


def frozen(values: Shape) -> tuple[str, str]:
    """A frozen dataclass with slots, nothing by hand."""
    lines = ["@dataclass(frozen=True, slots=True)", "class Record:", *(f"    {field}" for field in annotated(values))]
    first = next(iter(values))
    return "\n".join(lines), f"replace(record, {first}={values[first]!r})"


def struct(values: Shape) -> tuple[str, str]:
    """msgspec's, frozen; its quickest copy with a change."""
    lines = ["class Record(msgspec.Struct, frozen=True):", *(f"    {field}" for field in annotated(values))]
    first = next(iter(values))
    change = f"fresh = record.__copy__(); msgspec.structs.force_setattr(fresh, {first!r}, {values[first]!r})"
    return "\n".join(lines), change


WAYS: Mapping[str, tuple[Callable[[Shape], tuple[str, str]], str]] = {
    "written_out": (written_out, "from dataclasses import dataclass\nfrom typing import Any, final"),
    "frozen": (frozen, "from dataclasses import dataclass, replace\nfrom typing import Any"),
    "struct": (struct, "from typing import Any\nimport msgspec"),
}
STANDARD = ("written_out", "frozen")


def source(way: str, values: Shape) -> str:
    """A module with the class and its loops."""
    write, imports = WAYS[way]
    text, changed = write(values)
    names = list(values)
    arguments = ", ".join(map(repr, values.values()))
    loops = LOOPS.format(values=arguments, changed=changed, first=names[0], last=names[-1])
    return f"from __future__ import annotations\n{imports}\n{text}\n{loops}"


def lines_of(way: str, values: Shape) -> int:
    """Lines of the class."""
    return len(WAYS[way][0](values)[0].splitlines())


def write_modules(place: Path, ways: tuple[str, ...]) -> dict[tuple[str, str], str]:
    """Write one module for each way and record: names by (record, way)."""
    names = {(record, way): f"{way}_{record.lower()}" for record in shapes() for way in ways}
    for (record, way), name in names.items():
        (place / f"{name}.py").write_text(source(way, shapes()[record]), encoding="utf-8")
    return names


def compile_modules(place: Path, names: list[str]) -> None:
    """Compile them with mypyc where they lie, as a wheel's are.

    Raises:
        CalledProcessError: mypyc or the C compiler refused.
    """
    command = [sys.executable, "-m", "mypyc", *(f"{name}.py" for name in names)]
    environment = {**os.environ, "MYPYC_OPT_LEVEL": "3", "MYPYC_DEBUG_LEVEL": "0"}
    subprocess.run(command, cwd=place, check=True, capture_output=True, env=environment)


def load(place: Path, names: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], ModuleType]:
    """Import modules from there: what was compiled goes before its source."""
    sys.path.insert(0, str(place))
    try:
        importlib.invalidate_caches()
        for name in names.values():
            sys.modules.pop(name, None)
        return {key: importlib.import_module(name) for key, name in names.items()}
    finally:
        sys.path.remove(str(place))


def time_ns(use: Callable[[int], None]) -> float:
    """CPU nanoseconds of one."""
    start_ns = time.process_time_ns()
    use(TIMES)
    return (time.process_time_ns() - start_ns) / TIMES


def measure(modules: Mapping[tuple[str, str], ModuleType], rounds: int) -> dict[tuple[str, str, str], float]:
    """The least of every use of every record in every way, which take turns."""
    least: dict[tuple[str, str, str], float] = {}
    for _ in range(rounds):
        for (record, way), module in modules.items():
            for use in USES:
                spent_ns = time_ns(getattr(module, use))
                least[record, way, use] = min(spent_ns, least.get((record, way, use), spent_ns))
    return least


def run(place: Path, ways: tuple[str, ...], rounds: int, *, compiled: bool) -> None:
    """Print the table of these ways."""
    names = write_modules(place, ways)
    if compiled:
        compile_modules(place, list(names.values()))
    found = measure(load(place, names), rounds)
    print(f"| record | way{', compiled' if compiled else ''} | lines | {' | '.join(USES)} |")
    for record, way in names:
        cells = " | ".join(f"{found[record, way, use]:.0f}" for use in USES)
        print(f"| `{record}` | {way} | {lines_of(way, shapes()[record])} | {cells} |", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compiled", action="store_true", help="compiled by mypyc too: needs a C compiler")
    asked = parser.parse_args()
    ways = (*STANDARD, "struct") if importlib.util.find_spec("msgspec") else STANDARD
    print(f"load {os.getloadavg()[0]:.1f}, nanoseconds of CPU")
    with tempfile.TemporaryDirectory() as place:
        run(Path(place), ways, asked.rounds, compiled=False)
    if asked.compiled:
        with tempfile.TemporaryDirectory() as place:
            run(Path(place), STANDARD, asked.rounds, compiled=True)


if __name__ == "__main__":
    main()
