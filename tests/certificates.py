"""Certificates for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from colane.client.tls import TlsFiles


def own_certificate(folder: Path) -> TlsFiles:
    """Make a certificate of 127.0.0.1 that vouches for itself, and its key."""
    made = TlsFiles(folder / "cert.pem", folder / "key.pem")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=colane"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made.key), "-out", str(made.cert)]
    subprocess.run(["openssl", *words.split(), *names], check=True, capture_output=True)
    return made
