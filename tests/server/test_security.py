"""Tokens, roles, sealed secrets and the settings that guard them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engine.platform.network import is_loopback
from server.app import create_app
from server.db.models.connection import ConnectionRow
from server.security.principal import ANYBODY, Principal, Role
from server.security.secret_box import KEY_FILE, SecretBox, SecretsUnreadable, load_box
from server.settings import Settings, SettingsError, load_settings
from tests.server.conftest import ADMIN

CONNECTIONS = "/api/v1/connections"
DUCK = {"kind": "duckdb", "settings": {"path": "x"}}


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", "Bearer", ADMIN])
def test_no_valid_token_no_answer(client: TestClient, header: str | None) -> None:
    client.headers.pop("Authorization")
    answer = client.get(CONNECTIONS, headers={"Authorization": header} if header else {})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_every_endpoint_but_health_needs_a_token(settings: Settings) -> None:
    app = create_app(settings)
    open_to_all = set()
    with TestClient(app) as client:
        for path, operations in app.openapi()["paths"].items():
            for method in operations:
                answer = client.request(method, path.replace("{", "").replace("}", ""))
                if answer.status_code != 401:
                    open_to_all.add(path)
    assert open_to_all <= {"/livez", "/readyz"}


@pytest.mark.parametrize(
    ("role", "reads", "writes", "administers"),
    [
        (Role.VIEWER, 200, 403, 403),
        (Role.OPERATOR, 200, 201, 403),
        (Role.ADMIN, 200, 201, 200),
        (Role.ENGINE, 403, 403, 403),
    ],
)
def test_roles(
    client: TestClient,
    as_role: Callable[[Role], dict[str, str]],
    role: Role,
    reads: int,
    writes: int,
    administers: int,
) -> None:
    headers = as_role(role)
    assert client.get(CONNECTIONS, headers=headers).status_code == reads
    assert client.put(f"{CONNECTIONS}/a", json=DUCK, headers=headers).status_code == writes
    assert client.get("/api/v1/tokens", headers=headers).status_code == administers


def test_who_may_what() -> None:
    may = {role: {needed for needed in Role if Principal("1", "x", role).has_role(needed)} for role in Role}
    assert may[Role.VIEWER] == {Role.VIEWER}
    assert may[Role.OPERATOR] == {Role.VIEWER, Role.OPERATOR}
    assert may[Role.ADMIN] == {Role.VIEWER, Role.OPERATOR, Role.ADMIN}
    assert may[Role.ENGINE] == {Role.ENGINE}
    assert all(ANYBODY.has_role(role) for role in Role)


@pytest.mark.parametrize("role", Role)
def test_whoever_asks_learns_what_their_token_may(
    client: TestClient, as_role: Callable[[Role], dict[str, str]], role: Role
) -> None:
    answer = client.get("/api/v1/caller", headers=as_role(role))
    assert (answer.status_code, answer.json()["role"]) == (200, role.value)
    assert client.get("/api/v1/caller", headers={"Authorization": "Bearer pst_unknown"}).status_code == 401


def test_tokens_are_made_shown_once_and_revoked(client: TestClient) -> None:
    made = client.post("/api/v1/tokens", json={"name": "grafana", "role": "viewer"})
    assert made.status_code == 201
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    assert client.get(CONNECTIONS, headers=headers).status_code == 200
    listed = client.get("/api/v1/tokens")
    assert made.json()["token"] not in listed.text
    assert client.post("/api/v1/tokens", json={"name": "grafana", "role": "admin"}).json()["code"] == "token_name_taken"
    assert client.delete(f"/api/v1/tokens/{made.json()['id']}").status_code == 204
    assert client.get(CONNECTIONS, headers=headers).status_code == 401
    last = listed.json()["items"][-1]
    assert client.delete(f"/api/v1/tokens/{last['id']}").json()["code"] == "last_admin_token"


def test_settings_of_a_token_are_checked_stored_and_changed(client: TestClient) -> None:
    given = {"PENSTOCK.Freshness": "latest", "penstock.on_timeout": "STALE", "timezone": "utc", "my.own": "x"}
    made = client.post("/api/v1/tokens", json={"name": "bi", "role": "viewer", "settings": given})
    stored = {"penstock.freshness": "latest", "penstock.on_timeout": "stale", "TimeZone": "UTC", "my.own": "x"}
    assert (made.status_code, made.json()["settings"]) == (201, stored)
    place = f"/api/v1/tokens/{made.json()['id']}"
    changes: dict[str, str | None] = {"penstock.timeout_ms": "2s", "penstock.on_timeout": None, "timezone": None}
    changed = client.patch(place, json={"settings": changes})
    left = {"penstock.freshness": "latest", "my.own": "x", "penstock.timeout_ms": "2s"}
    assert (changed.status_code, changed.json()["settings"]) == (200, left)
    listed = {item["name"]: item["settings"] for item in client.get("/api/v1/tokens").json()["items"]}
    assert (listed["bi"], listed["preset-admin"]) == (left, {})
    assert client.patch(place, json={}).json()["settings"] == left
    assert client.patch("/api/v1/tokens/none", json={}).json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"penstock.fresh": "latest"}, "/settings/penstock.fresh"),
        ({"penstock.on_timeout": "perhaps"}, "/settings/penstock.on_timeout"),
        ({"penstock.freshness": "latests"}, "/settings/penstock.freshness"),
        ({"penstock.timeout_ms": "soon"}, "/settings/penstock.timeout_ms"),
        ({"penstock.position": "0/1"}, "/settings/penstock.position"),
        ({"session_authorization": "x"}, "/settings/session_authorization"),
        ({"TimeZone": "Europe/Berlin"}, "/settings/TimeZone"),
        ({"application_name": "a\0b"}, "/settings/application_name"),
        ({"work_mem": "1", "WORK_MEM": "2"}, "/settings/WORK_MEM"),
        ({"a b.c": "x"}, "/settings/a b.c"),
        ({"work_mem": "x" * 1001}, "/settings/work_mem"),
        ({"penstock.freshness": 7}, "/settings/penstock.freshness"),
        ({f"my.s{i}": "x" for i in range(101)}, "/settings"),
    ],
)
def test_a_setting_that_a_session_would_refuse_is_not_stored(
    client: TestClient, given: dict[str, object], pointer: str
) -> None:
    made = client.post("/api/v1/tokens", json={"name": "bi", "role": "viewer"}).json()
    for answer in (
        client.post("/api/v1/tokens", json={"name": "other", "role": "viewer", "settings": given}),
        client.patch(f"/api/v1/tokens/{made['id']}", json={"settings": given}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    assert {item["name"]: item["settings"] for item in client.get("/api/v1/tokens").json()["items"]}["bi"] == {}


def test_settings_have_limits_and_the_engine_none(client: TestClient) -> None:
    full = {f"my.s{i}": "x" for i in range(100)}
    made = client.post("/api/v1/tokens", json={"name": "bi", "role": "viewer", "settings": full}).json()
    more = client.patch(f"/api/v1/tokens/{made['id']}", json={"settings": {"my.more": "x"}})
    assert (more.status_code, more.json()["code"]) == (422, "invalid_request")
    instead = {"my.s0": None, "my.more": "x"}
    assert client.patch(f"/api/v1/tokens/{made['id']}", json={"settings": instead}).status_code == 200
    twice = client.patch(f"/api/v1/tokens/{made['id']}", json={"settings": {"work_mem": "1", "Work_Mem": None}})
    assert "named twice" in twice.json()["detail"]
    body = {"name": "e", "role": "engine", "settings": {"penstock.freshness": "latest"}}
    assert "engine" in client.post("/api/v1/tokens", json=body).json()["detail"]


def test_tokens_are_stored_hashed(client: TestClient, app: FastAPI, settings: Settings) -> None:
    app.state.database.close()
    stored = b"".join(file.read_bytes() for file in settings.home.glob("penstock.db*"))
    assert ADMIN.encode() not in stored
    assert b"preset-admin" in stored


def test_first_admin_token_is_printed_once(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    bare = settings.model_copy(update={"admin_token": None})
    with TestClient(create_app(bare)):
        printed = capsys.readouterr().err
    token = next(word for word in printed.split() if word.startswith("pst_"))
    with TestClient(create_app(bare)) as client:
        assert "pst_" not in capsys.readouterr().err
        assert client.get(CONNECTIONS, headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_a_changed_preset_replaces_the_old_one(settings: Settings) -> None:
    with TestClient(create_app(settings), headers={"Authorization": f"Bearer {ADMIN}"}) as client:
        token = next(item for item in client.get("/api/v1/tokens").json()["items"] if item["name"] == "preset-admin")
        client.patch(f"/api/v1/tokens/{token['id']}", json={"settings": {"penstock.freshness": "latest"}})
    other = load_settings(home=settings.home, admin_token="another-token-0123456789", log_level="error")
    with TestClient(create_app(other)) as client:
        assert client.get(CONNECTIONS, headers={"Authorization": f"Bearer {ADMIN}"}).status_code == 401
        headers = {"Authorization": "Bearer another-token-0123456789"}
        assert client.get(CONNECTIONS, headers=headers).status_code == 200
        tokens = {
            item["name"]: item["settings"] for item in client.get("/api/v1/tokens", headers=headers).json()["items"]
        }
        assert tokens["preset-admin"] == {"penstock.freshness": "latest"}


def test_without_authentication_only_this_machine_is_served(settings: Settings) -> None:
    app = create_app(load_settings(home=settings.home, insecure_no_auth=True, log_level="error"))
    with TestClient(app, base_url="http://127.0.0.1:8470") as client:
        assert client.get(CONNECTIONS).status_code == 200
        foreign = client.get(CONNECTIONS, headers={"Host": "evil.example"})
        assert (foreign.status_code, foreign.json()["code"]) == (403, "forbidden")
    with pytest.raises(SettingsError, match="loopback"):
        load_settings(home=settings.home, insecure_no_auth=True, host="0.0.0.0")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_key_file_is_private_and_kept(settings: Settings) -> None:
    sealed = load_box(settings).seal({"password": "x"})
    file = settings.home / KEY_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert load_box(settings).open(sealed) == {"password": "x"}
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        load_box(settings)


def test_keys_rotate() -> None:
    old, new = Fernet.generate_key(), Fernet.generate_key()
    sealed = SecretBox([old]).seal({"password": "x"})
    both = SecretBox([new, old])
    renewed = both.renewed(sealed)
    assert renewed is not None
    assert SecretBox([new]).open(renewed) == {"password": "x"}
    assert both.renewed(renewed) is None
    with pytest.raises(SecretsUnreadable):
        SecretBox([new]).open(sealed)


def test_rotation_at_start_and_a_lost_key(settings: Settings, tmp_path: Path) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()

    def start(keys: str) -> TestClient:
        given = load_settings(home=settings.home, admin_token=ADMIN, secret_keys=keys, log_level="error")
        app = create_app(given)
        return TestClient(app, headers={"Authorization": f"Bearer {ADMIN}"}, raise_server_exceptions=False)

    shop = {"kind": "postgres", "settings": {"host": "h", "database": "d", "user": "u"}, "secrets": {"password": "x"}}
    with start(old) as client:
        client.put(f"{CONNECTIONS}/shop", json=shop)
    with start(f"{new},{old}"):
        pass
    with start(new) as client, client.app.state.database.read() as session:  # type: ignore[attr-defined]
        row = session.get(ConnectionRow, 1)
        assert client.app.state.secret_box.open(row.secrets_sealed) == {"password": "x"}  # type: ignore[attr-defined]
    with start(old) as client:
        lost = client.post(f"{CONNECTIONS}/shop/checks")
        assert (lost.status_code, lost.json()["code"]) == (409, "secrets_unreadable")
        assert client.get(f"{CONNECTIONS}/shop").status_code == 200
        assert client.put(f"{CONNECTIONS}/shop", json=shop).status_code == 200
        assert client.post(f"{CONNECTIONS}/shop/checks").json()["code"] == "engine_unavailable"


def test_settings_come_from_file_then_environment_then_arguments(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[server]\nport = 1\nhost = "127.0.0.2"\nlog_level = "debug"\n[engine]\nx = 1\n'
    )
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_PORT", "2")
    loaded = load_settings(host="127.0.0.3", log_level=None)
    assert (loaded.port, loaded.host, loaded.log_level) == (2, "127.0.0.3", "debug")
    assert loaded.control_database == f"sqlite:///{tmp_path}/penstock.db"


@pytest.mark.parametrize(
    ("content", "message"),
    [("[server]\nprot = 1", "prot"), ("[server", "cannot be read"), ("server = 1", "must be a table")],
)
def test_wrong_files_are_named(tmp_path: Path, settings: Settings, content: str, message: str) -> None:
    (tmp_path / "penstock.toml").write_text(content)
    with pytest.raises(SettingsError, match=message):
        load_settings(home=tmp_path)


@pytest.mark.parametrize("given", [{"admin_token": "short-one"}, {"database_url": "mysql://x:hunter2@h/d"}])
def test_refused_settings_show_no_secret(tmp_path: Path, settings: Settings, given: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(home=tmp_path, **given)
    assert next(iter(given)) in str(refused.value)
    assert next(iter(given.values())) not in str(refused.value)
    assert "hunter2" not in str(refused.value)
