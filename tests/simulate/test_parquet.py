"""`colane simulate --parquet`: the table of jobs as a typed file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from colane.cli import app
from tests.needs import needs


def test_a_parquet_file_has_the_columns_and_values_of_the_csv(tmp_path: Path) -> None:
    needs("pyarrow", "writes Parquet")
    from pyarrow import parquet  # noqa: PLC0415 - looked for first

    words = ["simulate", "-p", "fifo", "-p", "colane", "--seeds", "2", "--out", str(tmp_path), "--parquet"]
    assert app.run(words) == 0
    tables = sorted(tmp_path.glob("jobs-*.csv"))
    assert len(tables) == 4
    for path in tables:
        found = parquet.read_table(path.with_suffix(".parquet"))
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert found.column_names == list(rows[0])
        assert [row["end_s"] for row in found.to_pylist()] == [float(row["end_s"]) for row in rows]
        assert [row["state"] for row in found.to_pylist()] == [row["state"] for row in rows]


def test_every_table_of_a_study_is_written_so(tmp_path: Path) -> None:
    needs("pyarrow", "writes Parquet")
    from pyarrow import parquet  # noqa: PLC0415 - looked for first

    plan = tmp_path / "plan.toml"
    plan.write_text('cluster = "dgx1"\ntrace = "heavy-load:jobs=9"\npolicies = ["fifo", "colane"]\nfiles = ["jobs"]\n')
    assert app.run(["study", str(plan), "--out", str(tmp_path / "out"), "--processes", "1", "--parquet"]) == 0
    for name in ("cells", "comparisons", "jobs"):
        path = tmp_path / "out" / f"{name}.csv"
        found = parquet.read_table(path.with_suffix(".parquet")).to_pylist()
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert found
        assert [row.keys() for row in found] == [row.keys() for row in rows]
        assert [row["policy"] for row in found] == [row["policy"] for row in rows]
    assert isinstance(found[0]["end_s"], float)


@pytest.mark.parametrize(
    ("more", "fix"),
    [([], "give --out DIR"), (["--out", "made"], "pip install 'colane[parquet]'")],
    ids=["out", "extra"],
)
def test_what_lacks_is_said_before_anything_runs(
    more: list[str], fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert app.run(["simulate", "--parquet", *more]) == 2
    assert fix in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
