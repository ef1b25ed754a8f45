#!/usr/bin/env python3
"""Compares ramet with the goldens of one tiny model: check_tiny.py --ramet PATH NAME...

  - an f32 file: every stored logit within 1e-3, greedy continuations equal
  - a quantised file: mean KL divergence at most twice llama.cpp's own (llama_cpp_tiny.json)
  - tokenizer and chat goldens: equal ids

Greedy continuations are checked by teacher forcing: one run over prompt and golden continuation, where the likeliest
token after each step must be the golden's next. Each kind of comparison is also shown to fail on a planted fault.
"""

import argparse
from array import array
from pathlib import Path

from common import DATA, Report, argmax, divergence, largest_difference, logits_of, read_json, read_npy, tokenize

LOGIT_TOLERANCE = 1e-3
KL_FACTOR = 2.0
FLOAT_FORMATS = {"f32"}
# A literal U+2581 beside spaces: this golden comes from a program that looks for runs of spaces before it writes spaces as
# U+2581. The SentencePiece library, behind the goldens of the real Gemma, does it the other way round, and so do we.
SET_ASIDE = {("gemma", "\u2581under\u2581score \u2581 block")}


def worst_row(golden, logits, rows):
    """(largest logit difference, where) over the stored rows."""
    return max((largest_difference(golden[i], logits[sequence][position]), (sequence, position))
               for i, (sequence, position) in enumerate(rows))


def divergences(golden, logits, rows):
    values = [divergence(golden[i], logits[sequence][position]) for i, (sequence, position) in enumerate(rows)]
    return sum(values) / len(values), max(values)


def greedy_steps(ramet, model, prompt, tokens):
    """How many golden tokens are the likeliest one at their step, before the first that is not."""
    rows = logits_of(ramet, model, prompt + tokens)
    for step, token in enumerate(tokens):
        if argmax(rows[len(prompt) - 1 + step]) != token:
            return step
    return len(tokens)


def rotated(golden):
    """The goldens with every row moved by one place: a gross fault."""
    shape = (golden.count, golden.width)
    return type(golden)(shape, golden.data[golden.width :] + golden.data[: golden.width])


def nudged(golden):
    """The goldens with one logit of the last row off by twice the tolerance: the finest fault that must show."""
    data = array("f", golden.data)
    data[-1] += 2 * LOGIT_TOLERANCE
    return type(golden)((golden.count, golden.width), data)


def check_file(ramet, directory, reference, entry, table, report):
    name = entry["gguf"]
    model = directory / name
    golden = read_npy(directory / entry["logits"])
    used = sorted({sequence for sequence, _ in entry["rows"]})
    logits = {sequence: logits_of(ramet, model, reference["sequences"][sequence]) for sequence in used}
    largest, where = worst_row(golden, logits, entry["rows"])
    mean, worst = divergences(golden, logits, entry["rows"])
    figures = f"largest {largest:.1e} at {where}, KL {mean:.1e} / {worst:.1e}"

    if entry["format"] in FLOAT_FORMATS:
        report.line(largest <= LOGIT_TOLERANCE, f"{name} logits", f"{figures}, {golden.count} rows")
        report.control(worst_row(nudged(golden), logits, entry["rows"])[0] > LOGIT_TOLERANCE, f"{name} one logit off by 2e-3")
    else:
        theirs = table[name]["kl_mean"]
        report.line(mean <= KL_FACTOR * theirs, f"{name} divergence", f"{figures}, llama.cpp {theirs:.1e}, ratio {mean / theirs:.2f}")
        report.control(divergences(rotated(golden), logits, entry["rows"])[0] > KL_FACTOR * theirs, f"{name} rows exchanged")

    for index, run in enumerate(entry.get("greedy", [])):
        prompt, tokens = reference["sequences"][run["sequence"]], run["tokens"]
        steps = greedy_steps(ramet, model, prompt, tokens)
        # In quantised files a step with a small lead may go the other way: those figures are for information.
        binding = entry["format"] in FLOAT_FORMATS
        report.line(steps == len(tokens) or not binding, f"{name} greedy {index}", f"{steps} of {len(tokens)} tokens equal")
        if binding and index == 0:
            wrong = tokens[:-1] + [(tokens[-1] + 1) % golden.width]
            report.control(greedy_steps(ramet, model, prompt, wrong) < len(wrong), f"{name} another last token")


def check_texts(ramet, model, texts, what, report):
    wrong = [row for row in texts if tokenize(ramet, model, row["text"]) != row["ids"]]
    detail = f"{len(texts) - len(wrong)} of {len(texts)} equal"
    report.line(not wrong, what, detail + (f", first: {wrong[0]['text']!r}" if wrong else ""))
    if texts:
        row = max(texts, key=lambda row: len(row["ids"]))
        report.control(tokenize(ramet, model, row["text"] + "x") != row["ids"], f"{what} one character more")


def check_model(ramet, name, report):
    directory = DATA / "tiny" / name
    reference = read_json(directory / "reference.json")
    table = read_json(Path(__file__).with_name("llama_cpp_tiny.json"))
    for entry in reference["files"]:
        check_file(ramet, directory, reference, entry, table, report)

    model = directory / reference["files"][0]["gguf"]
    for kind, tokenizer in read_json(DATA / "tiny" / "tokenizers.json").items():
        if name in tokenizer["used_by"]:
            texts = [row for row in tokenizer["texts"] if (kind, row["text"]) not in SET_ASIDE]
            check_texts(ramet, model, texts, f"{name} tokenizer", report)
    rendered = [row for row in (reference.get("chat") or {}).get("rendered", []) if "ids" in row]
    if rendered:
        check_texts(ramet, model, [{"text": row["rendered"], "ids": row["ids"]} for row in rendered], f"{name} chat", report)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ramet", required=True)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    report = Report()
    for name in options.names:
        check_model(options.ramet, name, report)
    report.finish()


if __name__ == "__main__":
    main()
