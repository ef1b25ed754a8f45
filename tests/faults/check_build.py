#!/usr/bin/env python3
"""`ramet ctx build` with each of its file calls failing in turn: check_build.py RAMET SHIM MODEL.

SHIM is faults/shim.c as a shared object, preloaded. Whatever fails, the command ends with the exit code of its kind and one
line that names the file, a file that was there before is untouched, and nothing else is left.
"""

import errno
import os
import subprocess
import sys
import tempfile

RAMET, SHIM, MODEL = sys.argv[1:]
EXIT_CODES = {errno.ENOSPC: 6, errno.EIO: 1}
# Nobody waits for these: what is closed was synced, or is a directory that was only opened to sync it.
TEXT = "A small text, to be a context."


def build(directory, nth=0, error=0):
    """Exit code, standard error, and the calls that the shim saw, as (name, path)."""
    log = os.path.join(tempfile.gettempdir(), f"ramet-faults-{os.getpid()}.log")
    environment = dict(os.environ, LD_PRELOAD=SHIM, RAMET_FAULTS_DIRECTORY=directory, RAMET_FAULTS_NTH=str(nth),
                       RAMET_FAULTS_ERRNO=str(error), RAMET_FAULTS_LOG=log,
                       ASAN_OPTIONS="verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", ""))
    try:
        done = subprocess.run([RAMET, "ctx", "build", "-m", MODEL, "-p", TEXT, "-t", "1", "-o",
                               os.path.join(directory, "built.ramet")], env=environment, capture_output=True, text=True)
        with open(log) as lines:
            calls = [tuple(line.rstrip("\n").split(" ", 1)) for line in lines]
    finally:
        if os.path.exists(log):
            os.unlink(log)
    return done.returncode, done.stderr, calls


def is_sound(path):
    return subprocess.run([RAMET, "ctx", "info", path], capture_output=True).returncode == 0


def fail(*what):
    sys.exit("check_build: " + ": ".join(str(w) for w in what))


def try_call(directory, nth, call, error, old):
    path = os.path.join(directory, "built.ramet")
    if old is None and os.path.exists(path):
        os.unlink(path)
    elif old is not None:
        with open(path, "wb") as out:
            out.write(old)
    code, message, calls = build(directory, nth, error)
    where = f"{call[0]} of {call[1]}, {errno.errorcode.get(error, 'short')}"
    is_directory = call[1] == directory
    must_fail = error != 0 and not (call[0] == "CLOSE" and is_directory)
    if code != (EXIT_CODES[error] if must_fail else 0):
        fail(where, f"ended with {code}", message)
    if must_fail and (directory if is_directory else "built.ramet") not in message:
        fail(where, "does not name the file", message)
    left = os.listdir(directory)
    if must_fail and not is_directory:
        if left != ([] if old is None else ["built.ramet"]):
            fail(where, "left", left)
        if old is not None:
            with open(path, "rb") as file:
                if file.read() != old:
                    fail(where, "changed the old file")
    elif left != ["built.ramet"] or not is_sound(path):
        fail(where, "no sound file", left)
    return must_fail


def main():
    with tempfile.TemporaryDirectory(prefix="ramet-test-build-") as top:
        directory = os.path.join(top, "out")
        os.mkdir(directory)
        code, message, calls = build(directory)
        if code != 0:
            fail("without a fault", message)
        with open(os.path.join(directory, "built.ramet"), "rb") as file:
            new = file.read()
        old = b"what was there before"
        n_refused = 0
        for nth, call in enumerate(calls, 1):
            for error in (errno.ENOSPC, errno.EIO, 0):
                n_refused += try_call(directory, nth, call, error, None)
                n_refused += try_call(directory, nth, call, error, old)
        if not any(name == "SYNC" for name, _ in calls) or n_refused < len(calls):
            fail("the shim sees too little", calls)
    print(f"ctx build: {len(calls)} calls, {6 * len(calls)} faults, {n_refused} refused; {len(new)} bytes built")


main()
