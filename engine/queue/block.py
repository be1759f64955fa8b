"""Blocks of a segment: encodes raw records as a one-column Arrow record batch, and reads them back without a copy."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator, Sequence
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

RUN_BYTES = 8 * 1024 * 1024
"""Most bytes of adjoining blocks that are read with one mapping; a larger block is read alone."""

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]


def schema_message() -> bytes:
    """The encapsulated schema message at the start of every segment."""
    return bytes(SCHEMA.serialize())


def encode_block(data: Bytes, offsets: Offsets) -> pa.Buffer:
    """Records as one encapsulated Arrow IPC message. `offsets` are `count + 1` borders in `data`, the first 0."""
    column = pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )
    return pa.record_batch([column], schema=SCHEMA).serialize()


def read_block(ref: BlockRef) -> tuple[Bytes, Offsets]:
    """The records of one block; see `read_blocks`."""
    (found,) = read_blocks([ref])
    return found


def read_blocks(refs: Sequence[BlockRef]) -> Iterator[tuple[Bytes, Offsets]]:
    """The records of each block: their bytes, and `count + 1` borders in them. Adjoining blocks are mapped together.

    A slow log makes thousands of blocks of a few records each; to open and map the file for each would cost more than to read them.
    Raises EngineFault(QUEUE_CORRUPT) if a file is missing or too short, or if a checksum does not match.
    """
    for run in _runs(refs):
        mapped = _mapped(run)
        at = 0
        for ref in run:
            message = mapped[at : at + ref.length]
            if zlib.crc32(message) != ref.crc:
                raise _corrupt(ref, "the checksum does not match")
            yield _decoded(ref, message)
            at += ref.length


def _runs(refs: Sequence[BlockRef]) -> Iterator[list[BlockRef]]:
    run: list[BlockRef] = []
    size = 0
    for ref in refs:
        beside = run and (run[-1].path, run[-1].offset + run[-1].length) == (ref.path, ref.offset)
        if run and not (beside and size + ref.length <= RUN_BYTES):
            yield run
            run, size = [], 0
        run.append(ref)
        size += ref.length
    if run:
        yield run


def _decoded(ref: BlockRef, message: memoryview) -> tuple[Bytes, Offsets]:
    try:
        column = pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA).column(0)
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(ref, "not a record batch") from error
    if len(column) != ref.count:
        raise _corrupt(ref, "the number of records differs from the index")
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, ref.count + 1)
    if data_buffer is None:
        return np.empty(0, np.uint8), offsets
    return np.frombuffer(data_buffer, np.uint8, int(offsets[-1])), offsets


def _mapped(run: Sequence[BlockRef]) -> memoryview:
    """The bytes of adjoining blocks. The file's length is checked first: access to a mapped page after the end of the file is a SIGBUS."""
    first, last = run[0], run[-1]
    try:
        fd = os.open(first.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise fault_of(error, Path(first.path)) from error
    try:
        if os.fstat(fd).st_size < last.offset + last.length:
            raise _corrupt(last, "the file is shorter than the index says")
        start = first.offset - first.offset % mmap.ALLOCATIONGRANULARITY
        mapped: Any = mmap.mmap(fd, last.offset + last.length - start, prot=mmap.PROT_READ, offset=start)
    except OSError as error:
        raise fault_of(error, Path(first.path)) from error
    finally:
        os.close(fd)
    return memoryview(mapped)[first.offset - start :]


def _corrupt(ref: BlockRef, detail: str) -> EngineFault:
    return EngineFault(FaultKind.QUEUE_CORRUPT, ref.path, f"block at {ref.offset}: {detail}")
