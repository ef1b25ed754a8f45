"""What the checks in this folder share: running the command, .npy files, divergences. Only the standard library."""

import ast
import json
import math
import subprocess
import sys
from array import array
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data" / "reference"
MODELS = Path(__file__).resolve().parent.parent.parent / "share" / "models"
EXIT_SKIP = 77  # ctest shows it as skipped

NPY_TYPES = {"<f4": "f", "<i4": "i"}


class Rows:
    """A two-dimensional array, row by row: rows[i] is an array of `width` numbers."""

    def __init__(self, shape, data):
        self.count, self.width = (shape[0], shape[1]) if len(shape) == 2 else (shape[0], 1)
        self.data = data

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(f"row {index} of {self.count}")
        return self.data[index * self.width : (index + 1) * self.width]


def read_npy_header(file):
    """(shape, type code) and leaves the file at the first element."""
    prelude = file.read(10)
    if prelude[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError("not a .npy file of version 1.0")
    header = ast.literal_eval(file.read(int.from_bytes(prelude[8:10], "little")).decode("latin-1"))
    if header["fortran_order"] or header["descr"] not in NPY_TYPES:
        raise ValueError(f"unexpected .npy header {header}")
    return header["shape"], NPY_TYPES[header["descr"]]


def read_npy(path):
    with open(path, "rb") as file:
        shape, code = read_npy_header(file)
        data = array(code)
        data.frombytes(file.read())
    if sys.byteorder == "big":
        data.byteswap()
    if len(data) != math.prod(shape):
        raise ValueError(f"{path}: {len(data)} elements for shape {shape}")
    return Rows(shape, data)


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def run(arguments, data=None):
    """Standard output of a command as bytes; a failure ends the check with the command and its message."""
    result = subprocess.run([str(a) for a in arguments], input=data, capture_output=True)
    if result.returncode != 0:
        command = " ".join(str(a) for a in arguments)
        sys.exit(f"FAIL: exit {result.returncode}: {command}\n{result.stderr.decode(errors='replace')}")
    return result.stdout


def as_text(tokens):
    return ",".join(map(str, tokens)).encode()


def logits_of(ramet, model, tokens, *options):
    """All rows of logits of a token sequence, in f32 KV."""
    out = run([ramet, "logits", "-m", model, "--tokens", "-", "-o", "-", "--rows", "all", "--kv", "f32", *options], as_text(tokens))
    return rows_from_bytes(out)


def rows_from_bytes(raw):
    header_bytes = 10 + int.from_bytes(raw[8:10], "little")
    header = ast.literal_eval(raw[10:header_bytes].decode("latin-1"))
    data = array("f")
    data.frombytes(raw[header_bytes:])
    return Rows(header["shape"], data)


def tokenize(ramet, model, text):
    out = run([ramet, "tokenize", "-m", model, "-f", "-", "--special"], text.encode("utf-8"))
    return json.loads(out)


def log_sum_exp(row):
    top = max(row)
    if abs(top) < 600:  # no overflow in binary64: the short way is three times as fast
        return math.log(math.fsum(map(math.exp, row)))
    return top + math.log(math.fsum(math.exp(x - top) for x in row))


def divergence(golden, row):
    """KL divergence in nats of a row of logits from the golden one."""
    golden_norm, norm = log_sum_exp(golden), log_sum_exp(row)
    return max(0.0, math.fsum(math.exp(g - golden_norm) * ((g - golden_norm) - (x - norm)) for g, x in zip(golden, row)))


def largest_difference(golden, row):
    return max(abs(g - x) if math.isfinite(x) else math.inf for g, x in zip(golden, row))


def argmax(row):
    return row.index(max(row))


class Report:
    """Lines of results; remembers failures."""

    def __init__(self):
        self.failures = 0

    def line(self, ok, what, detail):
        self.failures += not ok
        print(f"{'pass' if ok else 'FAIL'}  {what:<44} {detail}", flush=True)

    def control(self, noticed, what):
        """A negative control: the check must notice a planted fault."""
        self.line(noticed, f"control: {what}", "noticed" if noticed else "NOT noticed: the check has no teeth")

    def finish(self):
        print(f"{self.failures} failed" if self.failures else "all passed")
        sys.exit(1 if self.failures else 0)
