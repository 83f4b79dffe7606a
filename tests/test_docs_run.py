"""The lines that documents show, run as they stand there by a newcomer, on one machine and on three."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.cli.conftest import START_MAX_S, Up, environment, make_up
from tests.faults.machines import PORT, TOKEN, Wired, needs_namespaces

__all__ = ["make_up"]

ROOT = Path(__file__).parents[1]
HOW_TO = ROOT / "docs" / "how-to"
pytestmark = pytest.mark.live

STEPS = """import time
import colane.adaptor as colane
steps = colane.attach(total_steps={steps})
for _ in range({steps}):
    time.sleep(0.02)
    steps.step(loss=1.0)
print("done")
"""
SHORT, LONG = STEPS.format(steps=20), STEPS.format(steps=6000)
ELEMENT = "import os, time; time.sleep(600 if os.environ['COLANE_ARRAY_INDEX'] in '3789' else 0)"
JOB = "#!/bin/bash\n#SBATCH --array=0-9%2 -t 5\necho $SLURM_ARRAY_TASK_ID\n"


ONE = "colane submit --gpus 1 --wait -- python train.py"
POLICY = (ROOT / "docs" / "examples" / "fewest_running.py").read_text()
CHANNELS = '[[channel]]\nname = "pager"\nnamed = true\non = ["failure"]\ncommand = ["/bin/true"]\n'
CHANNELS += '[[channel]]\nname = "ann"\ncommand = ["/bin/true"]\n'
TRACE = "submit_s,duration_s,gpus\n0,100,1\n5,200,1\n9,50,1\n"
CLUSTER = "name: mine\ngroups: [{name: n, count: 2, gpus: 1, gpu_type: V100, gpu_memory: 16GB}]\n"
STUDY = 'cluster = "mine.yaml"\ntrace = "jobs.csv"\npolicies = ["fifo", "colane"]\n'


class Walk(NamedTuple):
    """How a page's lines are run."""

    programs: dict[str, str]  # files of the reader's own that the lines name
    swaps: Mapping[str, str] = MappingProxyType(
        {}
    )  # what the reader has of another name (ids, nodes), or would not wait for
    refused: Mapping[str, str] = MappingProxyType({})  # lines that end otherwise than with 0, and what is said then
    up: tuple[str, ...] = ()  # options of `colane up`
    first: str = ""  # what has been done before


WALKS = {
    "README.md": Walk({"train.py": SHORT}),
    "docs/tutorial.md": Walk({"train.py": LONG}, {"--iters 300": "--iters 2", "logs -f 5": "wait 5 --timeout 1s"}, {
        "colane wait 5": "not ended after 1s: 5",  # a reader looks on for a while, and leaves by Ctrl-C
    }),
    "docs/how-to/arrays.md": Walk({"train.py": ELEMENT, "best.py": ""}, {"0-99%8": "0-9%8", "12": "1"}, {
        "colane wait": "4 cancelled",  # some of its elements were
    }),
    "docs/how-to/order.md": Walk(
        dict.fromkeys(("prepare.py", "train.py", "watch.py", "nightly.py", "big.py", "later.py"), ""),
        {"12": "1", "13": "2"},
    ),
    "docs/how-to/plan.md": Walk({"train.py": SHORT}, {"--gpus 4": "--gpus 2"}),
    "docs/how-to/deadlines.md": Walk({"train.py": SHORT}, {}, {
        "colane submit --deadline 4h": "not known how long a step of the job takes",
    }),
    "docs/how-to/serving.md": Walk({"server.py": LONG}),
    "docs/how-to/seeing.md": Walk({"train.py": SHORT}, {"/gpu-1": "/here", "7": "1"}, first=ONE),
    "docs/how-to/slurm.md": Walk({"job.sh": JOB}, {"12": "1"}),
    "docs/how-to/backup.md": Walk({}, {"/backups/": ""}),
    "docs/how-to/nodes.md": Walk(
        {}, {"gpu1,gpu2": "here", "gpu7": "here", " && reboot": "", "/etc/systemd/system/": "", "18:00": "now+1h",
             "20:00": "now+2h"},
    ),
    "docs/how-to/notify.md": Walk({"train.py": SHORT, "channels.toml": CHANNELS}, up=("--notify", "channels.toml")),
    "docs/how-to/own-policy.md": Walk({"jobs.csv": TRACE, "mine.py": POLICY}),
    "docs/how-to/simulate.md": Walk(
        {"train.py": SHORT, "jobs.csv": TRACE, "mine.yaml": CLUSTER, "study.toml": STUDY},
        {"-c philly ": "-c mine.yaml ", "philly.csv.gz": "jobs.csv", "jobs=300": "jobs=20", " --tables measured": "",
         "--seeds 10": "--seeds 2", "-p fifo --for 7d": "-p fifo --for 100s", "paper A": "paper A --quick"},
        first=f"{ONE}\ncolane submit --gpus 1 -- python train.py",
    ),
}  # fmt: skip

