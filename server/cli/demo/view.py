"""The display of the running demonstration."""

from __future__ import annotations

from collections import deque
from time import monotonic

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from server.cli.demo.measure import percentile
from server.cli.demo.show import Show
from server.cli.output import health
from server.wording import format_seconds, format_size

_BARS = " ▁▂▃▄▅▆▇█"
_RECENT = 200


class View:
    """Renders a run. Keeps the short history that is needed for rates and the lag's curve."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._counts: deque[tuple[float, int]] = deque(maxlen=20)

    def render(self, show: Show) -> RenderableType:
        samples = show.probe.samples
        latest = samples.latest
        positions, lag = latest.get("positions") or {}, latest.get("lag") or {}
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        grid.add_column()
        grid.add_row("subscription", f"{health(latest.get('health'))}  applied {positions.get('applied') or '–'}")
        load = (
            f"{self._rate(show):.0f} tx/s, {show.load.transactions:,} committed, {show.load.rolled_back:,} rolled back"
        )
        grid.add_row("source", load)
        behind = (
            f"{format_seconds(lag.get('seconds'))}, {format_size(lag.get('bytes'))}   {self._curve(samples.lag_ms)}"
        )
        grid.add_row("lag", behind)
        recent = samples.waits_ms[-_RECENT:]
        waits = f"p50 {percentile(recent, 0.5):.0f}, p95 {percentile(recent, 0.95):.0f}, p99 {percentile(recent, 0.99):.0f} ms"
        grid.add_row("waits", f"{waits} ({len(recent)} last); {samples.timed_out} timed out")
        grid.add_row("cuts", self._cuts(show))
        left = f" of {show.seconds:.0f} s" if show.seconds is not None else " s; Ctrl-C ends it"
        grid.add_row("time", f"{show.elapsed_s:.0f}{left}")
        title = Text.assemble(("Penstock ", "bold"), (self._url, "cyan"))
        return Panel(Group(grid), title=title, box=box.ROUNDED, expand=False)

    def line(self, show: Show) -> str:
        """One line for logs."""
        samples = show.probe.samples
        lag = (samples.latest.get("lag") or {}).get("seconds")
        p99 = percentile(samples.waits_ms[-_RECENT:], 0.99)
        return (
            f"{show.elapsed_s:.0f} s: {show.load.transactions} transactions, lag {format_seconds(lag)}, "
            f"waits {len(samples.waits_ms)} (p99 {p99:.0f} ms), cuts {len(show.cuts.answers)}"
        )

    def _rate(self, show: Show) -> float:
        self._counts.append((monotonic(), show.load.transactions))
        (first, before), (last, after) = self._counts[0], self._counts[-1]
        return (after - before) / (last - first) if last > first else 0.0

    @staticmethod
    def _curve(values: list[float]) -> str:
        recent = values[-30:]
        top = max(recent, default=0.0) or 1.0
        return "".join(_BARS[min(8, round(value / top * 8))] for value in recent)

    @staticmethod
    def _cuts(show: Show) -> str:
        done = len(show.cuts.answers)
        if not done:
            return "none yet"
        verdict = "[green]all equal[/]" if not show.cuts.unequal else f"[red]{show.cuts.unequal} differ[/]"
        return f"{done} compared, {verdict} ({show.cuts.rows('target'):,} rows)"
