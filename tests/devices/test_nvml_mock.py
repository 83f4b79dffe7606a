"""Colane on NVIDIA's own mock of NVML, a real `libnvidia-ml.so` with profiles of GPUs from T4 to GB300.

It is built by `scripts/nvmlmock`, and is found by `COLANE_NVML_MOCK`, the directory with the library and `configs`.
What it cannot do: it has no MIG instances, nothing computes on it, and asked how many processes there are it answers
`SUCCESS` where NVML says `INSUFFICIENT_SIZE`, so that nvidia-ml-py reads none. For these there is `tests/emulated`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOM = str(Path(__file__).with_name("nvml_mock_room.py"))
PLACE = Path(os.environ.get("COLANE_NVML_MOCK") or "/nowhere")
LIBRARY = PLACE / "libnvidia-ml.so.1"
PROFILES = ("a100", "b200", "gb200", "gb300", "h100", "l40s", "t4")
LOOKS = 20

if not LIBRARY.exists():
    pytest.skip("there is no mock of NVML (scripts/nvmlmock, COLANE_NVML_MOCK)", allow_module_level=True)


def config_of(name: str) -> Path:
    return PLACE / "configs" / f"mock-nvml-config-{name}.yaml"


def profile(name: str) -> dict[str, Any]:
    """Its configuration."""
    return dict(yaml.safe_load(config_of(name).read_text()))


def failing(folder: Path, failure: dict[str, object]) -> Path:
    """H100s of which the fourth fails so."""
    config, path = profile("h100"), folder / "config.yaml"
    config["devices"][3]["failure"] = failure
    path.write_text(yaml.safe_dump(config))
    return path


def read(config: Path) -> dict[str, Any]:
    """Look at GPUs of that configuration some times; NVML is loaded once a process."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(PLACE), "MOCK_NVML_CONFIG": str(config)}
    env.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, ROOM, str(LOOKS)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", PROFILES)
def test_what_a_profile_has_is_read(name: str) -> None:
    config = profile(name)
    seen, memory = read(config_of(name)), config["device_defaults"]["memory"]
    usable_bytes = memory["total_bytes"] - memory.get("reserved_bytes", 0)
    kind = config["device_defaults"]["name"]
    assert seen["gpus"] == [[device["uuid"], kind, usable_bytes] for device in config["devices"]]
    assert all(all(one) for one in seen["healthy"])
    assert all(power_w is not None and power_w > 0 for power_w in seen["power_w"])
    has_gpm = config["device_defaults"].get("architecture") in {"hopper", "blackwell"}
    assert seen["utilization_by"] == ("nvml-gpm" if has_gpm else "nvml-utilization")
    lanes = config.get("nvlink", {}).get("links_per_gpu") if config.get("nvlink", {}).get("switches") else None
    others = seen["links"][1:]
    if lanes:
        assert others == [["NV", lanes]] * len(others)
    else:
        assert all(kind != "NV" for kind, _ in others)


@pytest.mark.parametrize("mode", ["lost", "fallen_off_bus", "ecc_uncorrectable"])
def test_a_gpu_that_fails_while_it_is_watched_is_ill_and_no_other_is(tmp_path: Path, mode: str) -> None:
    healthy = read(failing(tmp_path, {"mode": mode, "after_calls": 60}))["healthy"]
    third = [one[3] for one in healthy]
    assert third == sorted(third, reverse=True), "it stays ill"
    assert (third[0], third[-1]) == (True, False)
    assert all(one[:3] + one[4:] == [True] * 7 for one in healthy)


def test_a_gpu_that_is_lost_from_the_start_is_left_out_and_the_others_are_there(tmp_path: Path) -> None:
    seen = read(failing(tmp_path, {"mode": "lost"}))
    devices = profile("h100")["devices"]
    assert [uuid for uuid, *_ in seen["gpus"]] == [device["uuid"] for device in devices if device["index"] != 3]
