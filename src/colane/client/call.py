"""What runs in the job of a function: `python -m colane.client.call FILE` calls it and leaves its result beside it."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Final

from colane.client.errors import RemoteError

CALL: Final = ".call"  # end of the name of a file with a function and its arguments
RESULT: Final = ".result"  # end of the name of the file with what came of it


def result_path(call: Path, index: int | None = None) -> Path:
    """Return where the result of a call lies, or of an element of an array."""
    return call.with_suffix(RESULT) if index is None else call.with_suffix(f".{index}{RESULT}")


def main(path: Path) -> int:
    """Call; return the exit code, 1 where the function has raised."""
    index = int(os.environ["COLANE_ARRAY_INDEX"]) if "COLANE_ARRAY_INDEX" in os.environ else None
    try:
        calls = pickle.loads(path.read_bytes())  # noqa: S301 - our own submitter's
        function, args, kwargs = pickle.loads(calls[index or 0])  # noqa: S301 - as above
        told: tuple[bool, object] = (True, function(*args, **kwargs))
        text = _sendable(told)
    except Exception as error:  # noqa: BLE001 - it is the caller's to handle
        traceback.print_exc()
        told = (False, error)
        text = _sendable_error(error)
    target = result_path(path, index)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.write_bytes(text)
    draft.replace(target)
    return 0 if told[0] else 1


def _sendable(told: object) -> bytes:
    try:
        import cloudpickle  # noqa: PLC0415 - where it is installed
    except ImportError:
        return pickle.dumps(told)
    return bytes(cloudpickle.dumps(told))


def _sendable_error(error: Exception) -> bytes:
    trace = "".join(traceback.format_exception(error))
    error.add_note(f"\nraised in the job:\n{trace}")
    try:
        text = _sendable((False, error))
        pickle.loads(text)  # noqa: S301 - an exception that takes arguments of its own cannot be made again
    except Exception:  # noqa: BLE001 - whatever its class does
        return pickle.dumps((False, RemoteError(type(error).__name__, str(error), trace)))
    return text


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
