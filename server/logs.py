"""Logging: one JSON object per line on stderr. Names, counts and positions only; never row values or secrets."""

from __future__ import annotations

import logging
import sys

import structlog

_SHARED = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure_logs(level: str) -> None:
    """Send structlog's and the standard library's records to stderr as JSON. Safe to repeat."""
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=list(_SHARED),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.EventRenamer("event"),
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    handler.set_name("penstock")
    root = logging.getLogger()
    root.handlers = [h for h in root.handlers if h.get_name() != "penstock"] + [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = True
    for name in ("uvicorn.access", "httpx", "httpcore", "alembic"):
        # Our own middleware logs requests; these loggers would only repeat the paths.
        logging.getLogger(name).setLevel(logging.WARNING)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose first argument is a fixed event name, and whose keywords are its fields."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
