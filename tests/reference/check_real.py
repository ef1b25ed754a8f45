#!/usr/bin/env python3
"""Compares ramet with the goldens of a real model: check_real.py --ramet PATH NAME MODEL.gguf [--f32 MODEL-f32.gguf]

NAME is a folder of tests/data/reference/real. Over the text of 1,800 tokens, beside llama.cpp's own figures for the same
file with an f32 cache:
  - divergence over the stored likeliest tokens, all others lumped into one: mean at most 1.05 times llama.cpp's
  - perplexity within 0.5 % of the reference
  - share of positions with the reference's likeliest token: at most half a point below llama.cpp's
Then the prompts, the greedy continuations (teacher-forced; binding only where the reference leads clearly), and the
tokenizer and chat goldens.

With --f32, a file with the same weights dequantised, the divergence over the whole vocabulary is measured too, from
ramet's own run of that file (which must agree with the goldens), against llama.cpp's whole-vocabulary figure.
"""

import argparse
import math
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

from common import DATA, EXIT_SKIP, Report, argmax, as_text, divergence, log_sum_exp, read_json, read_npy, read_npy_header, tokenize

KL_FACTOR = 1.05
PERPLEXITY_SHARE = 0.005
TOP_SHARE_LOSS = 0.005
CLEAR_LEAD = 1.5  # logits; quantised activations may overturn less
EXACT_HEAD_KL = 1e-6  # of the dequantised file; rounding of the stored log-probabilities alone gives about 1e-7


def stream_rows(ramet, model, tokens):
    """Rows of logits one at a time: a whole file of them can be gigabytes."""
    with tempfile.TemporaryFile() as feed:
        feed.write(as_text(tokens))
        feed.seek(0)
        command = [ramet, "logits", "-m", model, "--tokens", "-", "-o", "-", "--rows", "all", "--kv", "f32"]
        with subprocess.Popen([str(a) for a in command], stdin=feed, stdout=subprocess.PIPE) as process:
            shape, code = read_npy_header(process.stdout)
            for _ in range(shape[0]):
                row = array(code)
                row.frombytes(process.stdout.read(4 * shape[1]))
                yield row
        if process.returncode != 0:
            sys.exit(f"FAIL: exit {process.returncode}: {' '.join(map(str, command))}")


def head_divergence(ids, log_p, row, norm):
    """KL over the given tokens and the lump of all others, from the golden log-probabilities to a row of logits."""
    rest_p = max(1e-12, 1.0 - math.fsum(map(math.exp, log_p)))
    rest_q = max(1e-12, 1.0 - math.fsum(math.exp(row[i] - norm) for i in ids))
    total = math.fsum(math.exp(p) * (p - (row[i] - norm)) for i, p in zip(ids, log_p))
    return total + rest_p * (math.log(rest_p) - math.log(rest_q))


class TextFigures:
    """Sums over the positions of the text."""

    def __init__(self):
        self.loss, self.head, self.same, self.rotated = [], [], 0, []

    def add(self, row, next_token, ids, log_p):
        norm = log_sum_exp(row)
        self.loss.append(norm - row[next_token])
        self.head.append(head_divergence(ids, log_p, row, norm))
        self.same += argmax(row) == ids[0]
        # the control: the two likeliest tokens' probabilities exchanged
        self.rotated.append(head_divergence(ids, [log_p[1], log_p[0], *log_p[2:]], row, norm))

    @staticmethod
    def mean(values):
        return math.fsum(values) / len(values)


def text_figures(rows, directory, reference):
    ids = reference["text"]["ids"]
    top_ids, top_log_p = read_npy(directory / "text.top_ids.npy"), read_npy(directory / "text.top_log_probabilities.npy")
    figures = TextFigures()
    for position, row in enumerate(rows):
        if position < len(ids) - 1:
            figures.add(row, ids[position + 1], top_ids[position], top_log_p[position])
    return figures


def check_text(ramet, model, directory, reference, theirs, report):
    figures = text_figures(stream_rows(ramet, model, reference["text"]["ids"]), directory, reference)
    mean, limit = figures.mean(figures.head), KL_FACTOR * theirs["head_kl_mean"]
    report.line(mean <= limit, "text: divergence over the stored tokens",
                f"mean {mean:.3e}, max {max(figures.head):.2e}; llama.cpp {theirs['head_kl_mean']:.3e}, ratio {mean / theirs['head_kl_mean']:.3f}")
    report.control(figures.mean(figures.rotated) > limit, "two likeliest tokens exchanged")
    perplexity, golden = math.exp(figures.mean(figures.loss)), reference["text"]["perplexity"]
    report.line(abs(perplexity / golden - 1) <= PERPLEXITY_SHARE, "text: perplexity",
                f"{perplexity:.3f}; reference {golden:.3f} ({100 * (perplexity / golden - 1):+.2f} %), llama.cpp {theirs['perplexity']:.3f}")
    share = figures.same / len(figures.head)
    report.line(share >= theirs["top1_agreement"] - TOP_SHARE_LOSS, "text: same likeliest token",
                f"{100 * share:.2f} %; llama.cpp {100 * theirs['top1_agreement']:.2f} %")


