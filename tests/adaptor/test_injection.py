"""All ways in which a job's Python may start: the adaptor works there, or leaves it untouched.

The framework is a stand-in for Keras of a few lines, found on the job's path: it starts as fast as Python does.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from colane.adaptor import bundle
from tests.adaptor.jobs import Job, make_job

KERAS = """
class CallbackList:
    params = {"epochs": 2, "steps": 4}
    def on_train_begin(self, logs=None): pass
    def on_train_batch_end(self, batch, logs=None): pass
    def on_predict_begin(self, logs=None): pass
    def on_predict_batch_end(self, batch, logs=None): pass
    def on_test_begin(self, logs=None): pass
    def on_test_batch_end(self, batch, logs=None): pass
"""
TRAIN = """
import keras
callbacks = keras.callbacks.CallbackList()
callbacks.on_train_begin()
for batch in range(8):
    callbacks.on_train_batch_end(batch)
callbacks.on_predict_batch_end(0)
print(keras.__spec__.loader is keras.__loader__, type(keras.__loader__).__name__)
"""
TRAINED = "True SourceFileLoader\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory on the job's own PYTHONPATH."""
    return with_keras(tmp_path / "site")


@pytest.fixture
def job(tmp_path: Path, site: Path) -> Job:
    return make_job(tmp_path / "job", pythonpath=str(site))


def with_keras(folder: Path) -> Path:
    (folder / "keras/callbacks").mkdir(parents=True)
    (folder / "keras/__init__.py").write_text("from keras import callbacks\n")
    (folder / "keras/callbacks/__init__.py").write_text(KERAS)
    return folder


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("options", [(), ("-s",), ("-P",), ("-O",), ("-u",), ("-X", "utf8")])
def test_a_script(job: Job, options: tuple[str, ...]) -> None:
    assert job.train(TRAIN, *options) == TRAINED
    seen = job.seen()
    assert seen is not None
    assert (seen.steps, seen.steps_total) == (8, 8)
    assert job.errors == ""


EVALUATES = """
import keras
fit, evaluate, predict = (keras.callbacks.CallbackList() for _ in range(3))
evaluate.params = predict.params = {"epochs": 1, "steps": 3}
fit.on_train_begin()
for epoch in range(2):
    for batch in range(4):
        fit.on_train_batch_end(batch)
    fit.on_test_begin()
    fit.on_test_batch_end(0)
for name, callbacks in (("test", evaluate), ("predict", predict)):
    getattr(callbacks, f"on_{name}_begin")()
    for batch in range(3):
        getattr(callbacks, f"on_{name}_batch_end")(batch)
"""


def test_after_training_batches_of_evaluate_and_predict_are_no_steps_and_those_of_validation_never_are(
    job: Job,
) -> None:
    job.train(EVALUATES)
    seen = job.seen()
    assert seen is not None
    assert (seen.steps, seen.steps_total) == (8, 8)
    assert job.errors == ""


def test_a_job_that_only_evaluates_or_predicts_has_these_as_its_steps(job: Job) -> None:
    training = EVALUATES[EVALUATES.index("fit.on_train_begin") : EVALUATES.index("for name")]
    job.train(EVALUATES.replace(training, ""))
    seen = job.seen()
    assert seen is not None
    assert (seen.steps, seen.steps_total) == (6, 6)


AT_ONCE = """
import keras, types
callbacks = keras.callbacks.CallbackList()
callbacks.model = types.SimpleNamespace(steps_per_execution=3)
callbacks.on_train_begin()
for epoch in range(2):
    for last in (2, 5):
        callbacks.on_train_batch_end(last)
"""


def test_batches_that_are_executed_at_once_are_all_counted(job: Job) -> None:
    """Epochs of four batches: three, then one that is left."""
    job.train(AT_ONCE)
    seen = job.seen()
    assert seen is not None
    assert (seen.steps, seen.steps_total) == (8, 8)
    assert job.errors == ""


