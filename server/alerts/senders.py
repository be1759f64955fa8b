"""Sends one notice to one channel: by HTTP or SMTP, blocking. Neither addresses nor secrets are in its errors."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import smtplib
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.message import EmailMessage
from typing import Any

import httpx

from server.alerts.schemas import AlertKind, EmailSettings
from server.db.models.alert import AlertChannelRow
from server.security.secret_box import SecretBox

_TIMEOUT_S = 10.0
"""For each step of a connection."""
_HEADLINES = {
    "firing": "Alert",
    "worse": "Alert, worse than before",
    "repeated": "Alert, lasting",
    "recovered": "Recovered",
    "test": "Test",
}


class NotDelivered(Exception):
    """The receiver did not accept the notice; the message says why."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """A channel with its secrets in clear. Never stored, never logged."""

    kind: AlertKind
    settings: Mapping[str, Any]
    secrets: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, row: AlertChannelRow, box: SecretBox) -> Receiver:
        """The receiver of a channel.

        Raises:
            SecretsUnreadable: the key that sealed its secrets is missing.
        """
        return cls(AlertKind(row.kind), row.settings, box.open(row.secrets_sealed))


async def send_in_thread(receiver: Receiver, notice: Mapping[str, Any], now: datetime) -> str:
    """As `send_notice`, in a daemon thread of its own: a receiver that does not answer occupies no shared thread, and does not
    delay the end of the process."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[str] = loop.create_future()

    def settle(detail: str, error: Exception | None) -> None:
        if not result.done() and error is not None:
            result.set_exception(error)
        elif not result.done():
            result.set_result(detail)

    def work() -> None:
        detail, failed = "", None
        try:
            detail = send_notice(receiver, notice, now)
        except Exception as error:
            failed = error
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(settle, detail, failed)

    threading.Thread(target=work, name="alert", daemon=True).start()
    return await result


def send_notice(receiver: Receiver, notice: Mapping[str, Any], now: datetime) -> str:
    """Send the notice, and return how it was accepted.

    Raises:
        NotDelivered: it was not accepted.
    """
    if receiver.kind is AlertKind.EMAIL:
        return _send_mail(receiver, notice, now)
    if receiver.kind is AlertKind.SLACK:
        return _post(receiver.secrets["url"], json.dumps({"text": _slack_text(notice)}).encode(), {})
    body = json.dumps(dict(notice)).encode()
    return _post(receiver.settings["url"], body, signed_headers(receiver.secrets["signing_key"], body, now))


def signed_headers(key: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers that prove the origin of `body`: HMAC-SHA-256 over the timestamp, a full stop and the body."""
    timestamp = str(int(now.timestamp()))
    digest = hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"Penstock-Timestamp": timestamp, "Penstock-Signature": f"v1={digest}"}


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> str:
    headers = {"Content-Type": "application/json", **headers}
    try:
        # Without proxies and passwords of the environment, and without redirects: the notice goes to this address only.
        with (
            httpx.Client(timeout=_TIMEOUT_S, trust_env=False, follow_redirects=False) as client,
            client.stream("POST", url, content=body, headers=headers) as answer,
        ):
            status = answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        # Only the class: the message may contain the address.
        raise NotDelivered(f"There was no answer ({type(error).__name__}).") from None
    if not 200 <= status < 300:
        raise NotDelivered(f"The answer was {status}.")
    return f"The answer was {status}."


def headline(notice: Mapping[str, Any]) -> str:
    """The notice in one line."""
    cause = (notice["cause"] or "alert channel").replace("_", " ")
    about = ": ".join(str(part) for part in (notice["subscription"], notice["table"]) if part)
    return f"{_HEADLINES[notice['status']]}: {cause}" + (f", {about}" if about else "")


def _slack_text(notice: Mapping[str, Any]) -> str:
    lines = [f"*Penstock: {_slack(headline(notice))}*", _slack(notice["detail"])]
    return "\n".join(lines + ([_slack(notice["remedy"])] if notice["remedy"] else []))


def _slack(text: str) -> str:
    """Escaped as Slack demands, so that no name of a table becomes a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _send_mail(receiver: Receiver, notice: Mapping[str, Any], now: datetime) -> str:
    settings = EmailSettings.model_validate(receiver.settings)
    message = _message(settings, notice, now)
    password = receiver.secrets.get("password")
    try:
        with _open_smtp(settings) as smtp:
            if settings.security == "starttls":
                smtp.starttls(context=ssl.create_default_context())
            if settings.user is not None and password is not None:
                smtp.login(settings.user, password)
            refused = smtp.send_message(message)
    except smtplib.SMTPResponseException as error:
        raise NotDelivered(f"The mail server answered {error.smtp_code}.") from None
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise NotDelivered(f"The mail server did not accept it ({type(error).__name__}).") from None
    return "The mail server accepted it" + (f", but refused {len(refused)} recipients." if refused else ".")


def _open_smtp(settings: EmailSettings) -> smtplib.SMTP:
    if settings.security == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(settings.host, settings.port, timeout=_TIMEOUT_S, context=context)
    return smtplib.SMTP(settings.host, settings.port, timeout=_TIMEOUT_S)


def _message(settings: EmailSettings, notice: Mapping[str, Any], now: datetime) -> EmailMessage:
    message = EmailMessage()
    # A header has one line; names of tables may contain line breaks.
    message["Subject"] = " ".join(f"Penstock: {headline(notice)}".split())
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.recipients)
    message["Date"] = now
    # The same for every attempt, so that a mail server can recognize one that it accepted before.
    message["Message-ID"] = f"<{notice['id']}@penstock>"
    lines = [notice["detail"], *([notice["remedy"]] if notice["remedy"] else []), f"Since: {notice['since']}"]
    message.set_content("\n\n".join(lines))
    return message
