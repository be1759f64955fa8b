"""Outcome of a task: its result or its fault, as a picklable value.

An exception in a task would end its worker process and lose everything cached there; a returned fault does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from engine.model.fault import EngineFault, FaultKind

D = TypeVar("D")
R = TypeVar("R")


def attempt(function: Callable[[D], R], descriptor: D) -> R | EngineFault:
    """Run one task. An EngineFault is returned as it is; another exception as SPARK_FAILED with its class and code location.

    The message of another exception is left out, because it may quote row values.
    """
    try:
        return function(descriptor)
    except EngineFault as fault:
        return EngineFault(fault.kind, fault.subject, fault.detail)
    except Exception as error:  # noqa: BLE001, RUF100 - the border of the task: everything becomes a fault
        return EngineFault(FaultKind.SPARK_FAILED, "task", _place(error))


def attempt_all(function: Callable[[D], R], descriptors: Iterable[D]) -> Iterator[R | EngineFault]:
    """Run a partition's tasks. The input is always read to its end: Spark does not reuse a worker that did not."""
    return iter([attempt(function, descriptor) for descriptor in descriptors])


def results(outcomes: Iterable[R | EngineFault]) -> list[R]:
    """The results in order. Raises the first fault among the outcomes."""
    unpacked: list[R] = []
    for outcome in outcomes:
        if isinstance(outcome, EngineFault):
            raise outcome
        unpacked.append(outcome)
    return unpacked


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    if trace is None:
        return name
    module = trace.tb_frame.f_globals.get("__name__", "?")
    return f"{name} in {module}, line {trace.tb_lineno}"
