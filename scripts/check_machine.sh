#!/usr/bin/env bash
# What this machine makes of ramet: builds it with the compiler that is here, proves the bits, measures how speed grows with
# threads. Writes report.txt and scaling.csv. Asks nothing, needs no network: for machines that one can only send a command to.
#   check_machine.sh [OUT_DIRECTORY]     default: build/machine
# Libraries come from the system, or from build/deps where scripts/gather_deps.sh made that. Exit status 1: a check failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "${1:-build/machine}")
work=build/machine-work
build=$work/release csv=$out/scaling.csv
mkdir -p "$out" $work
rm -f "$csv"
if [ -d build/deps ]; then
    export PATH="$PATH:$PWD/build/deps/bin" PKG_CONFIG_PATH="$PWD/build/deps/lib/pkgconfig"
fi
# Powers of two below the number of cores, and that.
cores=$(nproc)
counts=()
for ((n = 1; n < cores; n *= 2)); do counts+=($n); done
counts+=("$cores")

failed=()
# step NAME COMMAND...: says how long it took and keeps the names of those that fail.
step() {
    local name=$1 begin=$SECONDS status=0
    shift
    printf '\n== %s\n' "$name"
    "$@" || status=$?
    echo "-- $name: exit status $status, $((SECONDS - begin)) s"
    [ $status = 0 ] || failed+=("$name")
    return $status
}
quietly() { "$@" >$work/log 2>&1 || { tail -n 40 $work/log; return 1; }; }

describe() {
    grep -m 1 'model name' /proc/cpuinfo || uname -m
    grep -m 1 '^flags' /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx|amx|fma|f16c)' | paste -sd' '
    echo "$cores cores, load $(cut -d' ' -f1 /proc/loadavg), $(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)"
    uname -sr
    cc --version | head -n 1
    cmake --version | head -n 1
}
build_release() {
    quietly cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release &&
        quietly cmake --build $build && $build/ramet --version
}
check_kernels() {
    for seed in 1 2 3 4; do $build/ramet-checkkern --rounds 60 --seed $seed || return 1; done
    $build/ramet-checkkern --control >/dev/null
}
check_golden() {
    $build/logits_hash tests/golden/logits.sha256 --threads "$(printf '%s\n' "${counts[@]}" 3 8 13 | sort -nu | paste -sd,)"
}
check_tests() {
    ctest --test-dir $build -L quick -j "$cores" --output-on-failure | grep -vE '^ +Start |\.\. +Passed '
}
check_levels() {
    local status=0
    for compiler in gcc clang; do
        if command -v $compiler >/dev/null; then scripts/check_golden.sh $compiler:-O1 $compiler:-O2 || status=1; fi
    done
    return $status
}
# The bundled model is too small to tell anything about threads. -q: rows as CSV, the model and threads put in front.
measure() {
    local type=$1 rows threads
    bench/make_model.py $work/$type.gguf --type "$type" || return 1
    for threads in "${counts[@]}"; do
        rows=$(timeout 120 $build/ramet bench -q -m $work/$type.gguf -t "$threads" --prompt 512 --gen 16 --reps 3 -o csv) || return 1
        [ -e "$csv" ] || sed -n '1s/^/model,threads,/p' <<<"$rows" >"$csv"
        sed -n "2,\$s/^/$type,$threads,/p" <<<"$rows" | tee -a "$csv" |
            awk -F, '$3 ~ /^(load|prefill|decode|branches)$/ { printf "%s threads %2d  %-16s %12.1f %s/s%s\n", $1, $2, $3 ($4 ? " x" $4 : ""), $5 * 1e9 / $7, $6,
                              $8 ? sprintf("  %.2f of its limit", $8) : "" }'
    done
    rm $work/$type.gguf
}

run_all() {
    step machine describe
    step build build_release || return
    step kernels check_kernels
    step golden check_golden
    step tests check_tests
    step verify $build/ramet verify -m share/models/tiny-llama-kjv-q8_0.gguf
    step "speed, Q4_K" measure q4_k
    step "speed, Q8_0" measure q8_0
    step levels check_levels
    step "speed of kernels" $build/ramet-checkkern --bench
}
{
    run_all
    echo
    [ ${#failed[@]} = 0 ] && echo "all checks passed" || { printf 'FAILED: %s\n' "${failed[@]}"; false; }
} 2>&1 | tee "$out/report.txt"
