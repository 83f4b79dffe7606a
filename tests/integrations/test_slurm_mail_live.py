"""Mail to the owners of Slurm's jobs, by their own choice, through a mail server; channels are read again at once."""

from __future__ import annotations

import os
import re
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.conftest import START_MAX_S, Said, environment, run_colane, start_up, until

pytestmark = pytest.mark.live

SAYS: Final = {b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}


class Mailbox(socketserver.ThreadingTCPServer):
    """Takes all mail."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Letters)
        self.letters: list[tuple[str, str]] = []


class Letters(socketserver.StreamRequestHandler):
    """One connection to it."""

    server: Mailbox

    def handle(self) -> None:
        to = ""
        self.wfile.write(b"220 here\r\n")
        for line in self.rfile:
            word = line[:4].upper()
            to = line.decode().partition("<")[2].partition(">")[0] if word == b"RCPT" else to
            self.wfile.write(SAYS.get(word, b"250 yes\r\n"))
            if word == b"DATA":
                text = b"".join(iter(self.rfile.readline, b".\r\n")).decode()
                self.server.letters.append((to, re.sub(r"\r\n[ \t]", " ", text)))
                self.wfile.write(b"250 taken\r\n")


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_owners_are_written_to_as_they_chose_once_the_operator_has_a_channel(
    mailbox: Mailbox, verbs: Path, tmp_path: Path
) -> None:
    channels = tmp_path / "notify.toml"
    channels.write_text('[[channel]]\nname = "x"\nnamed = true\ncommand = ["true"]\n')
    up = start_up(tmp_path / "state", "--devices", "cpu:1:2GB", "--notify", str(channels))
    try:
        env = environment(**up.env, PATH=f"{verbs}{os.pathsep}{os.environ['PATH']}")

        def sbatch(*words: str) -> Said:
            done = subprocess.run(
                ["sbatch", "--parsable", "--wait", *words], env=env, cwd=tmp_path, capture_output=True, text=True,
                timeout=START_MAX_S, check=False,
            )  # fmt: skip
            return Said(done.returncode, done.stdout.strip(), done.stderr)

        mine = ("--mail-user=ann@example.org", "--mail-type=END,FAIL")
        early = sbatch(*mine, "--wrap", "true")
        assert "without effect here: --mail-type" in early.err
        port = mailbox.server_address[1]
        channels.write_text(f'[[channel]]\nname = "owners"\nmail = "owners"\n[mail]\nsmtp = "127.0.0.1:{port}"\n')
        assert run_colane(["config", "reload"], **up.env).code == 0
        ended = sbatch(*mine, "-J", "good", "--wrap", "true").out
        failed = sbatch(*mine, "-J", "bad", "--wrap", "exit 3").out
        for words in (("--mail-type=NONE",), ("--mail-type=BEGIN,REQUEUE",)):
            assert sbatch("--mail-user=bob@example.org", *words, "--wrap", "true").err == ""
        until(lambda: len(mailbox.letters) >= 3, "three letters")
        told = [(to, *re.findall(r"^Subject: (job \d+ \S+)", text, re.MULTILINE)) for to, text in mailbox.letters]
        assert ("ann@example.org", f"job {ended} good") in told
        assert ("ann@example.org", f"job {failed} bad") in told
        assert sorted(to for to, *_ in told) == ["ann@example.org", "ann@example.org", "bob@example.org"]
    finally:
        assert up.end(15)[0] == 0
