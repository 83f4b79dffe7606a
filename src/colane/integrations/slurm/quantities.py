"""Times, sizes, counts of GPUs and dependencies as Slurm writes them."""

from __future__ import annotations

import re
from typing import Final

_TIME: Final = re.compile(r"((?P<days>[0-9]+)-)?(?P<parts>[0-9]+(:[0-9]+){0,2})")
_SIZE: Final = re.compile(r"(?P<number>[0-9]+)(?P<unit>[KMGT]?)B?", re.IGNORECASE)
_GPUS: Final = re.compile(r"((?P<type>[A-Za-z][\w.-]*)[:=])?(?P<count>[0-9]+)(\(.*\))?")
UNITS: Final = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

CONDITIONS: Final = {"afterok": "ok", "afterany": "any", "afternotok": "fail", "after": "start", "aftercorr": "each"}


def seconds(text: str) -> float | None:
    """Return a time limit: `30` is minutes, `MM:SS`, `HH:MM:SS`, `D-HH[:MM[:SS]]`; None for one without end.

    Raises ValueError: it is none of them.
    """
    if text.upper() in {"UNLIMITED", "INFINITE", "-1", "0"}:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"must be a time as 30 (minutes), 01:30:00 or 1-12:00, got {text!r}")
    parts = [int(part) for part in match["parts"].split(":")]
    if match["days"] is not None:
        hours, minutes, rest = [*parts, 0, 0][:3]
        return float(((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + rest)
    if len(parts) == 3:
        return float((parts[0] * 60 + parts[1]) * 60 + parts[2])
    return float(parts[0] * 60 + (parts[1] if len(parts) == 2 else 0))


def size_bytes(text: str) -> int:
    """Return a size: a bare number is of MiB, K, M, G and T are each 1024 of the one before.

    Raises ValueError: it is none.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"must be a size as 4000 (MB), 16G or 512M, got {text!r}")
    return int(match["number"]) * UNITS[match["unit"].upper()]


def gpus(text: str) -> tuple[int, str | None]:
    """Return how many GPUs, and of what type, `2` or `a100:2` names. Raises ValueError: it names no number of GPUs."""
    if (match := _GPUS.fullmatch(text)) is not None:
        return int(match["count"]), match["type"]
    if re.fullmatch(r"[A-Za-z][\w.-]*", text):
        return 1, text
    raise ValueError(f"must be a number of GPUs as 2 or a100:2, got {text!r}")


def gres(text: str) -> tuple[int, str | None]:
    """Return how many GPUs, and of what type, `gpu:2`, `gpu:a100:2` or `gpu` names.

    Raises ValueError: it names other things.
    """
    if text.lower() in {"none", ""}:
        return 0, None
    kind, _, rest = text.removeprefix("gres/").removeprefix("gres:").partition(":")
    if "," in text or kind != "gpu":
        rest = "leave others out: local disk is not booked, and a part of a GPU is `#COLANE --gpu-memory 8GB`"
        raise ValueError(f"must be GPUs of one kind, as gpu:2 or gpu:a100:2, got {text!r}; {rest}")
    return gpus(rest or "1")


def after(text: str) -> tuple[str, bool]:
    """Return a dependency as Colane writes it, and whether it is a singleton: `afterok:12:13,singleton`.

    Raises ValueError: it is none, or one that Colane cannot wait for.
    """
    if "?" in text:
        raise ValueError("'?' (one of several) is not done here: all conditions must hold, joined by commas")
    found, is_single = list[str](), False
    for part in text.split(","):
        kind, *jobs = part.split(":")
        if kind == "singleton" and not jobs:
            is_single = True
            continue
        if kind not in CONDITIONS:
            known = ", ".join(CONDITIONS)
            raise ValueError(f"{kind!r} is not done here: give one of {known}, singleton, as afterok:12:13")
        if not jobs:
            raise ValueError(f"{kind} names no job: {kind}:12")
        for job in jobs:
            found.append(f"{CONDITIONS[kind]}:{_job(job)}")
    return ",".join(found), is_single


def _job(text: str) -> str:
    if "+" in text:
        raise ValueError(f"{text}: a delay behind a start is not done here: leave out +MINUTES")
    match = re.fullmatch(r"(?P<job>[0-9]+)(_(?P<element>[0-9]+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is no job's number")
    return match["job"] if match["element"] is None else f"{match['job']}[{match['element']}]"


def begin(text: str) -> str:
    """Return when a job may start as Colane writes it: Slurm's `now+2hours` and `now+90` (seconds) are translated."""
    match = re.fullmatch(r"now\+([0-9]+)\s*([a-z]*)", text)
    if match is None:
        return text
    unit = {"": "s", "second": "s", "minute": "m", "hour": "h", "day": "d"}.get(match[2].removesuffix("s") or "")
    if match[2] and match[2].startswith("week"):
        return f"now+{int(match[1]) * 7}d"
    return f"now+{match[1]}{unit}" if unit else text
