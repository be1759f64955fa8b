"""An order-entry load after the public TPC-C specification: tables, load, full mix of transactions, consistency conditions.

It measures replication and gives no TPC-C results: it has no terminals, no keying and thinking times, and no screens.
Its rates must not be compared with published ones.
"""

from bench.tpcc.driver import Done, Driver, TpccError
from bench.tpcc.inputs import Kind
from bench.tpcc.schema import Scale
from bench.tpcc.workload import TpccWorkload

__all__ = ["Done", "Driver", "Kind", "Scale", "TpccError", "TpccWorkload"]
