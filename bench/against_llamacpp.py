#!/usr/bin/env python3
"""Alternates `ramet bench` with llama.cpp's llama-bench on the same files and threads, and makes tables.

    bench/against_llamacpp.py --ramet build/release/ramet --llama-bench PATH MODEL.gguf... [--pairs 5] [--threads 1,2]

One pair is one run of each, right after one another, with the order swapped from pair to pair: figures of a shared
machine wander, and only what was taken side by side may be compared. Every run goes into a CSV (one per machine); the
tables for RESULTS.md, medians with ranges, go to standard output. Both programs run as they come: ramet with its f32
cache, llama.cpp with its f16 cache.
"""

import argparse
import csv
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

PROMPT_TOKENS = 512
DECODE_TOKENS = 64
FORKS = 32
STATE_FIGURES = ("fork us", "snapshot ms", "restore ms", "snapshot MB")


def run(command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"exit {result.returncode}: {' '.join(map(str, command))}\n{result.stderr[-2000:]}")
    return json.loads(result.stdout)


def run_ramet(options, model, threads):
    out = run([options.ramet, "bench", "-m", model, "--threads", threads, "--prompt", PROMPT_TOKENS, "--gen", DECODE_TOKENS,
               "--forks", FORKS, "--reps", 1, "--json"])
    rows = {row["name"]: row for row in out["rows"]}
    figures = {name: rows[name]["tokens_per_second"] for name in ("prefill", "decode")}
    figures["fork us"] = rows["fork"]["nanoseconds"] / 1e3
    figures["snapshot ms"] = rows["snapshot"]["nanoseconds"] / 1e6
    figures["restore ms"] = rows["restore"]["nanoseconds"] / 1e6
    figures["snapshot MB"] = rows["snapshot"]["bytes"] / 1e6
    return figures


def run_llama(options, model, threads):
    # -d: decode starts behind a prompt of the same length, as in ramet bench
    common = [options.llama_bench, "-m", model, "-t", threads, "-r", 1, "-o", "json"]
    prefill = run([*common, "-p", PROMPT_TOKENS, "-n", 0])
    decode = run([*common, "-p", 0, "-n", DECODE_TOKENS, "-d", PROMPT_TOKENS])
    return {"prefill": prefill[0]["avg_ts"], "decode": decode[0]["avg_ts"]}


def cpu_name():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def measure(options, model, threads):
    """Figures of every pair: {program: {name: [values]}}."""
    runners = {"ramet": run_ramet, "llama.cpp": run_llama}
    figures = {program: {} for program in runners}
    for pair in range(options.pairs):
        order = list(runners) if pair % 2 == 0 else list(reversed(runners))
        for program in order:
            for name, value in runners[program](options, model, threads).items():
                figures[program].setdefault(name, []).append(value)
        print(f"{model.stem}, {threads} threads, pair {pair + 1} of {options.pairs}", file=sys.stderr, flush=True)
    return figures


def spread(values):
    digits = 0 if min(values) >= 20 else 1 if min(values) >= 1 else 3
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def print_speed(results):
    print(f"| model | threads | prefill {PROMPT_TOKENS}: ramet | llama.cpp | ratio | decode {DECODE_TOKENS}: ramet | llama.cpp | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for model, threads, figures in results:
        cells = []
        for name in ("prefill", "decode"):
            ours, theirs = figures["ramet"][name], figures["llama.cpp"][name]
            ratio = statistics.median(a / b for a, b in zip(ours, theirs))
            cells += [spread(ours), spread(theirs), f"{ratio:.2f}"]
        print(f"| {model.stem} | {threads} | " + " | ".join(cells) + " |")


def print_state(results):
    print(f"\n| model | threads | {FORKS} forks of {PROMPT_TOKENS} tokens, us | snapshot, ms | restore, ms | snapshot, MB |")
    print("|---|---|---|---|---|---|")
    for model, threads, figures in results:
        print(f"| {model.stem} | {threads} | " + " | ".join(spread(figures["ramet"][name]) for name in STATE_FIGURES) + " |")


def write_csv(path, results):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["cpu", "model", "threads", "program", "figure", "pair", "value"])
        for model, threads, figures in results:
            for program, named in figures.items():
                for name, values in named.items():
                    for pair, value in enumerate(values):
                        writer.writerow([cpu_name(), model.stem, threads, program, name, pair + 1, f"{value:.6g}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ramet", type=Path, required=True)
    parser.add_argument("--llama-bench", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--csv", type=Path, help="default: bench/<machine>.csv")
    parser.add_argument("models", type=Path, nargs="+")
    options = parser.parse_args()

    results = [(model, threads, measure(options, model, threads))
               for model in options.models for threads in map(int, options.threads.split(","))]
    name = "".join(c if c.isalnum() else "-" for c in cpu_name().lower()).strip("-")
    write_csv(options.csv or Path(__file__).parent / f"{name}.csv", results)
    print(f"{cpu_name()}; medians of {options.pairs} alternating pairs (range); tokens per second; ratio: median of the pairs'\n")
    print_speed(results)
    print_state(results)


if __name__ == "__main__":
    main()
