"""Net change and decoding: turns the raw row changes of a batch into Arrow columns. Pure; numba kernels process the bytes."""

from engine.net.copy_text import decode_copy_text
from engine.net.staging import spill_result, staging_prefix
from engine.net.task import run_task
from engine.net.warm import warm

__all__ = ["decode_copy_text", "run_task", "spill_result", "staging_prefix", "warm"]
