#!/usr/bin/env python3
"""Tables of a machine's CSV, as Markdown.

    bench/tables.py [CSV] [--into bench/RESULTS.md]

Without --into all tables go to standard output. With it, what stands between the lines `<!-- table: NAME -->` and
`<!-- end -->` of that file is replaced; `<!-- table: NAME of OTHER.csv -->` is made from a file beside the CSV. A cell is the median of the runs, with the range in brackets; a ratio is the
median of the pairs' ratios.
"""

import argparse
import re
import sys
from pathlib import Path

import results
from bars import all_bars, fork_nanoseconds, over_file, restore_gain
from measuring import default_csv
from results import distinct, groups, median, ratios, section_of, select, values


def short(value):
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def spread(numbers, scale=1.0):
    if not numbers:
        return "-"
    scaled = [n * scale for n in numbers]
    if min(scaled) == max(scaled):
        return short(scaled[0])
    return f"{short(median(scaled))} ({short(min(scaled))}-{short(max(scaled))})"


def percent(numbers):
    return f"{100 * median(numbers):.0f} %" if numbers else "-"


def table(head, lines):
    """`head` is the names between bars. The first column is text, the others are numbers."""
    names = head.split("|")
    rule = ["---"] + ["---:"] * (len(names) - 1)
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in [names, rule, *lines])


def conditions(rows):
    def all_of(figure, program="machine"):
        return ", ".join(sorted({str(value) for value in values(rows, figure, program)}))

    before, after = values(rows, "load before", "machine"), values(rows, "load after", "machine")
    loads = f"{min(before):.1f} to {max(before):.1f}; after it: {min(after):.1f} to {max(after):.1f}"
    builds = filter(None, [all_of("build", "ramet"), all_of("build", "llama.cpp")])
    return "\n".join([
        f"- Processor: {all_of('processor')}; cores: {all_of('cores')}.",
        f"- Load average of the minute before a group of runs: {loads} (the programs themselves count).",
        f"- Builds: {'; '.join(builds)}.",
        f"- Dates: {all_of('date')}.",
    ])


def bars(rows):
    """Each bar beside the worst group that was measured for it."""
    lines = []
    for bar in all_bars(rows):
        cells = [bar.what, f"{'>=' if bar.is_least else '<='} {bar.bound:g} {bar.unit}".strip()]
        if bar.found:
            value, where = bar.worst()
            lines.append([*cells, f"{short(value)} {bar.unit}".strip(), where, "yes" if bar.passes(value) else "no"])
        else:
            lines.append([*cells, "not measured", "", ""])
    return table("what|bar|worst|where|met", lines)


def others(group):
    """The most of the machine that other programs took in one run: threads that wait by spinning suffer from it."""
    taken = values(group, "others", "machine")
    return f"{max(taken):.2f}" if taken else "-"


def speed(rows):
    head = "model|threads|prompt|prefill: ramet|llama.cpp|ratio|decode: ramet|llama.cpp|ratio"
    lines = []
    for model, threads, tokens, group in groups(section_of(rows, "speed")):
        cells = [model, threads, tokens]
        for figure in ("prefill.tokens_per_second", "decode.tokens_per_second"):
            cells += map(spread, [values(group, figure), values(group, figure, "llama.cpp"), ratios(group, figure)])
        lines.append([*cells, percent(values(group, "decode.share_of_limit")), others(group)])
    return table(f"{head}|of read bandwidth|others, cores", lines)


SAVES = ("snapshot", "snapshot_synced", "restore")


