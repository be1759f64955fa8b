"""Cursor paging: `page_size` and `page_token` in, `items` and `next_page_token` out. Tokens are opaque and keyset-based."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field
from sqlalchemy.types import TypeDecorator
from sqlmodel import Session, tuple_
from sqlmodel.sql.expression import SelectOfScalar

from server.errors import FieldError, InvalidRequest

DEFAULT_SIZE = 100
LARGEST_SIZE = 1000
_LARGEST = 2**63 - 1

Item = TypeVar("Item")
Row = TypeVar("Row")


class Page(BaseModel, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next_page_token: str | None = Field(
        default=None, description="Send it as `page_token` for the next page; null on the last one."
    )


class PageTokenInvalid(InvalidRequest):
    code = "page_token_invalid"
    title = "Invalid page token"
    default_remedy = "Start again without page_token, and keep the filters the same from page to page."


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page size and the key after which the page begins; `after` is None on the first page, else the key given to `page`."""

    size: int
    after: list[Any] | None
    _filters: str

    def behind(self, *types: type) -> tuple[Any, ...] | None:
        """The key after which this page begins, its parts of these types (int, str, datetime); None on the first page.

        Raises:
            PageTokenInvalid: the token was not issued for such a list.
        """
        if self.after is None:
            return None
        if len(self.after) != len(types):
            raise _invalid()
        return tuple(_part(value, wanted) for value, wanted in zip(self.after, types, strict=True))

    def read(
        self,
        session: Session,
        query: SelectOfScalar[Row],
        view: Callable[[Row], Item],
        *order: Any,
        newest_first: bool = False,
    ) -> Page[Item]:
        """The page of the rows of `query`, each as `view` shows it.

        `order`: the columns that the list is sorted by, which together are unique; `newest_first`: in descending order.

        Raises:
            PageTokenInvalid: the token was not issued for such a list.
        """
        behind = self.behind(*(_python_type(column.type) for column in order))
        if behind is not None:
            place = tuple_(*order)
            query = query.where(place < behind if newest_first else place > behind)
        query = query.order_by(*(column.desc() if newest_first else column for column in order))
        rows = session.exec(query.limit(self.limit)).all()
        return self.page(rows, view, lambda row: [getattr(row, column.key) for column in order])

    @property
    def limit(self) -> int:
        """The number of rows to read: one more than shown, to detect a next page."""
        return self.size + 1

    def page(self, rows: Sequence[Row], view: Callable[[Row], Item], key: Callable[[Row], Sequence[Any]]) -> Page[Item]:
        """The page of these rows, which begin where the page begins; those beyond its size tell that another follows."""
        shown = rows[: self.size]
        more = len(rows) > self.size
        return Page(items=[view(row) for row in shown], next_page_token=self.token(key(shown[-1])) if more else None)

    def token(self, key: Sequence[Any]) -> str:
        """The token of the page that begins after `key`."""
        content = json.dumps([self._filters, list(key)], separators=(",", ":"), default=datetime.isoformat)
        return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def _page_request(
    request: Request,
    page_size: Annotated[
        int, Query(ge=1, description=f"Items per page; larger values than {LARGEST_SIZE} are reduced to it.")
    ] = DEFAULT_SIZE,
    page_token: Annotated[
        str | None, Query(max_length=4096, description="`next_page_token` of the previous page.")
    ] = None,
) -> PageRequest:
    filters = _fingerprint(request)
    after = None if page_token is None else _parse(page_token, filters)
    return PageRequest(min(page_size, LARGEST_SIZE), after, filters)


def _fingerprint(request: Request) -> str:
    given = sorted((k, v) for k, v in request.query_params.multi_items() if k not in ("page_size", "page_token"))
    return hashlib.sha256(json.dumps([request.url.path, given]).encode()).hexdigest()[:12]


def _parse(token: str, filters: str) -> list[Any]:
    try:
        made_for, key = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
        fits = made_for == filters and isinstance(key, list) and all(isinstance(part, str | int) for part in key)
    except (ValueError, TypeError, binascii.Error):
        fits = False
    if not fits:
        raise _invalid()
    return list(key)


def _part(value: Any, wanted: type[Any]) -> Any:
    """A part of a key as a value that the control database can compare."""
    if wanted is datetime and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise _invalid() from None
        if moment.utcoffset() == timedelta(0):
            return moment
    elif isinstance(value, str):
        if wanted is str and _is_text(value):
            return value
    elif type(value) is wanted is int and -_LARGEST <= value <= _LARGEST:
        return value
    raise _invalid()


def _python_type(kind: Any) -> type:
    """The type of a column's values as they are in the database."""
    stored = kind.impl_instance if isinstance(kind, TypeDecorator) else kind
    python_type: type = stored.python_type
    return python_type


def _is_text(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _invalid() -> PageTokenInvalid:
    detail = "This page_token was not made by this list with these filters."
    return PageTokenInvalid(detail, errors=[FieldError(pointer="/page_token", detail=detail, location="query")])


Paging = Annotated[PageRequest, Depends(_page_request)]