@pytest.mark.parametrize("way", ["-m", "-c", "-", "console script", "shell", "env", "exec"])
def test_other_ways_to_start_python(job: Job, site: Path, way: str) -> None:
    (site / "package").mkdir()
    (site / "package/__init__.py").touch()
    (site / "package/train.py").write_text(TRAIN)
    script = executable(job.folder / "script", f"#!{sys.executable}\n{TRAIN}")
    argv = {
        "-m": (sys.executable, "-m", "package.train"),
        "-c": (sys.executable, "-c", TRAIN),
        "-": ("sh", "-c", f"{sys.executable} - < {script}"),
        "console script": (script,),
        "shell": (executable(job.folder / "run.sh", f"#!/bin/sh\nset -e\ncd /\n{sys.executable} {script}\n"),),
        "env": ("env", "MINE=1", sys.executable, script),
        "exec": ("sh", "-c", f"exec {sys.executable} {script}"),
    }[way]
    assert job.run(*argv) == TRAINED
    assert job.steps() == 8


def test_a_child_process_that_trains(job: Job) -> None:
    started = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    assert job.run(sys.executable, "-c", started, TRAIN) == TRAINED
    assert job.steps() == 8


def test_two_trainings_after_each_other_go_on_counting(job: Job) -> None:
    job.train(TRAIN)
    job.train(TRAIN)
    seen = job.seen()
    assert seen is not None
    assert (seen.steps, seen.steps_total) == (16, 16)


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_python_that_reads_no_path_is_left_untouched(job: Job, site: Path, option: str) -> None:
    script = f"import sys\nsys.path.insert(0, {str(site)!r})\n{TRAIN}"
    assert job.train(script, option) == TRAINED
    assert job.steps() == 0
    assert job.errors == ""


