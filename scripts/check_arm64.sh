#!/usr/bin/env bash
# The bits of AArch64 are those of this machine: cross-built (preset arm64), run by qemu-user.
#   check_arm64.sh RAMET    RAMET: the command as built for this machine
# Proves: each NEON kernel equals its C definition; numerics_id is the committed one for c and neon, and `verify` passes; the
# logits of the bundled model are the same file; the golden hash is that of every machine.
# Exit status 77: what it takes is not installed.
set -euo pipefail
host=$(realpath "${1:?usage: check_arm64.sh RAMET}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
triple=aarch64-linux-gnu

skip() { echo "skipped: $1 (scripts/setup.sh test, as root, installs it)"; exit 77; }
command -v $triple-gcc >/dev/null || skip "no $triple-gcc"
command -v qemu-aarch64 >/dev/null || skip "no qemu-aarch64"
for package in libcrypto libxxhash libpcre2-8 jansson cmocka; do
    [ -e /usr/lib/$triple/pkgconfig/$package.pc ] || skip "no $package for arm64"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; echo "failed: $*" >&2; exit 1; }; }
same() { [ "$2" = "$3" ] || { echo "$1 is '$2', not '$3'" >&2; exit 1; }; }

quietly cmake --preset arm64
quietly cmake --build build/arm64 --target ramet ramet-checkkern logits_hash test_engine_verify
ramet() { qemu-aarch64 build/arm64/ramet "$@"; }

echo "== kernels"
for seed in 1 2 3; do qemu-aarch64 build/arm64/ramet-checkkern --rounds 40 --seed $seed; done

echo "== numerics_id"
golden=$(sed -n 's/.*RAMET_NUMERICS_GOLDEN "\(.*\)"/\1/p' src/engine/numerics_id.h)
ramet --version | tee "$work/version"
same "numerics_id" "$(awk '$1 == "numerics" { print $2 }' "$work/version")" "$golden"
same "the fastest set" "$(awk '$1 == "kernels" { print $2 }' "$work/version")" neon
qemu-aarch64 build/arm64/test_engine_verify

echo "== logits"
seq 0 99 | awk '{ print $1 * 37 % 251 }' >"$work/tokens" # more than a segment of 64
for kv in f32 vq8 q8; do
    options=(-q -m share/models/tiny-llama-kjv-q8_0.gguf --tokens "$work/tokens" --kv $kv)
    "$host" logits "${options[@]}" -o "$work/host.npy" >/dev/null
    for kernels in c neon; do
        ramet logits "${options[@]}" --kernels $kernels -o "$work/arm.npy" >/dev/null
        cmp "$work/host.npy" "$work/arm.npy"
    done
    echo "$kv: $(stat -c %s "$work/host.npy") bytes, the same here, with c and with neon"
done

echo "== golden hash"
qemu-aarch64 build/arm64/logits_hash tests/golden/logits.sha256 --threads 2
