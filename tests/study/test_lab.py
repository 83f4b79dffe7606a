"""`colane.lab`: the frames hold what the files of a study hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from colane import lab
from colane.lab.studies.file import StudyError
from tests.needs import needs

STUDY = """
cluster = "dgx1"
trace = "heavy-load:jobs=20,load=1.5"
policies = ["fifo", "srtf"]
seeds = 3
files = ["jobs", "timeline"]
world = "neutral"
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def test_without_pandas_it_is_said_what_to_install(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'colane\[lab\]'"):
        lab.study(study)
    assert not study.with_suffix("").exists()


def test_a_program_from_standard_input_simulates_in_its_own_process(study: Path) -> None:
    needs("pandas", "pandas comes with the extra lab, 90 MB that nothing else needs")
    program = f"from colane import lab; print(len(lab.study({str(study)!r}).cells))"
    ended = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "6\n"), ended.stderr


def test_the_frames_are_the_files(study: Path) -> None:
    needs("pandas", "pandas comes with the extra lab, 90 MB that nothing else needs")
    import pandas as pd  # noqa: PLC0415 - not installed everywhere

    found = lab.study(study, processes=1)
    out = study.with_suffix("")
    assert found.jobs is not None
    assert found.timeline is not None
    assert found.stays is None
    for frame, name in (
        (found.cells, "cells"), (found.comparisons, "comparisons"), (found.jobs, "jobs"), (found.timeline, "timeline"),
    ):  # fmt: skip
        pd.testing.assert_frame_equal(frame, pd.read_csv(out / f"{name}.csv"), check_dtype=False)
    means = found.jobs.groupby(["policy", "load", "seed"])["jct_s"].mean()
    assert found.cells.set_index(["policy", "load", "seed"])["jct_mean_s"].to_dict() == pytest.approx(means.to_dict())
    study.write_text(STUDY.replace("1.5", "1.4"))
    with pytest.raises(StudyError, match=r"had other inputs \(trace\); say again=True"):
        lab.study(study)
    again = lab.study(study, processes=1, again=True)
    assert not again.cells.equals(found.cells)
