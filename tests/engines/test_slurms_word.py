"""When jobs of a pilot that has ended start elsewhere at once: where Slurm vouches that no process of it is left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self, cast

import pytest

from colane.client.client import Client
from colane.engines.slurm import PilotConfig, SlurmEngine

SQUEUE = '#!/bin/sh\n[ -e {there} ] && echo "7|colane-c-1|RUNNING|10:00|None"\nexit 0\n'
SCONTROL = """#!/bin/sh
case "$*" in
"show config") echo 'SlurmctldPort = 6817'; echo 'ProctrackType           = {tracks}' ;;
"-o show job 7") {shows} ;;
*) exit 1 ;;
esac
"""
CONFINED = "proctrack/cgroup"
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


class Scheduler:
    """Knows the pilot's node, which has a job."""

    def __init__(self) -> None:
        self.removed: list[tuple[str, bool]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def health(self) -> Any:
        return {"cluster_id": "c"}

    def node_if_known(self, name: str) -> Any:
        return {"name": name, "jobs": [{"id": 1}]}

    def make_token(self, *, node: str) -> str:
        return f"the agent's of {node}"

    def tokens(self) -> list[Any]:
        return []

    def remove_node(self, name: str, *, is_gone: bool = False) -> None:
        self.removed.append((name, is_gone))


@pytest.mark.parametrize(
    ("tracks", "shows", "is_removed"),
    [
        (CONFINED, "echo JobId=7 JobState=CANCELLED Reason=None", True),
        (CONFINED, "echo JobId=7 JobState=FAILED Reason=RaisedSignal:9", True),
        (CONFINED, "echo JobId=7 JobState=COMPLETING Reason=None", False),
        (CONFINED, "echo JobId=7 JobState=NODE_FAIL Reason=None", False),
        (CONFINED, FORGOTTEN, False),
        ("proctrack/linuxproc", "echo JobId=7 JobState=CANCELLED Reason=None", False),
    ],
)
def test_a_pilots_node_is_removed_with_its_jobs_where_slurm_vouches_for_it(
    tracks: str, shows: str, is_removed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.touch()
    programs = {"squeue": SQUEUE.format(there=there), "scontrol": SCONTROL.format(tracks=tracks, shows=shows)}
    for name, text in {**programs, "sbatch": "#!/bin/sh\nexit 1\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    scheduler = Scheduler()
    config = PilotConfig(folder=tmp_path / "pilots", count=1, time_s=600.0, lead_s=60.0, url="http://127.0.0.1:1")
    engine = SlurmEngine(config, lambda: cast("Client", scheduler), lambda _text: None)
    engine.start()
    there.unlink()
    engine._tend()
    assert scheduler.removed == [("slurm-1", True)] * is_removed
