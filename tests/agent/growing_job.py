"""A job for tests of cores: threads, children and their threads, and new ones all the time. Run as a script.

Argument: file to which a line is written once all are there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

THREADS, CHILDREN = 6, 3
ROUND_S = 0.002

CHILD = """
import os, sys, threading
never = threading.Event()
for _ in range(2):
    threading.Thread(target=never.wait, daemon=True).start()
print("there", flush=True)
sys.stdin.read()
"""


def main(path: str) -> None:
    never = threading.Event()
    for _ in range(THREADS):
        threading.Thread(target=never.wait, daemon=True).start()
    argv = [sys.executable, "-c", CHILD]
    children = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(CHILDREN)]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    Path(path).write_text("there\n")
    young: deque[int] = deque()
    orphaned, alive = os.pipe()
    while True:
        pid = os.fork()
        if pid == 0:
            os.close(alive)
            os.read(orphaned, 1)  # until the parent is killed, or kills it
            os._exit(0)
        young.append(pid)
        threading.Thread(target=never.wait, args=(ROUND_S,)).start()
        never.wait(ROUND_S)
        if len(young) > CHILDREN:
            os.kill(young[0], signal.SIGKILL)
            os.waitpid(young.popleft(), 0)


if __name__ == "__main__":
    main(sys.argv[1])
