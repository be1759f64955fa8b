"""The project's own pages: their text, headings, links, blocks of code, and which of them are generated."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.source_tree import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)
GENERATED = "<!-- Written by docs/generate.py"


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file: its path below the root with forward slashes, and its text."""

    path: str
    text: str

    @property
    def generated(self) -> bool:
        return GENERATED in self.text

    @property
    def prose(self) -> str:
        """Without blocks of code and tables."""
        lines = _BLOCK.sub("", self.text).splitlines()
        return "\n".join(line for line in lines if not line.startswith(("|", "<!--")))

    @property
    def words(self) -> str:
        """Without anything that is code, and without the targets of links: what the rules of language are for."""
        return _INLINE.sub("``", re.sub(r"\]\([^)]*\)", "]", _BLOCK.sub("", self.text)))

    def blocks(self) -> Iterator[tuple[str, str]]:
        """Language and content of each block of code."""
        for match in _BLOCK.finditer(self.text):
            yield match[1], match[2]

    def inline(self) -> Iterator[str]:
        """Content of each piece of inline code."""
        for match in _INLINE.finditer(_BLOCK.sub("", self.text)):
            yield match[0].strip("`")

    def links(self) -> Iterator[str]:
        """Targets of links and pictures."""
        for match in _LINK.finditer(_INLINE.sub("", _BLOCK.sub("", self.text))):
            yield match[1]

    def headings(self) -> list[str]:
        return [match[2] for match in _HEADING.finditer(_BLOCK.sub("", self.text))]

    def anchors(self) -> set[str]:
        """As hosts of repositories make them of headings."""
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in self.headings()}


@functools.cache
def pages() -> tuple[Page, ...]:
    """The pages at the top of the project and below `docs`."""
    files = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return tuple(Page(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) for file in files)


def page(path: str | Path) -> Page:
    """The page at this path below the root."""
    return next(each for each in pages() if each.path == str(path))
