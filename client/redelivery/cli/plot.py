"""A picture of a policy: the delay before each redelivery, and the time that has passed by then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redelivery.cli.formatting import clean, duration

if TYPE_CHECKING:
    from redelivery.cli.explain import Explanation, Row

__all__ = ["draw"]

BAR, LINE, INK, PALE = "#3b6ea8", "#c8553d", "#2b2b2b", "#e6e6e6"
_UNITS = (
    (1, "milliseconds", 1000),
    (1000, "seconds", 300_000),
    (60_000, "minutes", 18_000_000),
    (3_600_000, "hours", None),
)
_TICKS = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000, 864_000_000)
# Times the least: from there on only a logarithmic scale shows both ends.
STEEP = 50
# Characters of the policy that still have room beside the picture.
WIDEST = 110
# Bars that still have room for their delay above them.
LABELLED = 12


def draw(explanation: Explanation, path: str) -> None:
    """Write the picture; the suffix of `path` is its format. Raises OSError where it cannot be written."""
    # The object interface: pyplot would look for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure: Any = Figure(figsize=(9, 6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 2]})
    figure.suptitle(
        f"Redeliveries of a message of {clean(str(explanation.destination))}",
        x=0.01, ha="left", fontsize=14, color=INK, parse_math=False,
    )  # fmt: skip
    rows = explanation.rows
    if rows:
        _draw_delays(upper, rows)
        _draw_elapsed(lower, rows)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=PALE)
        axes.set_axisbelow(True)
    lower.set_xlabel("number of the redelivery", color=INK)
    upper.set_title(_subtitle(explanation), loc="left", fontsize=9, color="#666666", parse_math=False)
    figure.savefig(path)


def _subtitle(explanation: Explanation) -> str:
    source = "Default policy" if explanation.pattern is None else f"Policy of pattern {explanation.pattern}"
    limit = explanation.limit_ms
    if explanation.deliveries is None:
        end = "no limit" if limit is None else f"no redelivery after {duration(limit)}"
    else:
        end = f"at most {explanation.deliveries} deliveries, {duration(explanation.rows[-1].elapsed)} of waiting" \
            if explanation.rows else "one delivery, no redelivery"  # fmt: skip
    return f"{clean(f'{source}: {_told(explanation)}')}\n{clean(end)}"


def _told(explanation: Explanation) -> str:
    """Return the options of the policy that are not the defaults."""
    plain = explanation.defaults
    changed = [f"{name}={value}" for name, value in explanation.options.items() if plain.get(name) != value]
    text = ", ".join(changed) or "every option as by default"
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _unit(longest: int) -> tuple[int, str]:
    for size, name, below in _UNITS:
        if below is None or longest < below:
            return size, name
    raise AssertionError("the last unit has no end")


def _draw_delays(axes: Any, rows: tuple[Row, ...]) -> None:
    size, _ = _unit(max(row.high for row in rows))
    numbers = [row.redelivery for row in rows]
    delays = [row.delay / size for row in rows]
    axes.bar(numbers, delays, width=0.7, color=BAR, label="delay")
    if any(row.low != row.high for row in rows):
        below = [max(0.0, (row.delay - row.low) / size) for row in rows]
        above = [max(0.0, (row.high - row.delay) / size) for row in rows]
        axes.errorbar(
            numbers, delays, yerr=[below, above], fmt="none", ecolor=INK, elinewidth=1.2,
            capsize=4 if len(rows) <= LABELLED else 0, label="collision avoidance",
        )  # fmt: skip
        axes.legend(frameon=False, loc="upper left")
    if len(rows) <= LABELLED:
        for row in rows:
            axes.annotate(
                duration(row.delay), (row.redelivery, row.high / size), (0, 5), textcoords="offset points",
                ha="center", fontsize=8, color=INK,
            )  # fmt: skip
        axes.set_xticks(numbers)
    axes.margins(y=0.15)
    _scale(axes, "delay before it", [row.low for row in rows], [row.high for row in rows])


def _draw_elapsed(axes: Any, rows: tuple[Row, ...]) -> None:
    size, _ = _unit(rows[-1].elapsed_high)
    numbers = [row.redelivery for row in rows]
    if rows[-1].varies:
        axes.fill_between(
            numbers, [row.elapsed_low / size for row in rows], [row.elapsed_high / size for row in rows],
            color=LINE, alpha=0.2, linewidth=0,
        )  # fmt: skip
    axes.plot(
        numbers, [row.elapsed / size for row in rows], color=LINE, linewidth=1.8,
        marker="o" if len(rows) <= LABELLED else None, markersize=4,
    )  # fmt: skip
    _scale(axes, "waited in all", [row.elapsed_low for row in rows], [row.elapsed_high for row in rows])


def _scale(axes: Any, what: str, low: list[int], high: list[int]) -> None:
    """Set the axis to begin at 0, or to be logarithmic where the values are too far apart."""
    size, name = _unit(max(high))
    least, most = min(low), max(high)
    if least <= 0 or most < least * STEEP:
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"{what} ({name})", color=INK)
        return
    axes.set_yscale("log")
    ticks = [tick for tick in _TICKS if least / 10 <= tick <= most * 10]
    axes.set_yticks([tick / size for tick in ticks], [duration(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(least / size / 2, most / size * 2.5)
    axes.set_ylabel(f"{what} (log scale)", color=INK)
