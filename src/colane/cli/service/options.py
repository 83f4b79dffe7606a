"""Options and small things that `up`, `server` and `agent` share."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from colane.cli.errors import MisuseError
from colane.cli.service.core_options import CONTENTION, CORE_WINDOW, CoreTunerChoice, contention, tuning
from colane.client.locate import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, read_token
from colane.model.lane import ShareBetween, TurnRule

if TYPE_CHECKING:
    from colane.core.config import CoreConfig

DEFAULT_PORT: Final = 8642
AGENT_DIR: Final = "agent"
"""The agent's part of a state directory."""

Host = Annotated[str, typer.Option("--host", help="Address to listen on. Any but loopback needs a token.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        envvar="COLANE_STATE",
        show_default="colane in the user's state directory",
        help="Where everything is kept.",
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME|FILE.py:NAME",
        help="colane (what is worth most), colocate (share where it pays), fifo (one job a GPU), ...; a wrong name "
        "lists all. Options follow the name, as pack:share_when=always. FILE.py:NAME is a policy of your own.",
    ),
]
PolicyBudget = Annotated[
    str | None,
    typer.Option(
        "--policy-budget",
        metavar="TIME",
        show_default="5s",
        help="What a policy of your own may take each time it is asked.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar=TOKEN_FILE_VARIABLE,
        show_envvar=True,
        show_default="token in the state directory",
        help="File with the token demanded of every client; COLANE_TOKEN holds one itself.",
    ),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="gpu|cpu:N[:MEMORY]",
        show_default="the GPUs; without any, all cores as one device",
        help="Devices that jobs run on: cpu:2:4GB is two devices of half the cores and 4 GB each.",
    ),
]
KeepFinished = Annotated[
    str,
    typer.Option(
        "--keep-finished",
        metavar="TIME|COUNT|all",
        help="Records of finished jobs to keep: as long as 30d, the last 10000, or all.",
    ),
]
KEEP_FINISHED: Final = "90d"
LeaseOption = Annotated[
    str,
    typer.Option(
        "--lease",
        metavar="TIME",
        help="How long jobs of a pool of several nodes go on without word from the scheduler; then they are stopped "
        "and queued again. A node that dies is noticed after as long. Jobs of a pool's only node go on in any case.",
    ),
]
LEASE: Final = "60s"
LEASE_MIN_S: Final = 5.0
"""Agents report every 2 s, and killing takes a moment: under a shorter lease jobs would end for a busy machine."""
LEASE_MAX_S: Final = 30 * 86_400.0


ShareOption = Annotated[
    ShareBetween,
    typer.Option(
        "--share-between", help="Which jobs may share a GPU: all, those of one --group (else one user), or one user's."
    ),
]
TurnsOption = Annotated[
    TurnRule | None,
    typer.Option("--turns", show_default="the policy's", help="Which job of a lane makes the next step."),
]
QuantumOption = Annotated[
    str | None,
    typer.Option(
        "--quantum",
        metavar="TIME",
        show_default="so long that passing turns on takes 1 % of the time at most",
        help="How long a turn lasts, as 50ms or 2s, rounded up to whole steps; 0 is one step.",
    ),
]
GuardOption = Annotated[
    str,
    typer.Option(
        "--guard",
        metavar="PERCENT|off",
        help="Separate jobs that co-runners slow by more than this over the prediction; off leaves them.",
    ),
]
GUARD: Final = "30%"
GUARD_PERCENT_MAX: Final = 1_000_000.0
GuardAfterOption = Annotated[
    str, typer.Option("--guard-after", metavar="TIME", help="For how long they must be, as 45s or 5m.")
]
GUARD_AFTER: Final = "45s"
FactorsOption = Annotated[
    str,
    typer.Option(
        "--memory-factors",
        metavar="P,TOTAL",
        help="Safety factors on measured GPU memory when a GPU is shared: on what a job holds between its steps, and "
        "on that so raised and what it needs within one.",
    ),
]
FACTORS: Final = "1.1,1.05"
FACTOR_MAX: Final = 10.0
YIELD_BOUND: Final = "30s"
YieldBound = Annotated[
    str,
    typer.Option(
        "--yield-bound",
        metavar="TIME",
        help="A job that is asked for its turn and reaches no step boundary for so long is left out of the turns.",
    ),
]
WithParent = Annotated[
    bool, typer.Option("--with-parent", hidden=True, help="Stop when standard input ends: its other side has died.")
]


