#!/usr/bin/env bash
# What the tests of the state and store rooms reach: builds them with gcc's coverage, runs them, and prints lines and
# branches of each file of the two rooms, then every line with a branch that was never taken. A pattern of test names as
# argument runs those of them alone. What only a broken invariant of ours takes (RAMET_ASSERT) is not counted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pattern=${1:-.} build=build/coverage
command -v gcov >/dev/null || { echo "coverage: gcov is not installed; it comes with gcc" >&2; exit 77; }

flags="-g -O0 --coverage -fprofile-update=atomic" # atomic: threads count too
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=gcc "-DCMAKE_C_FLAGS_DEBUG=$flags" >/dev/null
mapfile -t tests < <(basename -a -s .c tests/test_state_*.c tests/test_store_*.c | grep -E -- "$pattern")
cmake --build $build --target "${tests[@]}" >/dev/null
find $build -name '*.gcda' -delete
ctest --test-dir $build -R "^($(IFS='|'; echo "${tests[*]}"))\$" --output-on-failure | tail -n 4

report=$(cat <<'END'
import collections, json, re, sys
lines, branches = collections.Counter(), collections.Counter()  # by (file, line), by (file, line, number of the branch)
for document in sys.stdin:
    for file in json.loads(document)["files"]:
        name = file["file"][file["file"].rfind("src/") :]
        if not re.match("src/(state|store)/", name):
            continue
        for line in file["lines"]:
            lines[name, line["line_number"]] += line["count"]
            for number, branch in enumerate(line["branches"]):
                branches[name, line["line_number"], number] += branch["count"]

names = sorted({name for name, _ in lines})
source = {name: open(name, encoding="utf-8").read().split("\n") for name in names}
branches = {at: n for at, n in branches.items() if "RAMET_ASSERT" not in source[at[0]][at[1] - 1]}

def share(counts, chosen):
    ours = [n > 0 for at, n in counts.items() if at[0] in chosen]
    return "%5d of %5d  %5.1f %%" % (sum(ours), len(ours), 100 * sum(ours) / len(ours)) if ours else "%22s" % "none"

print("\n%-24s %22s   %22s" % ("", "lines", "branches"))
for title, chosen in [(name, [name]) for name in names] + [("all", names)]:
    print("%-24s %s   %s" % (title, share(lines, chosen), share(branches, chosen)))
never = collections.Counter(at[:2] for at, n in branches.items() if n == 0)
print("\nnever taken: %d branches, in %d lines" % (sum(never.values()), len(never)))
for (name, line), n in sorted(never.items()):
    print("%s:%d: %d%s  %s" % (name, line, n, "" if lines[name, line] else " (never run)", source[name][line - 1].strip()))
END
)
find $build -name '*.gcda' | grep -E '/src/(state|store)/' | LC_ALL=C sort |
    while read -r data; do gcov --json-format --stdout --branch-probabilities "$data"; done | python3 -c "$report"
