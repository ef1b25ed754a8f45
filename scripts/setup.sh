#!/bin/sh
# Installs what a purpose needs and is missing: setup.sh build|demo|test.
# As root or with passwordless sudo it calls apt-get; otherwise it prints the line to run and fails.
set -eu

build="gcc libc6-dev make cmake ninja-build pkg-config libpcre2-dev libxxhash-dev libssl-dev libjansson-dev libcmocka-dev"
demo="$build python3 python3-pip ca-certificates"
test="$build python3 python3-cryptography clang libclang-rt-dev clang-format"
# To build for AArch64 and run that here (scripts/check_arm64.sh, which is skipped without).
arm64="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user libpcre2-dev:arm64 libxxhash-dev:arm64 libssl-dev:arm64
    libjansson-dev:arm64 libcmocka-dev:arm64"

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

if [ "$(id -u)" = 0 ]; then
    as_root="env"
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root="sudo env"
else
    as_root=""
fi

# Those of the packages that are not installed.
find_missing() {
    for package in "$@"; do
        case "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" in
            installed*) ;;
            *) printf ' %s' "$package" ;;
        esac
    done
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
install_packages() {
    echo "setup: installing$1" >&2
    { $as_root apt-get update &&
      $as_root DEBIAN_FRONTEND=noninteractive apt-get install -y --no-remove --no-install-recommends $1; } >"$log" 2>&1 && return
    tail -n 5 "$log" >&2
    return 1
}

missing=$(find_missing $wanted)
if [ -n "$missing" ] && [ -z "$as_root" ]; then
    echo "setup: these packages are missing; run this, then try again:" >&2
    echo "    sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
if [ -n "$missing" ] && ! install_packages "$missing"; then
    echo "setup: apt-get failed; this is what has to be installed:" >&2
    echo "    apt-get install --no-install-recommends$missing" >&2
    exit 1
fi

# A second architecture is much to ask of a machine: only where we may install, and no failure where it cannot be had.
[ "$1" = test ] && [ -n "$as_root" ] && [ "$(dpkg --print-architecture)" = amd64 ] || exit 0
missing=$(find_missing $arm64)
[ -n "$missing" ] || exit 0
$as_root dpkg --add-architecture arm64
install_packages "$missing" || echo "setup: no packages for arm64: that test will be skipped" >&2
