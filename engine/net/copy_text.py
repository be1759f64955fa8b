"""Decodes COPY text with the decoder of the log, so that copies and comparisons get the same values as the log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from engine.model.fault import EngineFault, FaultKind
from engine.model.schema import TableSchema
from engine.net.decode import ValueOutOfDomain, arrow_type, decode_column
from engine.net.plan import column_plans
from engine.net.value_kernels import split_copy
from engine.platform.compiled import empty_places

_MAX_BYTES = 2**31 - 1
"""Bytes of text at once: the length of a value in it has to fit into a signed 32-bit number."""


def decode_copy_text(data: bytes | bytearray | memoryview, schema: TableSchema) -> pa.RecordBatch:
    r"""Decode whole lines of COPY text (tab, `\N`, backslash escapes, line feed) into columns c0 … cn.

    `data`: below 2 GiB, one value for each of `schema.columns` per line, in order. It is not modified.

    Raises:
        EngineFault(VALUE_OUT_OF_DOMAIN): a value that its column cannot hold exactly.
        EngineFault(TABLE_STRUCTURE_CHANGED): a line whose number of values differs from the schema's number of columns.
    """
    buffer = np.frombuffer(data, np.uint8).copy()
    if buffer.size > _MAX_BYTES:
        raise ValueError(f"{buffer.size} bytes of COPY text at once; the limit is 2 GiB")
    plans = column_plans(schema)
    # COPY escapes line feeds in values, so each line feed ends a row.
    off, length = empty_places(len(plans), int(np.count_nonzero(buffer == ord("\n"))))
    bad = split_copy(buffer, off, length)
    if bad >= 0:
        detail = f"row {bad} of a copy does not have the {len(plans)} values of the table's columns"
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(schema.name), detail)
    try:
        arrays = [decode_column(buffer, off[c], length[c], plan) for c, plan in enumerate(plans)]
    except ValueOutOfDomain as error:
        raise EngineFault(FaultKind.VALUE_OUT_OF_DOMAIN, str(schema.name), str(error)) from error
    fields = [pa.field(f"c{c}", arrow_type(plan.type)) for c, plan in enumerate(plans)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
