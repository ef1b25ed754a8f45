#!/usr/bin/env bash
# Fuzzes: run.sh SECONDS [TARGET]... builds the targets with clang and runs each for so long, two at a time. What is
# found lands in build/fuzz/found, what is new in build/fuzz/corpus, which the next run starts from. The committed corpus is
# only read. Fails when something was found; 77: this machine has no libFuzzer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:?usage: run.sh SECONDS [TARGET]...}
shift
targets=(gguf lora tokenizer snapshot cli)
if [ $# -gt 0 ]; then targets=("$@"); fi

probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
if ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }' |
    clang -fsanitize=fuzzer -x c - -o "$probe" 2>/dev/null; then
    echo "fuzz: clang or its libFuzzer is not installed" >&2
    exit 77
fi

cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "${targets[@]/#/fuzz_}"
mkdir -p build/fuzz/found

run_target() {
    local target=$1
    local corpus=build/fuzz/corpus/$target log=build/fuzz/$target.log dictionary=tests/fuzz/${target/lora/gguf}.dict
    mkdir -p "$corpus"
    local options=(-max_total_time="$seconds" -max_len=16384 -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=256
        -print_final_stats=1 -verbosity=1 -artifact_prefix="build/fuzz/found/$target-")
    if [ -f "$dictionary" ]; then options+=(-dict="$dictionary"); fi
    if build/fuzz/"fuzz_$target" "${options[@]}" "$corpus" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
        echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions in $seconds s," \
            "$(sed -n 's/.*DONE *cov: \([0-9]*\).*/\1/p' "$log") edges, nothing found"
    else
        grep -v 'pulse\|NEW\|REDUCE\|RELOAD\|^ParseDict' "$log" | tail -n 60
        echo "$target: something was found: see $log and build/fuzz/found" >&2
        return 1
    fi
}

status=0
for target in "${targets[@]}"; do
    if [ "$(jobs -rp | wc -l)" -ge 2 ]; then wait -n || status=1; fi
    run_target "$target" &
done
for target in $(jobs -p); do wait "$target" || status=1; done
exit $status
