"""Who calls the Flight SQL server."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime

import pytest
from pyarrow import flight

from engine.sql_endpoint.flight.logins import Credentials, Logins, credentials
from engine.sql_endpoint.server_api import Login, ProblemError
from tests.fixtures.manual_clock import ManualClock

TOKEN = "pst_secret"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


class Server:
    """Knows tokens by their digest, as the server does."""

    def __init__(self, logins: dict[str, Login]) -> None:
        self.logins = logins
        self.asked = 0

    def find(self, digest: str) -> Login:
        self.asked += 1
        if digest not in self.logins:
            raise ProblemError({"code": "not_found"})
        return self.logins[digest]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def server() -> Server:
    return Server({DIGEST: Login("reports", "viewer", "SCRAM-SHA-256$…")})


@pytest.fixture
def logins(server: Server, clock: ManualClock) -> Logins:
    return Logins(server.find, clock.monotonic)


def basic(text: str) -> dict[str, list[str]]:
    return {"authorization": ["Basic " + base64.b64encode(text.encode()).decode()]}


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, Credentials(None, "")),
        ({"Authorization": [f"bearer  {TOKEN} "]}, Credentials(None, TOKEN)),
        (basic(f"reports:{TOKEN}"), Credentials("reports", TOKEN)),
        (basic("a:b:c"), Credentials("a", "b:c")),
        ({"authorization": ["Basic YTpi"]}, Credentials("a", "b")),
        ({"authorization": ["Basic YTo"]}, Credentials("a", "")),
    ],
)
def test_credentials(headers: dict[str, list[str]], found: Credentials) -> None:
    assert credentials(headers) == found


@pytest.mark.parametrize("value", ["", TOKEN, "Basic", "Basic §§", "Basic YQ==", "Basic /w==", "Negotiate abc"])
def test_what_cannot_be_read_is_refused(value: str) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError) as error:
        credentials({"authorization": [value]})
    assert TOKEN not in str(error.value)


def test_credentials_do_not_print_their_token() -> None:
    assert TOKEN not in repr(Credentials("reports", TOKEN))


def test_a_token_is_its_own_identity(logins: Logins) -> None:
    assert (
        logins.identified(Credentials(None, TOKEN))[0] == logins.identified(Credentials("reports", TOKEN))[0] == DIGEST
    )


@pytest.mark.parametrize("given", [Credentials(None, ""), Credentials(None, "other"), Credentials("admin", TOKEN)])
def test_without_a_valid_token_of_the_user_it_is_refused(logins: Logins, given: Credentials) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError):
        logins.identified(given)


def test_a_token_is_asked_for_again_after_five_seconds(logins: Logins, server: Server, clock: ManualClock) -> None:
    logins.identified(Credentials(None, TOKEN))
    del server.logins[DIGEST]
    clock.advance(4.9)
    logins.identified(Credentials(None, TOKEN))
    assert server.asked == 1
    clock.advance(0.2)
    with pytest.raises(flight.FlightUnauthenticatedError):
        logins.identified(Credentials(None, TOKEN))


def test_the_settings_of_a_token_come_with_it(logins: Logins, server: Server, clock: ManualClock) -> None:
    assert logins.identified(Credentials(None, TOKEN))[1].settings == {}
    server.logins[DIGEST] = Login("reports", "viewer", "SCRAM-SHA-256$…", {"penstock.freshness": "latest"})
    clock.advance(5.1)
    assert logins.identified(Credentials(None, TOKEN))[1].settings == {"penstock.freshness": "latest"}


def test_a_token_that_was_refused_is_asked_for_again_at_once(logins: Logins, server: Server) -> None:
    known = server.logins.pop(DIGEST)
    with pytest.raises(flight.FlightUnauthenticatedError):
        logins.identified(Credentials(None, TOKEN))
    server.logins[DIGEST] = known
    assert logins.identified(Credentials(None, TOKEN))[0] == DIGEST


@pytest.mark.parametrize("given", [Credentials(None, ""), Credentials("who", "ever"), Credentials(None, "x")])
def test_without_authentication_everyone_is_accepted(given: Credentials) -> None:
    assert Logins(lambda _: Login("anybody", "admin", None)).identified(given)


def test_a_server_that_is_away_is_no_refusal() -> None:
    def find(_: str) -> Login:
        raise ProblemError({"code": "server_unavailable", "detail": "the server does not answer"})

    with pytest.raises(flight.FlightUnavailableError, match="does not answer"):
        Logins(find).identified(Credentials(None, TOKEN))