ON_THREE: dict[str, dict[str, str]] = {
    "README.md": {}, "docs/tutorial.md": {}, "docs/how-to/arrays.md": {}, "docs/how-to/order.md": {},
    "docs/how-to/plan.md": {"--gpus 4": "--gpus 3 --multi-node"}, "docs/how-to/deadlines.md": {},
    "docs/how-to/serving.md": {}, "docs/how-to/seeing.md": {"/gpu-1": "/node-2"}, "docs/how-to/slurm.md": {},
    "docs/how-to/nodes.md": {"gpu1,gpu2": "node-1,node-2", "gpu7": "node-3"}, "docs/how-to/simulate.md": {},
}  # fmt: skip
"""Which of them are typed on three machines, too, with networks, processes and boots of their own; and what machines
are called there."""

NOT_ON_THREE = {
    "docs/how-to/backup.md": "it is of the scheduler's machine alone",
    "docs/how-to/notify.md": "it is of the scheduler's machine alone",
    "docs/how-to/own-policy.md": "it simulates, and asks no machine",
}

ASKS_NO_MACHINE = re.compile(r"^colane (simulate (-c|--from week| *#)|trace|study|paper)")
"""Lines that one machine has typed, and that know nothing of how many there are."""

NOT_RUN = {
    r"^colane up|^\. \.venv": "the test has done so",
    r"^scripts/(demo|test)": "they are run as they are",
    r"^python3 -m venv|^uv tool": "it installs from a clone: the gate does",
    r"colane (server|node add|agent)\b": "it takes other machines: tests/engines and tests/faults",
    r"--pty": "it takes a terminal: tests/cli/test_terminals.py",
    r"trace\.csv": "it takes a trace of the reader's",
    r"^colane restore": "it takes a stopped scheduler: tests/server/test_restarts.py",
    r"colane node (upgrade|remove)|manifest container": "it takes nodes that were added, or a wheel: tests/engines",
    r"^colane paper": "it takes minutes: tests/papers",
    r"/etc/prometheus|-o prometheus": "it writes where root alone may",
}
"""Lines that are not run here, and why."""

NOT_WALKED = {
    "high-availability": "it takes a store over the network: tests/server/test_standby.py",
    "mcp": "its lines are a client's configuration: tests/integrations/test_mcp.py",
    "pilots": "it takes a Slurm cluster: tests/engines",
    "published-figures": "its lines take hours and recorded traces: tests/papers",
    "python": "its program is run by tests/integrations/test_futures.py",
    "ray": "it takes a Ray cluster: tests/engines",
    "scale": "it shows figures, and no lines",
    "security": "it takes root and users: tests/cli/test_users_live.py",
    "stores": "it takes Redis or Postgres: tests/server",
    "study": "its study is run by tests/study",
    "terminals": "it takes a terminal: tests/cli/test_terminals.py",
    "upgrade": "it takes two versions: tests/versions",
}
"""How-tos of which no line is run here, and why."""

COMMAND = re.compile(r"^(colane|sbatch|squeue|scancel|sacct|srun|export|for|curl|python3|uv|scripts/\w+|\. )")


def lines_of(page: str) -> list[str]:
    """Lines of a page's blocks that a reader types."""
    text = (ROOT / page).read_text()
    all_fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    fenced = [block for kind, block in all_fenced if kind in {"", "console"}]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = [block for block in fenced if not block.startswith("#!")]
    blocks.append("\n".join(line[4:] for line in rest.splitlines() if line.startswith("    ")))
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line for line in lines if COMMAND.match(line) and not line.startswith("colane: ")]


