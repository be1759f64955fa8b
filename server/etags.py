"""ETag, If-Match and If-None-Match. A tag depends on the user's declaration, not on the engine's reports."""

from __future__ import annotations

import secrets
from typing import Annotated, Literal, Protocol

from fastapi import Header, Response

from server.errors import PreconditionFailed

IfMatch = Annotated[
    str | None,
    Header(
        description="Change the resource only if it still has this ETag; otherwise the answer is 412.", max_length=1024
    ),
]
IfNoneMatch = Annotated[
    Literal["*"] | None,
    Header(description="`*`: only create; if the name exists, the answer is 412."),
]


class Tagged(Protocol):
    """A row with an ETag. `stamp` differs between two rows of one name; `revision` increases with each change."""

    @property
    def stamp(self) -> str: ...

    @property
    def revision(self) -> int: ...


def new_stamp() -> str:
    """The stamp of a new row."""
    return secrets.token_hex(4)


def etag_of(row: Tagged) -> str:
    return f'"{row.stamp}-{row.revision}"'


def set_etag(response: Response, row: Tagged) -> None:
    response.headers["ETag"] = etag_of(row)


def check_if_match(if_match: str | None, row: Tagged | None) -> None:
    """Check `If-Match`; a request without the header passes.

    Raises:
        PreconditionFailed: the resource does not exist, or has another tag.
    """
    if if_match is None:
        return
    wanted = [part.strip() for part in if_match.split(",")]
    if row is None:
        raise PreconditionFailed("If-Match was sent, but the resource does not exist.")
    if "*" not in wanted and etag_of(row) not in wanted:
        raise PreconditionFailed("The resource has another ETag now.", headers={"ETag": etag_of(row)})


def check_absent(if_none_match: str | None, name: str, row: Tagged | None) -> None:
    """Check `If-None-Match`; a request without the header passes.

    Raises:
        PreconditionFailed: a resource of this name exists.
    """
    if if_none_match is not None and row is not None:
        raise PreconditionFailed(
            f"There is one named '{name}' already.", "Take another name.", headers={"ETag": etag_of(row)}
        )
