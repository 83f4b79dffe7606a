"""The GPUs that a machine has had, in a file: by it they keep their numbers when one of them is lost.

Jobs that run are given numbers of GPUs, and an agent that is started anew while one GPU does not answer would number
the others anew. A GPU that was taken out for good stays in the list as lost until the file is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from colane.model.hardware import Gpu

NAME = "gpus.json"


def read(root: Path) -> tuple[Gpu, ...]:
    """Read what was known in a directory; nothing where there is no such file, or it is spoilt."""
    try:
        entries = json.loads((root / NAME).read_text())
        found = [_gpu(index, entry) for index, entry in enumerate(entries)]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return tuple(found) if len({gpu.uuid for gpu in found}) == len(found) else ()


def write(root: Path, gpus: Sequence[Gpu]) -> None:
    """Keep them; not those without a UUID of their own, by which they would be known again.

    Raises OSError: it cannot be written.
    """
    if not gpus or any(gpu.is_cpu_device or gpu.uuid == str(gpu.index) for gpu in gpus):
        return
    text = json.dumps(list(_entries(gpus)), indent=1)
    path = root / NAME
    if path.exists() and path.read_text() == text:
        return
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)


def _entries(gpus: Iterable[Gpu]) -> Iterable[dict[str, Any]]:
    for gpu in gpus:
        yield {
            "uuid": gpu.uuid,
            "type": gpu.type,
            "memory_bytes": gpu.memory_bytes,
            "socket": gpu.socket,
            "cores": list(gpu.cores),
        }


def _gpu(index: int, entry: dict[str, Any]) -> Gpu:
    return Gpu(
        index=index,
        uuid=str(entry["uuid"]),
        type=str(entry["type"]),
        memory_bytes=int(entry["memory_bytes"]),
        socket=int(entry["socket"]),
        cores=tuple(int(core) for core in entry["cores"]),
    )
