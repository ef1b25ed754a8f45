#!/usr/bin/env python3
"""Plots of a machine's CSV, as SVG.

    bench/plot.py [CSV] [--out bench/plots] [--only PLOT]

A point is the median of the runs, its whisker their range, at the largest number of threads measured.
"""

import argparse
import sys
from pathlib import Path

import results
from chart import Chart, Line, Point, draw
from measuring import default_csv
from results import distinct, section_of, select, values

TOKENS = "tokens in the context (log scale)"
BRANCHES = "branches (log scale)"
COLOURS = "abcd"


def at_most_threads(rows):
    return select(rows, threads=max(row.threads for row in rows))


def models_of(rows):
    return list(dict.fromkeys(row.model for row in rows))


def points(rows, xs, field, figure, program="ramet", scale=1.0, **fields):
    found = [Point(x, [v * scale for v in values(rows, figure, program, **{field: x}, **fields)]) for x in xs]
    return [p for p in found if p.values]


def short_name(model):
    return model.split("-")[0]


def against(rows, figure, title):
    """One colour a program, one kind of line a model."""
    rows = at_most_threads(section_of(rows, "speed"))
    long = [m for m in models_of(rows) if len(distinct(select(rows, model=m), "tokens")) > 1]
    if not long:
        sys.exit("section 'speed' has no model at several lengths; measure them with --prompts 512,2048,8192")
    lines = []
    for i, model in enumerate(long[:2]):
        of_model = select(rows, model=model)
        for colour, program in zip(COLOURS, ("ramet", "llama.cpp")):
            found = points(of_model, distinct(of_model, "tokens"), "tokens", figure, program)
            lines.append(Line(f"{program}, {short_name(model)}", colour, i == 1, found))
    return Chart(f"{title}, {rows[0].threads} threads", TOKENS, "tokens per second (log scale)", lines, True)


def prefill(rows):
    return against(rows, "prefill.tokens_per_second", "Prefill of a whole prompt")


def decode(rows):
    return against(rows, "decode.tokens_per_second", "Decode behind a prompt")


def fork(rows):
    rows = at_most_threads(section_of(rows, "state"))
    n = int(select(rows, figure="fork.count")[0].value)
    lines = []
    for model, colour in zip(models_of(rows), COLOURS):
        of_model = select(rows, model=model)
        found = points(of_model, distinct(of_model, "tokens"), "tokens", "fork.nanoseconds", scale=1e-3)
        lines.append(Line(short_name(model), colour, False, found))
    return Chart(f"{n} forks against length, {rows[0].threads} threads", TOKENS, f"microseconds for {n}", lines)


def first_model(rows):
    rows = at_most_threads(section_of(rows, "state"))
    return select(rows, model=rows[0].model)


def batch_sizes(rows):
    return [n for n in distinct(rows, "branches") if n]


def memory(rows):
    """What the prompt's pages and the branches' own come to, against a copy of everything for each branch."""
    rows = first_model(rows)
    lines = []
    for tokens in distinct(rows, "tokens"):
        group = select(rows, tokens=tokens)
        page, prompt = (values(group, figure)[0] / 1e6 for figure in ("page_bytes", "memory.kv_bytes"))
        own, copies = (
            points(group, batch_sizes(group), "branches", f"branches.pages_{name}", scale=page)
            for name in ("allocated", "a_copy_would_need")
        )
        shared = [Point(p.x, [prompt + value for value in p.values]) for p in own]
        lines.append(Line(f"copies, {tokens:,} tokens", "b", True, copies))
        lines.append(Line(f"branches, {tokens:,} tokens", "a", False, shared))
    return Chart(f"Memory of branches, {short_name(rows[0].model)}", BRANCHES, "MB of pages (log scale)", lines, True)


def restore(rows):
    rows = first_model(rows)
    lines = []
    for name, colour in (("prefill", "b"), ("snapshot", "c"), ("restore", "a")):
        found = points(rows, distinct(rows, "tokens"), "tokens", f"{name}.nanoseconds", scale=1e-6)
        lines.append(Line(name, colour, False, found))
    title = f"Restore against prefill, {short_name(rows[0].model)}, {rows[0].threads} threads"
    return Chart(title, TOKENS, "milliseconds (log scale)", lines, True)


def batch(rows):
    rows = first_model(rows)
    lines = []
    for tokens, colour in zip(distinct(rows, "tokens"), COLOURS):
        found = points(select(rows, tokens=tokens), batch_sizes(rows), "branches", "branches.tokens_per_second")
        lines.append(Line(f"behind {tokens:,} tokens", colour, False, found))
    title = f"Decode against batch, {short_name(rows[0].model)}, {rows[0].threads} threads"
    return Chart(title, BRANCHES, "tokens per second of all branches", lines)


PLOTS = {"prefill": prefill, "decode": decode, "fork": fork, "memory": memory, "restore": restore, "batch": batch}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="?", default=default_csv(), help="default: bench/<machine>.csv")
    plots = Path(__file__).parent / "plots"
    parser.add_argument("--out", type=Path, default=plots, metavar="FOLDER", help="default: bench/plots")
    parser.add_argument("--only", choices=PLOTS, action="append", help="this plot; may be repeated (default: all)")
    options = parser.parse_args()
    rows = results.read(options.csv)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only or PLOTS:
        (options.out / f"{name}.svg").write_text(draw(PLOTS[name](rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
