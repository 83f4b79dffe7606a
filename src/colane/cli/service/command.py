"""Commands that start services: their options come from the table of settings, with what is said elsewhere."""

from __future__ import annotations

import fcntl
import inspect
import json
import logging
import os
import re
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TextIO

import typer

from colane.cli.errors import MisuseError
from colane.client.locate import TOKEN_VARIABLE, read_token
from colane.settings.places import FILE_VARIABLE
from colane.settings.setting import Given, Section, Setting, SettingError, Values
from colane.settings.sources import SettingsFile, find_file, gather
from colane.settings.table import SERVER, SERVER_STATE, STORE, TOKEN_FILE


class ServiceStart(NamedTuple):
    """What a service is started with."""

    flags: Mapping[str, object]  # of the command line, by name
    file: SettingsFile | None  # what `colane.toml` says
    document: Mapping[str, Given] | None = None  # what its parent says instead of the file; None without a parent
    token: str | None = None  # the parent's

    def values(
        self, section: Section, *, without: Sequence[Setting[Any]] = (), told: Mapping[str, Given] | None = None
    ) -> Values:
        """Return the settings of a section, of which some flags belong to another, and some another service tells."""
        names = {setting.name for setting in section.settings} - {setting.name for setting in without}
        flags = {name: value for name, value in self.flags.items() if name in names}
        return gather(section, flags, file=self.file, document=self.document, told=told)


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar=FILE_VARIABLE,
        show_default="colane/colane.toml in the user's configuration directory; root's is /etc/colane/colane.toml",
        help="File of settings (TOML; docs/reference/settings.md).",
    ),
]
WithParent = Annotated[
    bool,
    typer.Option(
        "--with-parent",
        hidden=True,
        help="Read settings of standard input, one line of JSON, and stop when it ends: its other side has died.",
    ),
]


def service_command(
    run: Callable[[ServiceStart], None],
    settings: Sequence[Setting[Any]],
    *,
    orphaned: signal.Signals | None = None,
    others: Mapping[str, tuple[Any, Any]] | None = None,
) -> Callable[..., None]:
    """Return a command with an option for each setting; the docstring is that of `run`.

    Args:
        run: What the command does.
        settings: Those of which it has flags.
        orphaned: The signal that a child of `colane up` sends to itself when its parent has gone; None where it is
            never one.
        others: Options that are no settings: for each name its type and its default.
    """

    def command(ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401 - as each setting says
        # A variable of Typer's own and a default are none of the flags: the table knows their place.
        flags = {name: value for name, value in given.items() if _is_of_command_line(ctx, name)}
        file, is_child = flags.pop("config", None), flags.pop("with_parent", False)
        try:
            run(_of_parent(flags, orphaned) if is_child and orphaned else ServiceStart(flags, find_file(file)))
        except SettingError as error:
            raise MisuseError(str(error)) from error

    options: dict[str, tuple[Any, Any]] = {
        setting.name: (Annotated[_kind(setting), option(setting)], setting.default) for setting in settings
    }
    options |= {"config": (ConfigOption, None)}
    options |= {"with_parent": (WithParent, False)} if orphaned else {}
    options |= others or {}
    named = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    parameters += [
        inspect.Parameter(name, named, annotation=type_, default=default) for name, (type_, default) in options.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = run.__doc__
    return command


def _kind(setting: Setting[Any]) -> Any:  # noqa: ANN401 - a type
    return setting.takes if setting.default is not None else setting.takes | None


def _is_of_command_line(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def option(setting: Setting[Any]) -> Any:  # noqa: ANN401 - as typer's own
    """Return the option of a setting."""
    return typer.Option(
        *([f"-{setting.letter}"] if setting.letter else []),
        setting.flag,
        metavar=setting.metavar,
        envvar=list(setting.variables) or None,
        show_default=setting.default_told,
        min=setting.at_least,
        max=setting.at_most,
        help=setting.help,
    )


StateOption = Annotated[Path | None, option(SERVER_STATE)]


def _of_parent(flags: Mapping[str, object], orphaned: signal.Signals) -> ServiceStart:
    """Take what a parent process says, and end with it."""
    line = bytearray()
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    said = json.loads(line or b"{}")
    stop_with_parent(orphaned)
    document = {name: Given(*given) for name, given in said.get("settings", {}).items()}
    return ServiceStart(flags, None, document, said.get("token"))


def stop_with_parent(number: signal.Signals) -> None:
    """Send this process a signal when the other side of its standard input has gone, however it went."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), number)

    threading.Thread(target=watch, daemon=True).start()


def state_dir(values: Values) -> Path:
    """Return the scheduler's state directory, absolute."""
    from colane.client.locate import default_state_dir  # noqa: PLC0415 - imported late

    return values[SERVER_STATE] or default_state_dir().expanduser().absolute()


def store_file(state: Path | None) -> Path:
    """Return the file of the scheduler's store, in the directory of a flag or of what the scheduler here is set to.

    Raises MisuseError: the file of settings cannot be, or the store is none of our files.
    """
    from colane.server.store.opening import STORE_FILE  # noqa: PLC0415 - the scheduler's imports take long

    try:
        values = gather(SERVER, {SERVER_STATE.name: state}, file=find_file(None))
    except SettingError as error:
        raise MisuseError(str(error)) from error
    if values[STORE] is not None and state is None:
        raise MisuseError(
            f"{values.given[STORE.name].origin}: the scheduler's store is {values[STORE]}, "
            "for colane store copy and check; --state names the directory of one in a file"
        )
    return state_dir(values) / STORE_FILE


def token_of(start: ServiceStart, values: Values) -> str | None:
    """Return the token of the parent, the environment or a file; None where none is said.

    Raises SettingError: the file cannot be read, or holds none.
    """
    named = start.token or os.environ.get(TOKEN_VARIABLE)
    file = values[TOKEN_FILE]
    if named is not None or file is None:
        return named
    found = read_token(file)
    if found is None:
        raise SettingError(f"{TOKEN_FILE.flag} {file}: cannot be read, or is empty")
    return found


def node_name() -> str:
    """Return this machine's name in the form node names have."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0]).lstrip("._-")[:100]
    return name or "node"


LOG_MAX_BYTES: Final = 10_000_000
STDERR: Final = Path("/proc/self/fd/2")


class LogFile(logging.StreamHandler[TextIO]):
    """Standard error that is a file, as where no systemd keeps a journal: once it is long it is moved to FILE.1."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        super().emit(record)
        with suppress(OSError):  # a full disk
            if STDERR.stat().st_size > LOG_MAX_BYTES:
                shutil.copyfile(STDERR, f"{STDERR.resolve()}.1")
                os.ftruncate(2, 0)


def log_to_stderr(who: str) -> None:
    """Let warnings be read, one line each, with their time where they are kept in a file."""
    form, handler, is_file = f"colane {who}: %(message)s", logging.StreamHandler(sys.stderr), STDERR.is_file()
    if is_file:
        fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_APPEND)  # it is cut short
        form, handler = f"%(asctime)s {form}", LogFile(sys.stderr)
    logging.basicConfig(level=logging.WARNING, format=form, handlers=[handler])
