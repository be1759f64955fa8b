"""`console`: prints a link to the web console."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from server.cli.home import access_token, console_link, server_url
from server.cli.options import AsJson, Token, Url, open_api
from server.cli.output import out, print_json, reported


@reported
def console(
    open_it: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Print a link that opens the web console, signed in with your token. The link contains the token."""
    with open_api(url, token) as api:
        api.get("/subscriptions", page_size=1)
    link = console_link(server_url(url), access_token(token))
    if as_json:
        print_json({"url": link})
    else:
        out.print(link, markup=False)
    if open_it:
        webbrowser.open(link)
