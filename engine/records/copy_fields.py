"""Fields of lines of COPY text as single texts, for the few that are not decoded to columns."""

from __future__ import annotations

_LETTERS = {"t": "\t", "n": "\n", "r": "\r"}


def unescaped(field: str) -> str:
    """The text of a field that is not NULL."""
    if "\\" not in field:
        return field
    found, letters = [], iter(field)
    for letter in letters:
        if letter == "\\":
            following = next(letters)
            found.append(_LETTERS.get(following, following))
        else:
            found.append(letter)
    return "".join(found)
