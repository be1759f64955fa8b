"""Connections that consist of others, their nodes: what they may name, and what the engine is given of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from engine.kinds import ConnectionKind
from server.connections import repository
from server.db.models.connection import ConnectionRow, SettingValue, nodes_in
from server.db.session import ReadSession
from server.errors import Conflict, FieldError, InvalidRequest
from server.security.secret_box import SecretBox, SecretsUnreadable

NODES = "nodes"
"""The setting that names them."""
_READS_WITH = "password"
"""The secret of a node's connection by which the engine reads. Its other secrets are those of a target, or of a source of its own."""
Find = Callable[[str], ConnectionRow | None]
"""Finds a connection by its name."""


class NodesFixed(Conflict):
    code = "nodes_fixed"
    title = "The nodes of a source in use stay as they are"
    default_remedy = (
        "Keep the nodes in their order, and add new ones at the end. For other nodes, create another connection and a subscription with"
        " it, which copies all tables."
    )


class NodeMissing(Conflict):
    code = "node_missing"
    title = "The connection of a node does not exist"
    default_remedy = "PUT the connection that the detail names again."


def refuse_unfit_nodes(kind: ConnectionKind, settings: Mapping[str, SettingValue], find: Find) -> None:
    """Check that each node's connection exists and is of the kind that nodes have.

    Raises:
        InvalidRequest: one does not, or is not.
    """
    names = list(nodes_in(settings).values())
    # In one order, as `find` may lock them.
    found = {name: find(name) for name in sorted(names)}
    errors = []
    for at, name in enumerate(names):
        node = found[name]
        detail: str | None = None
        if node is None:
            detail = f"There is no connection named '{name}'."
        elif node.kind != kind.nodes_of:
            detail = f"'{name}' is of the kind {node.kind}; a node is a connection of the kind {kind.nodes_of}."
        if detail is not None:
            errors.append(FieldError(pointer=f"/settings/{NODES}/{at}/connection", detail=detail))
    if errors:
        raise InvalidRequest(
            " ".join(error.detail for error in errors),
            f"PUT a connection of the kind {kind.nodes_of} for each node first; GET /api/v1/connections lists what there is.",
            errors=errors,
        )


def refuse_moved_nodes(session: ReadSession, before: ConnectionRow, settings: Mapping[str, SettingValue]) -> None:
    """Check a change of the nodes of a connection that subscriptions use: positions of what they have read go by the order of nodes.

    A node may get another connection to its database. One that another node had leads to the wrong database.

    Raises:
        NodesFixed: a node is removed, renamed or in another place, or has the connection of another one.
        InvalidRequest: a node is the target of a subscription.
    """
    present, after = nodes_in(before.settings), nodes_in(settings)
    # As lists: two mappings with other orders are equal.
    if list(after.items()) == list(present.items()):
        return
    users = repository.list_subscriptions_using(session, before)
    if not users:
        return
    places = {connection: node for node, connection in present.items()}
    moved = [node for node, connection in after.items() if places.get(connection, node) != node]
    if moved or list(after)[: len(present)] != list(present):
        used = ", ".join(f"'{user.name}'" for user in users)
        what = f"'{moved[0]}' would have the connection of another node" if moved else f"they are {', '.join(present)}"
        detail = f"The connection '{before.name}' is used by {used}, where the order of the nodes counts: {what}."
        raise NodesFixed(detail, errors=[FieldError(pointer=f"/settings/{NODES}", detail=detail)])
    ends = repository.connections_by_id(session, [user.target_id for user in users])
    for target in ends.values():
        among = target_among_nodes(target.name, before.name, settings)
        if among is not None:
            raise InvalidRequest.at(f"/settings/{NODES}", among, "Leave the target of a subscription out of the nodes.")


def target_among_nodes(target: str, source: str, settings: Mapping[str, SettingValue]) -> str | None:
    """What is wrong if the target of a subscription is a node of its source; None if it is not. `settings`: of the source."""
    if target not in nodes_in(settings).values():
        return None
    return f"'{target}' is a node of the source '{source}'; a copy needs another place."


def resolved(session: ReadSession, box: SecretBox, document: dict[str, Any]) -> dict[str, Any]:
    """A connection as the engine is given it: with the settings and passwords of its nodes in place of the names of their connections.

    `document`: with the members `name`, `kind`, `settings` and `secrets`; returned as it is if the connection is one database.

    Raises:
        SecretsUnreadable: the key that sealed the secrets of a node is missing.
        NodeMissing: a node's connection does not exist any more.
    """
    nodes = nodes_in(document["settings"])
    if not nodes:
        return document
    given, secrets = [], dict(document["secrets"])
    for node, name in nodes.items():
        row = repository.find_connection(session, name)
        if row is None:
            raise NodeMissing(f"The connection '{name}' of the node '{node}' of '{document['name']}' does not exist.")
        given.append({"name": node, "settings": row.settings})
        try:
            password = box.open(row.secrets_sealed).get(_READS_WITH)
        except SecretsUnreadable as error:
            raise SecretsUnreadable(
                f"The secrets of the connection '{name}' of the node '{node}': {error.detail}"
            ) from None
        if password is not None:
            secrets[f"{node}/{_READS_WITH}"] = password
    settings: dict[str, SettingValue] = {**document["settings"], NODES: json.dumps(given)}
    return {**document, "settings": settings, "secrets": secrets}
