"""The operator's file of channels: what is told where, and how."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from colane.server.ground.problems import near_matches

LABEL: Final = "notify"  # a job's label that names channels, or is `none`
NO_CHANNEL: Final = "none"
OWNERS: Final = "owners"
"""A channel of mail to where owners say, by the label `MAIL` of their jobs, of what `MAIL_ON` says."""
MAIL, MAIL_ON = "mail", "mail-on"
_ADDRESS: Final = re.compile(r"[\w.+-]+(@[\w-]+(\.[\w-]+)*)?")
NO_CHANNELS: Final = "this scheduler was started without channels: leave it out, or have it started with --notify FILE"


class NotifyError(Exception):
    """A file of channels says what cannot be; the message is one line that names the place."""


class Happening(StrEnum):
    """What is told of a job."""

    START = "start"
    END = "end"
    FAILURE = "failure"
    IDLE = "idle"
    SOON = "soon"
    PREEMPTED = "preempted"


ON: Final = frozenset(one.value for one in Happening)
USUAL: Final = (Happening.END, Happening.FAILURE, Happening.IDLE)


@dataclass(frozen=True, slots=True)
class NotifyChannel:
    """One channel."""

    name: str  # unique
    on: frozenset[Happening] = frozenset(USUAL)  # what it tells
    user: str = ""  # whose jobs; empty for those of all users
    named: bool = False  # only of jobs whose label `notify` names it
    webhook: str = field(default="", repr=False)  # where it is posted to; empty for none. It may hold a secret
    command: tuple[str, ...] = ()  # what is run, as the scheduler's user, with the message on its standard input
    mail: str = ""  # to which address; `OWNERS` to those that owners name

    def tells(self, happening: Happening, user: str, labels: Mapping[str, str]) -> bool:
        """Whether it tells of this, of a user's job with these labels."""
        wanted = wanted_by(labels)
        if self.mail == OWNERS:
            on = labels[MAIL_ON].split(",") if MAIL_ON in labels else self.on
            return MAIL in labels and happening in on and self.user in {"", user}
        if happening not in self.on or self.user not in {"", user} or wanted == [NO_CHANNEL]:
            return False
        return self.name in wanted if wanted or self.named else True


def wanted_by(labels: Mapping[str, str]) -> list[str]:
    """Return the channels that a job with these labels names."""
    return [word.strip() for word in labels.get(LABEL, "").split(",") if word.strip()]


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """All channels."""

    channels: tuple[NotifyChannel, ...]  # in the order of the file
    allowed: frozenset[str] = frozenset()  # hosts of webhooks that may lie on this machine or be link-local
    smtp: tuple[str, int] = ("127.0.0.1", 25)  # host and port of the mail server
    sender: str = "colane@localhost"  # from whose address mail comes


