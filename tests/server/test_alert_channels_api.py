"""Alert channels: made, shown, changed, tested, deleted; secrets are neither shown nor logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr
from sqlmodel import select

from server.alerts.senders import Receiver
from server.db.models.alert import AlertChannelRow
from server.db.models.event import EventRow
from server.security import bootstrap
from server.security.principal import Role
from server.security.secret_box import SecretBox, load_box
from tests.fixtures.alert_receivers import http_receiver

URL = "/api/v1/alert-channels/ops"
KEY = "hidden-signing-key-0123"
BODY = {"kind": "webhook", "settings": {"url": "https://ops.test/hook"}, "secrets": {"signing_key": KEY}}
MAIL = {"host": "mail.test", "sender": "a@test", "recipients": ["b@test"]}


def test_a_channel_is_made_shown_changed_and_deleted(client: TestClient) -> None:
    made = client.put(URL, json=BODY)
    assert made.status_code == 201
    shown = made.json()
    assert (shown["secrets_set"], shown["causes"], shown["subscriptions"]) == (["signing_key"], [], [])
    kept = {"kind": "webhook", "settings": {"url": "http://ops.test/b"}, "causes": ["fault"], "subscriptions": ["s"]}
    changed = client.put(URL, json=kept)
    assert (changed.status_code, changed.json()["secrets_set"]) == (200, ["signing_key"])
    assert client.get(URL).json() == changed.json()
    assert client.get("/api/v1/alert-channels").json()["items"] == [changed.json()]
    assert client.delete(URL).status_code == 204
    assert client.get(URL).status_code == 404


def test_a_channel_that_is_to_be_new_replaces_none(client: TestClient) -> None:
    only_new = {"If-None-Match": "*"}
    assert client.put(URL, json=BODY, headers=only_new).status_code == 201
    refused = client.put(URL, json={**BODY, "settings": {"url": "https://other.test/"}}, headers=only_new)
    assert (refused.status_code, refused.json()["code"]) == (412, "precondition_failed")
    assert client.get(URL).json()["settings"] == BODY["settings"]


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({**BODY, "settings": {"url": "ftp://ops.test"}}, "/settings/url"),
        ({**BODY, "settings": {"url": "https://a:b@ops.test"}}, "/settings/url"),
        ({**BODY, "settings": {"url": "https://ops.test/a b"}}, "/settings/url"),
        ({**BODY, "settings": {"url": "https://"}}, "/settings/url"),
        ({**BODY, "settings": {"url": "https://ops.test:x"}}, "/settings/url"),
        ({**BODY, "settings": {}}, "/settings/url"),
        ({**BODY, "secrets": {}}, "/secrets/signing_key"),
        ({**BODY, "secrets": {"signing_key": "short"}}, "/secrets/signing_key"),
        ({**BODY, "secrets": {"signing_key": KEY, "password": "x"}}, "/secrets/password"),
        ({"kind": "slack", "secrets": {"url": "file:///etc/passwd"}}, "/secrets/url"),
        ({"kind": "email", "settings": {**MAIL, "recipients": ["b@test\r\nBcc: c@test"]}}, "/settings/recipients/0"),
        ({"kind": "email", "settings": {**MAIL, "security": "none", "user": "u"}}, "/settings"),
        ({**BODY, "causes": ["boredom"]}, "/causes/0"),
    ],
)
def test_what_means_nothing_is_refused(client: TestClient, wrong: dict[str, Any], pointer: str) -> None:
    answer = client.put(URL, json=wrong)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert KEY not in answer.text


def test_the_kind_stays(client: TestClient) -> None:
    client.put(URL, json=BODY)
    answer = client.put(URL, json={"kind": "email", "settings": MAIL})
    assert (answer.status_code, answer.json()["code"]) == (409, "alert_kind_fixed")


def test_secrets_are_sealed_and_neither_shown_nor_logged(
    client: TestClient, app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with http_receiver() as receiver:
        receiver.answers = [500]
        slack = {"kind": "slack", "secrets": {"url": f"{receiver.url}?hidden-token"}}
        answers = [client.put(URL, json=BODY), client.put(f"{URL}-b", json=slack)]
        answers += [client.post(f"{URL}-b/test"), client.post(f"{URL}-b/test")]
        assert [answer.json().get("delivered") for answer in answers] == [None, None, False, True]
        assert answers[2].json()["detail"] == "The answer was 500."
    gone = client.post(f"{URL}-b/test")
    assert gone.json() == {"delivered": False, "detail": "There was no answer (ConnectError)."}
    answers += [gone, client.get(URL), client.get("/api/v1/alert-channels"), client.get("/api/v1/events")]
    shown = "".join(answer.text for answer in answers)
    ours = "".join(
        record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))
    )
    with app.state.database.read() as session:
        stored = "".join(str(row.model_dump()) for row in session.exec(select(AlertChannelRow)))
    for secret in (KEY, "hidden-token"):
        assert secret not in shown
        assert secret not in ours
        assert secret not in stored


def test_secrets_follow_a_rotation_of_the_key(client: TestClient, app: FastAPI) -> None:
    client.put(URL, json=BODY)
    old = (app.state.settings.home / "secret.key").read_text().strip()
    new = Fernet.generate_key()
    both = load_box(app.state.settings.model_copy(update={"secret_keys": SecretStr(f"{new.decode()},{old}")}))
    bootstrap.renew_seals(app.state.database, both)
    with app.state.database.read() as session:
        row = session.exec(select(AlertChannelRow)).one()
        assert Receiver.of(row, SecretBox([new])).secrets == {"signing_key": KEY}


def test_roles_and_events(client: TestClient, app: FastAPI, as_role: Callable[[Role], dict[str, str]]) -> None:
    viewer = as_role(Role.VIEWER)
    assert client.put(URL, json=BODY, headers=viewer).status_code == 403
    client.put(URL, json=BODY)
    client.put(URL, json=BODY)
    client.put(URL, json={**BODY, "repeat_seconds": 60})
    assert client.get(URL, headers=viewer).status_code == 200
    assert client.post(f"{URL}/test", headers=viewer).status_code == 403
    assert client.delete(URL, headers=viewer).status_code == 403
    client.delete(URL)
    with app.state.database.read() as session:
        kinds = [event.kind for event in session.exec(select(EventRow).order_by("id")) if event.subject == "ops"]
    assert kinds == ["alert_channel_created", "alert_channel_changed", "alert_channel_deleted"]
