"""The dependency that authorizes a request: `dependencies=[needs(Role.OPERATOR)]`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from engine.platform.network import is_loopback
from server.errors import Forbidden, Unauthenticated
from server.security.principal import ANYBODY, Principal, Role
from server.security.principals import Principals

_bearer = HTTPBearer(
    auto_error=False, scheme_name="token", description="A token made by the server or `penstock token`."
)
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="penstock"'}


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
"""The token of the request."""


async def principal_of(request: Request, credentials: Credentials) -> Principal:
    """The sender of the request.

    Raises:
        Unauthenticated: there is no valid token.
    """
    return await authenticate(request, credentials, run_in_threadpool)


async def authenticate(
    request: Request,
    credentials: HTTPAuthorizationCredentials | None,
    run: Callable[[Callable[[], Principal | None]], Awaitable[Principal | None]],
) -> Principal:
    """As `principal_of`, on the event loop; `run` runs a lookup in a thread."""
    if request.app.state.settings.insecure_no_auth:
        _refuse_foreign_host(request)
        return ANYBODY
    if credentials is None:
        raise Unauthenticated("The request carries no token.", headers=_CHALLENGE)
    principals = cast("Principals", request.app.state.principals)
    token, now_s = credentials.credentials, asyncio.get_running_loop().time()
    found = principals.known(token, now_s) or await run(lambda: principals.look_up(token, now_s))
    if found is None:
        raise Unauthenticated("The token is unknown or was revoked.", headers=_CHALLENGE)
    return found


Caller = Annotated[Principal, Depends(principal_of)]


def needs(role: Role) -> Any:
    """A dependency that refuses principals without the rights of `role`."""

    async def check(principal: Caller) -> None:  # on the event loop: a thread would cost more than this does
        if not principal.has_role(role):
            raise Forbidden(
                f"This needs the role {role.value}; the token '{principal.name}' has {principal.role.value}."
            )

    check.__name__ = f"needs_{role.value}"
    return Depends(check)


def _refuse_foreign_host(request: Request) -> None:
    # Without tokens, a web page could reach this server under a host name that resolves to this machine (DNS rebinding).
    host = request.url.hostname or ""
    if not is_loopback(host):
        raise Forbidden(
            "Without authentication the server answers only under a loopback address.",
            "Use http://127.0.0.1, or start the server without --insecure-no-auth.",
        )
