"""What is said over HTTP, each thing declared once: server, agent, client and CLI share these types.

Requests are pydantic models, since the server judges them. Answers are typed dictionaries: they are made and sent as
they are, and a key that is misspelt, on either side, is an error of the type checker. `docs/reference/interfaces.md`
says what they mean; `tests/server/test_api_types.py` holds every answer against its type.

Modules that only read answers import these types for type checking alone: a command starts faster without them.
"""
