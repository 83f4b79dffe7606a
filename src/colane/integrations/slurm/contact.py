"""How the verbs reach the scheduler, and what they do with what goes wrong."""

from __future__ import annotations

import sys

from colane.client.client import Client

# -- What a verb says when it cannot do what it was asked.


class SlurmError(Exception):
    """One line that names the word, where it stands, and the fix."""


def client() -> Client:
    """Return a client of the scheduler that the environment names."""
    return Client()


def note(verb: str, text: str) -> None:
    """Say something beside what was asked for."""
    sys.stderr.write(f"{verb}: {text}\n")


def print_lines(*lines: str) -> None:
    """Write to standard output."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
