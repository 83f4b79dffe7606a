"""Which parts of a command line are secrets, as far as their names or shapes say so.

A command outlives its job, in the job's record; what is secret in it does not. Names are judged by how they end, as
`--max-tokens 64` and `--pad-token "<pad>"` are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

HIDDEN: Final = "***"  # what stands in the place of a secret

_PHRASE: Final = r"(?:password|passwd|passphrase|secret|credentials|mysql_pwd)"
_KEY: Final = (
    r"(?:(?:api|access|auth|account|secret|encryption)[-_]?key"
    r"|(?:access|api|auth|bearer|bot|github|gitlab|hf|hub|personal|session|wandb)[-_]?token|(?<![a-z0-9])(?<![a-z0-9][_-])token)"
)
_NAME: Final = rf"(?P<name>(?:[a-z0-9_.-]*[_.-]|pg)?(?:(?P<phrase>{_PHRASE})|{_KEY}))"
_VALUE: Final = r"""(?P<value>"[^"]*"|'[^']*'|[^\s"';&|]+)"""
_SAID: Final = re.compile(rf"(?<![a-z0-9]){_NAME}(?P<by>=|:[ ]+){_VALUE}", re.IGNORECASE)
"""`WANDB_API_KEY=...`, `--api-key=...`, `wandb.api_key=...`, `Password: ...`."""
_OPTION_SAID: Final = re.compile(rf"(?<!\S)(?=-){_NAME}(?P<by>\s+){_VALUE}", re.IGNORECASE)
"""`--api-key ...` within a text for a shell."""
_OPTION: Final = re.compile(rf"(?=-){_NAME}", re.IGNORECASE)  # `--api-key`, whose value is the next word
_SHAPES: Final = re.compile(
    r"hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*"
)
"""Tokens that are known by how they begin, and private keys."""
_IN_URL: Final = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^\s/:@]*:)(?P<value>[^\s/@]+)(?=@)", re.IGNORECASE)
_PLAIN: Final = re.compile(r"(?:true|false|yes|no|none|null|\d+)", re.IGNORECASE)
KEY_LENGTH_MIN: Final = 8
"""A shorter value of what is called a key or a token is a word of a language model, or a number."""


class Masked(NamedTuple):
    """A command line without its secrets, and what these were called."""

    words: list[str]
    hidden: tuple[str, ...]


def masked(words: Sequence[str]) -> Masked:
    """Put `HIDDEN` in the place of what looks like a secret."""
    shown: list[str] = []
    hidden: dict[str, None] = {}
    option: re.Match[str] | None = None
    for word in words:
        if option is not None and not word.startswith("-") and _is_secret(option, word):
            hidden[option["name"]] = None
            shown.append(HIDDEN)
        else:
            shown.append(_masked_text(word, hidden))
        option = _OPTION.fullmatch(word)
    return Masked(shown, tuple(hidden))


def _masked_text(text: str, hidden: dict[str, None]) -> str:
    def mask(called: str) -> Callable[[re.Match[str]], str]:
        def one(found: re.Match[str]) -> str:
            hidden[called] = None
            return f"{found.groupdict().get('before') or ''}{HIDDEN}"

        return one

    def named(found: re.Match[str]) -> str:
        if not _is_secret(found, found["value"].strip("\"'")):
            return found[0]
        hidden[found["name"]] = None
        return f"{found['name']}{found['by']}{HIDDEN}"

    for pattern in (_SAID, _OPTION_SAID):
        text = pattern.sub(named, text)
    text = _IN_URL.sub(mask("a password in a URL"), text)
    return _SHAPES.sub(mask("a key or token"), text)


def _is_secret(name: re.Match[str], value: str) -> bool:
    """Whether such a value is one: the name of a variable is none, and a flag says only whether there is one."""
    if value.startswith("$") or value == HIDDEN or _PLAIN.fullmatch(value):
        return bool(name["phrase"]) and value.isdigit()
    return bool(name["phrase"]) or len(value) >= KEY_LENGTH_MIN
