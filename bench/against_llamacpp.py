#!/usr/bin/env python3
"""Alternates `ramet bench` with llama.cpp's llama-bench on the same files and threads.

    bench/against_llamacpp.py --ramet build/release/ramet --llama-bench PATH [--prompts 512,2048,8192] MODEL.gguf...

One pair is one run of each program right after one another, with the order swapped from pair to pair: figures of a
shared machine wander, and only what was taken side by side may be compared. Measured are prefill of the whole prompt
and decode behind it. Every run goes into the machine's CSV, group by group; bench/tables.py and bench/plot.py show it.
Both programs run as they come: ramet with its f32 cache, llama.cpp with its f16 cache.
"""

import subprocess
from pathlib import Path

import measuring

WARM_BELOW = 2048  # tokens; a longer prompt needs no run before it, which llama-bench makes as long as the test


def run_ramet(options, group, run):
    out = group.ramet_bench(options, "--branches", "", "--forks", 1)
    rows = {row["name"]: row for row in out["rows"]}
    for name in ("prefill", "decode"):
        group.add("ramet", f"{name}.tokens_per_second", run, rows[name]["tokens_per_second"])
    group.add("ramet", "decode.share_of_limit", run, rows["decode"]["share_of_limit"])
    group.add("ramet", "read_bytes_per_second", run, out["read_bytes_per_second"])


def llama_build(program):
    """Commit and compiler, as llama-bench says them."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True)
    lines = [line for line in (said.stdout + said.stderr).splitlines() if line.startswith(("version", "built"))]
    return ", ".join(["llama.cpp", *lines])


def run_llama(options, group, run):
    common = [options.llama_bench, "-m", group.model, "-t", group.threads, "-r", 1, "-o", "json"]
    warm = [] if group.tokens < WARM_BELOW else ["--no-warmup"]
    prefill = measuring.run_json([*common, *warm, "-p", group.tokens, "-n", 0])[0]
    decode = measuring.run_json([*common, "-p", 0, "-n", options.gen, "-d", group.tokens])[0]
    group.say("build", llama_build(options.llama_bench), "llama.cpp")
    group.add("llama.cpp", "prefill.tokens_per_second", run, prefill["avg_ts"])
    group.add("llama.cpp", "decode.tokens_per_second", run, decode["avg_ts"])


def run_pair(options, group, pair):
    for run in (run_ramet, run_llama) if pair % 2 else (run_llama, run_ramet):
        run(options, group, pair)


def main():
    parser = measuring.arguments(__doc__, prompts="512", gen=64, runs="pairs")
    parser.add_argument("--llama-bench", type=Path, required=True)
    measuring.measure_all(parser.parse_args(), "speed", run_pair)


if __name__ == "__main__":
    main()
