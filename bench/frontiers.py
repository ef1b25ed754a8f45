#!/usr/bin/env python3
"""What an operation on a context costs as the context grows: `ramet bench` at several lengths, with several batches.

    bench/frontiers.py --ramet build/release/ramet [--prompts 512,2048,8192] [--branches 1,2,4,8,16] MODEL.gguf...

Fork, snapshot, restore and match beside prefill; decoding of 1 to 16 branches as one batch, and the pages that they
take; load time and memory. Every run goes into the machine's CSV; bench/tables.py and bench/plot.py show it.
"""

import measuring

FIGURES = {
    "load": ("nanoseconds", "bytes"),
    "prefill": ("tokens_per_second", "nanoseconds"),
    "decode": ("tokens_per_second", "share_of_limit"),
    "branches": ("tokens_per_second", "share_of_limit", "pages_allocated", "pages_a_copy_would_need"),
    "fork": ("count", "nanoseconds", "pages_allocated"),
    "snapshot": ("nanoseconds", "bytes", "share_of_limit"),
    "snapshot_synced": ("nanoseconds",),
    "restore": ("nanoseconds", "share_of_limit"),
    "match": ("nanoseconds",),
}
ABOUT_RUN = ("read_bytes_per_second", "copy_bytes_per_second", "page_bytes")


def run_ramet(options, group, run):
    out = group.ramet_bench(options, "--branches", options.branches, "--forks", options.forks, reps=3)
    for row in out["rows"]:
        branches = row["count"] if row["name"] == "branches" else 0
        for key in FIGURES[row["name"]]:
            group.add("ramet", f"{row['name']}.{key}", run, row[key], branches)
    for key in ABOUT_RUN:
        group.add("ramet", key, run, out[key])
    for key, value in out["memory"].items():
        group.add("ramet", f"memory.{key}", run, value)


def main():
    parser = measuring.arguments(__doc__, prompts="512,2048,8192", gen=32, runs="runs")
    parser.add_argument("--branches", default="1,2,4,8,16", help="batches (default 1,2,4,8,16)")
    parser.add_argument("--forks", type=int, default=32, help="default 32")
    measuring.measure_all(parser.parse_args(), "state", run_ramet)


if __name__ == "__main__":
    main()
