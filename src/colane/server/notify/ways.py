"""How a message goes out. A webhook never reaches this machine or a link-local address, unless that is allowed."""

from __future__ import annotations

import asyncio
import json
import smtplib
import socket
from collections.abc import Mapping
from contextlib import suppress
from email.message import EmailMessage
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpx
import psutil

from colane.server.notify.channels import MAIL, NotifyChannel, NotifyConfig

SEND_MAX_S: Final = 15.0
HOPS_MAX: Final = 3
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
METADATA: Final = ip_address("fd00:ec2::254")  # what tells a machine of a cloud its secrets, where it is not link-local

Message = Mapping[str, Any]


class NotSentError(Exception):
    """A message did not go out; the text names no address, which may hold a secret."""


async def send(channel: NotifyChannel, config: NotifyConfig, message: Message, http: httpx.AsyncClient) -> None:
    """Send a message by its channel. Raises NotSentError: it did not go out, or that is not known."""
    try:
        async with asyncio.timeout(SEND_MAX_S):
            if channel.webhook:
                await _post(channel.webhook, config, message, http)
            elif channel.command:
                await _run(channel.command, message)
            else:
                await asyncio.to_thread(_mail, str(message.get(MAIL) or channel.mail), config, message)
    except TimeoutError as error:
        raise NotSentError(f"it took longer than {SEND_MAX_S:g} s") from error
    except (OSError, smtplib.SMTPException, httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotSentError(type(error).__name__) from error
    except ValueError as error:  # of a redirect
        raise NotSentError("it was redirected to what is no web address") from error


async def _post(url: str, config: NotifyConfig, message: Message, http: httpx.AsyncClient) -> None:
    body = json.dumps(message).encode()
    for _ in range(HOPS_MAX + 1):
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise NotSentError("it was redirected to what is no web address")
        address = await reachable(
            parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), config.allowed
        )
        # The address that was judged is the one that is asked: a name could mean another one by then.
        host = f"[{address}]" if ":" in address else address
        netloc = host if parts.port is None else f"{host}:{parts.port}"
        pinned = urlunsplit(parts._replace(netloc=netloc, fragment=""))
        headers = {"Host": parts.netloc.rpartition("@")[2], "Content-Type": "application/json"}
        answer = await http.post(
            pinned, content=body, headers=headers, follow_redirects=False, extensions={"sni_hostname": parts.hostname}
        )
        if answer.status_code in REDIRECTS:
            url = urljoin(url, answer.headers.get("location", ""))
            continue
        if not answer.is_success:
            raise NotSentError(f"it was answered {answer.status_code}")
        return
    raise NotSentError(f"it was redirected more than {HOPS_MAX} times")


async def reachable(host: str, port: int, allowed: frozenset[str]) -> str:
    """Return an address of a host that may be asked.

    Raises NotSentError: the host is this machine, or link-local, and is not allowed; or it has no address.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NotSentError("its host has no address") from error
    addresses = [str(each[4][0]).partition("%")[0] for each in found]
    if host.lower() not in allowed and any(is_near(address) for address in addresses):
        raise NotSentError("its host is this machine or link-local, and [allow] hosts does not name it")
    return addresses[0]


def is_near(text: str) -> bool:
    """Whether an address is this machine's own, link-local, or what tells a cloud's machine its secrets."""
    address: IPv4Address | IPv6Address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    address = mapped or address
    own = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return own or address == METADATA or address in _own_addresses()


def _own_addresses() -> frozenset[IPv4Address | IPv6Address]:
    """Those that this machine has on its networks: a service there that listens on them alone trusts it as much."""
    known = (one for each in psutil.net_if_addrs().values() for one in each)
    inet = socket.AF_INET, socket.AF_INET6
    return frozenset(ip_address(one.address.partition("%")[0]) for one in known if one.family in inet)


async def _run(command: tuple[str, ...], message: Message) -> None:
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        await process.communicate(json.dumps(message).encode() + b"\n")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise NotSentError(f"the command ended with {process.returncode}")


def _mail(to: str, config: NotifyConfig, message: Message) -> None:
    mail = EmailMessage()
    text = " ".join(str(message["text"]).split())
    mail["From"], mail["To"], mail["Subject"] = config.sender, to, text[:150]
    mail["X-Colane-Id"] = str(message["id"])
    mail.set_content(f"{text}\n\n{json.dumps(message, indent=1)}\n")
    with smtplib.SMTP(*config.smtp, timeout=SEND_MAX_S) as server:
        server.send_message(mail)
