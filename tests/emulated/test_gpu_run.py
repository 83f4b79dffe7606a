"""What `gpu/` measures on a GPU, rehearsed on a machine of emulated ones: small sizes, no figure judged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpu.harness import read_result
from gpu.plan import DECIDING, FIRST, THEN

from tests.emulated.bare_machine import ROOT, install
from tests.needs import needs

needs("torch", "the scripts train with PyTorch")
ALL = os.environ.get("COLANE_REHEARSE") == "all"
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(5400 if ALL else 600),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to build the driver's double with"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="processes can be moved off a GPU on x86_64 only"),
]

SOME = ("memory:truth", "suspend:cycle", "nvml_checks:mps-kill", "turns:by-step")
"""Of each script one that uses what only a GPU has. `COLANE_REHEARSE=all` tries every part, in half an hour, as a call
of `gpu/run` does: one after the other, with what the ones before have measured."""
EVERY = tuple(dict.fromkeys(step.name for step in (*DECIDING, *FIRST, *THEN)))
CALLS = {"all": EVERY} if ALL else {name: (name,) for name in SOME}


@pytest.mark.parametrize("parts", CALLS.values(), ids=CALLS)
def test_parts_that_only_a_gpu_can_run_end_well_on_emulated_ones(
    tmp_path: Path, state: Path, parts: tuple[str, ...]
) -> None:
    env = {**os.environ, **install(tmp_path / "machine")}
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(ROOT)])
    where = ["--out", str(tmp_path / "out"), "--state", str(state)]
    words = [sys.executable, "-m", "gpu.plan", "--small", "--all", "--minutes", "90", "--plan", ",".join(parts), *where]
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    told = read_result(tmp_path / "out" / "results.json")["parts"]
    found = {f"{script}:{name}": part for script, them in told.items() for name, part in them.items()}
    amiss = {name: part for name, part in found.items() if part["status"] != "complete"}
    assert (list(amiss), set(found)) == ([], set(parts)), (amiss, done.stdout, done.stderr)
    assert all(part["small"] and part["device"] == "NVIDIA H100 80GB HBM3" for part in found.values())
    assert all(check["passed"] for part in found.values() for check in part["checks"])
    if "turns:by-step" in found:
        assert found["turns:by-step"]["handoffs"] > 0
    if "suspend:cycle" in found:
        assert [size["bytes"] for size in found["suspend:cycle"]["sizes"]] == [2**26, 2**28]
