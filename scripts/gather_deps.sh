#!/usr/bin/env bash
# Copies what a build of ramet needs beside a C compiler, cmake and ninja into a folder: headers, static libraries (cmocka
# has a shared one only), pkg-config. For machines of the same architecture, with the same or a newer glibc, on which
# nothing can be installed; scripts/check_machine.sh finds it there. On Debian, from its installed packages.
#   gather_deps.sh [DIRECTORY]     default: build/deps
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build/deps}
architecture=$(dpkg --print-architecture)
packages="libssl-dev libxxhash-dev libpcre2-dev libjansson-dev libcmocka-dev"
modules="libcrypto libxxhash libpcre2-8 jansson cmocka"

rm -rf "$out"
mkdir -p "$out/include/openssl" "$out/lib/pkgconfig" "$out/bin"
for package in $packages; do
    dpkg -L "$package:$architecture" | grep -E '/include/.*\.h$' | while read -r header; do
        case $header in
            */openssl/*) cp "$header" "$out/include/openssl" ;; # Debian keeps two of them with the architecture
            *) cp "$header" "$out/include" ;;
        esac
    done
done
for module in $modules; do
    directory=$(pkg-config --variable=libdir "$module")
    name=lib${module#lib}
    if [ -e "${directory:-/nowhere}/$name.a" ]; then
        cp "$directory/$name.a" "$out/lib"
    else
        shared=$(cc -print-file-name="$name.so")
        cp "$(realpath "$shared")" "$out/lib/$name.so.0"
        cp "$out/lib/$name.so.0" "$out/lib/$name.so" # no link: not everything that copies folders keeps them
    fi
    # The folder may go anywhere: its paths begin where the .pc file lies.
    printf 'Name: %s\nDescription: %s, as gathered\nVersion: %s\nLibs: -L${pcfiledir}/.. -l%s\nCflags: -I${pcfiledir}/../../include\n' \
        "$module" "$module" "$(pkg-config --modversion "$module")" "${name#lib}" >"$out/lib/pkgconfig/$module.pc"
done

# pkg-config itself, with the library it lives on.
cp "$(realpath "$(command -v pkg-config)")" "$out/bin/pkgconf"
ldd "$out/bin/pkgconf" | awk '/libpkgconf/ { print $3 }' | xargs -I{} cp -L {} "$out/lib"
cat >"$out/bin/pkg-config" <<'END'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH="$here/../lib" exec "$here/pkgconf" "$@"
END
chmod +x "$out/bin/pkg-config"
du -sh "$out"