def lease_s(text: str) -> float:
    """Return how long jobs may go on without word from the scheduler.

    Raises:
        MisuseError: It is not a time, or none that a lease may last.
    """
    found_s = time_s("--lease", text)
    if not LEASE_MIN_S <= found_s <= LEASE_MAX_S:
        raise MisuseError(f"--lease: must be from {LEASE_MIN_S:g}s to {LEASE_MAX_S / 86_400:g}d, got {text}")
    return found_s


def retention(text: str) -> str:
    """Return the text when it says what to keep of finished jobs.

    Raises:
        MisuseError: It does not.
    """
    from colane.server.store.retention import parse_retention  # noqa: PLC0415 - imported late

    try:
        parse_retention(text)
    except ValueError as error:
        raise MisuseError(f"--keep-finished: {error}") from error
    return text


def policy_budget_s(policies: Iterable[str], text: str | None) -> float:
    """Return what a pass of a user's own policy may take.

    Raises:
        MisuseError: It is not a time, or none; or no policy is the user's own.
    """
    from colane.policyfiles.guard import BUDGET_S  # noqa: PLC0415 - imported late
    from colane.policyfiles.load import is_file  # noqa: PLC0415

    if text is None:
        return BUDGET_S
    if not any(map(is_file, policies)):
        raise MisuseError("--policy-budget: bounds a policy of your own (--policy FILE.py:NAME), which none here is")
    found_s = time_s("--policy-budget", text)
    if found_s == 0:
        raise MisuseError("--policy-budget: must be more than 0")
    return found_s


def budget_words(policy: str, text: str | None) -> tuple[str, ...]:
    """Return the budget of a user's own policy as words of a command line.

    Raises:
        MisuseError: As for `policy_budget_s`.
    """
    if text is None:
        return ()
    policy_budget_s([policy], text)
    return "--policy-budget", text


def quantum_s(text: str | None) -> float | None:
    """Return how long a turn lasts; None leaves it to the policy.

    Raises:
        MisuseError: It is not a time.
    """
    return None if text is None else time_s("--quantum", text)


class Sharing(NamedTuple):
    """The options of sharing, as they are given."""

    share_between: ShareBetween
    turns: TurnRule | None
    quantum: str | None
    guard: str
    guard_after: str
    memory_factors: str
    core_tuner: CoreTunerChoice = CoreTunerChoice.OFF
    core_window: str = CORE_WINDOW
    contention: str = CONTENTION

    def words(self) -> tuple[str, ...]:
        """Return them as words of a command line.

        Raises:
            MisuseError: One of them is wrong.
        """
        guard_ratio(self.guard)
        guard_after_s(self.guard_after)
        factors(self.memory_factors)
        words = ["--share-between", self.share_between.value]
        words += [] if self.turns is None else ["--turns", self.turns.value]
        words += [] if quantum_s(self.quantum) is None else ["--quantum", str(self.quantum)]
        words += ["--guard", self.guard, "--guard-after", self.guard_after]
        tuning(self.core_tuner, self.core_window)
        contention(self.contention)
        words += ["--core-tuner", self.core_tuner.value, "--core-window", self.core_window]
        words += ["--contention", self.contention]
        return (*words, "--memory-factors", self.memory_factors)

    def core_config(self) -> CoreConfig:
        """Return them as settings of the core.

        Raises:
            MisuseError: One of them is wrong.
        """
        from colane.core.config import CoreConfig  # noqa: PLC0415 - imported late

        margin_ratio = guard_ratio(self.guard)
        return CoreConfig(
            share_between=self.share_between,
            turn_rule=self.turns,
            quantum_s=quantum_s(self.quantum),
            guard=margin_ratio is not None,
            guard_margin_ratio=CoreConfig().guard_margin_ratio if margin_ratio is None else margin_ratio,
            guard_after_s=guard_after_s(self.guard_after),
            memory_factors=factors(self.memory_factors),
            tuning=tuning(self.core_tuner, self.core_window),
            contention=contention(self.contention),
        )


