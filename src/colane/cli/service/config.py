"""`colane config`: what services of this machine are set to, and whether the file of settings is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.formatting import Format, printed
from colane.cli.output import ScreenColumn
from colane.cli.service.command import ConfigOption
from colane.client.client import Client
from colane.model.words import count
from colane.settings.setting import SettingError, Values
from colane.settings.sources import SettingsFile, find_file, gather
from colane.settings.table import AGENT, AGENTS, LEASE, SECTIONS, SERVER, judge_heartbeat

FileArgument = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", show_default=False, help="A file; without it, the one that counts.")
]


def register(app: typer.Typer) -> None:
    """Add both commands."""
    example = "Example: [bold]colane config show[/bold]"
    group = typer.Typer(no_args_is_help=True, help="Show and check the settings of services.", epilog=example)
    group.command("show", epilog=example)(show)
    group.command("check", epilog="Example: [bold]colane config check cluster.toml[/bold]")(check)
    group.command("reload", epilog="Example: [bold]colane config reload[/bold]")(reload)
    app.add_typer(group, name="config")


def show(config: ConfigOption = None, as_json: output.Json = False, template: Format = None) -> None:
    """Show each setting of colane server, agent and up as it would count here without flags, and where it is said.

    A flag of the command itself counts before all of these; then come variables, the file, and the default.
    """
    file = _found(config)
    rows = []
    for section in SECTIONS:
        try:
            values = gather(section, {}, file=file)
        except SettingError as error:
            raise MisuseError(str(error)) from error
        rows += [(f"{section.name}.{name}", given.raw, given.origin) for name, given in values.given.items()]
    objects = [{"setting": name, "value": value, "from": origin or None} for name, value, origin in rows]
    if printed(template, as_json, objects):
        return
    columns = [ScreenColumn(heading) for heading in ("SETTING", "VALUE", "FROM")]
    output.print_table(columns, [(name, _told(value), origin or "default") for name, value, origin in rows])


def check(file: FileArgument = None) -> None:
    """Check a file of settings: keys that are none are named with their line and the nearest that is one."""
    found = _found(file)
    problems = list(found.problems)
    for section in SECTIONS:
        for name, given in found.given.get(section.name, {}).items():
            try:
                Values(section, {name: given})
            except SettingError as error:
                problems.append(str(error))
    if not problems:
        problems += _misfits(found)
    for problem in problems[:-1]:
        output.note(problem)
    if problems:
        raise MisuseError(problems[-1])
    output.say(f"{found.path}: {count(sum(map(len, found.given.values())), 'setting')}, all right")


def reload() -> None:
    """Let the scheduler read its files of limits (--limits) and of channels (--notify) again, without a restart.

    Where one says what cannot be, that is said, and all stays as it was.
    """
    with Client() as scheduler:
        changed = [name for name, is_other in scheduler.reload().items() if is_other]
    output.say(f"read again: {' and '.join(changed) or 'nothing'} changed")


def _misfits(found: SettingsFile) -> Iterator[str]:
    """Return what does not fit together; of another machine's scheduler the lease is not known here."""
    from colane.server.config import ServerConfig  # noqa: PLC0415 - the scheduler's imports take long

    server = gather(SERVER, {}, file=found, environment={})
    try:
        ServerConfig.of(server, Path(), None)
    except SettingError as error:
        yield str(error)
    for section in (AGENTS, AGENT) if server.is_given(LEASE) else (AGENTS,):
        try:
            judge_heartbeat(gather(section, {}, file=found, environment={}), server[LEASE])
        except SettingError as error:
            yield str(error)


def _found(named: Path | None) -> SettingsFile:
    try:
        return find_file(named)
    except SettingError as error:
        raise MisuseError(str(error)) from error


def _told(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)
