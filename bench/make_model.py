#!/usr/bin/env python3
"""Writes a synthetic GGUF model of any size, to measure speed where no real model is at hand: make_model.py OUT.gguf

    --type q4_k|q8_0|q4_0   of all matrices (default q4_k)
    --layers 24 --width 2048 --ff 5632 --heads 32 --kv-heads 8 --vocab 32000

The shape is llama's. The weights are random and scaled so that activations stay of ordinary size; the text it writes
means nothing. The same options always give the same file, byte for byte. Only the standard library.
"""

import argparse
import random
import struct
import sys
from pathlib import Path

ALIGNMENT = 32
U32, F32, STRING, ARRAY = 4, 6, 8, 9
POOL_BYTES = 8 << 20  # random bytes; each matrix begins somewhere else in them


def half(value):
    return struct.pack("<e", value)


class BlockType:
    """A quantised type: blocks of random bytes, but for the scales at their beginning, which make values of `spread`."""

    def __init__(self, name, gguf_id, values, size, scales):
        self.name, self.id, self.values, self.size, self.scales = name, gguf_id, values, size, scales

    def bytes_of(self, n_values):
        return n_values // self.values * self.size

    def pool(self, rng, spread):
        n_blocks = POOL_BYTES // self.size
        data = bytearray(rng.randbytes(n_blocks * self.size))
        at = 0
        for factor in self.scales:
            for byte in half(spread * factor):
                data[at :: self.size] = bytes([byte]) * n_blocks
                at += 1
        return bytes(data)


# Factors: scale of a block, and of what it subtracts, for values of deviation 1 around 0. Q4_K: scales and minima of 6
# bits are 36.6 in square mean, and 7.5 of its 0..15 are subtracted on average.
TYPES = {t.name: t for t in (
    BlockType("q4_k", 12, 256, 144, (1 / 280, 7.5 / 280)),
    BlockType("q8_0", 8, 32, 34, (1 / 74,)),
    BlockType("q4_0", 2, 32, 18, (1 / 4.6,)),
)}


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def key(name, kind, payload):
    return string(name) + struct.pack("<I", kind) + payload


def vocabulary(n):
    """SPM's: three special tokens, the 256 bytes, then words that nobody says."""
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    pieces += [f"w{i}" for i in range(len(pieces), n)]
    kinds += [1] * (n - len(kinds))
    return pieces, kinds


def metadata(o):
    pieces, kinds = vocabulary(o.vocab)
    number = lambda name, value: key(f"llama.{name}", U32, struct.pack("<I", value))  # noqa: E731
    array = lambda kind, count, data: struct.pack("<IQ", kind, count) + data  # noqa: E731
    return [
        key("general.architecture", STRING, string("llama")),
        key("general.name", STRING, string(f"synthetic {o.layers}x{o.width} {o.type}")),
        number("block_count", o.layers), number("context_length", 32768), number("embedding_length", o.width),
        number("feed_forward_length", o.ff), number("attention.head_count", o.heads),
        number("attention.head_count_kv", o.kv_heads), number("rope.dimension_count", o.width // o.heads),
        key("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        key("llama.rope.freq_base", F32, struct.pack("<f", 10000.0)),
        key("tokenizer.ggml.model", STRING, string("llama")),
        key("tokenizer.ggml.tokens", ARRAY, array(STRING, o.vocab, b"".join(map(string, pieces)))),
        key("tokenizer.ggml.scores", ARRAY, array(F32, o.vocab, struct.pack(f"<{o.vocab}f", *(-float(i) for i in range(o.vocab))))),
        key("tokenizer.ggml.token_type", ARRAY, array(5, o.vocab, struct.pack(f"<{o.vocab}i", *kinds))),
        key("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 1)),
        key("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2)),
        key("tokenizer.ggml.unknown_token_id", U32, struct.pack("<I", 0)),
    ]


def tensors(o):
    """(name, values of a row, rows); one row: a norm, in float32."""
    kv = o.width // o.heads * o.kv_heads
    yield "token_embd.weight", o.width, o.vocab
    for i in range(o.layers):
        for name, k, rows in (("attn_norm", o.width, 1), ("attn_q", o.width, o.width), ("attn_k", o.width, kv),
                              ("attn_v", o.width, kv), ("attn_output", o.width, o.width), ("ffn_norm", o.width, 1),
                              ("ffn_gate", o.width, o.ff), ("ffn_up", o.width, o.ff), ("ffn_down", o.ff, o.width)):
            yield f"blk.{i}.{name}.weight", k, rows
    yield "output_norm.weight", o.width, 1
    yield "output.weight", o.width, o.vocab


def pad(n):
    return -n % ALIGNMENT


def header(o, kind):
    infos, offset = [], 0
    for name, k, rows in tensors(o):
        is_norm = rows == 1
        shape = struct.pack("<IQ", 1, k) if is_norm else struct.pack("<IQQ", 2, k, rows)
        infos.append(string(name) + shape + struct.pack("<IQ", 0 if is_norm else kind.id, offset))
        size = 4 * k if is_norm else kind.bytes_of(k * rows)
        offset += size + pad(size)
    keys = metadata(o)
    data = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)
    return data + bytes(pad(len(data)))


def write_blocks(file, kind, pool, rng, n_bytes):
    begin = rng.randrange(len(pool) // kind.size) * kind.size
    left = n_bytes
    while left:
        part = pool[begin : begin + left]
        file.write(part)
        left -= len(part)
        begin = 0


def write(o, file):
    kind, rng = TYPES[o.type], random.Random(1)
    pools = {k: kind.pool(rng, k**-0.5) for k in (o.width, o.ff)}
    file.write(header(o, kind))
    for _, k, rows in tensors(o):
        if rows == 1:
            size = 4 * k
            file.write(struct.pack("<f", 1.0) * k)
        else:
            size = kind.bytes_of(k * rows)
            write_blocks(file, kind, pools[k], rng, size)
        file.write(bytes(pad(size)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=TYPES, default="q4_k")
    for name, value in (("layers", 24), ("width", 2048), ("ff", 5632), ("heads", 32), ("kv-heads", 8), ("vocab", 32000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    o = parser.parse_args()
    values = TYPES[o.type].values
    if o.width % values or o.ff % values or o.width % o.heads or o.heads % o.kv_heads or o.vocab < 300:
        sys.exit(f"make_model: width and ff must be multiples of {values}, heads must divide, vocab be at least 300")
    with open(o.out, "wb") as file:
        write(o, file)
    print(f"{o.out}: {o.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
