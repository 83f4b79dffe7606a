"""TLS by files of certificates: the servers callers trust, and that what a listener is given fits together."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from colane.client.errors import BadUrl
from colane.client.locate import surroundings

CA_VARIABLE: Final = "COLANE_CA_FILE"
"""Names a file of the certificates that are trusted besides those of the system: of a CA of one's own."""


class TlsError(Exception):
    """A certificate and its key cannot be used; the message is one line that names the file."""


class TlsFiles(NamedTuple):
    """A listener's certificate, with what leads to its CA, and its key, as PEM."""

    cert: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return what a listener uses. Raises TlsError: they cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.cert, self.key)
        except ssl.SSLError as error:
            what = error.reason or "no certificate and key in PEM"
            raise TlsError(f"{self.cert} and {self.key} cannot be used: {what}") from error
        except OSError as error:
            raise TlsError(f"{self.cert} or {self.key} cannot be read: {error.strerror}") from error
        return context


def tls_files(cert: Path | None, key: Path | None) -> TlsFiles | None:
    """Return the files of a listener, None where it is to be plain.

    Raises ValueError: one is given without the other.
    """
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise ValueError("--tls-cert and --tls-key: give both, or none of them")
    return TlsFiles(cert, key)


def trusted(environment: Mapping[str, str] | None = None) -> ssl.SSLContext:
    """Return what callers trust: the system's certificates and those that `COLANE_CA_FILE` or `ca_file` names.

    Raises BadUrl: they cannot be read.
    """
    environment = surroundings() if environment is None else environment
    return _trusted(environment.get(CA_VARIABLE, ""))


@cache
def _trusted(file: str) -> ssl.SSLContext:
    """Read once in a process: the system's certificates alone take 50 ms."""
    context = ssl.create_default_context()
    if file:
        try:
            context.load_verify_locations(file)
        except (OSError, ssl.SSLError) as error:
            raise BadUrl(f"{CA_VARIABLE}: {file} holds no certificates that can be read") from error
    return context
