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

    Kernels call only kernels of their own module, because numba's cache does not notice changes in another file.
    """
    return cast("_F", njit(cache=True, nogil=True)(function))


NULL = -1
"""Length of a value that is NULL."""
UNSET = -2
"""Length of a value that the log does not contain, for example an unchanged TOAST value."""


def empty_places(*shape: int) -> tuple[Array, Array]:
    """Uninitialised places of values in a buffer: offsets (int64) and lengths (int32; NULL or UNSET if negative)."""
    return np.empty(shape, np.int64), np.empty(shape, np.int32)