def guard_ratio(text: str) -> float | None:
    """Return how much slower than predicted is too slow: 0.3 of `30%` or `30`; None of `off`.

    Raises:
        MisuseError: It is neither.
    """
    if text.strip().lower() == "off":
        return None
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= GUARD_PERCENT_MAX:
        raise MisuseError(f"--guard: must be a percentage such as 30%, or off, got {text!r}")
    return percent / 100


def guard_after_s(text: str) -> float:
    """Return for how long jobs must be too slow.

    Raises:
        MisuseError: It is not a time.
    """
    return time_s("--guard-after", text)


def yield_bound_s(text: str) -> float:
    """Return how long is waited for a job that was asked for its turn.

    Raises:
        MisuseError: It is not a time, or none.
    """
    found_s = time_s("--yield-bound", text)
    if found_s == 0:
        raise MisuseError("--yield-bound: must be more than 0")
    return found_s


def time_s(option: str, text: str) -> float:
    """Return a duration in seconds.

    Raises:
        MisuseError: It is none; the message names the option.
    """
    from colane.model.quantities import parse_duration_s  # noqa: PLC0415 - imported late

    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise MisuseError(f"{option}: {error}") from error


def factors(text: str) -> tuple[float, float]:
    """Return the safety factors on P, and on P + E.

    Raises:
        MisuseError: They are not two numbers from 1 up.
    """
    try:
        persistent, total = (float(part) for part in text.split(","))
    except ValueError:
        persistent = total = 0.0
    if not (1 <= persistent <= FACTOR_MAX and 1 <= total <= FACTOR_MAX):
        raise MisuseError(f"--memory-factors: must be two numbers from 1 to {FACTOR_MAX:g}, as 1.1,1.05, got {text!r}")
    return persistent, total


def rate(option: str, text: str | None) -> int | None:
    """Return bytes per second.

    Raises:
        MisuseError: It is not a rate.
    """
    from colane.model.quantities import parse_bandwidth_bytes_per_s  # noqa: PLC0415 - imported late

    if text is None:
        return None
    try:
        return round(parse_bandwidth_bytes_per_s(text))
    except ValueError as error:
        raise MisuseError(f"{option}: {error}") from error


def state_dir(given: Path | None) -> Path:
    """Return the state directory, absolute."""
    from colane.client.locate import default_state_dir  # noqa: PLC0415 - imported late

    return (given or default_state_dir()).expanduser().absolute()


def token(file: Path | None) -> str | None:
    """Return the token of the environment or a file; None where neither is said.

    Raises:
        MisuseError: The file cannot be read, or holds none.
    """
    named = os.environ.get(TOKEN_VARIABLE)
    if named is not None or file is None:
        return named
    found = read_token(file.expanduser())
    if found is None:
        raise MisuseError(f"--token-file {file}: cannot be read, or is empty")
    return found


def node_name() -> str:
    """Return this machine's name in the form node names have."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0]).lstrip("._-")[:100]
    return name or "node"


def log_to_stderr(who: str) -> None:
    """Let warnings be read, one line each."""
    logging.basicConfig(level=logging.WARNING, format=f"colane {who}: %(message)s", stream=sys.stderr)


def stop_with_parent(number: int = signal.SIGTERM) -> None:
    """Send this process a signal when the other side of its standard input has gone, however it went."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), number)

    threading.Thread(target=watch, daemon=True).start()
