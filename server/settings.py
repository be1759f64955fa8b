"""Settings of the server: built-in defaults, then `penstock.toml` in the home folder, then `PENSTOCK_*`, then arguments."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from engine.platform.network import is_loopback

FILE_NAME = "penstock.toml"
FILE_TABLE = "server"


class SettingsError(ValueError):
    """A setting is invalid; the message names it and the allowed values, and never contains a secret."""


def default_home() -> Path:
    """`PENSTOCK_HOME`, or `.penstock` in the user's home."""
    return Path(os.environ.get("PENSTOCK_HOME") or Path.home() / ".penstock").expanduser()


class Settings(BaseSettings):
    """Every setting of the server. Environment: `PENSTOCK_` and the name; file: the table `[server]`."""

    model_config = SettingsConfigDict(
        env_prefix="PENSTOCK_", extra="forbid", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    home: Path = Field(default_factory=default_home, description="Data folder; made when missing.")
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8470, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    database_url: str | None = Field(
        default=None,
        description="Control database: `sqlite:///PATH` or `postgresql+psycopg://…`; by default penstock.db in the home folder.",
    )
    admin_token: SecretStr | None = Field(
        default=None,
        description="Presets an administrator's token, at least 16 characters; else one is made and printed.",
    )
    engine_token: SecretStr | None = Field(
        default=None, description="Token with which the engine registers, at least 16 characters."
    )
    secret_keys: SecretStr | None = Field(
        default=None,
        description="Fernet keys for stored secrets, newest first, divided by commas; by default the file secret.key in home.",
    )
    insecure_no_auth: bool = Field(default=False, description="Everybody is administrator; loopback addresses only.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level logged.")
    event_retention_days: int = Field(default=30, ge=1, description="Events older than this are deleted.")
    idempotency_hours: int = Field(default=24, ge=1, description="How long an Idempotency-Key is remembered.")
    engine_request_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="How long checks, discovery and requests about sequences wait for the engine's answer.",
    )
    max_body_bytes: int = Field(default=16 * 1024 * 1024, gt=0, description="Largest request body of users.")

    @field_validator("home")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("admin_token", "engine_token")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 16:
            raise ValueError("a token has at least 16 characters")
        return value

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str | None) -> str | None:
        if value is not None and value.startswith("postgresql://"):
            return value.replace("postgresql://", "postgresql+psycopg://", 1)
        if value is not None and not value.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ValueError("the control database is sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE")
        return value

    @model_validator(mode="after")
    def _no_auth_stays_here(self) -> Settings:
        if self.insecure_no_auth and not is_loopback(self.host):
            raise ValueError("insecure_no_auth works only on a loopback host such as 127.0.0.1")
        return self

    @property
    def control_database(self) -> str:
        """URL of the control database."""
        return self.database_url or f"sqlite:///{self.home / 'penstock.db'}"

    def make_home(self) -> None:
        """Create the data folder, for its owner only, if it is missing.

        Raises:
            SettingsError: it cannot be created or written to.
        """
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            trouble = error.strerror or type(error).__name__
        else:
            if os.access(self.home, os.W_OK | os.X_OK):
                return
            trouble = "it is not writable for this user"
        raise SettingsError(
            f"the data folder {self.home} cannot be used ({trouble}); name another with --home or PENSTOCK_HOME"
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        home = init_settings().get("home") or env_settings().get("home") or default_home()
        in_file = _read_file(Path(str(home)).expanduser() / FILE_NAME)
        return init_settings, env_settings, InitSettingsSource(settings_cls, in_file)


def _read_file(path: Path) -> dict[str, Any]:
    """The table `[server]` of the settings file; other tables are for other programs."""
    if not path.is_file():
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    table = content.get(FILE_TABLE, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: '{FILE_TABLE}' must be a table, written [{FILE_TABLE}]")
    return table


def load_settings(**arguments: Any) -> Settings:
    """Settings from all sources; arguments that are None count as not given.

    Raises:
        SettingsError: a value is invalid or a name is unknown.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError(in_words(error)) from None


def in_words(error: ValidationError) -> str:
    """The invalid settings by name, on one line, without their values."""
    lines = []
    for item in error.errors(include_input=False, include_url=False):
        said = "there is no such setting" if item["type"] == "extra_forbidden" else item["msg"]
        lines.append(f"{'.'.join(map(str, item['loc'])) or 'settings'}: {said.removeprefix('Value error, ')}")
    return "; ".join(lines)