@pytest.fixture(scope="module")
def late_threads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a thread begins long after it was started, and what is freed is overwritten."""
    made = tmp_path_factory.mktemp("late") / "late_threads.so"
    source = Path(__file__).with_name("late_threads.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(made), "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.perturb=165"}


def test_a_job_that_ends_at_once_lets_the_thread_begin_that_was_started(job: Job, late_threads: dict[str, str]) -> None:
    """Python up to 3.11.5 crashes else, where it has freed what the thread begins with."""
    at_end = "import atexit, sys, time\nbegan_s = time.monotonic()\n"
    at_end += "atexit.register(lambda: print(time.monotonic() - began_s >= 0.6))"
    slow_end = "\nclass Slow:\n    def __del__(self, sleep=time.sleep): sleep(1.0)\nsys.slow = Slow()"
    assert job.train(f"{at_end}{TRAIN}{slow_end}", **late_threads) == f"{TRAINED}True\n"
    assert job.steps() == 8


def test_a_child_that_is_forked_meanwhile_waits_for_no_thread_of_its_parents(
    job: Job, late_threads: dict[str, str]
) -> None:
    forks = "\nimport os, sys\nsys.stdout.flush()\nchild = os.fork()\nif child: print(os.waitpid(child, 0)[1])"
    assert job.train(TRAIN + forks, **late_threads) == f"{TRAINED}0\n"
    assert job.steps() == 8


def test_a_process_outside_any_job_is_left_untouched(job: Job) -> None:
    told = "\nimport sys\nprint([name for name in sys.modules if 'colane' in name and name != '_colane_adaptor'])"
    for name in ("COLANE_STEPS_FILE", "COLANE_DEBUG"):
        del job.env[name]
    assert job.train(TRAIN + told) == f"{TRAINED}['_colane_adaptor.arm']\n"
    assert job.seen() is None


def test_a_process_without_a_framework_registers_nothing(job: Job) -> None:
    loaded = job.train("import sys, json\nprint(*(name for name in sys.modules if 'colane' in name))")
    assert loaded == "_colane_adaptor _colane_adaptor.arm\n"
    assert job.seen() is None


@pytest.mark.parametrize("where", ["package", "module"])
def test_the_sitecustomize_that_ours_hides_runs_all_the_same(job: Job, site: Path, where: str) -> None:
    text = "import sys\nsys.theirs = __file__\nvalue = 5\n"
    path = site / ("sitecustomize/__init__.py" if where == "package" else "sitecustomize.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    told = "\nimport sys, sitecustomize\nprint(sys.theirs, sitecustomize.value, sitecustomize.__file__)"
    assert job.train(TRAIN + told) == f"{TRAINED}{path} 5 {path}\n"
    assert job.steps() == 8


def test_a_sitecustomize_that_fails_fails_as_without_us(job: Job, site: Path) -> None:
    (site / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    assert job.train(TRAIN) == TRAINED
    with_us = job.errors
    job.train(TRAIN, PYTHONPATH=str(site))
    assert "ValueError: theirs" in job.errors
    assert with_us.splitlines()[0] == job.errors.splitlines()[0]
    assert job.steps() == 8, "it was armed before"


def test_a_framework_that_cannot_be_imported_fails_as_without_us(job: Job, site: Path) -> None:
    (site / "keras/__init__.py").write_text("raise ImportError('broken')\n")
    script = (
        "for i in range(2):\n    try:\n        import keras\n    except ImportError as error:\n        print(error)"
    )
    assert job.train(script) == "broken\nbroken\n"
    assert job.errors == ""


def test_a_framework_of_unknown_shape_is_left_alone(job: Job, site: Path) -> None:
    (site / "keras/callbacks/__init__.py").write_text("")
    assert job.train("import keras; print('ran')") == "ran\n"
    assert "colane: keras is left alone" in job.errors


def test_only_one_of_two_processes_at_a_time_reports(job: Job) -> None:
    both = TRAIN + "\nimport subprocess, sys\nif sys.argv[1:]: subprocess.run([sys.executable, __file__], check=True)"
    job.train(both)
    (job.folder / "train.py").write_text(both)
    job.run(sys.executable, str(job.folder / "train.py"), "again")
    assert job.steps() == 24 - 8
    assert "already reports its steps here" in job.errors


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A Python environment that knows nothing of Colane; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    with_keras(packages(tmp_path / "venv"))
    return tmp_path / "venv/bin/python"


def packages(prefix: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(prefix), "platbase": str(prefix)}))


def test_an_environment_without_colane(job: Job, environment: Path) -> None:
    assert job.run(str(environment), "-c", TRAIN) == TRAINED
    assert job.steps() == 8


@pytest.mark.parametrize("way", ["-I", "-E", "PYTHONPATH", "both"])
def test_start_files_in_an_environment_work_where_the_path_does_not(job: Job, environment: Path, way: str) -> None:
    bundle.install(packages(environment.parents[1]))
    options = [way] if way.startswith("-") else []
    env = {"PYTHONPATH": "."} if way == "PYTHONPATH" else {}
    assert job.run(str(environment), *options, "-c", TRAIN, **env) == TRAINED
    assert job.steps() == 8
    assert job.errors == ""


def test_start_files_cost_nothing_outside_a_job_and_go_away_again(job: Job, environment: Path) -> None:
    place = packages(environment.parents[1])
    bundle.install(place)
    told = "import sys; print([name for name in sys.modules if 'colane' in name])"
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COLANE"))}
    argv = [str(environment), "-c", told]
    assert subprocess.run(argv, env=outside, capture_output=True, text=True, check=True).stdout == "[]\n"
    assert bundle.uninstall(place)
    assert not bundle.uninstall(place)
    assert job.run(str(environment), "-I", "-c", TRAIN) == TRAINED
    assert job.steps() == 0


def test_start_files_without_their_agent_do_nothing(job: Job, environment: Path) -> None:
    bundle.install(packages(environment.parents[1]))
    gone = str(job.folder / "none")
    assert job.run(str(environment), "-I", "-c", TRAIN, **{bundle.DIR_ENV: gone}) == TRAINED
    assert "colane: not armed" in job.errors
    del job.env[bundle.DIR_ENV]
    assert job.run(str(environment), "-I", "-c", TRAIN) == TRAINED
    assert job.errors == ""


@pytest.mark.parametrize("name", sorted({**bundle.files(), **bundle.start_files()}))
def test_what_jobs_load_is_old_python_and_the_standard_library_alone(name: str) -> None:
    text = {**bundle.files(), **bundle.start_files()}[name]
    if not name.endswith(".py"):
        assert name == bundle.PTH or text == "_colane_start:arm\n", "PEP 829"
        return
    for node in ast.walk(ast.parse(text, feature_version=(3, 8))):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
        if isinstance(node, ast.ImportFrom) and not node.level:
            assert str(node.module).split(".")[0] in {*sys.stdlib_module_names, "torch", bundle.PACKAGE}


def test_unpacking_again_changes_nothing(tmp_path: Path) -> None:
    place = bundle.unpack(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    assert bundle.unpack(tmp_path) == place == bundle.place(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before
    assert [path.name for path in place.parent.iterdir()] == [place.name]
