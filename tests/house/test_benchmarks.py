"""A benchmark stays while something reads it: a test, a decision, a document, or another benchmark that is read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
NAMED = re.compile(r"benchmarks(?:/|\.|\" / \")(\w+)")


def sections() -> dict[str, str]:
    """Text of each section of the figures by the anchor that documents link."""
    found = {}
    for part in re.split(r"(?m)^(?=##+ )", (BENCHMARKS / "README.md").read_text(encoding="utf-8")):
        words = re.sub(r"[^\w\s-]", "", part.partition("\n")[0].lstrip("# ").lower())
        found[words.replace(" ", "-")] = part
    return found


def unread() -> set[str]:
    """Return the scripts that nothing reads."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    outside = [name for name in listed if name.endswith((".py", ".md", ".sh")) and not name.startswith("benchmarks/")]
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in outside if name != "CHANGELOG.md"]
    anchors = {anchor for text in texts for anchor in re.findall(r"benchmarks/README\.md#([\w-]+)", text)}
    texts += [text for anchor, text in sections().items() if anchor in anchors]
    scripts = {path.stem for path in BENCHMARKS.glob("*.py")}
    read: set[str] = set()
    more = {name for text in texts for name in NAMED.findall(text)} & scripts
    while more:
        read |= more
        said = "".join((BENCHMARKS / f"{name}.py").read_text(encoding="utf-8") for name in more)
        more = ({*NAMED.findall(said), *re.findall(r"with_name\(\"(\w+)\.py", said)} & scripts) - read
    return scripts - read


def test_every_benchmark_is_read() -> None:
    assert unread() == set(), "name them where their figures are claimed (docs, tests, a decision), or take them out"
