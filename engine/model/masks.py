"""Masks: what is replicated in place of a column's values. Pure; log and copies mask with the same function."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

MASK_KEY = "mask_key"
"""The secret of a source's connection with which values are hashed."""
SHORTEST_KEY = 16
"""Least characters of the key."""
_DIGEST = "sha256"


class MaskMethod(StrEnum):
    """`null`: NULL; `constant`: one value; `hash`: HMAC-SHA-256 of the value's text."""

    NULL = "null"
    CONSTANT = "constant"
    HASH = "hash"


class HashType(StrEnum):
    """The column's type on the target: hexadecimal text, or bytes."""

    TEXT = "text"
    BYTEA = "bytea"


@dataclass(frozen=True, slots=True)
class Mask:
    """The mask of a column. NULL stays NULL.

    `value`: of the method `constant`, which makes the column text. `type`: of the method `hash`.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    method: MaskMethod
    value: str | None = None
    type: HashType = HashType.TEXT

    def __post_init__(self) -> None:
        if (self.value is not None) != (self.method is MaskMethod.CONSTANT):
            raise ValueError("the method 'constant' takes a 'value', and the others take none")
        if self.value is not None and "\0" in self.value:
            raise ValueError("'value' holds the character NUL")

    @property
    def type_name(self) -> str | None:
        """Internal name of the masked column's type; None: that of the column."""
        return {MaskMethod.NULL: None, MaskMethod.CONSTANT: "text", MaskMethod.HASH: self.type.value}[self.method]


MaskValue = Callable[[bytes], bytes | None]
"""The text form of a value, other than NULL, in place of the text form of the column's value; None for NULL."""


def masking(mask: Mask, key: str | None) -> MaskValue:
    """The function of a mask. `key`: needed for hashes only.

    Raises ValueError: a hash without a key.
    """
    if mask.method is MaskMethod.NULL:
        return lambda value: None
    if mask.value is not None:
        constant = mask.value.encode()
        return lambda value: constant
    if not is_usable(key):
        raise ValueError("a hash needs a key")
    secret = str(key).encode()
    if mask.type is HashType.BYTEA:
        return lambda value: b"\\x" + hmac.digest(secret, value, _DIGEST).hex().encode()
    return lambda value: hmac.digest(secret, value, _DIGEST).hex().encode()


def is_usable(key: str | None) -> bool:
    """Whether values may be hashed with the key."""
    return key is not None and len(key) >= SHORTEST_KEY


def mark_of(key: str | None) -> str | None:
    """A mark that changes with the key and does not reveal it; None without a usable key."""
    return hmac.digest(str(key).encode(), b"penstock mask key", _DIGEST)[:8].hex() if is_usable(key) else None
