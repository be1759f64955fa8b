"""The image's entry point, command and health check, and compose's services, run as they are written."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from engine.platform.settings import EngineSettings
from server.cli.client import Api, NoServerError, ProblemError
from server.processes.ports import free_port
from server.settings import Settings
from tests.process.image_material import (
    compose,
    environment,
    exit_code,
    filled,
    image,
    process,
    wait_or_show_log,
    without_init,
)

ADMIN = "image-admin-token-0123"
ENGINE = "image-engine-token-0123"
FROM_OUTSIDE = {"PENSTOCK_ADMIN_TOKEN": ADMIN, "PENSTOCK_ENGINE_TOKEN": ENGINE, "PENSTOCK_CONTROL_PASSWORD": "pw"}


def _ready(port: int) -> bool:
    with Api(f"http://127.0.0.1:{port}", ADMIN) as api:
        try:
            api.send("GET", "/readyz", timeout_s=2.0)
        except (NoServerError, ProblemError):
            return False
    return True


def test_server_starts_and_the_health_check_tells_how_it_is(tmp_path: Path) -> None:
    stage = image()
    port = free_port()
    env = environment(tmp_path, PENSTOCK_PORT=str(port), PENSTOCK_ADMIN_TOKEN=ADMIN)
    log = tmp_path / "log"
    assert exit_code(stage.health_check, env) != 0
    with process(without_init(stage.entry_point) + stage.command, env, log) as server:
        wait_or_show_log(lambda: exit_code(stage.health_check, env) == 0, log)
        with Api(f"http://127.0.0.1:{port}", ADMIN) as api:
            assert api.alive()
            assert api.get("/subscriptions")["items"] == []
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) in {0, -signal.SIGTERM}
    assert exit_code(stage.health_check, env) != 0


@pytest.mark.spark
@pytest.mark.slow
def test_compose_server_and_engine_find_each_other(tmp_path: Path) -> None:
    """With the control database on SQLite in the place of the PostgreSQL container."""
    services = compose()
    port = free_port()
    log = tmp_path / "log"
    values = {name: filled(value, FROM_OUTSIDE) for name, value in services["server"]["environment"].items()}
    values |= {"PENSTOCK_DATABASE_URL": f"sqlite:///{tmp_path / 'control.db'}", "PENSTOCK_PORT": str(port)}
    start = [filled(word, {}) for word in without_init(services["server"]["entrypoint"])]
    for home in ("server", "engine"):
        (tmp_path / home).mkdir()
    with process(start + services["server"]["command"], environment(tmp_path / "server", **values), log):
        wait_or_show_log(
            lambda: exit_code(image().health_check, environment(tmp_path, PENSTOCK_PORT=str(port))) == 0, log
        )
        assert not _ready(port)
        values = {name: filled(value, FROM_OUTSIDE) for name, value in services["engine"]["environment"].items()}
        assert values["PENSTOCK_URL"] == "http://server:8470"
        values["PENSTOCK_URL"] = f"http://127.0.0.1:{port}"
        command = without_init(image().entry_point) + services["engine"]["command"]
        with process(command, environment(tmp_path / "engine", **values), log) as engine:
            wait_or_show_log(lambda: _ready(port), log, 90)
            engine.send_signal(signal.SIGTERM)
            assert engine.wait(15) == 0


def test_environment_of_image_and_services_names_settings() -> None:
    server = {f"PENSTOCK_{name.upper()}" for name in Settings.model_fields}
    engine = {f"PENSTOCK_{name.upper()}" for name in EngineSettings.model_fields}
    services = compose()
    assert {name for name in image().environment if name.startswith("PENSTOCK_")} <= server & engine
    assert set(services["server"]["environment"]) <= server
    assert set(services["engine"]["environment"]) <= engine
    assert services["engine"]["environment"]["PENSTOCK_URL"].endswith(":8470")
    assert services["server"]["ports"] == ["127.0.0.1:8470:8470"]


def test_services_refer_to_what_there_is() -> None:
    services = compose()
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            own = services[other].get("healthcheck") or (other == "server" and image().health_check)
            assert condition == {"condition": "service_healthy"}
            assert own, f"{name} waits for {other}, which nobody checks"
    url = filled(services["server"]["environment"]["PENSTOCK_DATABASE_URL"], FROM_OUTSIDE)
    control = services["control"]["environment"]
    assert url == f"postgresql+psycopg://{control['POSTGRES_USER']}:pw@control/{control['POSTGRES_DB']}"
    assert Settings(database_url=url).control_database == url


def test_image_keeps_its_data_in_the_volume_as_nobody_special() -> None:
    stage = image()
    home = stage.environment["PENSTOCK_HOME"]
    assert stage.last("USER") == "10001:10001"
    assert {stage.last("VOLUME"), stage.last("WORKDIR")} == {home}
    mounts = [place for name in ("server", "engine") for place in compose()[name]["volumes"]]
    assert mounts == [f"server:{home}", f"engine:{home}"]
