"""The nodes of a partitioned source: a database each, in the order that gives them their numbers."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY
from engine.model.merged_logs import MOST_NODES
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_log.source import PostgresSource

T = TypeVar("T")
_NAME_BYTES = 63
"""Longest name of PostgreSQL."""
NODES = "nodes"
"""Setting of the connection: JSON, a list of `{"name": …, "settings": {…}}` with the settings of a PostgreSQL connection."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `source`: its database, as a source of its own."""

    number: int
    name: str
    source: PostgresSource

    @property
    def connector(self) -> Connector:
        return self.source.connector

    def slot(self, reader: str) -> str:
        """The name of the reader's slot and publications on this node: nodes may be databases of one server, which has one slot of a
        name."""
        name = f"{reader}_{self.number}"
        return name if len(name) <= _NAME_BYTES else f"{reader[:40]}_{small_hash(reader):08x}_{self.number}"


class Nodes:
    """All nodes of one source. Methods may be called from several threads."""

    def __init__(self, spec: ConnectionSpec) -> None:
        """Secrets: `NAME/password` for each node that needs one, and those of the source as a whole. Opens no connection.

        Raises EngineFault(SOURCE_UNREACHABLE) if the settings name no nodes.
        """
        self.all = tuple(
            Node(number, name, PostgresSource(one)) for number, (name, one) in enumerate(_node_specs(spec).items())
        )
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def __iter__(self) -> Iterator[Node]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.all)

    def named(self, name: str) -> Node:
        """Raises EngineFault(COPY_LOST) if there is none of this name any more."""
        for node in self.all:
            if node.name == name:
                return node
        raise EngineFault(FaultKind.COPY_LOST, name, "the source has no node of this name any more")

    def each(self, ask: Callable[[Node], T]) -> list[T]:
        """The answers of all nodes, by number, asked at the same time. Raises the fault of the first node that has one, after all have
        answered."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(2 * len(self.all), thread_name_prefix="nodes")
            asked = [self._pool.submit(ask, node) for node in self.all]
        faults = [future.exception() for future in asked]
        fault = next((one for one in faults if one is not None), None)
        if fault is not None:
            raise fault
        return [future.result() for future in asked]

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        for node in self.all:
            node.source.close()


def _node_specs(spec: ConnectionSpec) -> Mapping[str, ConnectionSpec]:
    try:
        listed = {str(each["name"]): dict(each["settings"]) for each in json.loads(str(spec.settings.get(NODES)))}
    except (ValueError, TypeError, KeyError) as error:
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, spec.name, "its settings name no nodes") from error
    if not 1 <= len(listed) <= MOST_NODES:
        detail = f"it has {len(listed)} nodes; possible are 1 to {MOST_NODES}"
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, spec.name, detail)
    return {
        name: replace(spec, name=f"{spec.name}/{name}", settings=settings, secrets=_secrets(spec, name))
        for name, settings in listed.items()
    }


def _secrets(spec: ConnectionSpec, node: str) -> dict[str, str]:
    found = {"password": spec.secrets.get(f"{node}/password"), MASK_KEY: spec.secrets.get(MASK_KEY)}
    return {name: secret for name, secret in found.items() if secret is not None}


def small_hash(*parts: object) -> int:
    """A number from 1 to 2**31 - 1 that depends on these parts only."""
    digest = hashlib.blake2b(json.dumps([str(part) for part in parts]).encode("utf-8"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % (2**31 - 1) + 1
