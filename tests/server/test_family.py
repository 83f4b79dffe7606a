"""Families of commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colane.server.submitting.family import FAMILY_LENGTH_MAX, derive_family, name_of

COMMANDS = [
    ("python train.py --lr 0.1", "train.py --lr"),
    ("/opt/env/bin/python3.11 -u src/train.py --lr=0.1 -v", "train.py --lr -v"),
    ("python -W ignore -X faulthandler train.py", "train.py"),
    ("python -m pkg.train --b 1 --a 2", "pkg.train --a --b"),
    ("python -um pkg.train", "pkg.train"),
    ("./run.sh data 3", "run.sh"),
    ("bash run.sh 3", "run.sh"),
    ("bash -o pipefail run.sh", "run.sh"),
    ("bash -c secret", "bash -c 2bb80d53"),
    ("bash -lc secret", "bash -c 2bb80d53"),
    ("env TOKEN=abc python train.py", "train.py"),
    ("env -u HOME -i A=b python train.py", "train.py"),
    ("timeout 5 python train.py", "train.py"),
    ("timeout -k 10 -s INT 5h python train.py --x", "train.py --x"),
    ("nice -n 10 python train.py", "train.py"),
    ("nice -10 python train.py", "train.py"),
    ("nohup python train.py", "train.py"),
    ("stdbuf -oL python train.py", "train.py"),
    ("taskset -c 0-3 python train.py", "train.py"),
    ("numactl --cpunodebind=0 --membind 0 python train.py", "train.py"),
    ("time -p python train.py", "train.py"),
    ("setsid nice python train.py", "train.py"),
    ("torchrun --nproc 2 train.py --x", "torchrun #"),
    ("torchrun --nproc-per-node 2 train.py --x", "train.py --x"),
    ("torchrun --nproc_per_node=2 --standalone train.py", "train.py"),
    ("torchrun --standalone --nnodes 1 --nproc_per_node gpu -m pkg.train --y 1", "pkg.train --y"),
    ("torchrun --no-python --nproc-per-node 2 train.sh a", "train.sh"),
    ("torchrun -- train.py --x", "train.py --x"),
    ("python -m torch.distributed.run --nproc-per-node 2 train.py --x", "train.py --x"),
    ("python -m torch.distributed.launch --use_env --nproc_per_node 2 a/train.py", "train.py"),
    ("python -u -m torch.distributed.run --standalone -m pkg.train", "pkg.train"),
    ("accelerate launch --mixed_precision bf16 train.py --lr 1", "train.py --lr"),
    ("accelerate launch --opt value X", "accelerate #"),
    ("accelerate launch --config_file c.yaml --multi_gpu train.py", "train.py"),
    ("accelerate launch -m pkg.train --z", "pkg.train --z"),
    ("accelerate config", "accelerate #"),
    ("python -m accelerate.commands.launch --num_processes 2 train.py", "train.py"),
    ("accelerate-launch --num_processes 2 train.py", "train.py"),
    ("deepspeed --num_gpus 2 train.py --deepspeed ds.json", "train.py --deepspeed"),
    ("deepspeed --include localhost:0,1 --module pkg.train", "pkg.train"),
    ("papermill in.ipynb out.ipynb -p lr 0.1", "in.ipynb -p"),
    ("papermill -k python3 in.ipynb out.ipynb", "in.ipynb"),
    ("python -m papermill in.ipynb out.ipynb", "in.ipynb"),
    ("uv run train.py --lr 1", "train.py --lr"),
    ("uv run --with torch python train.py", "train.py"),
    ("uv run -m pkg.train", "pkg.train"),
    ("uv run --strange thing python train.py", "uv #"),
    ("uv pip install torch", "uv #"),
    ("poetry run python train.py --a", "train.py --a"),
    ("pdm run python train.py", "train.py"),
    ("pipenv run python train.py", "train.py"),
    ("conda run -n env python train.py", "train.py"),
    ("conda run --no-capture-output -p /opt/e python -m pkg.train", "pkg.train"),
    ("micromamba run -n env torchrun --nproc-per-node 2 train.py", "train.py"),
    ("pixi run -e gpu python train.py", "train.py"),
    ("mpirun -np 4 --bind-to none -x A=b python train.py", "train.py"),
    ("mpirun -n4 ./solver", "solver"),
    ("horovodrun -np 2 -H localhost:2 python train.py", "train.py"),
    ("nsys profile -o out --trace cuda python train.py", "train.py"),
    ("coverage run --branch -m pkg.train", "pkg.train"),
    ("ipython -i notebook.ipynb", "notebook.ipynb"),
    ("make train", "make #"),
    ("docker run --rm image python train.py", "docker #"),
    ("ray job submit -- python train.py", "ray #"),
    ("jupyter nbconvert --execute a.ipynb", "jupyter #"),
    ("Rscript fit.R --seed 1", "fit.R --seed"),
    ("julia --project=. fit.jl", "fit.jl"),
    ("python", "python"),
    ("env", "env"),
    ("python train.py --lr -0.1", "train.py --lr"),
    ("sleep 5", "sleep"),
]
"""`#` stands for a hash of the whole command line: what is not certain is like no other."""


@pytest.mark.parametrize(("command", "family"), COMMANDS)
def test_family(command: str, family: str) -> None:
    derived = derive_family(shlex.split(command))
    if family.endswith("#"):
        name, code = derived.split()
        assert (name, len(code)) == (family.split(maxsplit=1)[0], 8)
        assert derived != derive_family([*shlex.split(command), "more"]), "it is like no other"
        assert derived == derive_family(shlex.split(command))
    else:
        assert derived == family


@pytest.mark.parametrize("command", [command for command, _ in COMMANDS])
def test_another_directory_or_user_is_another_family(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    found = [
        derive_family(words, str(tmp_path / directory), user)
        for directory, user in (("a/net", "ann"), ("b/net", "ann"), ("a/net", "bob"))
    ]
    assert len(set(found)) == 3
    assert found[0] == derive_family(words, str(tmp_path / "a" / "net"), "ann")


@given(st.lists(st.text(max_size=20), min_size=1, max_size=8), st.sampled_from(["", "/usr"]))
@example(["\0"], "")
@example(["python", "\0/x.py"], "/usr")
@example(["./\ud800"], "/usr")
@example(["uv"], "/usr")
def test_any_command_has_a_family_of_bounded_length(command: list[str], directory: str) -> None:
    family = derive_family(command, directory)
    assert 0 < len(family) <= FAMILY_LENGTH_MAX
    assert family.isprintable()


def test_order_and_values_of_arguments_do_not_matter() -> None:
    first = derive_family(["python", "t.py", "--a", "1", "--b", "2"])
    assert first == derive_family(["python", "t.py", "--b", "9", "--a", "8"])


def test_a_script_is_the_same_from_wherever_it_is_started(tmp_path: Path) -> None:
    found = derive_family(["python", "main.py", "--epochs", "3"], str(tmp_path / "a" / "net"), "ann")
    assert found.startswith("net/main.py@")
    assert found.endswith(" --epochs")
    assert name_of(found) == "main.py"
    assert derive_family(["python", "net/main.py", "--epochs=4"], str(tmp_path / "a"), "ann") == found


def test_in_a_repository_a_script_is_named_by_its_path_within_it(tmp_path: Path) -> None:
    (tmp_path / "proj" / ".git").mkdir(parents=True)
    found = derive_family(["./vae/main.py", "-e", "3"], str(tmp_path / "proj"))
    assert found.startswith("proj/vae/main.py@")
    assert name_of(found) == "main.py"
