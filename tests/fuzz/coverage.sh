#!/usr/bin/env bash
# What the corpora reach: builds the replays with clang's coverage, runs the committed seeds and those that `make fuzz` has
# added in build/fuzz/corpus, and prints lines and branches of the files that each target is about. A folder given as an
# argument is taken in place of build/fuzz/corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
grown=${1:-build/fuzz/corpus} build=build/fuzz-coverage
declare -A about=(
    [gguf]='src/model/gguf.*\.c src/model/(hparams|weights.*)\.c src/text/(vocab|build|digest|index|special)\.c'
    [lora]='src/model/lora\.c' [tokenizer]='src/text/.*\.c' [snapshot]='src/store/(header|content|stream|snapshot)\.c'
    [cli]='src/cli/(options|json)\.c')

flags="-g -O1 -fprofile-instr-generate -fcoverage-mapping"
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang "-DCMAKE_C_FLAGS_DEBUG=$flags" >/dev/null
programs=("${!about[@]}")
cmake --build $build --target $(printf 'fuzz_%s_replay ' "${programs[@]}") >/dev/null
for target in gguf lora tokenizer snapshot cli; do
    program=$build/fuzz_${target}_replay profiles=()
    for corpus in "tests/fuzz/corpus/$target" "$grown/$target"; do
        [ -d "$corpus" ] || continue
        profiles+=("$build/$target-${#profiles[@]}.profraw")
        LLVM_PROFILE_FILE=${profiles[-1]} "$program" "$corpus" >/dev/null
    done
    llvm-profdata merge -o "$build/$target.profdata" "${profiles[@]}"
    files=()
    for pattern in ${about[$target]}; do
        while read -r file; do files+=("$PWD/$file"); done < <(find src -name '*.c' | LC_ALL=C sort | grep -E "^$pattern\$")
    done
    echo "== $target: lines, branches"
    llvm-cov export -summary-only -instr-profile="$build/$target.profdata" "$program" "${files[@]}" | python3 -c '
import json, sys
data = json.load(sys.stdin)["data"][0]
rows = [(f["filename"].split("/src/")[-1], f["summary"]) for f in data["files"]] + [("all of these", data["totals"])]
for name, s in rows:
    print("%-24s" % name, *("%5d of %5d %5.1f %%" % (s[k]["covered"], s[k]["count"], s[k]["percent"]) for k in ("lines", "branches")))'
done
