from __future__ import annotations

import json

from tests.verbs.sessions import RECORDED, sessions


async def test_commands_ask_print_and_exit_with_what_was_recorded() -> None:
    recorded, found = json.loads(RECORDED.read_text()), await sessions()
    assert {words: told for words, told in found.items() if recorded.get(words) != told} == {}
    assert list(found) == list(recorded)
