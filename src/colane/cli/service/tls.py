"""Certificates of what listens beyond this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli.errors import MisuseError

if TYPE_CHECKING:
    from colane.client.tls import TlsFiles

TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        show_default="plain HTTP",
        help="Certificate (PEM) of what listens; callers trust the system's CAs and those in COLANE_CA_FILE.",
    ),
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", show_default="none", help="The certificate's key (PEM).")
]


def tls_files(cert: Path | None, key: Path | None) -> TlsFiles | None:
    """Return the files of a listener, None where it is to be plain.

    Raises:
        MisuseError: One is given without the other.
    """
    from colane.client.tls import TlsFiles  # noqa: PLC0415 - imported late

    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise MisuseError("--tls-cert and --tls-key: give both, or none of them")
    return TlsFiles(cert.expanduser().absolute(), key.expanduser().absolute())
