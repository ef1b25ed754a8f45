#!/bin/sh
# Formats every C file, or with --check says which ones would change.
set -eu
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || { echo "format: clang-format is not installed" >&2; exit 77; }
files=$(find include src tests tools -name '*.[ch]' | LC_ALL=C sort)
if [ "${1:-}" = "--check" ]; then
    clang-format --dry-run -Werror $files
else
    clang-format -i $files
fi
