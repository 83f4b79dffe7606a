"""A wheel of the Colane that runs, for other machines: it is made of the files that are installed here.

It holds Python alone: parts that are compiled here would be for this machine's architecture, and Python runs all of it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NamedTuple

import colane.engines
from colane.engines import EngineError
from colane.model.versions import own_version

PACKAGE: Final = Path(colane.engines.__file__).parents[1]
LEFT_OUT: Final = (".pyc", ".so")
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""When each file was made, as far as the wheel says: the same files are the same wheel."""
DESCRIPTION: Final = b"Wheel-Version: 1.0\nGenerator: colane\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Wheel(NamedTuple):
    """A wheel."""

    name: str  # of its file
    content: bytes  # its bytes
    release: str  # version and digest of the content: other source of the same version is another release


def own_wheel() -> Wheel:
    """Return the wheel of this very Colane. Raises EngineError: it is not installed, so what it needs is not known."""
    version = own_version()
    files = dict(_package())
    info = f"colane-{version}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        files[f"{info}/{name}"] = _said(name)
    files[f"{info}/WHEEL"] = DESCRIPTION
    rows = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    digest = hashlib.sha256(files[f"{info}/RECORD"]).hexdigest()[:12]
    return Wheel(f"colane-{version}-py3-none-any.whl", packed.getvalue(), f"{version}-{digest}")


def _package() -> Iterator[tuple[str, bytes]]:
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and path.suffix not in LEFT_OUT:
            yield path.relative_to(PACKAGE.parent).as_posix(), path.read_bytes()


def _said(name: str) -> bytes:
    try:
        text = distribution("colane").read_text(name)
    except PackageNotFoundError:
        text = None
    if text is None:
        raise EngineError(f"this Colane is not installed ({name} is missing), so it cannot be copied: pip install it")
    return text.encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
