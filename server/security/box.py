"""The secret box as an endpoint parameter."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from server.security.secret_box import SecretBox


def _box_of(request: Request) -> SecretBox:
    return cast("SecretBox", request.app.state.secret_box)


Box = Annotated[SecretBox, Depends(_box_of)]
