"""What a task hands back: its result, or the fault it ended with, as values that travel.

A task that raises would cost its worker process and everything cached in it; one that returns its fault does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.model.fault import EngineFault, FaultKind

D = TypeVar("D")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """The task's own result."""

    result: R


@dataclass(frozen=True, slots=True)
class Failed:
    """The fault that the task ended with."""

    fault: EngineFault


def attempt(function: Callable[[D], R], descriptor: D) -> Done[R] | Failed:
    """Run one task. What it raises becomes a fault: its own where it raised one, else SPARK_FAILED with class and place.

    The message of a foreign exception is left out: it may quote row values.
    """
    try:
        return Done(function(descriptor))
    except EngineFault as fault:
        return Failed(EngineFault(fault.kind, fault.subject, fault.detail))
    except Exception as error:  # noqa: BLE001, RUF100 - the border of the task: everything becomes a fault
        return Failed(EngineFault(FaultKind.SPARK_FAILED, "task", _place(error)))


def attempt_all(function: Callable[[D], R], descriptors: Iterable[D]) -> Iterator[Done[R] | Failed]:
    """Run a partition's tasks. It reads its input to the end in any case; a worker that did not would not be used again."""
    return iter([attempt(function, descriptor) for descriptor in descriptors])


def results(outcomes: Iterable[Done[R] | Failed]) -> list[R]:
    """The results in their order, or the first fault, raised."""
    unpacked: list[R] = []
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            raise outcome.fault
        unpacked.append(outcome.result)
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
