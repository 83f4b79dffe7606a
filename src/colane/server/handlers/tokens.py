"""Which callers may make and revoke which tokens."""

from __future__ import annotations

from colane.api.records import TokenObject
from colane.server.board.read_model import ReadModel
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller, Role, TokenRecord
from colane.server.ground.problems import RefusedError

TOKENS_MAX = 100_000  # all of them are kept in memory


def judged(user: str | None, node: str | None, role: str | None, caller: Caller) -> Caller:
    """Return the caller a new token shall stand for.

    Raises RefusedError: 403, not the caller's to make; 422, what is asked makes no sense.
    """
    if caller.job is not None:  # it would outlive the job
        raise RefusedError.because(403, f"a job makes no tokens; you are {caller}")
    if node is not None:
        if user is not None or role is not None:
            raise RefusedError.because(422, "an agent's token has neither user nor role: leave them out", "node")
        made = Caller(node, Role.AGENT)
    else:
        made = Caller(user or caller.name, Role(role or Role.USER))
    if not caller.may_all and (made != caller or made.role is Role.AGENT):
        raise RefusedError.because(403, f"only an operator may make a token of {made}; you are {caller}")
    return made


def make(turn: Turn, digest: str, made: Caller, caller: Caller) -> str:
    """Keep a token and return its id; made again it stays as it is.

    Raises RefusedError: 409, it stands for another user, or there are too many.
    """
    known = turn.read_model.tokens.get(digest)
    if known is not None and known.caller != made:
        raise RefusedError.because(409, f"this token stands for {known.caller} already", "digest")
    if len(turn.read_model.tokens) >= TOKENS_MAX:
        raise RefusedError.because(409, f"there are {TOKENS_MAX} tokens; revoke some")
    token = known or TokenRecord(digest, made, turn.now_s, str(caller))
    turn.tokens[digest] = token
    turn.record("token-made", token=token.id, stands_for=str(made), by=str(caller))
    return token.id


def shown(read_model: ReadModel, caller: Caller) -> list[TokenObject]:
    """Return what is known of the tokens that a caller may revoke, oldest first."""
    known = sorted(
        (token for token in read_model.tokens.values() if _is_his(token, caller)), key=lambda one: one.made_s
    )
    return [
        {
            "id": token.id,
            "role": token.caller.role.value,
            "name": token.caller.name,
            "made_s": token.made_s,
            "made_by": token.made_by,
        }
        for token in known
    ]


def revoke(turn: Turn, token_id: str, caller: Caller) -> None:
    """Drop a token. Raises RefusedError: 404, there is none of that id that is the caller's."""
    found = [token for token in turn.read_model.tokens.values() if token.id == token_id and _is_his(token, caller)]
    if not found:
        raise RefusedError.because(404, f"you have no token {token_id}")
    for token in found:
        turn.tokens[token.digest] = None
        turn.record("token-revoked", token=token.id, stood_for=str(token.caller), by=str(caller))


def _is_his(token: TokenRecord, caller: Caller) -> bool:
    return caller.may_all or token.caller == caller
