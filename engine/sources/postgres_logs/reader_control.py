"""The replication slots of a partitioned source, one on each node, as the engine controls them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from engine.model.fault import EngineFault
from engine.model.merged_logs import LogStatus
from engine.model.position import Lsn
from engine.model.sender import SenderState
from engine.model.source import ExportedSnapshot, GuardReading, ReaderStatus
from engine.sources.postgres_log import slots
from engine.sources.postgres_logs.last_answers import AbsentNodes, LastAnswers
from engine.sources.postgres_logs.nodes import Node, Nodes
from engine.sources.postgres_logs.reader_folder import Beginning, ReaderFolder, required
from engine.sources.postgres_logs.reader_socket import request_state

_ORDER = (SenderState.BLOCKED, SenderState.WORKING, SenderState.IDLE)


class PartitionedReader:
    """`ReaderControl`: a slot of the reader's name on each node."""

    def __init__(self, nodes: Nodes, folder: ReaderFolder | None, absent: AbsentNodes) -> None:
        self._nodes = nodes
        self._folder = folder
        self._absent = absent
        self._status = LastAnswers[ReaderStatus](nodes, absent)
        self.readings = LastAnswers[GuardReading](nodes, absent)
        """Of single nodes, with what they say of tables or without it."""
        self._ends = LastAnswers[Lsn](nodes, absent)

    @contextmanager
    def create(self, reader: str) -> Iterator[ExportedSnapshot]:
        """Create the slots. The snapshot cannot be read: those of the nodes are not of one moment.

        Raises as PostgresReaderControl.create, and TWO_PHASE_UNSUPPORTED; slots that were created are dropped then.
        """
        folder = required(self._folder)
        made: list[Node] = []
        begun = {}
        try:
            for node in self._nodes:
                with slots.lasting(node.connector, node.slot(reader), two_phase=True) as snapshot:
                    made.append(node)
                    begun[node.name] = snapshot.position
        except BaseException:
            for node in made:
                with suppress(EngineFault):
                    slots.drop(node.connector, node.slot(reader))
            raise
        beginning = Beginning(folder.number_without_reader(), begun)
        folder.raise_ceiling(beginning.position.value)
        folder.set_beginning(beginning)
        yield ExportedSnapshot("", beginning.position)

    def status(self, reader: str) -> ReaderStatus:
        """Of all slots as one. It exists if any does; sizes are those of the node with the most."""
        return self._joined(self._status.ask(lambda node: node.source.reader.status(node.slot(reader))))

    def check_reader(self, reader: str) -> GuardReading:
        """See SourceSafety.check_reader."""
        return self.joined(self.readings.ask(lambda node: node.source.safety.check_reader(node.slot(reader))))

    def joined(self, readings: list[GuardReading]) -> GuardReading:
        """The readings of the nodes as one, without what they say of tables; and where the nodes' logs end now."""
        ends = self._ends.ask(lambda node: node.source.log.current())
        oldest = max(range(len(readings)), key=lambda number: readings[number].oldest_open_s)
        named = readings[oldest].oldest_open
        return GuardReading(
            reader=self._with_logs(self._joined([reading.reader for reading in readings]), ends),
            sending_faults=tuple(
                f"{node.name}: {fault}"
                for node, reading in zip(self._nodes, readings, strict=True)
                for fault in reading.sending_faults
            ),
            oldest_open=None if named is None else f"{named} on node {self._nodes.names[oldest]}",
            oldest_open_s=readings[oldest].oldest_open_s,
            oldest_open_statement=readings[oldest].oldest_open_statement,
            copy_retained_bytes=max(reading.copy_retained_bytes for reading in readings),
        )

    def release(self, reader: str) -> list[str]:
        return self._left(self._nodes.each(lambda node: node.source.reader.release(node.slot(reader))))

    def remove(self, reader: str) -> list[str]:
        """As the protocol says; what a node keeps that cannot be reached is among what is left. Raises its fault if none can be."""
        found = self._nodes.each(lambda node: _removed(node, reader))
        faults = [one for one in found if isinstance(one, EngineFault)]
        if len(faults) == len(found):
            raise faults[0]
        left = self._left([_kept(node, reader, one) for node, one in zip(self._nodes, found, strict=True)])
        if not left and self._folder is not None:
            self._folder.remove()
        return left

    def end_other(self, reader: str, application: str) -> bool:
        return any(self._nodes.each(lambda node: node.source.reader.end_other(node.slot(reader), application)))

    def _left(self, found: list[list[str]]) -> list[str]:
        return [f"{what} (node {node.name})" for node, each in zip(self._nodes, found, strict=True) for what in each]

    def _joined(self, found: list[ReaderStatus]) -> ReaderStatus:
        """Positions of the slots are those of the nodes' own logs, and cannot be compared with those of the merged one."""
        if not any(one.exists for one in found):
            return ReaderStatus(exists=False)
        away = self._absent.away
        pairs = zip(self._nodes, found, strict=True)
        senders = [one.sender for node, one in pairs if one.sender is not None and node.name not in away]
        safe = [one.safe_wal_bytes for one in found if one.safe_wal_bytes is not None]
        return ReaderStatus(
            exists=True,
            active_pid=next((one.active_pid for one in found if one.active_pid is not None), None),
            retained_bytes=max(one.retained_bytes for one in found),
            safe_wal_bytes=min(safe, default=None),
            lost=next(filter(None, map(self._why_lost, self._nodes, found)), None),
            spill_bytes=sum(one.spill_bytes for one in found),
            stream_bytes=sum(one.stream_bytes for one in found),
            sender=min(senders, key=lambda sender: _ORDER.index(sender.state), default=None),
        )

    def _with_logs(self, status: ReaderStatus, ends: list[Lsn]) -> ReaderStatus:
        state = None if self._folder is None else request_state(self._folder.path)
        if state is None:
            logs = tuple(LogStatus(node.name, end) for node, end in zip(self._nodes, ends, strict=True))
            return replace(status, logs=logs)
        away = {**self._absent.away, **state.away}
        logs = tuple(
            LogStatus(
                node.name,
                end,
                Lsn(state.read[node.name]) if node.name in state.read else None,
                node.name in state.late or node.name in away,
                away.get(node.name),
                state.silent_since_us.get(node.name, 0),
            )
            for node, end in zip(self._nodes, ends, strict=True)
        )
        # What a node that is away has committed since then is not known.
        since = [state.held_since_us, *(each.since_us for each in away.values())]
        return replace(status, logs=logs, held_since_us=min(filter(None, since), default=0))

    @staticmethod
    def _why_lost(node: Node, one: ReaderStatus) -> str | None:
        why = one.lost if one.exists else "the replication slot is gone"
        return None if why is None else f"node {node.name}: {why}"


def _removed(node: Node, reader: str) -> list[str] | EngineFault:
    """What could not be dropped on a node; the fault if it cannot be asked."""
    try:
        return node.source.reader.remove(node.slot(reader))
    except EngineFault as fault:
        return fault


def _kept(node: Node, reader: str, found: list[str] | EngineFault) -> list[str]:
    if not isinstance(found, EngineFault):
        return found
    return [f"replication slot and publications {node.slot(reader)}: {found.detail}"]
