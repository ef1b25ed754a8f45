"""The bars that ramet sets itself, and what was measured for each. bench/tables.py shows them."""

from typing import NamedTuple

from results import groups, median, ratios, select, values


class Bar(NamedTuple):
    what: str
    is_least: bool  # the bound is the least that passes, else the most
    bound: float
    unit: str
    found: list  # (value, where) of every group

    def worst(self):
        return (min if self.is_least else max)(self.found)

    def passes(self, value):
        return value >= self.bound if self.is_least else value <= self.bound


# ------------------------------------------------- figures of one group's runs


def quotients(above, below):
    return [a / b for a, b in zip(above, below)]


def prefill_gain(group):
    return ratios(group, "prefill.tokens_per_second")


def decode_gain(group):
    return ratios(group, "decode.tokens_per_second")


def batch_gain(group):
    return quotients(values(group, "branches.tokens_per_second", branches=8), values(group, "decode.tokens_per_second"))


def restore_gain(group):
    return quotients(values(group, "prefill.nanoseconds"), values(group, "restore.nanoseconds"))


def fork_nanoseconds(group):
    return quotients(values(group, "fork.nanoseconds"), values(group, "fork.count"))


def forks_of_32_us(group):
    return [32e-3 * nanoseconds for nanoseconds in fork_nanoseconds(group)]


def over_file(group):
    """Memory without keys and values, as a multiple of the file."""
    other = [a - b for a, b in zip(values(group, "memory.resident_bytes"), values(group, "memory.kv_bytes"))]
    return quotients(other, values(group, "memory.file_bytes"))


def scaled(figure, scale):
    return lambda group: [scale * value for value in values(group, figure)]


# ---------------------------------------------------------------------- the bars

SAME_FILES = [  # type, words in the file's name, bound
    ("Q4_1", "smollm2 q4_1", 3.0),
    ("Q4_0", "smollm2 q4_0", 1.8),
    ("Q8_0", "smollm2 q8_0", 1.8),
    ("Q4_K_M", "smollm2 q4_k_m", 2.0),
    ("Q6_K", "smollm2 q6_k", 2.0),
    ("F16", "smollm2 f16", 1.2),
    ("Gemma 3 270M Q4_K_M", "gemma3 q4_k_m", 2.0),
]


def named(rows, words):
    return [row for row in rows if all(word in row.model.lower() for word in words.split())]


def found(rows, measure, **fields):
    """The median of `measure` in every group that has it."""
    return [
        (median(numbers), f"{model}, {threads} threads, {tokens} tokens")
        for model, threads, tokens, group in groups(select(rows, **fields))
        if (numbers := measure(group))
    ]


def all_bars(rows):
    fast, held = select(rows, section="speed"), select(rows, section="state")
    small = named(held, "smollm2")
    at_512, at_2048 = {"tokens": 512}, {"tokens": 2048}
    bars = [
        Bar(f"prefill 512, {name}", True, bound, "x", found(named(fast, words), prefill_gain, threads=2, **at_512))
        for name, words, bound in SAME_FILES
    ]
    bars += [Bar(f"prefill {n:,}", True, 1.5, "x", found(fast, prefill_gain, tokens=n)) for n in (2048, 8192)]
    read, saved, restored = (scaled(f"{row}.share_of_limit", 100) for row in ("decode", "snapshot", "restore"))
    return bars + [
        Bar("decode", True, 1.3, "x", found(fast, decode_gain, **at_512)),
        Bar("decode, of read bandwidth", True, 80, "%", found(fast, read, **at_512)),
        Bar("8 branches as one batch, against one", True, 4, "x", found(held, batch_gain)),
        Bar("32 forks at 2,048", False, 5, "us", found(held, forks_of_32_us, **at_2048)),
        Bar("pages that forks allocate", False, 0, "", found(held, scaled("fork.pages_allocated", 1))),
        Bar("snapshot, of copy bandwidth", True, 50, "%", found(held, saved, **at_2048)),
        Bar("restore, of copy bandwidth", True, 70, "%", found(held, restored, **at_2048)),
        Bar("restore of 2,048 against prefill, SmolLM2", True, 200, "x", found(small, restore_gain, **at_2048)),
        Bar("SmolLM2 ready", False, 500, "ms", found(small, scaled("load.nanoseconds", 1e-6))),
        Bar("memory without pages, against the file", False, 1.15, "x", found(held, over_file)),
    ]
