"""A line chart as SVG, by hand: labelled axes, a whisker per point, each line named at its end.

Legible on white and on dark pages: the chart brings its own ground and follows the reader's colour scheme. Refuses to
know what it shows.
"""

import math
import statistics
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 78, 190, 62, 58
LINE_HEIGHT = 16
SHAPES = (
    "text { font: 13px system-ui, sans-serif } .title { font-size: 15px; font-weight: 600 }"
    " .line { fill: none; stroke-width: 2 } .dashed { stroke-dasharray: 6 4 } .whisker { stroke-width: 1.5 }"
)
LIGHT = {
    "ground": "#ffffff",
    "ink": "#1f2328",
    "faint": "#59636e",
    "grid": "#e4e8ec",
    "a": "#1f6fd6",
    "b": "#c2570c",
    "c": "#1a7f4b",
    "d": "#8250df",
}
DARK = {
    "ground": "#0d1117",
    "ink": "#e6edf3",
    "faint": "#9aa4ae",
    "grid": "#262c34",
    "a": "#6cb0ff",
    "b": "#ff9d57",
    "c": "#56d38c",
    "d": "#c39bff",
}


class Point(NamedTuple):
    x: float
    values: list  # of the runs

    @property
    def middle(self):
        return statistics.median(self.values)


class Line(NamedTuple):
    name: str
    colour: str  # "a" to "d"
    dashed: bool
    points: list


class Chart(NamedTuple):
    title: str
    x_label: str
    y_label: str
    lines: list
    y_is_log: bool = False


def style(colours):
    rules = [
        f".ground {{ fill: {colours['ground']} }}",
        f".ink {{ fill: {colours['ink']} }}",
        f".faint {{ fill: {colours['faint']} }}",
        f".grid {{ stroke: {colours['grid']} }}",
    ]
    for name in "abcd":
        colour = colours[name]
        rules.append(f".line.{name} {{ stroke: {colour} }} .point.{name}, .name.{name} {{ fill: {colour} }}")
    return " ".join(rules)


def plain(value):
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def linear_ticks(top):
    step = 10 ** math.floor(math.log10(top))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if top / s <= 6)
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def log_ticks(low, high):
    """1, 2 and 5 of each decade; only its 1 where that makes too many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**d for d in decades for m in (1, 2, 5)]
    first = max((t for t in ticks if t <= low), default=ticks[0])
    last = min((t for t in ticks if t >= high), default=ticks[-1])
    ticks = [t for t in ticks if first <= t <= last]
    ones = [t for t in ticks if math.isclose(10 ** round(math.log10(t)), t)]
    return ticks if len(ticks) <= 8 or len(ones) < 3 else sorted({first, *ones, last})


class Scale:
    """From a figure to a place on the page."""

    def __init__(self, low, high, start, end, is_log):
        self.measure = math.log if is_log else float
        self.low, self.high = self.measure(low), self.measure(high)
        self.start, self.end = start, end

    def __call__(self, value):
        span = self.high - self.low or 1
        return self.start + (self.measure(value) - self.low) / span * (self.end - self.start)


def text(x, y, words, css, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def spread_out(places):
    """Names at the ends of lines, pushed apart until none overlaps."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    placed = list(places)
    for above, below in zip(order, order[1:]):
        placed[below] = max(placed[below], placed[above] + LINE_HEIGHT)
    excess = max(0, placed[order[-1]] - (HEIGHT - BOTTOM)) if order else 0
    return [y - excess for y in placed]


def draw_axes(chart, x, y, x_ticks, y_ticks):
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    out = []
    for tick in y_ticks:
        out.append(f'<line class="grid" x1="{LEFT}" y1="{y(tick):.1f}" x2="{right}" y2="{y(tick):.1f}"/>')
        out.append(text(LEFT - 8, y(tick) + 4, plain(tick), "faint", "end"))
    for tick in x_ticks:
        out.append(f'<line class="grid" x1="{x(tick):.1f}" y1="{bottom}" x2="{x(tick):.1f}" y2="{bottom + 5}"/>')
        out.append(text(x(tick), bottom + 20, plain(tick), "faint", "middle"))
    middle = (TOP + bottom) / 2
    out.append(text((LEFT + right) / 2, HEIGHT - 14, chart.x_label, "faint", "middle"))
    out.append(text(18, middle, chart.y_label, "faint", "middle", f' transform="rotate(-90 18 {middle:.1f})"'))
    return out


def draw_line(line, x, y):
    css = f"line {line.colour}" + (" dashed" if line.dashed else "")
    path = " ".join(f"{x(p.x):.1f},{y(p.middle):.1f}" for p in line.points)
    out = [f'<polyline class="{css}" points="{path}"/>']
    for p in line.points:
        at, low, high = f"{x(p.x):.1f}", f"{y(min(p.values)):.1f}", f"{y(max(p.values)):.1f}"
        hint = escape(f"{line.name}, {plain(p.x)}: {p.middle:,.4g}")
        out.append(f'<line class="line {line.colour} whisker" x1="{at}" x2="{at}" y1="{low}" y2="{high}"/>')
        out.append(f'<circle class="point {line.colour}" cx="{at}" cy="{y(p.middle):.1f}" r="4">')
        out.append(f"<title>{hint}</title></circle>")
    return out


def draw(chart):
    """The whole SVG."""
    numbers = [v for line in chart.lines for p in line.points for v in p.values]
    x_ticks = sorted({p.x for line in chart.lines for p in line.points})
    y_ticks = log_ticks(min(numbers), max(numbers)) if chart.y_is_log else linear_ticks(max(numbers))
    x = Scale(x_ticks[0], x_ticks[-1], LEFT + 14, WIDTH - RIGHT - 14, True)
    y = Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP, chart.y_is_log)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(chart.title)}</title>",
        f"<style>{SHAPES} {style(LIGHT)} @media (prefers-color-scheme: dark) {{ {style(DARK)} }}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        text(LEFT, 32, chart.title, "ink title"),
        *draw_axes(chart, x, y, x_ticks, y_ticks),
    ]
    for line in chart.lines:
        out += draw_line(line, x, y)
    places = spread_out([y(line.points[-1].middle) for line in chart.lines])
    for line, place in zip(chart.lines, places):
        out.append(text(WIDTH - RIGHT + 6, place + 4, line.name, f"name {line.colour}"))
    return "\n".join([*out, "</svg>"]) + "\n"
