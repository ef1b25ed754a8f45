#!/usr/bin/env python3
"""Checks what the compiler does not: check_layers.py [--self-test].

  - layers: a file in src/ includes only lower ranks, its own room and the public header; never a sibling room
  - the command sees the library as a stranger does: cli includes ramet.h, base and itself
  - banned calls, each with what to use instead
  - length: a file that cannot be read in one sitting is split, but for tables and kernels

With --self-test every rule is first shown to fail on a line made to break it.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

RANKS = {
    "base": 0,
    "numerics": 1,
    "model": 2, "text": 2, "state": 2, "kernels": 2, "sample": 2,
    "forward": 3, "store": 3,
    "engine": 4,
    "cli": 5, "server": 5,
}
FRONTS = {"cli", "server"}  # these use the public header and base alone
LIBRARY = set(RANKS) - FRONTS
EXACT = {"numerics", "kernels", "forward"}  # where a result must be the same bits everywhere

FILE_LINES = 600
LONG_FILES = ("src/kernels/", "src/numerics/")  # prefixes of kernels and tables


def names(*words):
    return re.compile(r"(?<![\w.>])(" + "|".join(words) + r")\s*\(")


# what, in which rooms, instead
BANNED = [
    (names("strcpy", "strcat", "sprintf", "vsprintf", "stpcpy"), set(RANKS), "snprintf, or memcpy with a checked size"),
    (names("gets", "strtok"), set(RANKS), "a loop over pointer and length"),
    (names("atoi", "atol", "atoll", "atof"), set(RANKS), "strtoll or strtod with the end pointer checked"),
    (names("alloca"), set(RANKS), "ramet_alloc (base/memory.h)"),
    (names("rand", "srand", "random", "drand48"), set(RANKS), "the sampler's own generator (sample/sample.h)"),
    (names("malloc", "calloc", "realloc"), LIBRARY - {"base"}, "ramet_alloc or ramet_grow (base/memory.h)"),
    (names("printf", "fprintf", "puts", "fputs", "putchar", "perror", "vprintf", "vfprintf"), LIBRARY - {"base"},
     "ramet_fail: the library never prints"),
    (names("exit", "_exit", "abort", "quick_exit"), LIBRARY - {"base"}, "ramet_fail, or RAMET_ASSERT for an invariant of ours"),
    (names("assert"), set(RANKS), "RAMET_ASSERT (base/error.h), which stays in release builds"),
    (names("getenv", "setenv"), LIBRARY, "an option handed in by the caller"),
    (names(*(f"{stem}{suffix}" for stem in
             ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "sin", "cos", "tan", "sincos", "tanh", "erf",
              "cbrt", "hypot") for suffix in ("", "f", "l"))), EXACT, "our own functions (numerics/math.h): libm's bits differ"),
    (re.compile(r"#\s*pragma\s+(?:omp|STDC\s+FP_CONTRACT|GCC\s+optimize)"), EXACT, "nothing: the order of a sum is written down"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(match):
    """A comment or string as spaces, newlines kept, so that line numbers stay right. Include names are kept apart."""
    return re.sub(r"[^\n]", " ", match.group())


def check_include(room, target):
    """None, or what is wrong with a file of `room` including `target`."""
    if target == "ramet.h":
        return None
    other = target.split("/", 1)[0] if "/" in target else room
    if other not in RANKS:
        return f"{target} is in no room: write the path from src/"
    if other == room:
        return None
    if room in FRONTS and other != "base":
        return f"{room} uses the library through ramet.h alone, not {target}"
    if RANKS[other] >= RANKS[room]:
        side = "a sibling" if RANKS[other] == RANKS[room] else "a higher rank"
        return f"{room} (rank {RANKS[room]}) includes {target} of {side} (rank {RANKS[other]})"
    return None


def check_text(path, text):
    """Complaints about one source file, given its path from the root."""
    room = Path(path).parts[1]
    if room not in RANKS:
        return [f"{path}:1: {room} is not a room"]
    found = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if match := INCLUDE.match(line):
            if problem := check_include(room, match.group(1)):
                found.append(f"{path}:{number}: {problem}")
    code = COMMENT_OR_STRING.sub(blank, text)
    for pattern, rooms, instead in BANNED:
        if room in rooms:
            for match in pattern.finditer(code):
                number = code.count("\n", 0, match.start()) + 1
                found.append(f"{path}:{number}: {match.group().strip('( ')} is banned in {room}; use {instead}")
    if len(lines) - 1 > FILE_LINES and not path.startswith(LONG_FILES):
        found.append(f"{path}:{len(lines) - 1}: more than {FILE_LINES} lines; split it by what it owns")
    return found


def check_tree():
    found = []
    sources = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".c", ".h"))
    for path in sources:
        found += check_text(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    return found, len(sources)


# path, line, must complain
SELF_TEST = [
    ("src/base/x.c", '#include "numerics/half.h"', True),
    ("src/state/x.c", '#include "model/gguf.h"', True),
    ("src/forward/x.c", '#include "store/store.h"', True),
    ("src/forward/x.c", '#include "model/model.h"', False),
    ("src/cli/x.c", '#include "engine/engine.h"', True),
    ("src/cli/x.c", '#include "base/error.h"', False),
    ("src/cli/x.c", '#include "ramet.h"', False),
    ("src/elsewhere/x.c", "int x;", True),
    ("src/text/x.c", "strcpy(a, b);", True),
    ("src/text/x.c", "// strcpy(a, b);", False),
    ("src/text/x.c", 'ramet_fail(error, code, "strcpy(a, b)");', False),
    ("src/cli/x.c", "int n = atoi(text);", True),
    ("src/engine/x.c", 'printf("hello");', True),
    ("src/cli/x.c", 'printf("hello");', False),
    ("src/engine/x.c", 'snprintf(out, 4, "x");', False),
    ("src/store/x.c", "exit(1);", True),
    ("src/state/x.c", "p = malloc(4);", True),
    ("src/state/x.c", "p = ramet_alloc(1, 4);", False),
    ("src/kernels/c/x.c", "y = expf(x);", True),
    ("src/kernels/c/x.c", "y = ramet_expf(x);", False),
    ("src/numerics/x.c", "y = pow(x, 2.0);", True),
    ("src/forward/x.c", "a = sinf (x);", True),
    ("src/engine/x.c", "y = expf(x);", False),
    ("src/state/x.c", "assert(x);", True),
    ("src/state/x.c", "RAMET_ASSERT(x);", False),
    ("src/state/x.c", "int x;\n" * (FILE_LINES + 1), True),
    ("src/kernels/x86/x.c", "int x;\n" * (FILE_LINES + 1), False),
]


def self_test():
    wrong = [(path, line) for path, line, complains in SELF_TEST if bool(check_text(path, line)) != complains]
    for path, line in wrong:
        print(f"self-test: wrong answer for {path}: {line[:60]!r}")
    print(f"self-test: {len(SELF_TEST) - len(wrong)} of {len(SELF_TEST)} right")
    return not wrong


def main():
    ok = self_test() if "--self-test" in sys.argv[1:] else True
    found, n_files = check_tree()
    print("\n".join(found + [f"{n_files} files, {len(found)} complaints"]))
    sys.exit(0 if ok and not found else 1)


if __name__ == "__main__":
    main()
