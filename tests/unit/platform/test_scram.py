"""Verifiers and logins by SCRAM, with the example of RFC 7677."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.platform.scram import PLAIN, PLUS, LoginRefusedError, ServerExchange, Verifier

_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
_FIRST = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
_FINAL = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def _verifier(password: str, salt: bytes = _SALT) -> Verifier:
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4096)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    return Verifier(4096, salt, stored, hmac.digest(salted, b"Server Key", "sha256"))


def _client_final(password: str, first: str, server_first: str, binding: bytes = b"") -> str:
    """What a client with this password answers."""
    parts = dict(part.split("=", 1) for part in server_first.split(","))
    header = first[: first.index(",", first.index(",") + 1) + 1]
    bare = first[len(header) :]
    without = f"c={base64.b64encode(header.encode() + binding).decode()},r={parts['r']}"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), f"{bare},{server_first},{without}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}"


def test_the_example_of_the_rfc() -> None:
    exchange = ServerExchange(_verifier("pencil"), PLAIN, None, nonce=_NONCE)
    assert exchange.first(_FIRST) == f"r=rOprNGfwEbeRWgbNEkqO{_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.final(_FINAL) == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), st.text(min_size=1, max_size=5))
def test_only_the_password_logs_in(password: str, other: str) -> None:
    verifier = Verifier.parse(str(Verifier.of(password)))
    for tried in {password, other}:
        exchange = ServerExchange(verifier, PLAIN, None)
        final = _client_final(tried, "n,,n=,r=abc", exchange.first("n,,n=,r=abc"))
        if tried == password:
            assert exchange.final(final).startswith("v=")
        else:
            with pytest.raises(LoginRefusedError):
                exchange.final(final)


def test_a_verifier_has_its_own_salt() -> None:
    assert Verifier.of("same").salt != Verifier.of("same").salt
    assert "secret" not in repr(Verifier.of("secret"))


def test_a_mock_has_the_same_salt_for_a_user() -> None:
    one, again, other = (Verifier.mock(user, b"key") for user in ("ann", "ann", "bob"))
    assert one.salt == again.salt != other.salt
    assert one.stored_key != again.stored_key


def test_a_bound_channel_is_compared() -> None:
    first = "p=tls-server-end-point,,n=,r=abc"
    for seen, fits in ((b"certificate", True), (b"of another server", False)):
        exchange = ServerExchange(_verifier("pencil"), PLUS, b"certificate")
        final = _client_final("pencil", first, exchange.first(first), seen)
        if fits:
            assert exchange.final(final).startswith("v=")
        else:
            with pytest.raises(LoginRefusedError):
                exchange.final(final)


@pytest.mark.parametrize(
    ("mechanism", "binding", "first"),
    [
        (PLAIN, b"offered", "y,,n=,r=abc"),  # the offer of a bound channel was removed on the way
        (PLUS, b"offered", "n,,n=,r=abc"),
        (PLUS, b"offered", "p=tls-unique,,n=,r=abc"),
        (PLAIN, None, "p=tls-server-end-point,,n=,r=abc"),
        (PLAIN, None, "n,,n=user"),
        (PLAIN, None, ""),
        (PLAIN, None, "n,,m=ext,n=,r=abc"),
    ],
)
def test_first_messages_that_are_refused(mechanism: str, binding: bytes | None, first: str) -> None:
    with pytest.raises(LoginRefusedError):
        ServerExchange(_verifier("pencil"), mechanism, binding).first(first)


@pytest.mark.parametrize(
    "change", [("p=", "p=!"), ("r=rOpr", "r=xOpr"), ("c=biws", "c=eSws"), (",p=dHzb", ",p=AAAA"), (_FINAL, "")]
)
def test_final_messages_that_are_refused(change: tuple[str, str]) -> None:
    exchange = ServerExchange(_verifier("pencil"), PLAIN, None, nonce=_NONCE)
    exchange.first(_FIRST)
    with pytest.raises(LoginRefusedError):
        exchange.final(_FINAL.replace(*change, 1))
