"""The queue between capture and sort: segments of raw records with an index file each, recovery and retention."""

from engine.queue.block import read_block, read_blocks
from engine.queue.catalog import QueueCatalog
from engine.queue.durable import Backlog, is_durable, mark_durable, unmark_durable
from engine.queue.files import FolderLock, open_folder
from engine.queue.recovery import Recovered, recover
from engine.queue.writer import Landed, SegmentWriter, SessionHead

__all__ = [
    "Backlog",
    "FolderLock",
    "Landed",
    "QueueCatalog",
    "Recovered",
    "SegmentWriter",
    "SessionHead",
    "is_durable",
    "mark_durable",
    "open_folder",
    "read_block",
    "read_blocks",
    "recover",
    "unmark_durable",
]
