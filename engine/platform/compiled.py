"""Compilation of kernels, and the types and constants that their signatures use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]
_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Compile with numba; the signature is kept for the type checker.

    A kernel creates no arrays, and assigns no slices: it is compiled without numba's counting of references. With it, a function with a
    tuple of arrays that was called for each change took 200 ns for the counting alone.

    Kernels call only kernels of their own module, and `copy_bytes`, because numba's cache does not notice changes in another file.
    """
    return cast("_F", njit(cache=True, nogil=True, _nrt=False)(function))


def inlined_kernel(function: _F) -> _F:
    """As `kernel`, compiled into each kernel that calls it, for functions that are called for each change or value: to pass a tuple of
    arrays took longer than the work. Net change of updates by key: 500 ns each with references and calls, 250 ns with calls, 50 ns
    without."""
    return cast("_F", njit(cache=True, nogil=True, _nrt=False, inline="always")(function))


@inlined_kernel
def copy_bytes(data: Array, start: int, size: int, out: Array, at: int) -> None:
    """Copy `data[start : start + size]` to `out[at : at + size]`, which must not overlap.

    Indices without a sign let the compiler copy many bytes at once: 80 bytes take 8 ns, with signed ones 95 ns, as an assignment of slices
    34 ns. Rename it when it is changed: numba's cache of its callers does not notice.
    """
    for k in range(size):
        out[np.uint64(at + k)] = data[np.uint64(start + k)]


NULL = -1
"""Length of a value that is NULL."""
UNSET = -2
"""Length of a value that the log does not contain, for example an unchanged TOAST value."""


def empty_places(*shape: int) -> tuple[Array, Array]:
    """Uninitialised places of values in a buffer: offsets (int64) and lengths (int32; NULL or UNSET if negative)."""
    return np.empty(shape, np.int64), np.empty(shape, np.int32)
