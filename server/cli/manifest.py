"""The file that `penstock apply` reads and `penstock export` writes: connections, subscriptions and alert channels, as YAML or JSON.

Each section is a mapping of names to bodies, or a list of bodies with a `name`. A body is that of a PUT. In any string,
`${NAME}` is replaced by an environment variable, and `$${` by a plain `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
DECLARED = {
    "connections": ("kind", "settings"),
    "subscriptions": (
        "source",
        "target",
        "tables",
        "target_schemas",
        "desired_state",
        "capture",
        "batch",
        "apply",
        "queue",
        "schema_changes",
        "staging",
        "copies",
        "freshness",
        "verify",
    ),
    "alert_channels": ("kind", "settings", "causes", "subscriptions", "repeat_seconds"),
}
"""The members of a PUT body of each collection, except secrets."""
_SECTIONS = tuple(DECLARED)
_SHOWN = ", ".join(_SECTIONS)


class ManifestError(ValueError):
    """The file is not a valid manifest; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource to PUT: `collection` is its section."""

    collection: str
    name: str
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        return self.collection.removesuffix("s")

    @property
    def nodes(self) -> list[str]:
        """The connections that this one consists of."""
        settings = self.body.get("settings")
        nodes = settings.get("nodes") if self.collection == "connections" and isinstance(settings, dict) else None
        return (
            [str(node.get("connection")) for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []
        )


def path_of(collection: str) -> str:
    """The path of a section's resources below the API's prefix."""
    return f"/{collection.replace('_', '-')}"


def parse(text: str, environment: Mapping[str, str]) -> list[Resource]:
    """The resources of a manifest in the order of their PUTs: connections first, those that consist of others after the others.

    Raises:
        ManifestError: not YAML or JSON, an unknown section, a body without a name, or a variable that is not set.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ManifestError(_where(error)) from None  # the chained error would print the file, secrets included
    if not isinstance(document, dict) or not document:
        raise ManifestError(f"the file must have some of the sections {_SHOWN}")
    unknown = sorted(str(key) for key in document if key not in _SECTIONS)
    if unknown:
        raise ManifestError(f"unknown section {', '.join(unknown)}; there are {_SHOWN}")
    resources: list[Resource] = []
    for section in _SECTIONS:
        for name, body in _named(section, document.get(section) or {}):
            resources.append(Resource(section, name, _filled(body, environment, f"{section}.{name}")))
    return sorted(resources, key=lambda each: (_SECTIONS.index(each.collection), bool(each.nodes)))


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return f"not valid YAML{place}: {getattr(error, 'problem', None) or 'it cannot be read'}"


def _named(section: str, content: Any) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(content, dict):
        pairs = [(str(name), body) for name, body in content.items()]
    elif isinstance(content, list):
        pairs = [_take_name(section, index, body) for index, body in enumerate(content)]
    else:
        raise ManifestError(f"{section} must be a mapping of names, or a list")
    seen: set[str] = set()
    for name, body in pairs:
        if not isinstance(body, dict):
            raise ManifestError(f"{section}.{name} must be a mapping")
        if name in seen:
            raise ManifestError(f"{section}.{name} is declared twice")
        seen.add(name)
    return pairs


def _take_name(section: str, index: int, body: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        raise ManifestError(f"{section}[{index}] has no name")
    return body["name"], {key: value for key, value in body.items() if key != "name"}


def _filled(value: Any, environment: Mapping[str, str], path: str) -> Any:
    if isinstance(value, dict):
        return {str(key): _filled(inner, environment, f"{path}.{key}") for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, environment, f"{path}[{index}]") for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "${"
        if name not in environment:
            raise ManifestError(f"{path} needs the environment variable {name}, which is not set")
        return environment[name]

    return _REFERENCE.sub(replace, value)
