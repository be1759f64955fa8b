"""Advances sequences of a PostgreSQL target, so that it can issue values once it accepts writes of its own."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from engine.model.identity import TableName
from engine.model.sequences import SequenceGoal, SequenceOutcome, SequenceStep, SequenceValue
from engine.postgres.sequences import ColumnSequence, refuse_forbidden, sequences_of, values_of
from engine.postgres.sessions import PostgresConnection, Sessions

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('penstock sequences', 0))"
"""Serializes requests in a database: `setval` is not transactional, and would also move a sequence back."""
_SET = """
SELECT setval({name}, {last}, {called}) FROM {place}
WHERE last_value {behind} {last} OR (last_value = {last} AND {called} AND NOT is_called)
"""
"""Compares again in the statement that sets the value: other sessions may draw values at any time."""
_AT_ONCE = 500
"""Sequences per transaction, which holds a lock on each."""


class PostgresSequences:
    """Implements SequenceTarget."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def bring_forward(self, goals: Sequence[SequenceGoal]) -> list[tuple[SequenceStep, ...]]:
        """See the protocol. Raises EngineFault(TARGET_UNAVAILABLE) if the database is unreachable or read-only."""
        steps: list[list[SequenceStep]] = [[] for _ in goals]
        with self._sessions.session() as connection:
            found = sequences_of(connection, {goal.table for goal in goals})
            pairs = _pairs(goals, found)
            forbidden = [one for _, one in pairs if not (one.may_read and one.may_set)]
            refuse_forbidden(forbidden, self._sessions.name, "read and set", "SELECT, UPDATE")
            for first in range(0, len(pairs), _AT_ONCE):
                with connection.transaction():
                    _bring(connection, goals, pairs[first : first + _AT_ONCE], steps)
        return [tuple(done) for done in steps]


def outcome_of(now: SequenceValue, goal: SequenceGoal, sequence: ColumnSequence) -> SequenceOutcome:
    """The action for a sequence with the value `now`: ADVANCED if it must be set to the goal's value. Pure."""
    ascending = sequence.increment > 0
    if ascending is not goal.ascending:
        return SequenceOutcome.DIRECTION_DIFFERS
    if not now.is_behind(goal.value, ascending=ascending):
        return SequenceOutcome.ALREADY_AHEAD
    if not sequence.least <= goal.value.last <= sequence.most:
        return SequenceOutcome.OUT_OF_RANGE
    return SequenceOutcome.ADVANCED


def _pairs(goals: Sequence[SequenceGoal], found: Sequence[ColumnSequence]) -> list[tuple[int, ColumnSequence]]:
    """The goals' indices, each with every sequence of its column."""
    of_column: dict[tuple[TableName, str], list[ColumnSequence]] = {}
    for one in found:
        of_column.setdefault((one.table, one.column), []).append(one)
    return [(number, one) for number, goal in enumerate(goals) for one in of_column.get((goal.table, goal.column), ())]


def _bring(
    connection: PostgresConnection,
    goals: Sequence[SequenceGoal],
    pairs: Sequence[tuple[int, ColumnSequence]],
    steps: list[list[SequenceStep]],
) -> None:
    connection.execute(_LOCK)
    values = values_of(connection, [one.name for _, one in pairs])
    for number, one in pairs:
        goal, before = goals[number], values[one.name]
        outcome = outcome_of(before, goal, one)
        if outcome is SequenceOutcome.ADVANCED:
            if _set(connection, one, goal.value):
                values[one.name] = goal.value
            else:
                before = values[one.name] = values_of(connection, [one.name])[one.name]
                outcome = SequenceOutcome.ALREADY_AHEAD
        steps[number].append(SequenceStep(one.name, before, values[one.name], outcome))


def _set(connection: PostgresConnection, sequence: ColumnSequence, value: SequenceValue) -> bool:
    """Set the sequence unless it has already reached the value. Returns whether it was set."""
    place = sql.Identifier(sequence.name.schema, sequence.name.name)
    statement = sql.SQL(_SET).format(
        name=sql.Literal(place.as_string(connection)),
        place=place,
        last=sql.Literal(value.last),
        called=sql.Literal(value.called),
        behind=sql.SQL("<" if sequence.increment > 0 else ">"),
    )
    return connection.execute(statement).fetchone() is not None
