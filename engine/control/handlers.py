"""Registry of the methods that handle commands, by the command's class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from engine.link.message import Message

Owner = TypeVar("Owner")
C = TypeVar("C", bound=Message)
R = TypeVar("R")


class Handlers(Generic[Owner]):
    """The methods of a class, by the command that each handles. Filled while the class is created and read-only afterwards."""

    def __init__(self) -> None:
        self._methods: dict[type[Message], Callable[[Owner, Any], object]] = {}

    def handles(self, command: type[C]) -> Callable[[Callable[[Owner, C], R]], Callable[[Owner, C], R]]:
        """A decorator that registers a method for commands of exactly this class, and returns it unchanged.

        Raises:
            ValueError: another method is already registered for this class.
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
        """The method for this command, to be called with its owner and the command; None if no method is registered."""
        return self._methods.get(type(command))
