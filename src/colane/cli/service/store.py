"""`colane store`: what a scheduler keeps, moved from one store to another, and looked through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.model.words import count

if TYPE_CHECKING:
    from colane.server.store.moving import Found, Place
    from colane.server.store.store import Store

PLACE = "FILE|URL"
FromPassword = Annotated[
    Path | None,
    typer.Option("--from-password-file", metavar="FILE", help="Password of A's server; else COLANE_STORE_PASSWORD."),
]
ToPassword = Annotated[
    Path | None,
    typer.Option("--to-password-file", metavar="FILE", help="Password of B's server; else COLANE_STORE_PASSWORD."),
]
Password = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="Password of its server; else COLANE_STORE_PASSWORD."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    example = "Example: [bold]colane store copy /var/lib/colane/colane.db postgres://colane@db/colane[/bold]"
    group = typer.Typer(
        no_args_is_help=True, help="Copy what a scheduler keeps to another store, or check it.", epilog=example
    )
    group.command("copy", epilog=example)(copy)
    group.command("check", epilog="Example: [bold]colane store check redis://db:6379/0[/bold]")(check)
    app.add_typer(group, name="store")


def copy(
    a: Annotated[str, typer.Argument(metavar="A", help=f"The store that is copied: {PLACE}.")],
    b: Annotated[str, typer.Argument(metavar="B", help=f"An empty one, which is made where there is none: {PLACE}.")],
    from_password_file: FromPassword = None,
    to_password_file: ToPassword = None,
) -> None:
    """Copy all that a scheduler keeps to another store, of whatever kind, while no scheduler runs on either.

    Start the scheduler on the copy then (--store B): its agents take it for the one they know, and jobs go on.
    """
    from colane.server.store import moving  # noqa: PLC0415 - the scheduler's imports take long
    from colane.server.store.store import StoreError  # noqa: PLC0415

    places = _place("A", a), _place("B", b)
    try:
        source = _opened(places[0], from_password_file)
        try:
            target = _opened(places[1], to_password_file, may_make=True)
            try:
                found = moving.copy(source, target)
            finally:
                target.close()
        finally:
            source.close()
    except StoreError as error:
        raise FailureError(str(error)) from error
    output.say(f"copied {_told(found)} to {places[1]}; start the scheduler there")


def check(
    a: Annotated[str, typer.Argument(metavar="A", help=f"The store: {PLACE}.")], password_file: Password = None
) -> None:
    """Look through a store, also while a scheduler runs on it: whether all records can be read, and go together."""
    from colane.server.store import moving  # noqa: PLC0415 - the scheduler's imports take long
    from colane.server.store.store import StoreError  # noqa: PLC0415

    place = _place("A", a)
    try:
        store = _opened(place, password_file)
        try:
            found = moving.look_through(store)
        finally:
            store.close()
    except StoreError as error:
        raise FailureError(str(error)) from error
    if found.flaws:
        raise FailureError(f"{place}: {count(len(found.flaws), 'flaw')}: " + "; ".join(found.flaws[:5]))
    output.say(f"{place} is whole: {_told(found)}")


def _place(name: str, text: str) -> Place:
    from colane.settings.store_address import store_address  # noqa: PLC0415 - imported late

    if "://" not in text:
        return Path(text).expanduser().absolute()
    try:
        return store_address(text)
    except ValueError as error:
        raise MisuseError(f"{name}: {error}") from error


def _opened(place: Place, password_file: Path | None, *, may_make: bool = False) -> Store:
    from colane.server.store.moving import open_known  # noqa: PLC0415 - imported late
    from colane.server.store.opening import password_of  # noqa: PLC0415

    return open_known(place, password_of(password_file), may_make=may_make)


def _told(found: Found) -> str:
    counts = [f"{number} {name.replace('_', ' ')}" for name, number in found.counts.items()]
    return ", ".join([*counts, count(found.events, "event")])
