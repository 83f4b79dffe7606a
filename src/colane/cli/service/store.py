"""`colane store`: what a scheduler keeps, moved from one store to another, and looked through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.model.words import count

if TYPE_CHECKING:
    from colane.server.store.store import Store
    from colane.server.upkeep.moving import Found, Place

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
        no_args_is_help=True,
        help="Copy what a scheduler keeps to another store or to a file, or check it.",
        epilog=example,
    )
    group.command("copy", epilog=example)(copy)
    group.command("check", epilog="Example: [bold]colane store check redis://db:6379/0[/bold]")(check)
    kept = "Example: [bold]colane store backup redis://db:6379/0 /backups/colane-2026-11-26.db[/bold]"
    group.command("backup", epilog=kept)(backup)
    group.command("adopt", epilog="Example: [bold]colane store adopt --lost 12[/bold]")(adopt)
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
    from colane.server.store.store import StoreError  # noqa: PLC0415
    from colane.server.upkeep import moving  # noqa: PLC0415 - the scheduler's imports take long

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
    from colane.server.store.store import StoreError  # noqa: PLC0415
    from colane.server.upkeep import moving  # noqa: PLC0415 - the scheduler's imports take long

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


def backup(
    a: Annotated[str, typer.Argument(metavar="A", help=f"The store: {PLACE}.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New file for the copy, readable by you alone.")],
    password_file: Password = None,
) -> None:
    """Copy a store to a file, as it is at one moment, while the scheduler runs on it.

    colane store copy FILE A brings it back into an empty store, while no scheduler runs.
    """
    from colane.server.store.opening import connect, password_of  # noqa: PLC0415
    from colane.server.store.store import StoreError  # noqa: PLC0415
    from colane.server.upkeep import copies, moving  # noqa: PLC0415 - the scheduler's imports take long

    place = _place("A", a)
    try:
        if isinstance(place, Path):
            copies.backup(place, file)
        else:
            store = connect(place, password_of(password_file), may_make=False)
            try:
                moving.backup(store, file)
            finally:
                store.close()
        size_bytes = file.stat().st_size
    except FileExistsError as error:
        raise MisuseError(f"FILE: {file} exists; name a new file") from error
    except OSError as error:
        raise MisuseError(f"FILE: {file} cannot be written: {error.strerror}") from error
    except StoreError as error:
        raise FailureError(str(error)) from error
    output.say(f"copied to {file} ({output.size(size_bytes)}); colane store copy {file} {place} brings it back")


def adopt(
    lost: Annotated[
        int | None,
        typer.Option("--lost", min=1, metavar="N", help="Go on without so many changes; else nothing is done."),
    ] = None,
) -> None:
    """Say what the scheduler's store lacks that agents have heard of; with --lost, go on without it.

    A replica that lagged has taken over, or a copy was put back: nothing is changed until the newer store is back, or
    an operator adopts the one that is there. Jobs of the nodes that know of more events are ended there then, and begin
    anew where the store knows them; not where all that is lost is progress and the like.
    """
    from colane.client.client import Client  # noqa: PLC0415 - imported late
    from colane.client.errors import SchedulerError  # noqa: PLC0415

    try:
        with Client() as scheduler:
            found = scheduler.store_behind() if lost is None else scheduler.adopt_store(lost)
    except SchedulerError as error:
        raise FailureError(str(error)) from error
    if not found["lost"]:
        output.say("the store has all that agents have heard of")
        return
    jobs = f", which run jobs {', '.join(map(str, found['jobs']))}" if found["jobs"] else ""
    told = f"{count(found['lost'], 'change')}; {', '.join(found['nodes'])} know more{jobs}"
    if lost is None:
        ended = "They are ended there" if found["jobs"] else "No job is ended"
        output.say(f"the store lacks {told}. {ended} once it is adopted: --lost {found['lost']}")
    else:
        output.say(f"the store is adopted without {told}: {'they are ended there' if jobs else 'no job is ended'}")


def _place(name: str, text: str) -> Place:
    from colane.settings.store_address import store_address  # noqa: PLC0415 - imported late

    if "://" not in text:
        return Path(text).expanduser().absolute()
    try:
        return store_address(text)
    except ValueError as error:
        raise MisuseError(f"{name}: {error}") from error


def _opened(place: Place, password_file: Path | None, *, may_make: bool = False) -> Store:
    from colane.server.store.opening import password_of  # noqa: PLC0415
    from colane.server.upkeep.moving import open_known  # noqa: PLC0415 - imported late

    return open_known(place, password_of(password_file), may_make=may_make)


def _told(found: Found) -> str:
    counts = [f"{number} {name.replace('_', ' ')}" for name, number in found.counts.items()]
    return ", ".join([*counts, count(found.events, "event")])
