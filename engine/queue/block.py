"""Record batches of a segment: raw records as one column of an Arrow IPC stream, and back without a copy."""

from __future__ import annotations

import mmap
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.model.batch import BlockRef
from engine.model.fault import EngineFault, FaultKind
from engine.queue.files import fault_of

SCHEMA = pa.schema([pa.field("record", pa.binary(), nullable=False)])
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]


def schema_message() -> bytes:
    """The encapsulated message that every segment begins with."""
    return bytes(SCHEMA.serialize())


def encode_block(data: Bytes, offsets: Offsets) -> pa.Buffer:
    """Records as one encapsulated Arrow IPC message. `offsets` are `count + 1` borders in `data`, the first 0."""
    column = pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )
    return pa.record_batch([column], schema=SCHEMA).serialize()


def read_block(ref: BlockRef) -> tuple[Bytes, Offsets]:
    """The records of a block as views of the mapped file: their bytes, and `count + 1` borders in them.

    Raises EngineFault(QUEUE_CORRUPT) where the file is missing, too short, or not what was written.
    """
    message = _mapped(ref)
    if zlib.crc32(message) != ref.crc:
        raise _corrupt(ref, "the checksum does not match")
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA)
        column = batch.column(0)
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(ref, "not a record batch") from error
    if len(column) != ref.count:
        raise _corrupt(ref, "another number of records than noted")
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, ref.count + 1)
    if data_buffer is None:
        return np.empty(0, np.uint8), offsets
    return np.frombuffer(data_buffer, np.uint8, int(offsets[-1])), offsets


def _mapped(ref: BlockRef) -> memoryview:
    """The block's bytes. Its length is checked first: touching a mapped page behind the end of a file would kill us."""
    try:
        fd = os.open(ref.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise fault_of(error, Path(ref.path)) from error
    try:
        if os.fstat(fd).st_size < ref.offset + ref.length:
            raise _corrupt(ref, "the file is shorter than noted")
        start = ref.offset - ref.offset % mmap.ALLOCATIONGRANULARITY
        mapped: Any = mmap.mmap(fd, ref.offset + ref.length - start, prot=mmap.PROT_READ, offset=start)
    except OSError as error:
        raise fault_of(error, Path(ref.path)) from error
    finally:
        os.close(fd)
    return memoryview(mapped)[ref.offset - start :]


def _corrupt(ref: BlockRef, detail: str) -> EngineFault:
    return EngineFault(FaultKind.QUEUE_CORRUPT, ref.path, f"block at {ref.offset}: {detail}")
