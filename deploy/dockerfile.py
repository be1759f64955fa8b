"""Parses the subset of Dockerfile syntax that the project's file uses: its instructions, and how a container is run."""

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
    """The file has an instruction that this parser does not support. Guessing would rehearse another image."""


@dataclass(slots=True)
class Stage:
    """One FROM and its instructions. `steps`: pairs of instruction and argument, in order, without FROM itself."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str:
        """The argument of the last such instruction, which is the effective one; empty if there is none."""
        return next((argument for name, argument in reversed(self.steps) if name == instruction), "")

    @property
    def environment(self) -> dict[str, str]:
        """All variables that ENV sets, unexpanded."""
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
        DockerfileError: an instruction is unknown, or precedes the first FROM.
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
    """The variables in the argument of an ENV: `A=1 B=2`."""
    return [(key, value.strip('"')) for key, value in _PAIR.findall(text)]


def expand(text: str, environment: dict[str, str]) -> str:
    """The text with `$NAME` and `${NAME}` replaced; unset names become empty."""
    return _VARIABLE.sub(lambda match: environment.get(match[1], ""), text)


def _logical_lines(text: str) -> list[str]:
    kept = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(kept))
    return [line.strip() for line in joined.splitlines()]
