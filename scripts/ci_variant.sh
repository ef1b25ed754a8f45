#!/usr/bin/env bash
# Configures and builds a preset, then proves what it is for:
#   clang | debug | tsan   the quick tests pass there (tsan: those of code with threads)
#   teeth                  the exactness checks fail there, by name (a sum is reordered on purpose)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:?usage: ci_variant.sh clang|debug|tsan|teeth}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "$@" >"$log" 2>&1 || { cat "$log"; exit 1; }; }

quietly cmake --preset "$preset"
if [ "$preset" != teeth ]; then
    quietly cmake --build "build/$preset"
    ctest --preset "$preset"
    exit
fi

quietly cmake --build build/teeth --target ramet logits_hash
status=0
report=$(build/teeth/ramet verify -m share/models/tiny-llama-kjv-q8_0.gguf) || status=$?
printf '%s\n' "$report"
if [ "$status" != 3 ]; then
    echo "teeth: verify ended with $status, not 3: a reordered sum went unnoticed" >&2
    exit 1
fi
# Every row that compares bits.
for row in "prefill == decode" "fork is exact" "truncate then extend" "snapshot resumes" "spill reads back" \
    "page size changes nothing" "thread-count invariant" "batch neighbours change nothing" "kernels agree" "numerics_id"; do
    if ! grep -F -- "$row" <<<"$report" | grep -q FAIL; then
        echo "teeth: the row '$row' did not fail" >&2
        exit 1
    fi
done
if python3 -B tests/reference/check_exact.py --ramet build/teeth/ramet \
    tests/data/reference/tiny/llama-tied/llama-tied-mix-q4_1.gguf; then
    echo "teeth: check_exact.py noticed nothing" >&2
    exit 1
fi
# Not one golden hash may be left, and no other failure may pass for that.
status=0
report=$(build/teeth/logits_hash tests/golden/logits.sha256 --threads 2) || status=$?
if [ "$status" != 1 ] || grep 'hashes equal' <<<"$report" | grep -qv ': 0 of '; then
    printf '%s\nteeth: logits_hash ended with %s, and some golden hash is still there\n' "$report" "$status" >&2
    exit 1
fi
echo "teeth: the reordered sum was noticed, by name"