def check_whole(ramet, model, f32_model, directory, reference, theirs, report):
    """Both files side by side, one row in memory of each."""
    ids = reference["text"]["ids"]
    values, exact = [], TextFigures()
    top_ids, top_log_p = read_npy(directory / "text.top_ids.npy"), read_npy(directory / "text.top_log_probabilities.npy")
    pairs = zip(stream_rows(ramet, f32_model, ids), stream_rows(ramet, model, ids))
    for position, (golden, row) in enumerate(pairs):
        if position < len(ids) - 1:
            exact.add(golden, ids[position + 1], top_ids[position], top_log_p[position])
            values.append(divergence(golden, row))
    head = exact.mean(exact.head)
    report.line(abs(head) <= EXACT_HEAD_KL, "dequantised file against the goldens",
                f"divergence {head:.1e}, perplexity {math.exp(exact.mean(exact.loss)):.4f} of {reference['text']['perplexity']:.4f}")
    mean = exact.mean(values)
    report.line(mean <= KL_FACTOR * theirs["kl_mean"], "text: divergence over the whole vocabulary",
                f"mean {mean:.3e}, max {max(values):.2e}; llama.cpp {theirs['kl_mean']:.3e}, ratio {mean / theirs['kl_mean']:.3f}")


def check_prompts(ramet, model, reference, theirs, report):
    worst, largest = 0.0, 0.0
    for prompt in reference["prompts"]:
        wanted = {row["position"]: row["top"] for row in prompt["rows"]}
        for position, row in enumerate(stream_rows(ramet, model, prompt["ids"])):
            if position in wanted:
                ids, logits, log_p = zip(*wanted[position])
                worst = max(worst, head_divergence(ids, log_p, row, log_sum_exp(row)))
                largest = max(largest, max(abs(row[i] - x) for i, x in zip(ids, logits)))
    llama = max(prompt["kl_max"] for prompt in theirs["prompts"])
    print(f"note  {'prompts: worst divergence, largest difference':<44} {worst:.2e}, {largest:.2f}; llama.cpp {llama:.2e}")


def check_greedy(ramet, model, reference, report):
    equal = 0
    overturned = []
    for run in reference["greedy"]:
        sequence = run["prompt_ids"] + run["tokens"]
        start = len(run["prompt_ids"]) - 1
        choices = [argmax(row) for row in stream_rows(ramet, model, sequence)][start : start + len(run["tokens"])]
        wrong = [step for step, (a, b) in enumerate(zip(choices, run["tokens"])) if a != b]
        equal += not wrong
        overturned += [run["leads"][step] for step in wrong]
    report.line(max(overturned, default=0.0) < CLEAR_LEAD, "greedy: no clear choice overturned",
                f"{equal} of {len(reference['greedy'])} runs equal; leads overturned: {sorted(overturned) or 'none'}")


def check_texts(ramet, model, directory, report):
    pairs = [("tokenizer", [(r["text"], r["ids"]) for r in read_json(directory / "tokenizer.json")])]
    if (directory / "chat.json").exists():
        pairs.append(("chat", [(r["rendered"], r["ids"]) for r in read_json(directory / "chat.json") if "ids" in r]))
    for what, texts in pairs:
        wrong = [text for text, ids in texts if tokenize(ramet, model, text) != ids]
        report.line(not wrong, what, f"{len(texts) - len(wrong)} of {len(texts)} equal" + (f", first: {wrong[0]!r}" if wrong else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ramet", required=True)
    parser.add_argument("--f32", type=Path)
    parser.add_argument("name", choices=sorted(path.name for path in (DATA / "real").iterdir()))
    parser.add_argument("model", type=Path)
    options = parser.parse_args()
    if not options.model.exists():
        print(f"skipped: no model at {options.model}; `make models` fetches it")
        sys.exit(EXIT_SKIP)
    directory = DATA / "real" / options.name
    reference = read_json(directory / "reference.json")
    theirs = read_json(directory / "llama_cpp.json")["f32_kv_no_flash"]
    report = Report()
    check_text(options.ramet, options.model, directory, reference, theirs["text"], report)
    if options.f32:
        check_whole(options.ramet, options.model, options.f32, directory, reference, theirs["text"], report)
    check_prompts(options.ramet, options.model, reference, theirs, report)
    check_greedy(options.ramet, options.model, reference, report)
    check_texts(options.ramet, options.model, directory, report)
    report.finish()


if __name__ == "__main__":
    main()
