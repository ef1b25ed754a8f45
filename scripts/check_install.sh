#!/usr/bin/env bash
# Installs a build into a fresh prefix, moves the prefix, and uses it as a stranger would: by find_package and by
# pkg-config, shared and static. Also checks that the shared library shows nothing but ramet.h.
#   check_install.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: check_install.sh BUILD_DIR}")
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >"$work/log"
mv "$work/first" "$work/prefix" # nothing may remember the old place
prefix=$work/prefix
pc=$(find "$prefix" -name ramet.pc)
library_dir=$(dirname "$(find "$prefix" -name libramet.so)")
model=$prefix/share/ramet/models/tiny-llama-kjv-q8_0.gguf
text="In the beginning"

echo "== find_package"
cmake -S "$root/tests/consumer" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_FLAGS="${CONSUMER_CFLAGS:-}" >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/consumer" >"$work/log" || { cat "$work/log"; exit 1; }
"$work/consumer/consumer_shared" "$model" "$text"
"$work/consumer/consumer_static" "$model" "$text"

echo "== pkg-config"
export PKG_CONFIG_PATH="$(dirname "$pc")"
cc ${CONSUMER_CFLAGS:-} "$root/tests/consumer/consumer.c" $(pkg-config --cflags --libs ramet) -o "$work/by_pc"
LD_LIBRARY_PATH=$library_dir "$work/by_pc" "$model" "$text"
mkdir "$work/static"
cp "$library_dir/libramet.a" "$work/static" # found before the shared one
cc ${CONSUMER_CFLAGS:-} "$root/tests/consumer/consumer.c" -L"$work/static" $(pkg-config --static --cflags --libs ramet) \
    -o "$work/by_pc_static"
"$work/by_pc_static" "$model" "$text"

echo "== exported names"
declared=$(grep -oE '^[a-z].*[ *]ramet_[a-z0-9_]+\(' "$prefix/include/ramet.h" | grep -v '^typedef' |
    sed -E 's/.*[ *](ramet_[a-z0-9_]+)\($/\1/' | LC_ALL=C sort -u)
exported=$(nm -D --defined-only "$library_dir/libramet.so" | awk '{print $3}' | LC_ALL=C sort -u)
if [ "$declared" != "$exported" ]; then
    echo "not the functions of ramet.h (< declared only, > exported only):"
    diff <(echo "$declared") <(echo "$exported") | grep '^[<>]'
    exit 1
fi
echo "$(wc -l <<<"$exported") functions, as declared"

if [ -x "$prefix/bin/ramet" ]; then
    echo "== command"
    "$prefix/bin/ramet" --version
fi
