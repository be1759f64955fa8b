"""How far the logs of a source's nodes are read and applied, by the last report of its subscription's engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.link.messages import AwayPart, Progress
from engine.model.fault import FaultKind
from engine.model.position import Lsn
from engine.model.positions import ONLY_LOG, Mark, PositionForm
from engine.model.subscription_state import SubscriptionState
from server.freshness.subscription_status import SubscriptionStatus


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """One node's log. A position is None if it is not known.

    `applied`: every transaction of the node before it is on the target; `read`: up to where its log is read; `end`: of its log, at the last
    check; `late`: changes of other nodes wait for it, or it cannot be read. `away`: why it cannot be read, while the others are.
    """

    name: str
    applied: Lsn | None = None
    read: Lsn | None = None
    end: Lsn | None = None
    late: bool = False
    away: AwayPart | None = None

    @property
    def lag_bytes(self) -> int | None:
        """Log of the node that is not applied."""
        if self.applied is None or self.end is None:
            return None
        return self.end.value - self.applied.value


def node_progress(status: SubscriptionStatus, names: Sequence[str] | None = None) -> list[NodeProgress]:
    """The logs of these nodes, in their order; None: of those that are known, by name. Empty for a source with one log."""
    known = status.progress
    if known is None:
        return [NodeProgress(name, late=_is_lost(status, name)) for name in names or ()]
    runs = status.state is SubscriptionState.RUNNING
    late, away = (known.late_logs, known.away_logs) if runs else ((), {})
    listed = sorted(log for log in known.applied_of_logs if log != ONLY_LOG) if names is None else names
    return [_node(known, name, late=name in late or _is_lost(status, name), away=away.get(name)) for name in listed]


def _is_lost(status: SubscriptionStatus, name: str) -> bool:
    """Whether the subscription is tried again because this node cannot be reached: a fault of a node begins with `connection/node`."""
    if status.state is not SubscriptionState.STARTING or status.code != FaultKind.SOURCE_UNREACHABLE:
        return False
    return (status.reason or "").partition(": ")[0].endswith(f"/{name}")


def _node(known: Progress, name: str, *, late: bool, away: AwayPart | None) -> NodeProgress:
    """`applied` is newer than the check of the source that the others come from."""
    applied = known.applied_of_logs.get(name)
    read, end = known.read_of_logs.get(name), known.source_of_logs.get(name)
    return NodeProgress(name, applied, _at_least(read, applied), _at_least(end, applied), late, away)


def _at_least(position: Lsn | None, other: Lsn | None) -> Lsn | None:
    return position if position is None or other is None else max(position, other)


def late_nodes_phrase(status: SubscriptionStatus) -> str | None:
    """Which nodes delay what is not applied yet, as a phrase; None if that is not known of single ones."""
    nodes = node_progress(status)
    late = [node.name for node in nodes if node.late]
    if late:
        away = "; ".join(f"{node.name} cannot be read: {node.away.reason}" for node in nodes if node.away is not None)
        return f"changes wait for the log of node {', '.join(late)}" + (f" ({away})" if away else "")
    unread = [node for node in nodes if node.read is not None and node.end is not None and node.read < node.end]
    if not unread or len(unread) == len(nodes):
        return None
    ends = ", ".join(f"{node.name} up to {node.read} of {node.end}" for node in unread)
    return f"the logs of these nodes are not read to their ends: {ends}"


def vector(form: PositionForm, positions: Mapping[str, Lsn | None]) -> str | None:
    """Positions of all nodes as one text, which waits accept; None if one of them is not known, or there is no node."""
    marks = tuple(Mark(name, at) for name, at in sorted(positions.items()) if at is not None)
    return form.text(marks) if marks and len(marks) == len(positions) else None