def state(rows):
    head = "model|threads|prompt|one fork, ns|snapshot, ms|of copy|synced, ms|restore, ms|of copy"
    lines = []
    for model, threads, tokens, group in groups(section_of(rows, "state")):
        ms = {row: spread(values(group, f"{row}.nanoseconds"), 1e-6) for row in SAVES}
        share = {row: percent(values(group, f"{row}.share_of_limit")) for row in SAVES}
        saved = [ms["snapshot"], share["snapshot"], ms["snapshot_synced"], ms["restore"], share["restore"]]
        found = [spread(restore_gain(group)), spread(values(group, "match.nanoseconds"), 1e-3)]
        lines.append([model, threads, tokens, spread(fork_nanoseconds(group)), *saved, *found, others(group)])
    return table(f"{head}|prefill / restore|match, us|others, cores", lines)


def batch_sizes(rows):
    return [n for n in distinct(rows, "branches") if n]


def batches(rows):
    rows = section_of(rows, "state")
    lines = []
    for model, threads, tokens, group in groups(rows):
        cells = [model, threads, tokens]
        one = median(values(group, "decode.tokens_per_second"))
        for n in batch_sizes(rows):
            rate = values(group, "branches.tokens_per_second", branches=n)
            cells.append(f"{spread(rate)}, {median(rate) / one:.1f} x" if rate else "-")
        lines.append(cells)
    return table("|".join(["model|threads|prompt", *[f"{n} at once" for n in batch_sizes(rows)]]), lines)


def memory(rows):
    """Pages do not depend on threads: the least number of threads that was measured stands for all."""
    rows = section_of(rows, "state")
    lines = []
    for model, threads, tokens, group in groups(rows):
        if threads != min(row.threads for row in select(rows, model=model, tokens=tokens)):
            continue
        page, prompt = (median(values(group, figure)) / 1e6 for figure in ("page_bytes", "memory.kv_bytes"))
        cells = [model, tokens, short(prompt)]
        for n in batch_sizes(rows):
            own = values(group, "branches.pages_allocated", branches=n)
            copies = values(group, "branches.pages_a_copy_would_need", branches=n)
            cells.append(f"{short(prompt + median(own) * page)} / {short(median(copies) * page)}" if own else "-")
        lines.append(cells)
    names = [f"{n}: branches / copies, MB" for n in batch_sizes(rows)]
    return table("|".join(["model|prompt|its pages, MB", *names]), lines)


def process(rows):
    sizes = ("file", "weights", "scratch", "kv", "resident", "peak")
    head = "model|threads|prompt|ready in, ms|file, MB|weights, MB|scratch, MB|pages, MB|resident, MB|peak, MB"
    lines = []
    for model, threads, tokens, group in groups(section_of(rows, "state")):
        megabytes = [short(median(values(group, f"memory.{name}_bytes")) / 1e6) for name in sizes]
        ready = spread(values(group, "load.nanoseconds"), 1e-6)
        lines.append([model, threads, tokens, ready, *megabytes, f"{median(over_file(group)):.2f}"])
    return table(f"{head}|(resident - pages) / file", lines)


TABLES = {make.__name__: make for make in (conditions, bars, speed, state, batches, memory, process)}


def fill(document, rows, folder):
    """The document with its marked tables made anew; those `of` another CSV from the one of that name in `folder`."""

    def block(match):
        mark, name, other = match.groups()
        if name not in TABLES:
            sys.exit(f"no table is called '{name}'; there are {', '.join(TABLES)}")
        made = TABLES[name](results.read(folder / other) if other else rows)
        return f"{mark}\n{made}\n<!-- end -->"

    return re.sub(r"(<!-- table: (\w+)(?: of (\S+))? -->)\n.*?<!-- end -->", block, document, flags=re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="?", default=default_csv(), help="default: bench/<machine>.csv")
    parser.add_argument("--into", type=Path, metavar="FILE.md")
    options = parser.parse_args()
    rows = results.read(options.csv)
    if options.into:
        document = options.into.read_text(encoding="utf-8")
        options.into.write_text(fill(document, rows, options.csv.parent), encoding="utf-8")
    else:
        print("\n\n".join(make(rows) for make in TABLES.values()))


if __name__ == "__main__":
    main()
