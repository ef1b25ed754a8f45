#!/usr/bin/env python3
"""Shows that how logits are computed changes no bit of them: check_exact.py --ramet PATH MODEL.gguf...

Every way of computing must give the same file, byte for byte, as the plain run: prefill in chunks, threads, instruction
sets, page sizes, a snapshot and restore on the way. Tokens: the longest sequence of the model's goldens when it is one
of them, else --text FILE by the model's own tokenizer. --rows A:B keeps the logits of these positions alone.

A build that reorders a sum (RAMET_TEETH) must fail here: that is this check's main negative control. In itself it
shows that other tokens, and one flipped bit, are noticed.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from common import DATA, EXIT_SKIP, Report, as_text, read_json, run, tokenize

CHUNKS = (1, 7, 64, 65, 512)
THREADS = (1, 2, 3)
KERNELS = ("c", "avx2", "avx512", "neon")  # those that this CPU has
PAGES = (16, 64, 256)
RESTORES = (1, 63, 64, 65)
PRECISIONS = ("f16", "vq8", "q8")


def available_kernels(ramet, model):
    """The instruction sets this CPU has: the command refuses the others by name."""
    probe = [str(ramet), "logits", "-m", str(model), "--tokens", "-", "-o", "-", "--rows", "last"]
    return [name for name in KERNELS
            if subprocess.run([*probe, "--kernels", name], input=b"1", capture_output=True).returncode == 0]


def ways(n_tokens, kernels):
    """(name, options) of every way of computing that must change nothing. The default is whole, the best kernels."""
    for chunk in (*CHUNKS, n_tokens):
        yield f"chunk {chunk}", ["--chunk", chunk]
    for threads in THREADS:
        yield f"threads {threads}", ["--threads", threads]
    for name in kernels:
        yield f"kernels {name}", ["--kernels", name]
    for page in PAGES:
        yield f"pages of {page}", ["--page-tokens", page]
    for position in (*(r for r in RESTORES if r < n_tokens - 1), n_tokens - 1, n_tokens):
        yield f"restore at {position}", ["--restore-at", position]
    yield "all at once", ["--chunk", 7, "--threads", 3, "--page-tokens", 16, "--restore-at", min(65, n_tokens), "--kernels", "c"]


def few_ways(n_tokens):
    """The same for the other precisions: what touches the stored keys and values."""
    yield "chunk 7", ["--chunk", 7]
    yield "kernels c", ["--kernels", "c"]
    yield "pages of 16", ["--page-tokens", 16]
    yield "restore at 65", ["--restore-at", min(65, n_tokens)]


def first_difference(a, b):
    """None for equal bytes, else where they part."""
    if a == b:
        return None
    if len(a) != len(b):
        return f"{len(a)} bytes against {len(b)}"
    position = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y)
    return f"differs from byte {position} of {len(a)}"


class Case:
    def __init__(self, ramet, model, tokens, rows, base):
        self.ramet, self.model, self.tokens, self.rows, self.base = ramet, model, tokens, rows, base
        self.directory = tempfile.TemporaryDirectory()

    def logits(self, options, tokens=None):
        out = Path(self.directory.name) / "out.npy"
        run([self.ramet, "logits", "-m", self.model, "--tokens", "-", "-o", out, "--rows", self.rows, *self.base, *options],
            as_text(tokens or self.tokens))
        return out.read_bytes()


def check(ramet, model, tokens, rows, precision, kernels, report):
    name = f"{model.stem} {precision}"
    case = Case(ramet, model, tokens, rows, ["--kv", precision])
    plain = case.logits([])
    several = ways(len(tokens), kernels) if precision == "f32" else few_ways(len(tokens))
    done, wrong = [], []
    for what, options in several:
        difference = first_difference(plain, case.logits(options))
        done.append(what)
        if difference:
            wrong.append(f"{what} ({difference})")
    detail = f"{len(tokens)} tokens, {len(plain)} bytes, {len(done)} ways"
    report.line(not wrong, name, detail + (": " + "; ".join(wrong) if wrong else " equal"))

    if precision == "f32":
        # The last position with logits looks back at all the others: any of them being another token must show.
        other = tokens[:-2] + [tokens[-2] + 1 if tokens[-2] == 0 else tokens[-2] - 1] + tokens[-1:]
        report.control(first_difference(plain, case.logits([], other)) is not None, f"{name} another token")
        flipped = plain[:-1] + bytes([plain[-1] ^ 1])
        report.control(first_difference(plain, flipped) is not None, f"{name} one bit")


def golden_tokens(model):
    reference = model.parent / "reference.json"
    if model.parent.parent == DATA / "tiny" and reference.exists():
        return max(read_json(reference)["sequences"], key=len)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ramet", required=True)
    parser.add_argument("--text", type=Path, default=DATA / "texts" / "prose.txt")
    parser.add_argument("--tokens", type=int, default=300, help="length of the text in tokens")
    parser.add_argument("--rows", default="all")
    parser.add_argument("--precisions", default="f32", help="comma-separated; 'every' is all four")
    parser.add_argument("models", nargs="+", type=Path)
    options = parser.parse_args()
    precisions = ("f32", *PRECISIONS) if options.precisions == "every" else options.precisions.split(",")

    present = [model.absolute() for model in options.models if model.exists()]
    if not present:
        print(f"skipped: no model at {', '.join(map(str, options.models))}; `make models` fetches them")
        sys.exit(EXIT_SKIP)
    report = Report()
    kernels = available_kernels(options.ramet, present[0])
    print(f"kernels of this CPU: {' '.join(kernels)}")
    for model in present:
        tokens = golden_tokens(model)
        if tokens is None:
            tokens = tokenize(options.ramet, model, options.text.read_text(encoding="utf-8"))[: options.tokens]
        for precision in precisions:
            check(options.ramet, model, tokens, options.rows, precision, kernels, report)
    report.finish()


if __name__ == "__main__":
    main()