@pytest.mark.parametrize("page", WALKS)
def test_a_newcomer_types_the_lines_of(page: str, tmp_path: Path, make_up: Callable[..., Up]) -> None:
    here, lines = prepared(page, tmp_path, {})
    options = [str(here / one) if (here / one).is_file() else one for one in WALKS[page].up]
    up = make_up("--devices", "cpu:2:1GB", "--name", "here", *options)
    assert wrong(page, typed(up.env, here, lines)) == {}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Wired]:
    """A scheduler's machine, where lines are typed, and three with a device each."""
    needs_namespaces()
    made = Wired(tmp_path, nodes=3, node_timeout_s=30.0, disk="64m", policy="colane")
    try:
        made.switch_on()
        yield made
    finally:
        made.close()


@pytest.mark.faults
@pytest.mark.parametrize("page", ON_THREE)
def test_the_same_lines_are_typed_where_there_are_three_machines(page: str, tmp_path: Path, three: Wired) -> None:
    here, lines = prepared(page, tmp_path, ON_THREE[page])
    lines = [line for line in lines if not ASKS_NO_MACHINE.match(line)]
    env = {"COLANE_URL": f"http://127.0.0.1:{PORT}", "COLANE_TOKEN": TOKEN}
    assert wrong(page, typed(env, here, lines, ["ip", "netns", "exec", three.scheduler.space])) == {}
    with three.client() as client:
        assert [node["state"] for node in client.nodes()] == ["up"] * 3


def prepared(page: str, folder: Path, others: Mapping[str, str]) -> tuple[Path, list[str]]:
    """A folder with the reader's files, and the lines to be typed in it; `others` are called otherwise here."""
    walk, here = WALKS[page], folder / "work"
    here.mkdir()
    for name, text in walk.programs.items():
        (here / name).write_text(text)
    lines = [line for line in lines_of(page) if not any(re.search(left, line) for left in NOT_RUN)]
    assert lines
    if walk.first:
        lines[:0] = walk.first.splitlines()
    return here, [_swapped(line, {**walk.swaps, **others}) for line in lines]


def wrong(page: str, found: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    """Lines that ended otherwise than the page says, or than the walk does."""
    bad = {}
    for line, (code, said) in found.items():
        refusal = next((text for begin, text in WALKS[page].refused.items() if line.startswith(begin)), None)
        if (code != 0) is (refusal is None) or (refusal or "") not in said:
            bad[line] = (code, said)
    return bad


def _swapped(line: str, swaps: Mapping[str, str]) -> str:
    for old, new in swaps.items():
        line = re.sub(rf"(?<![\w-]){re.escape(old)}(?!\d)" if old.isdecimal() else re.escape(old), new, line)
    return line


def typed(
    variables: Mapping[str, str], here: Path, lines: list[str], where: Sequence[str] = ()
) -> dict[str, tuple[int, str]]:
    """Type lines into one shell, and return of each its exit code and what was said."""
    script = here / "typed.sh"
    script.write_text("".join(f"{line}\ncode=$?; echo; echo @@ $code\n" for line in lines))
    home = {"HOME": str(here), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [*where, "bash", script], env=environment(**variables, **home), cwd=here, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3 * START_MAX_S, check=False,
    )  # fmt: skip
    parts = re.split(r"^@@ (\d+)\n", done.stdout, flags=re.MULTILINE)
    assert len(parts) == 2 * len(lines) + 1, done.stdout
    return {line: (int(parts[2 * n + 1]), parts[2 * n]) for n, line in enumerate(lines)}


def test_each_how_to_is_walked_or_says_why_not() -> None:
    walked = {Path(page).stem for page in WALKS if page.startswith("docs/how-to/")}
    assert walked | set(NOT_WALKED) == {page.stem for page in HOW_TO.glob("*.md")}
    assert not walked & set(NOT_WALKED)
    assert sorted([*ON_THREE, *NOT_ON_THREE]) == sorted(WALKS)


@pytest.mark.parametrize("left", NOT_RUN)
def test_what_is_left_out_is_there_to_be_left_out(left: str) -> None:
    assert any(re.search(left, line) for page in [*WALKS, "docs/how-to/terminals.md"] for line in lines_of(page))


def test_lines_are_found() -> None:
    counts: Callable[[str], int] = lambda page: len(lines_of(page))  # noqa: E731
    assert sum(map(counts, WALKS)) > 50
