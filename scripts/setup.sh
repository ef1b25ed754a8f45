#!/bin/sh
# Installs what a purpose needs and is missing: setup.sh build|demo|test.
# As root or with passwordless sudo it calls apt-get; otherwise it prints the line to run and fails.
set -eu

build="gcc libc6-dev make cmake ninja-build pkg-config libpcre2-dev libxxhash-dev libssl-dev libjansson-dev libcmocka-dev"
demo="$build python3 python3-pip ca-certificates"
test="$build python3 clang clang-format"

case "${1:-}" in
    build) wanted=$build ;;
    demo) wanted=$demo ;;
    test) wanted=$test ;;
    *) echo "usage: setup.sh build|demo|test" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system, so nothing is checked; Debian's names of what is needed: $wanted" >&2
    exit 0
fi

missing=""
for package in $wanted; do
    case "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" in
        installed*) ;;
        *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root="env"
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root="sudo env"
else
    echo "setup: these packages are missing; run this, then try again:" >&2
    echo "    sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi

echo "setup: installing$missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $as_root apt-get update &&
       $as_root DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "setup: apt-get failed; this is what has to be installed:" >&2
    echo "    apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
