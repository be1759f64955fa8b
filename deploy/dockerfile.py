"""Reads the Dockerfile, as far as ours goes: what is done in which order, and how a container of it is run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

_KNOWN = {
    "FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD",
}  # fmt: skip
_PAIR = re.compile(r'(\w+)=("[^"]*"|\S+)')
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


class DockerfileError(ValueError):
    """The file says something that this reader does not know; a silent guess would rehearse another image."""


@dataclass(slots=True)
class Stage:
    """One FROM and what follows. `steps` are (instruction, argument) in order, and hold FROM's own argument nowhere."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str:
        """The argument that counts: of the last such instruction; empty where there is none."""
        return next((argument for name, argument in reversed(self.steps) if name == instruction), "")

    @property
    def environment(self) -> dict[str, str]:
        """All that ENV sets, unexpanded."""
        return {key: value for name, text in self.steps if name == "ENV" for key, value in pairs(text)}

    @property
    def entry_point(self) -> list[str]:
        return exec_form(self.last("ENTRYPOINT"))

    @property
    def command(self) -> list[str]:
        return exec_form(self.last("CMD"))

    @property
    def health_check(self) -> list[str]:
        """The command of HEALTHCHECK, without its options."""
        return exec_form(self.last("HEALTHCHECK").partition("CMD")[2])


def read(path: Path) -> list[Stage]:
    """The stages in order.

    Raises:
        DockerfileError: an unknown instruction, or one before the first FROM.
    """
    stages: list[Stage] = []
    for line in _logical_lines(path.read_text(encoding="utf-8")):
        instruction, _, argument = line.partition(" ")
        if instruction not in _KNOWN or (not stages and instruction != "FROM"):
            raise DockerfileError(f"this reader does not know: {line}")
        if instruction == "FROM":
            base, _, name = argument.partition(" AS ")
            stages.append(Stage(name.strip() or str(len(stages)), base.strip()))
        else:
            stages[-1].steps.append((instruction, argument.strip()))
    return stages


def exec_form(text: str) -> list[str]:
    """`["a", "b"]` as a list. The shell form is refused: signals would end at the shell."""
    try:
        words = json.loads(text)
    except json.JSONDecodeError as error:
        raise DockerfileError(f"not written as a JSON list: {text!r}") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DockerfileError(f"not a list of words: {text!r}")
    return words


def pairs(text: str) -> list[tuple[str, str]]:
    """`A=1 B=2` of an ENV."""
    return [(key, value.strip('"')) for key, value in _PAIR.findall(text)]


def expand(text: str, environment: dict[str, str]) -> str:
    """With `$NAME` and `${NAME}` replaced; an unset name becomes nothing."""
    return _VARIABLE.sub(lambda match: environment.get(match[1], ""), text)


def _logical_lines(text: str) -> list[str]:
    kept = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(kept))
    return [line.strip() for line in joined.splitlines()]
