"""Writes source transactions one by one, in commit order, over one or more connections (lanes) of a PostgreSQL target."""

from engine.targets.postgres.lanes.constraints import tied_tables
from engine.targets.postgres.lanes.stream import OrderedTable, stream_of
from engine.targets.postgres.lanes.writer import LaneWriter

__all__ = ["LaneWriter", "OrderedTable", "stream_of", "tied_tables"]
