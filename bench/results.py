"""The CSV of measurements, one per machine: what bench scripts write, and what tables and plots are made from.

A row is one value of one run. A group is everything of one (section, model, threads, tokens); measuring it again
replaces it and leaves the rest, so that a machine's file can grow piece by piece. Each group carries the conditions it
was measured under.
Owns the file's form. Refuses to know what the figures mean.
"""

import csv
import statistics
import sys
from typing import NamedTuple


class Row(NamedTuple):
    section: str
    model: str
    threads: int
    tokens: int  # length of the prompt
    branches: int  # contexts that decode at once; 0: no matter
    program: str  # "ramet", "llama.cpp", "machine"
    figure: str
    run: int
    value: object  # a number; text for conditions


def group_of(row):
    return row[:4]


def number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def read(path):
    if not path.exists():
        sys.exit(f"{path}: no such file; bench/against_llamacpp.py and bench/frontiers.py make it")
    with open(path, newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        head = next(lines, None)
        if head != list(Row._fields):
            sys.exit(f"{path}: not a file of measurements; its head should be {','.join(Row._fields)}")
        return [
            Row(section, model, int(threads), int(tokens), int(branches), program, figure, int(run), number(value))
            for section, model, threads, tokens, branches, program, figure, run, value in lines
        ]


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        for row in sorted(rows, key=group_of):
            value = f"{row.value:.6g}" if isinstance(row.value, float) else row.value
            writer.writerow([*row[:-1], value])


def replace(old, new):
    measured = {group_of(row) for row in new}
    return [row for row in old if group_of(row) not in measured] + new


def add_to(path, new):
    write(path, replace(read(path) if path.exists() else [], new))


def select(rows, **fields):
    return [row for row in rows if all(getattr(row, name) == value for name, value in fields.items())]


def section_of(rows, section):
    """The rows of a section; an error that says so when there are none."""
    found = select(rows, section=section)
    if not found:
        sys.exit(f"no measurements of section '{section}' in this file")
    return found


def values(rows, figure, program="ramet", **fields):
    """What the runs measured, in the order of the runs."""
    found = select(rows, figure=figure, program=program, **fields)
    return [row.value for row in sorted(found, key=lambda row: row.run)]


def median(numbers):
    return statistics.median(numbers) if numbers else None


def distinct(rows, field):
    return sorted({getattr(row, field) for row in rows})


def groups(rows):
    """(model, threads, tokens, rows) of every group, in the order of the file's models."""
    models = list(dict.fromkeys(row.model for row in rows))
    for model in models:
        of_model = select(rows, model=model)
        for threads in distinct(of_model, "threads"):
            for tokens in distinct(select(of_model, threads=threads), "tokens"):
                yield model, threads, tokens, select(of_model, threads=threads, tokens=tokens)


def ratios(rows, figure):
    """What ramet did over what llama.cpp did in the same pair."""
    return [a / b for a, b in zip(values(rows, figure), values(rows, figure, "llama.cpp"))]
