#!/usr/bin/env bash
# The golden hash (tests/golden) over compilers and optimisation levels: builds what computes logits with each, in a folder
# of its own under build/golden, and checks there every kernel set of this CPU.
#   check_golden.sh [COMPILER:LEVEL...]     default: gcc and clang, where they are, at -O1, -O2 and -O3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

variants=("$@")
if [ $# = 0 ]; then
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || { echo "no $compiler here"; continue; }
        variants+=($compiler:-O1 $compiler:-O2 $compiler:-O3)
    done
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "$@" >"$log" 2>&1 || { cat "$log"; exit 1; }; }

failed=()
for variant in "${variants[@]}"; do
    compiler=${variant%%:*} level=${variant#*:}
    build=build/golden/$compiler$level
    echo "== $compiler $level"
    quietly cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$compiler" \
        -DCMAKE_C_FLAGS_RELEASE="$level -DNDEBUG"
    quietly cmake --build "$build" --target logits_hash
    "$build/logits_hash" tests/golden/logits.sha256 --threads 2 || failed+=("$variant")
done
[ ${#failed[@]} = 0 ] || { echo "other bits: ${failed[*]}" >&2; exit 1; }