def read_channels(path: Path) -> NotifyConfig:
    """Read a file of channels (TOML). Raises NotifyError: it cannot be read, or says what cannot be."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotifyError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise NotifyError(f"{path} is no TOML: {error}") from error
    _known(path, body, {"allow", "mail", "channel"}, "the file")
    allow, mail, rows = body.get("allow", {}), body.get("mail", {}), body.get("channel", [])
    for name, table in (("allow", allow), ("mail", mail)):
        if not isinstance(table, dict):
            raise NotifyError(f"{path}: {name} must be a table")
    if not isinstance(rows, list) or not rows:
        raise NotifyError(f"{path}: it has no [[channel]]")
    _known(path, allow, {"hosts"}, "[allow]")
    _known(path, mail, {"smtp", "from"}, "[mail]")
    channels = tuple(_channel(path, row, place) for place, row in enumerate(rows, start=1))
    names = [one.name for one in channels]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise NotifyError(f"{path}: two channels are named {twice}")
    hosts = _texts(path, allow.get("hosts", []), "[allow] hosts")
    sender = mail.get("from", "colane@localhost")
    return NotifyConfig(channels, frozenset(host.lower() for host in hosts), _smtp(path, mail), str(sender))


def _known(path: Path, table: Mapping[str, Any], names: set[str], where: str) -> None:
    for name in table:
        if name not in names:
            hint = f"; {near.strip()}" if (near := near_matches(name, names)) else ""
            raise NotifyError(f"{path}: {where} has no {name!r}{hint}")


def _texts(path: Path, value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise NotifyError(f"{path}: {where} must be a list of texts, got {str(value)[:60]!r}")
    return tuple(value)


def _smtp(path: Path, mail: Mapping[str, Any]) -> tuple[str, int]:
    host, _, port = str(mail.get("smtp", "127.0.0.1:25")).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise NotifyError(f"{path}: [mail] smtp must be HOST:PORT, got {str(mail.get('smtp'))[:60]!r}")
    return host, int(port)


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        )
    except ValueError:
        return False


def _channel(path: Path, row: object, place: int) -> NotifyChannel:
    where = f"channel {place}"
    if not isinstance(row, dict):
        raise NotifyError(f"{path}: {where} must be a table")
    _known(path, row, {"name", "on", "user", "named", "webhook", "command", "mail"}, where)
    name = row.get("name")
    if not isinstance(name, str) or not name or "," in name or name == NO_CHANNEL:
        raise NotifyError(f"{path}: {where} needs a name, other than {NO_CHANNEL} and without commas, got {name!r}")
    where = f"channel {name}"
    for key, kind in (("user", str), ("named", bool), ("webhook", str), ("mail", str)):
        if key in row and not isinstance(row[key], kind):
            raise NotifyError(f"{path}: {where}: {key} must be {'a text' if kind is str else 'true or false'}")
    ways = [key for key in ("webhook", "command", "mail") if row.get(key)]
    if len(ways) != 1:
        raise NotifyError(f"{path}: {where} must have one of webhook, command, mail; it has {len(ways)}")
    webhook = row.get("webhook", "")
    if webhook and not _is_web_address(webhook):
        raise NotifyError(f"{path}: {where}: webhook must be https://HOST/... or http://HOST/..., without a password")
    known = {one.value for one in Happening}
    told = _texts(path, row.get("on", [one.value for one in USUAL]), f"{where}: on")
    if unknown := next((word for word in told if word not in known), None):
        raise NotifyError(f"{path}: {where}: on must be of {', '.join(sorted(known))}, got {unknown[:40]!r}")
    command = _texts(path, row.get("command", []), f"{where}: command")
    on = frozenset(Happening(word) for word in told)
    return NotifyChannel(
        name, on, row.get("user", ""), row.get("named", False), webhook, command, row.get("mail", "")
    )  # fmt: skip


def unknown_channel(config: NotifyConfig | None, user: str, labels: Mapping[str, str]) -> str:
    """Say which channel a user's job names in vain, and which there are for it; empty where it names none in vain.

    Args:
        config: The channels; None where the scheduler was started without any.
        user: Whose job it is.
        labels: Its labels.
    """
    if config is None and MAIL in labels:
        return f"no mail is sent, as {NO_CHANNELS}"
    if config is None:
        named = [name for name in wanted_by(labels) if name != NO_CHANNEL]
        return f"there is no channel {named[0]!r}, as {NO_CHANNELS}" if named else ""
    if MAIL in labels and (not _ADDRESS.fullmatch(labels[MAIL]) or set(labels.get(MAIL_ON, "end").split(",")) - ON):
        return f"{MAIL} must be an address, and {MAIL_ON} of {', '.join(sorted(ON))}, got {labels[MAIL][:60]!r}"
    if MAIL in labels and not any(one.mail == OWNERS and one.user in {"", user} for one in config.channels):
        return f'no mail is sent to owners here: an operator gives a channel mail = "{OWNERS}" (--notify)'
    known = sorted({NO_CHANNEL, *(one.name for one in config.channels if one.user in {"", user})})
    unknown = [name for name in wanted_by(labels) if name not in known]
    if not unknown:
        return ""
    return f"unknown channel {unknown[0]!r}; {near_matches(unknown[0], known)}known: {', '.join(known)}"
