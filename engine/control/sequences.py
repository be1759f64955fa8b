"""Advances the sequences of a subscription's target to the values of its source's sequences, on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.connectors import open_source
from engine.control.supervisor import SubscriptionSupervisor
from engine.link.message import Problem
from engine.link.messages import SequencePart, Sequences, SequencesBody
from engine.model.identity import TableName
from engine.model.sequences import (
    SequenceGoal,
    SequenceOutcome,
    SequencesRefused,
    SequenceStep,
    SourceSequence,
)
from engine.model.subscription import TableSpec
from engine.model.table_state import TableStateKind
from engine.model.target import Target

_STATUS = {"subscription_not_running": 409, "sequences_unsupported": 422}


def bring_forward(pipeline: SubscriptionSupervisor, command: Sequences) -> SequencesBody:
    """Read the source's sequences and advance the target's to at least their values plus `command.margin` increments.

    The live tables are determined before the sequences are read: the values in rows that are visible on the target by then were taken
    from the sequences earlier, so the values read afterwards are beyond all of them.

    Returns the outcome for each sequence of the requested tables (all tables if `command.tables` is None).

    Raises:
        SequencesRefused: the target is closed or has no sequences, or a privilege on a sequence is missing.
        EngineFault: a database cannot be reached.
    """
    target = pipeline.target
    if target is None:
        raise SequencesRefused(
            "subscription_not_running",
            "the subscription is stopped or has not started; its target is closed",
            "Set its desired_state to 'running' or 'paused' first.",
        )
    able = target.sequences()
    if able is None:
        raise SequencesRefused(
            "sequences_unsupported",
            f"a target of the kind {pipeline.spec.target.kind} has no sequences",
            "Use a PostgreSQL target.",
        )
    specs = [spec for spec in pipeline.spec.tables if command.tables is None or spec.table in command.tables]
    live = _live(pipeline, target, specs)
    by_source = {spec.source: spec for spec in specs}
    found = _of_source(pipeline, list(by_source))
    taking_part = [one for one in found if one.table in live]
    steps = able.bring_forward([_goal(one, by_source[one.table], command.margin) for one in taking_part])
    done = dict(zip(((one.table, one.column, one.name) for one in taking_part), steps, strict=True))
    parts = (
        part for one in found for part in _parts(one, by_source[one.table], done.get((one.table, one.column, one.name)))
    )
    return SequencesBody(sequences=tuple(parts))


def refusal(refused: SequencesRefused) -> Problem:
    """The refusal as the problem with which the request is answered: 409, 422 or 503."""
    return Problem(
        status=_STATUS.get(refused.code, 503), code=refused.code, detail=refused.detail, remedy=refused.remedy
    )


def _live(pipeline: SubscriptionSupervisor, target: Target, specs: Sequence[TableSpec]) -> set[TableName]:
    """Source names of the tables whose rows on the target are complete and are not being replaced by a reload.

    The target's record decides while no run maintains the registry. A reload is in the registry only.
    """
    progress = target.progress(pipeline.spec.name)
    records = progress.tables if progress is not None else {}
    live = set()
    for spec in specs:
        record, entry = records.get(spec.table), pipeline.book.get(spec.table)
        complete = record is not None and record.ready and record.parked is None
        if complete and (entry is None or entry.kind is TableStateKind.LIVE):
            live.add(spec.source)
    return live


def _of_source(pipeline: SubscriptionSupervisor, tables: Sequence[TableName]) -> list[SourceSequence]:
    source = open_source(pipeline.spec.source)
    try:
        return source.sequences.read(tables)
    finally:
        source.close()


def _goal(one: SourceSequence, spec: TableSpec, margin: int) -> SequenceGoal:
    return SequenceGoal(spec.target, one.column, one.beyond(margin), ascending=one.increment > 0)


def _parts(one: SourceSequence, spec: TableSpec, steps: Sequence[SequenceStep] | None) -> Iterable[SequencePart]:
    """The outcomes of one source sequence: one per target sequence, or one that states why there is none. `steps` None: table not live."""
    left_alone = SequencePart(
        table=spec.table,
        source=one.table,
        column=one.column,
        source_sequence=one.name,
        source_value=one.value,
        target_table=spec.target,
        outcome=SequenceOutcome.TABLE_NOT_LIVE if steps is None else SequenceOutcome.NO_SEQUENCE_ON_TARGET,
    )
    if not steps:
        yield left_alone
    for step in steps or ():
        yield left_alone.model_copy(
            update={
                "target_sequence": step.name,
                "before": step.before,
                "after": step.after,
                "outcome": step.outcome,
            }
        )
