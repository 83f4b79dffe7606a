"""All commands, and what happens to what they raise."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from colane.cli.command import StrictCommand, complaint
from colane.cli.errors import FAILURE, INTERRUPTED, from_scheduler, one_line
from colane.cli.words.help_words import PlainGroup
from colane.client.errors import SchedulerError
from colane.engines import EngineError
from colane.verbs.of_jobs import REQUEUE, RESUME

NOUNS: Final = {
    "demo": "lab.demo.command",
    "up": "cli.service.up",
    "server": "cli.service.server",
    "agent": "cli.service.agent",
    "submit": "cli.submit.command",
    "again": "cli.submit.again",
    "resubmit": "cli.submit.again:resubmit",
    "ps": "cli.jobs.ps",
    "top": "cli.top.command",
    "ui": "cli.service.ui",
    "show": "cli.jobs.show",
    "why": "cli.jobs.why",
    "eff": "cli.jobs.eff",
    "logs": "cli.jobs.logs",
    "attach": "cli.jobs.attach",
    "cancel": "cli.jobs.cancel",
    "suspend": "cli.jobs.suspend",
    RESUME.deed: f"cli.jobs.verbs:{RESUME.deed}",
    "release": "cli.jobs.release",
    REQUEUE.deed: f"cli.jobs.verbs:{REQUEUE.deed}",
    "change": "cli.jobs.change",
    "wait": "cli.jobs.wait",
    "events": "cli.jobs.events",
    "nodes": "cli.nodes.command",
    "node": "cli.nodes.node",
    "drain": "cli.nodes.drain",
    "reserve": "cli.nodes.reserve",
    "topo": "lab.commands.topo",
    "profile": "lab.commands.profile",
    "adaptor": "cli.service.adaptor",
    "shims": "cli.service.shims",
    "usage": "cli.jobs.usage",
    "token": "cli.service.token",
    "config": "cli.service.config",
    "mcp": "cli.service.mcp",
    "backup": "cli.service.backup",
    "restore": "cli.service.restore",
    "check": "cli.service.check",
    "store": "cli.service.store",
    "report": "lab.commands.report",
    "export": "lab.commands.export",
    "replay": "lab.commands.replay:replay",
    "whatif": "lab.commands.replay:whatif",
    "simulate": "lab.commands.simulate",
    "study": "lab.commands.study",
    "trace": "lab.commands.trace",
    "paper": "lab.commands.paper",
    "manifest": "cli.service.manifest",
    "policies": "cli.words.policies",
    "glossary": "cli.words.glossary",
}
"""Commands, in the order `colane --help` names them, and where each has its `register(app)`, with the verb it is told.

The service's commands know nothing of `colane.lab`: its own are imported when one of them is named."""

EPILOG: Final = "Try it: [bold]colane demo[/bold]. Or: [bold]colane up[/bold], and in another terminal \
[bold]colane submit -- python train.py[/bold]. What the words mean: [bold]colane glossary[/bold]."


def make_app(nouns: Iterable[str] = NOUNS) -> typer.Typer:
    """Return the application with these commands."""
    app = typer.Typer(
        name="colane",
        cls=PlainGroup,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=_flowing(_options.__doc__))(_options)
    for noun in nouns:
        module, *verb = NOUNS[noun].split(":")
        import_module(f"colane.{module}").register(app, *verb)
    for command in (*app.registered_commands, *_of_groups(app)):
        command.cls = StrictCommand
    for group in app.registered_groups:
        group.cls = PlainGroup
    for command in app.registered_commands:
        command.help = _flowing(command.callback.__doc__ if command.callback else None)
    return app


def _of_groups(app: typer.Typer) -> Iterator[Any]:
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from group.typer_instance.registered_commands


def _flowing(docstring: str | None) -> str:
    """Return a docstring with one line for each paragraph: Typer would break lines where the source does."""
    return "\n\n".join(one_line(paragraph) for paragraph in (docstring or "").split("\n\n"))


def _needed(words: Sequence[str]) -> Iterable[str]:
    """Return the noun that is named, or all: Typer takes a millisecond for each option of each command it knows."""
    if "--version" in words[:1]:
        return ()
    before = ("", *words)
    named = next((word for word, last in zip(words, before, strict=False) if word[:1] != "-" and last not in FLAGS), "")
    return (named,) if named in NOUNS else NOUNS


FLAGS: Final = {"--url": "COLANE_URL", "--token-file": "COLANE_TOKEN_FILE", "--ca-file": "COLANE_CA_FILE"}
"""The settings of `[client]` as options before a command, and the variable of each."""
FILE: Final[Mapping[str, Any]] = {"metavar": "FILE", "show_default": False, "exists": True, "dir_okay": False}


def _options(
    version: Annotated[  # noqa: ARG001 - its callback has done it
        bool, typer.Option("--version", help="Print the version and leave.", callback=lambda on: _version(on=on))
    ] = False,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", show_default=False, help="Where the scheduler is.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", **FILE, help="File with the token that is sent to it.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", **FILE, help="Certificates (PEM) trusted beside the system's.")
    ] = None,
) -> None:
    """Run deep-learning jobs together on shared GPUs.

    Commands find the scheduler by --url or COLANE_URL (and COLANE_TOKEN), else by the state directory of a scheduler
    on this machine (COLANE_STATE, yours, or the system's /var/lib/colane), else at http://127.0.0.1:8642.
    """
    given = zip(FLAGS.values(), (url, token_file, ca_file), strict=True)
    os.environ.update({variable: str(value) for variable, value in given if value})
    if token_file is not None:
        os.environ.pop("COLANE_TOKEN", None)  # which would count before


def _version(*, on: bool) -> None:
    if on:
        from colane.model.versions import own_version  # noqa: PLC0415 - what commands have no use for

        is_compiled = any((Path(__file__).parents[1] / "core").glob("core.*.so"))
        sys.stdout.write(f"colane {own_version()}{' (compiled)' if is_compiled else ' (as source)'}\n")
        raise typer.Exit


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code."""
    words = sys.argv[1:] if args is None else list(args)
    try:
        code = get_command(make_app(_needed(words))).main(words, prog_name="colane", standalone_mode=False)
        sys.stdout.flush()
    except (SchedulerError, EngineError, typer.TyperException, MemoryError) as error:
        return _complain(*_said(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`colane ps | head`); nothing must be written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    return code if isinstance(code, int) else 0


def _said(error: SchedulerError | EngineError | typer.TyperException | MemoryError) -> tuple[str, int]:
    """What a command says that failed so, and its exit code."""
    if isinstance(error, MemoryError):
        return "not enough memory for this; ask for less, as with fewer jobs, or free some", FAILURE
    if isinstance(error, SchedulerError):
        problem = from_scheduler(error)
        return problem.format_message(), problem.exit_code
    return (str(error) if isinstance(error, EngineError) else complaint(error, NOUNS)), error.exit_code


def _complain(message: str, code: int) -> int:
    if message:
        sys.stderr.write(f"colane: {one_line(message)}\n")
    return code
