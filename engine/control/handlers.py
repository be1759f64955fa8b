"""Registration of the method that handles a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from engine.link.message import Message

Owner = TypeVar("Owner")
C = TypeVar("C", bound=Message)
R = TypeVar("R")


class Handlers(Generic[Owner]):
    """The methods of a class by the command that each handles. Filled while the class is created, and only read afterwards."""

    def __init__(self) -> None:
        self._methods: dict[type[Message], Callable[[Owner, Any], object]] = {}

    def handles(self, command: type[C]) -> Callable[[Callable[[Owner, C], R]], Callable[[Owner, C], R]]:
        """Registers the method for commands of this class.

        Raises:
            ValueError: another method is registered for it.
        """

        def register(method: Callable[[Owner, C], R]) -> Callable[[Owner, C], R]:
            if command in self._methods:
                raise ValueError(f"two methods take {command.__name__}")
            self._methods[command] = method
            return method

        return register

    @property
    def commands(self) -> frozenset[type[Message]]:
        return frozenset(self._methods)

    def find(self, command: Message) -> Callable[[Owner, Any], object] | None:
        return self._methods.get(type(command))
