"""Settings of connections by drivers: which texts are options, and that secrets have another place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.kinds import Consistency
from engine.sources.adbc_queries.declaration import AdbcSettings
from engine.sources.arrow_rows.declaration import DriverCapture
from engine.sources.arrow_rows.options import connection_string, open_options_of, options_of
from engine.sources.odbc_queries.declaration import OdbcSettings

_NAMES = st.text("abcXYZ._09", min_size=1, max_size=8)
_VALUES = st.text(st.characters(exclude_categories=["C"]), max_size=12)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_options_are_read_as_they_are_written(options: dict[str, str]) -> None:
    distinct = {name.lower(): (name, value.strip(" ")) for name, value in options.items()}
    wanted = dict(distinct.values())
    assert options_of(connection_string(wanted)) == wanted


@pytest.mark.parametrize("text", ["a", "a=b=c;{", "a=1;A=2", "=x", "a={b"])
def test_a_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="option"):
        options_of(text)


@pytest.mark.parametrize("name", ["PWD", "password", "adbc.snowflake.sql.client_option.auth_token", "Secret"])
def test_a_secret_among_open_options_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is a secret"):
        open_options_of(f"{name}=x")
    with pytest.raises(ValidationError, match="is a secret"):
        OdbcSettings(driver="x", options=f"{name}=x")


@pytest.mark.parametrize(
    "uri",
    ["postgresql://u:word@h/d", "postgresql://h/d?password=word", "host=h password = word", "x://h?sslpassword=word"],
)
def test_a_password_in_an_address_is_refused(uri: str) -> None:
    with pytest.raises(ValidationError, match="as the secret"):
        AdbcSettings(driver="adbc_driver_postgresql", uri=uri)
    marked = uri.replace("word", "{password}").replace("pass{password}", "password")
    assert AdbcSettings(driver="adbc_driver_postgresql", uri=marked).uri == marked


@pytest.mark.parametrize(
    "driver", ["os", "adbc_driver_x; import os", "libdriver.so", "adbc_driver_x.y", "/lib/x.so", ""]
)
def test_other_modules_are_no_drivers(driver: str) -> None:
    with pytest.raises(ValidationError):
        AdbcSettings(driver=driver)


@pytest.mark.parametrize("name", ["Driver", "entrypoint", "LoadExt", "FILEDSN", "adbc.sqlite.load_extension.path"])
def test_options_that_load_other_code_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not possible"):
        options_of(f"Server=x;{name}=/tmp/x.so")
    with pytest.raises(ValidationError, match="not possible"):
        OdbcSettings(driver="SQLite3", options=f"{name}=x")


def test_a_driver_of_odbc_has_the_name_of_an_installed_one() -> None:
    assert OdbcSettings(driver="PostgreSQL Unicode").driver == "PostgreSQL Unicode"
    with pytest.raises(ValidationError):
        OdbcSettings(driver="/tmp/x.so")


def test_states_of_several_moments_are_promised() -> None:
    assert DriverCapture().promised() is Consistency.RANGES
    with pytest.raises(ValidationError):
        DriverCapture.model_validate({"method": "row_checksum"})
