"""Plots as SVG without a library: few shapes, no script, readable on light and dark backgrounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_OURS, _THEIRS, _INK, _RULE, _PAPER = "#2a78d6", "#898781", "#52514e", "#c3c2b7", "#fcfcfb"
_COLOURS = {"penstock": _OURS, "native": _THEIRS}
_NAMES = {"penstock": "Penstock", "native": "PostgreSQL"}
_LABEL, _WIDTH, _ROW, _TOP, _VALUE = 150, 420, 28, 56, 90
_WIDE_LABEL, _LOW_ROW = 350, 22
_CHARACTER = 6.6
"""Upper bound of the average character width."""


def bars(title: str, note: str, values: Sequence[tuple[str, float]], *, rule: float, unit: str = "") -> str:
    """Horizontal bars from zero, with a line at `rule`. Each value is printed next to its bar."""
    most = max([rule, *(value for _, value in values)]) or 1.0
    height = _TOP + _ROW * len(values) + 24
    left = _room([name for name, _ in values])
    parts = _head(title, note, height, label=left)
    for row, (name, value) in enumerate(values):
        y, length = _TOP + row * _ROW, value / most * _WIDTH
        parts.append(_text(left - 8, y + 15, name, anchor="end"))
        parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="20" rx="2" fill="{_OURS}"/>')
    at, bottom = left + rule / most * _WIDTH, _TOP + _ROW * len(values)
    parts.append(
        f'<line x1="{at:.1f}" y1="{_TOP - 6}" x2="{at:.1f}" y2="{bottom}" stroke="{_INK}" stroke-dasharray="3 3"/>'
    )
    parts.append(_text(at, bottom + 14, f"{rule:g}{unit}", anchor="middle"))
    for row, (_, value) in enumerate(values):
        text = f"{value:.2f}{unit}"
        parts.append(_text(left + value / most * _WIDTH + 6, _TOP + row * _ROW + 15, text, halo=True))
    return _whole(parts)


def pairs(title: str, note: str, rows: Sequence[tuple[str, Mapping[str, float]]], *, unit: str) -> str:
    """Horizontal bars of each side under a common label, all on one scale from zero. Small values keep three digits."""
    most = max((value for _, sides in rows for value in sides.values()), default=0.0) or 1.0
    count = sum(len(sides) for _, sides in rows)
    left = _room([label for label, _ in rows])
    parts = _head(title, note, _TOP + 16 + 18 * count + 10 * len(rows) + 4, label=left)
    parts += _legend([name for _, sides in rows for name in sides])
    y = _TOP + 16
    for label, sides in rows:
        parts.append(_text(left - 8, y + 12, label, anchor="end"))
        for name, value in sides.items():
            length = value / most * _WIDTH
            colour = _COLOURS.get(name, _RULE)
            parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="14" rx="2" fill="{colour}"/>')
            parts.append(_text(left + length + 6, y + 12, f"{_short(value)} {unit}"))
            y += 18
        y += 10
    return _whole(parts)


def lines(title: str, note: str, curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], *, unit: str) -> str:
    """One curve per side over seconds; both axes start at zero."""
    points = [point for _, curve in curves for point in curve]
    right, top = max((x for x, _ in points), default=0.0) or 1.0, max((y for _, y in points), default=0.0) or 1.0
    left, height = 70, 180
    width = _LABEL + _WIDTH - left
    begin = _TOP + 16
    parts = [*_head(title, note, begin + height + 30), *_legend([name for name, _ in curves])]
    bottom = begin + height
    parts.append(f'<path d="M{left} {begin}V{bottom}H{left + width}" fill="none" stroke="{_RULE}"/>')
    parts.append(_text(left - 6, begin + 5, f"{top:,.0f} {unit}", anchor="end"))
    parts.append(_text(left - 6, bottom, "0", anchor="end"))
    parts.append(_text(left + width, bottom + 16, f"{right:,.0f} s", anchor="end"))
    for name, curve in curves:
        if not curve:
            continue
        steps = " ".join(f"{left + x / right * width:.1f},{bottom - y / top * height:.1f}" for x, y in curve)
        parts.append(f'<polyline points="{steps}" fill="none" stroke="{_COLOURS.get(name, _RULE)}" stroke-width="2"/>')
    return _whole(parts)


def powers(title: str, note: str, values: Sequence[tuple[str, float]]) -> str:
    """A dot for each value on a scale of powers of ten, from the power below the smallest to the one above the largest."""
    known = [value for _, value in values if value > 0]
    low = math.floor(math.log10(min(known, default=1.0)))
    high = max(low + 1, math.ceil(math.log10(max(known, default=10.0))))
    bottom = _TOP + _LOW_ROW * len(values)
    parts = _head(title, note, bottom + 28, label=_WIDE_LABEL)

    def across(value: float) -> float:
        return _WIDE_LABEL + (math.log10(value) - low) / (high - low) * _WIDTH

    for power in range(low, high + 1):
        x = across(10.0**power)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="{_RULE}"/>')
        parts.append(_text(x, bottom + 16, f"{10**power:,}", anchor="middle"))
    for row, (name, value) in enumerate(values):
        y = _TOP + row * _LOW_ROW + 6
        parts.append(_text(_WIDE_LABEL - 12, y + 4, name, anchor="end"))
        if value > 0:
            parts.append(f'<circle cx="{across(value):.1f}" cy="{y}" r="5" fill="{_OURS}"/>')
            parts.append(_text(across(value) + 9, y + 4, _short(value), halo=True))
    return _whole(parts)


def _room(labels: Sequence[str]) -> int:
    """The x coordinate at which bars begin, so that the labels fit."""
    return max([_LABEL, *(8 + math.ceil(_CHARACTER * len(label)) for label in labels)])


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _legend(names: Sequence[str]) -> list[str]:
    """A square and a name for each side, in the order of their first appearance."""
    parts, x = [], 12
    for name in dict.fromkeys(names):
        parts.append(f'<rect x="{x}" y="{_TOP - 8}" width="10" height="10" rx="2" fill="{_COLOURS.get(name, _RULE)}"/>')
        parts.append(_text(x + 15, _TOP + 1, _NAMES.get(name, name)))
        x += 90
    return parts


def _head(title: str, note: str, height: float, *, label: int = _LABEL) -> list[str]:
    width = label + _WIDTH + _VALUE
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" height="{height:g}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height:g}" fill="{_PAPER}"/>',
        f'<text x="12" y="20" font-size="14" font-weight="600" fill="#0b0b0b">{escape(title)}</text>',
        _text(12, 38, note),
    ]


def _text(x: float, y: float, text: str, *, anchor: str = "start", halo: bool = False) -> str:
    """`halo`: draw an outline, so that the text is readable where it crosses a line."""
    more = f' stroke="{_PAPER}" stroke-width="3" paint-order="stroke"' if halo else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{_INK}"{more}>{escape(text)}</text>'


def _whole(parts: list[str]) -> str:
    return "\n".join([*parts, "</svg>", ""])
