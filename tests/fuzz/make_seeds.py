#!/usr/bin/env python3
"""Writes the committed corpora of the fuzz targets, tests/fuzz/corpus/<target>: make_seeds.py

Each kind of file that broke a reader once is there, small, beside good ones of every kind. A name says what must become
of it: ok-* is taken, bad-* refused, any-* either; replay.c checks that. Written from the formats' descriptions, sharing no
code with ramet; tokenizers are those of tests/data/tokenizers. Checksums come from libxxhash.
"""
import ctypes
import ctypes.util
import random
import shutil
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOKENIZERS = HERE.parent / "data" / "tokenizers"
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
TYPE_F32, TYPE_Q8_0 = 0, 8
# number: (values in a block, bytes of a block)
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
          11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2)}


def write(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


# ---- GGUF ----


def text(s):
    data = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return text(value) if kind == STRING else struct.pack("<" + CODES[kind], value)


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + scalar(kind, value)


def array(name, kind, values):
    return text(name) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(scalar(kind, v) for v in values)


def info(name, dims, kind, off, n_dims=None):
    n = len(dims) if n_dims is None else n_dims
    return text(name) + struct.pack("<I", n) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, off)


def gguf(keys, infos=(), data=b"", version=3, n_keys=None, n_tensors=None):
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos) if n_tensors is None else n_tensors,
                                 len(keys) if n_keys is None else n_keys)
    head += b"".join(keys) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data if infos else head


class Tensors:
    """Descriptions and data, each aligned; any small weights."""

    def __init__(self):
        self.infos, self.data, self.random = [], b"", random.Random(1)

    def add(self, name, k, rows=1, kind=TYPE_F32):
        self.data += bytes(-len(self.data) % 32)
        self.infos.append(info(name, [k, rows] if rows > 1 else [k], kind, len(self.data)))
        block, size = BLOCKS[kind]
        if kind == TYPE_F32:
            self.data += struct.pack(f"<{k * rows}f", *(self.random.uniform(-1, 1) for _ in range(k * rows)))
        else:
            self.data += bytes(self.random.randrange(64) for _ in range(k * rows // block * size))


def model_keys(arch, n_layers=1, n_embd=2, n_ff=1, n_heads=1, head_dim=2):
    return [key("general.architecture", STRING, arch), key(f"{arch}.block_count", U32, n_layers),
            key(f"{arch}.context_length", U32, 64), key(f"{arch}.embedding_length", U32, n_embd),
            key(f"{arch}.feed_forward_length", U32, n_ff), key(f"{arch}.attention.head_count", U32, n_heads),
            key(f"{arch}.attention.key_length", U32, head_dim),
            key(f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5)]


def model_tensors(arch, n_vocab, n_embd=2, n_ff=1, q=2, kinds=None, untied=False, without=()):
    """`kinds`: type by the last part of a tensor's name."""
    t, kinds = Tensors(), kinds or {}
    qk, bias, post = arch in ("qwen3", "gemma3"), arch == "qwen2", arch == "gemma3"
    rows = [("token_embd.weight", n_embd, n_vocab, True), ("blk.0.attn_norm.weight", n_embd, 1, True),
            ("blk.0.attn_q.weight", n_embd, q, True), ("blk.0.attn_k.weight", n_embd, q, True),
            ("blk.0.attn_v.weight", n_embd, q, True), ("blk.0.attn_output.weight", q, n_embd, True),
            ("blk.0.attn_q.bias", q, 1, bias), ("blk.0.attn_k.bias", q, 1, bias), ("blk.0.attn_v.bias", q, 1, bias),
            ("blk.0.attn_q_norm.weight", q, 1, qk), ("blk.0.attn_k_norm.weight", q, 1, qk),
            ("blk.0.post_attention_norm.weight", n_embd, 1, post), ("blk.0.ffn_norm.weight", n_embd, 1, True),
            ("blk.0.ffn_gate.weight", n_embd, n_ff, True), ("blk.0.ffn_up.weight", n_embd, n_ff, True),
            ("blk.0.ffn_down.weight", n_ff, n_embd, True), ("blk.0.post_ffw_norm.weight", n_embd, 1, post),
            ("output_norm.weight", n_embd, 1, True), ("output.weight", n_embd, n_vocab, untied)]
    for name, k, n, there in rows:
        if there and name not in without:
            t.add(name, k, n, kinds.get(name.split(".")[-2], TYPE_F32))
    return t


class Fixture:
    """A tokenizer of tests/data/tokenizers; scripts/make_tokenizer_fixture.py has the layout."""

    def __init__(self, name):
        self.data, self.at = (TOKENIZERS / name).read_bytes(), 8
        self.kind = self.string()
        has_pre, pre = self.take("B"), self.string()
        n, n_merges = self.take("I"), self.take("I")
        has_scores, has_types = self.take("B"), self.take("B")
        self.ids = [self.take("i") for _ in range(5)]
        self.flags = [self.take("b") for _ in range(3)]
        sizes = [self.take("H") for _ in range(n)]
        self.pieces = [self.bytes(size) for size in sizes]
        self.pre = pre if has_pre else None
        self.scores = [self.take("f") for _ in range(n)] if has_scores else None
        self.types = [self.take("B") for _ in range(n)] if has_types else None
        self.merges = [self.pieces[self.take("H")] + b" " + self.pieces[self.take("H")] for _ in range(n_merges)]

    def take(self, code):
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def bytes(self, n):
        self.at += n
        return self.data[self.at - n : self.at]

    def string(self):
        return self.bytes(self.take("I"))

    def keys(self):
        g = "tokenizer.ggml."
        keys = [key(g + "model", STRING, self.kind), array(g + "tokens", STRING, self.pieces)]
        if self.pre is not None:
            keys.append(key(g + "pre", STRING, self.pre))
        if self.scores:
            keys.append(array(g + "scores", F32, self.scores))
        if self.types:
            keys.append(array(g + "token_type", I32, self.types))
        if self.merges:
            keys.append(array(g + "merges", STRING, self.merges))
        for name, value in zip(("bos", "eos", "eot", "unknown", "padding"), self.ids):
            if value >= 0:
                keys.append(key(f"{g}{name}_token_id", U32, value))
        for name, value in zip(("add_bos_token", "add_eos_token", "add_space_prefix"), self.flags):
            if value >= 0:
                keys.append(key(g + name, BOOL, value))
        return keys


def byte_pieces():
    """The 256 characters that a byte-level tokenizer writes bytes as."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return [chr(c) for c in plain] + [chr(0x100 + i) for i in range(len(others))]


def small_tokenizer(pieces=None, merges=("a b",), pre="gpt-2", extra=()):
    pieces = byte_pieces() + ["ab"] if pieces is None else pieces
    g = "tokenizer.ggml."
    return [key(g + "model", STRING, "gpt2"), key(g + "pre", STRING, pre), array(g + "tokens", STRING, pieces),
            array(g + "merges", STRING, merges), *extra]


def whole_model(arch, tokenizer, n_vocab, extra=(), **options):
    t = model_tensors(arch, n_vocab, **options)
    n = {"n_embd": options.get("n_embd", 2), "n_ff": options.get("n_ff", 1)}
    return gguf([*model_keys(arch, **n), *extra, *tokenizer], t.infos, t.data)


def good_models():
    families = [("llama", "tiny-llama3.bin"), ("llama", "tiny-smollm.bin"), ("qwen2", "tiny-qwen2.bin"),
                ("qwen3", "tiny-qwen35.bin"), ("gemma3", "tiny-gemma.bin")]
    for arch, name in families:
        f = Fixture(name)
        model = whole_model(arch, f.keys(), len(f.pieces))
        write("gguf", f"ok-{arch}-{name[5:-4]}", model)
        if arch == "gemma3":
            write("gguf", "bad-cut-in-the-data", model[:-1])
            write("gguf", "bad-cut-in-the-keys", model[: len(model) // 3])
    k_quants = {"token_embd": 14, "attn_q": 11, "attn_k": 12, "attn_v": 13, "ffn_gate": 10, "ffn_up": 12}
    legacy = {"token_embd": 2, "attn_q": 3, "attn_k": 6, "attn_v": 7, "ffn_gate": 8, "ffn_up": 1, "output": 30}
    write("gguf", "any-k-quants", whole_model("llama", small_tokenizer(["a", "b", "ab"]), 3, n_embd=256, kinds=k_quants))
    write("gguf", "ok-legacy-quants", whole_model("llama", small_tokenizer(), 257, n_embd=32, kinds=legacy))


def tokenizer_models():
    """What contradicts itself is found before the byte tokens are looked for, so four pieces do."""
    g, pieces = "tokenizer.ggml.", ["a", "b", "ab", "c"]

    def put(name, tokenizer, n_vocab=4):
        write("gguf", name, whole_model("llama", tokenizer, n_vocab))

    put("ok-more-rows-than-tokens", small_tokenizer(), 260)
    put("bad-fewer-rows-than-tokens", small_tokenizer(), 256)
    put("bad-two-pieces-of-one-name", small_tokenizer([*pieces[:3], "a"]))
    put("bad-merge-of-unknown-pieces", small_tokenizer(pieces, ["a zz"]))
    put("bad-unknown-pre", small_tokenizer(pieces, pre="nobody"))
    put("bad-bos-outside", small_tokenizer(pieces, extra=[key(g + "bos_token_id", U32, 4)]))
    put("bad-types-of-another-length", small_tokenizer(pieces, extra=[array(g + "token_type", I32, [1] * 3)]))
    put("bad-unknown-type", small_tokenizer(pieces, extra=[array(g + "token_type", I32, [1, 1, 1, 7])]))
    put("bad-piece-too-long", small_tokenizer([*pieces[:3], "x" * 4097]))
    put("bad-no-byte-tokens", small_tokenizer(pieces))
    put("ok-name-with-escapes", small_tokenizer(extra=[key("general.name", STRING, "\x1b[2Jmodel\n")]), 257)
    rope = [key("llama.rope.scaling.type", STRING, "yarn"), key("llama.rope.scaling.factor", F32, 4.0),
            key("llama.rope.scaling.original_context_length", U32, 16), key("llama.rope.freq_base", F32, 1e6)]
    write("gguf", "ok-yarn", whole_model("llama", small_tokenizer(), 257, extra=rope))


def split_models():
    """In two parts, which fuzz_gguf.c takes as one input: the first has the keys and some tensors."""

    def put(name, no=(0, 1), count=(2, 2), total=None, pieces=("a", "b", "ab")):
        t, parts = model_tensors("llama", len(pieces)), []
        mark = key("split.tensors.count", I32, total or len(t.infos))
        keys = [*model_keys("llama"), *small_tokenizer(pieces, extra=[mark])]
        for i, infos in enumerate((t.infos[:5], t.infos[5:])):
            marks = [key("split.no", U16, no[i]), key("split.count", U16, count[i])]
            parts.append(gguf(marks if i else marks + keys, infos, t.data))
        write("gguf", name, b"SPLT" + struct.pack("<I", len(parts[0])) + parts[0] + parts[1])
        return parts

    put("ok-split", pieces=byte_pieces() + ["ab"])
    parts = put("bad-split-no-byte-tokens")
    put("bad-split-count-differs", count=(2, 3))
    put("bad-split-of-three", count=(3, 3))
    put("bad-split-no-twice", no=(0, 0))
    put("bad-split-no-2", no=(0, 2))
    put("bad-split-total", total=99)
    for name, second in (("empty", b""), ("the-first-again", parts[0]), ("cut", parts[1][:-40])):
        write("gguf", f"bad-split-second-{name}", b"SPLT" + struct.pack("<I", len(parts[0])) + parts[0] + second)


def hostile_gguf():
    """Faults that broke other readers: lengths, counts, shapes, offsets, names, versions."""

    def put(name, data):
        write("gguf", "bad-" + name, data)

    one = [key("a", U32, 1)]
    for version in (0, 1, 2, 4, 0x03000000):
        put(f"version-{version:x}", gguf(one, version=version))
    for name, n in (("2-63", 1 << 63), ("2-64-1", (1 << 64) - 1), ("1-gib", 1 << 30)):
        put(f"key-length-{name}", gguf([struct.pack("<Q", n) + b"a" * 20], n_keys=1))
        put(f"string-length-{name}", gguf([text("k") + struct.pack("<IQ", STRING, n) + b"abc"], n_keys=1))
        put(f"array-of-{name}", gguf([text("k") + struct.pack("<IIQ", ARRAY, U8, n) + b"abc"], n_keys=1))
        put(f"strings-{name}", gguf([text("k") + struct.pack("<IIQ", ARRAY, STRING, n) + bytes(16)], n_keys=1))
        put(f"keys-{name}", gguf(one, n_keys=n))
        put(f"tensors-{name}", gguf(one, n_tensors=n))
    put("nested-array", gguf([text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + struct.pack("<IQ", U8, 1) + b"a"]))
    put("array-of-unknown-type", gguf([text("k") + struct.pack("<IIQ", ARRAY, 13, 1) + b"abcd"]))
    put("unknown-value-type", gguf([text("k") + struct.pack("<I", 99) + b"abcd"]))
    put("bool-2", gguf([key("k", BOOL, 2)]))
    put("empty-key", gguf([key("", U32, 1)]))
    put("long-key", gguf([key("k" * 5000, U32, 1)]))
    put("nul-in-key", gguf([key(b"a\0b", U32, 1)]))
    put("key-not-utf8", gguf([key(b"\xff\xfe", STRING, b"\x80\0")]))
    put("key-twice", gguf([key("k", U32, 1), key("k", F32, 1.0)]))
    for value in (0, 3, 1 << 30, 1 << 31):
        put(f"alignment-{value}", gguf([key("general.alignment", U32, value)], [info("t", [1], 0, 0)], bytes(64)))
    put("alignment-of-a-wrong-type", gguf([key("general.alignment", U64, 32)], [info("t", [1], 0, 0)], bytes(64)))
    shapes = {"2-42": [(1 << 42) + 1, 1152], "2-63": [1 << 63, 2], "2-32": [1 << 32, 1 << 32], "minus-1": [(1 << 64) - 1],
              "zero": [0, 4], "q-row": [33]}
    for name, dims in shapes.items():
        put(f"shape-{name}", gguf([], [info("t", dims, TYPE_Q8_0 if name == "q-row" else TYPE_F32, 0)], bytes(64)))
    for n in (0, 5, 9, 1000000, (1 << 32) - 1):
        put(f"dimensions-{n}", gguf([], [info("t", [1] * min(n, 9), 0, 0, n_dims=n)], bytes(64)))
    for kind in (4, 5, 31, 36, 255):
        put(f"tensor-type-{kind}", gguf([], [info("t", [32], kind, 0)], bytes(128)))
    for name, off in (("unaligned", 4), ("past-the-end", 64), ("2-64-8", (1 << 64) - 8), ("2-64-32", (1 << 64) - 32)):
        put(f"offset-{name}", gguf([], [info("t", [8], 0, off)], bytes(64)))
    two = [info("t", [16], 0, 0), info("u", [16], 0, 32)]
    put("overlapping", gguf([], two, bytes(128)))
    put("descending", gguf([], [info("t", [8], 0, 32), info("u", [8], 0, 0)], bytes(128)))
    put("tensor-twice", gguf([], [info("t", [8], 0, 0), info("t", [8], 0, 32)], bytes(64)))
    put("missing-shard", gguf([key("split.count", U16, 2), key("split.no", U16, 0)]))
    put("empty", b"")
    put("magic-alone", b"GGUF")
    lacking = model_tensors("llama", 2, without=("blk.0.ffn_up.weight",))
    put("tensor-missing", gguf(model_keys("llama"), lacking.infos, lacking.data))
    put("unknown-architecture", gguf(model_keys("nobody")))
    put("heads-0", gguf(model_keys("llama", n_heads=0)))
    put("layers-2-32-1", gguf(model_keys("llama", n_layers=(1 << 32) - 1)))
    put("layers-without-tensors", gguf(model_keys("llama", n_layers=1000), [info("token_embd.weight", [2], 0, 0)], bytes(32)))
    put("experts", gguf([*model_keys("llama"), key("llama.expert_count", U32, 8)]))
    put("no-tokenizer", whole_model("llama", [], 2))


# ---- adapters, for the model of fuzz_lora.c: one layer, all widths 4 ----


def adapters():
    def keys(arch="llama", kind="lora", alpha=8.0):
        return [key("general.type", STRING, "adapter"), key("general.architecture", STRING, arch),
                key("adapter.type", STRING, kind), key("adapter.lora.alpha", F32, alpha)]

    def put(name, pairs, heads=None):
        t = Tensors()
        for tensor, k, rows, *kind in pairs:
            t.add(tensor, k, rows, *kind)
        write("lora", name, gguf(heads or keys(), t.infos, t.data + bytes(32)))

    q = [("blk.0.attn_q.weight.lora_a", 4, 2), ("blk.0.attn_q.weight.lora_b", 2, 4)]
    down = [("blk.0.ffn_down.weight.lora_b", 1, 4), ("blk.0.ffn_down.weight.lora_a", 4, 1)]
    put("ok-one", q)
    put("ok-two", q + down)
    put("ok-f16", [(*row, 1) for row in q])
    put("ok-wide", [("blk.0.attn_v.weight.lora_a", 4, 64), ("blk.0.attn_v.weight.lora_b", 64, 4, TYPE_Q8_0)])
    put("ok-alpha-0", q, keys(alpha=0.0))
    put("bad-alpha-nan", q, keys(alpha=float("nan")))
    put("any-alpha-huge", q, keys(alpha=3e38))
    put("bad-arch", q, keys(arch="qwen2"))
    put("bad-kind", q, keys(kind="control_vector"))
    put("bad-half", q[:1])
    put("bad-other-half", q[1:])
    put("bad-ranks-differ", [q[0], ("blk.0.attn_q.weight.lora_b", 3, 4)])
    put("bad-shape", [("blk.0.attn_q.weight.lora_a", 5, 2), q[1]])
    put("bad-layer", [("blk.1.attn_q.weight.lora_a", 4, 2), ("blk.1.attn_q.weight.lora_b", 2, 4)])
    put("bad-layer-2-32", [("blk.4294967296.attn_q.weight.lora_a", 4, 2), ("blk.4294967296.attn_q.weight.lora_b", 2, 4)])
    put("bad-vector", [("blk.0.attn_norm.weight.lora_a", 4, 2), ("blk.0.attn_norm.weight.lora_b", 2, 1)])
    put("bad-embedding", [("token_embd.weight.lora_a", 4, 2), ("token_embd.weight.lora_b", 2, 4)])
    put("bad-neither", q + [("blk.0.attn_q.weight", 4, 4)])
    put("bad-name-alone", [(".lora_a", 4, 2), (".lora_b", 2, 4)])
    put("bad-empty", [])
    put("bad-a-model", q, model_keys("llama"))
    put("bad-alora", q, [*keys(), array("adapter.alora.invocation_tokens", U32, [1])])


# ---- snapshots, for the caches of fuzz_snapshot.c ----


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def load_xxh3():
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_128bits.restype = Hash128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def digest(data):
        h = library.XXH3_128bits(data, len(data))
        return struct.pack(">QQ", h.high, h.low)

    return digest


xxh3 = load_xxh3()


class Snapshot:
    def __init__(self, kv, n_tokens, has_logits=1, sampler=b""):
        layers, heads, dim = [(1, 1, 4), (2, 1, 4), (1, 2, 33), (1, 1, 40)][kv]
        blocks = (dim + 31) // 32
        vector = [8 * dim, 4 * dim, 3 * dim + 2 * blocks, 2 * dim + 4 * blocks][kv]
        r = random.Random(kv * 1000 + n_tokens)
        self.tokens = [r.randrange(37) for _ in range(n_tokens)]
        self.logits = bytes(r.randrange(256) for _ in range(4 * 37 * has_logits))
        self.sampler, self.recurrent = sampler, b""
        self.positions = bytes(r.randrange(256) for _ in range(n_tokens * layers * heads * vector))
        self.numbers = [layers, heads, dim, 37, kv, kv, n_tokens, has_logits]
        self.fields = {0x0001: b"tiny model", 0x0002: b"llama", 0x0003: b"owner", 0x0004: b"",
                       0x8001: b"1-0123456789abcdef01234567890abc", 0x8002: bytes(i * 7 + 1 & 255 for i in range(32)),
                       0x8003: bytes(i * 11 + 3 & 255 for i in range(32))}
        self.version, self.flags, self.chunk_bytes, self.reserved = 2, 0, 1 << 18, bytes(72)
        self.order, self.generation = sorted, 7

    def write(self):
        body = [struct.pack(f"<{len(self.tokens)}i", *self.tokens), self.logits, self.sampler, self.recurrent, self.positions]
        fields = {**self.fields, **{0x8004 + i: struct.pack("<I", n) for i, n in enumerate(self.numbers)}}
        fields.setdefault(0x800C, struct.pack("<5Q", *map(len, body)))
        if self.version >= 2:
            fields[0x800D] = struct.pack("<Q", self.generation)
        coded = b"".join(struct.pack("<HHI", tag, 0, len(fields[tag])) + fields[tag] for tag in self.order(fields))
        header_bytes, body = 112 + len(coded) + 16, b"".join(body)
        n_chunks = (header_bytes + len(body) - 1) // self.chunk_bytes + 1 if body and self.chunk_bytes else 0
        head = struct.pack("<8sIIIIQ72sII", b"RAMETSNP", self.version, header_bytes, self.flags, self.chunk_bytes,
                           header_bytes + len(body) + 16 * n_chunks, self.reserved, len(fields), 0) + coded
        mark, hashes = xxh3(head), b""
        for i in range(n_chunks):
            begin, end = max(i * self.chunk_bytes - header_bytes, 0), (i + 1) * self.chunk_bytes - header_bytes
            hashes += xxh3(body[begin:end] + mark + struct.pack("<Q", i))
        return head + mark + body + hashes


def snapshots():
    def put(name, kv=0, n_tokens=5, change=None, **options):
        s = Snapshot(kv, n_tokens, **options)
        if change:
            change(s)
        write("snapshot", name, s.write())
        return s.write()

    def with_field(tag, value):
        return lambda s: s.fields.update({tag: value})

    def with_number(index, value):
        return lambda s: s.numbers.__setitem__(index, value)

    good = put("ok-f32")
    for kv, name in enumerate(("f32", "f16", "vq8", "q8")):
        put(f"ok-{name}-two-tiles", kv, 70 if kv != 2 else 65)
        put(f"ok-{name}-1", kv, 1)
    put("ok-evicts", 0, 128)
    put("ok-empty", 0, 0, has_logits=0)
    put("ok-no-logits", 3, 16, has_logits=0)
    put("ok-sampler", 1, 17, sampler=b"sampler state")
    put("ok-large-chunks", change=lambda s: setattr(s, "chunk_bytes", 1 << 24))
    put("ok-unknown-field", change=with_field(0x0042, b"later"))
    put("ok-no-names", change=lambda s: s.fields.update({tag: b"" for tag in (1, 2, 3, 4)}))
    put("bad-unknown-critical-field", change=with_field(0x9000, b"later"))
    put("bad-name-too-long", change=with_field(0x0001, b"n" * 128))
    put("bad-nul-in-a-name", change=with_field(0x0003, b"a\0b"))
    put("bad-other-weights", change=with_field(0x8002, bytes(32)))
    put("bad-other-tokenizer", change=with_field(0x8003, bytes(32)))
    put("bad-other-numerics", change=with_field(0x8001, b"1-another"))
    put("bad-field-missing", change=lambda s: s.fields.pop(0x8003))
    put("bad-fields-out-of-order", change=lambda s: setattr(s, "order", lambda tags: sorted(tags, reverse=True)))
    for index, name in enumerate(("layers", "heads", "dimension", "vocabulary", "kv", "payload", "tokens", "has-logits")):
        for value in (0, 3, 1 << 31, (1 << 32) - 1):
            if Snapshot(0, 5).numbers[index] != value:
                put(f"bad-{name}-{value:x}", change=with_number(index, value))
    for size in (0, (1 << 17) - 1, (1 << 24) + 1, (1 << 32) - 1):
        put(f"bad-chunks-{size:x}", change=lambda s, size=size: setattr(s, "chunk_bytes", size))
    for total in (1 << 32, (1 << 63), (1 << 64) - 1):
        sizes = struct.pack("<5Q", 20, 148, 0, 0, total)
        put(f"bad-positions-{total:x}", change=with_field(0x800C, sizes))
    put("bad-recurrent", change=lambda s: setattr(s, "recurrent", b"state"))
    put("bad-token-outside", change=lambda s: s.tokens.__setitem__(3, 37))
    put("bad-token-negative", change=lambda s: s.tokens.__setitem__(3, -1))
    put("ok-legacy", change=lambda s: setattr(s, "version", 1))
    put("bad-version", change=lambda s: setattr(s, "version", 3))
    put("bad-flags", change=lambda s: setattr(s, "flags", 0x80000000))
    put("bad-encrypted", change=lambda s: setattr(s, "flags", 1))
    put("bad-reserved", change=lambda s: setattr(s, "reserved", bytes(71) + b"x"))
    put("bad-window", 0, 129)
    write("snapshot", "bad-cut", good[:-1])
    write("snapshot", "bad-longer", good + b"x")
    write("snapshot", "bad-preamble-alone", good[:112])
    for at in (9, 150, 500, len(good) - 3):
        write("snapshot", f"bad-flipped-{at}", good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])


# ---- text and ids; arguments, numbers, lists, JSON ----


def texts():
    samples = {
        "words": "It's 12345 don'ts, brutalist  users\r\n\n\t\tx ".encode(),
        "unicode": "naïve é e\u0301 日本語 🎉🇩🇪 \u2029\u00a0\u180e \u2581x\u0000".encode(),
        "not-utf8": b"a\xff\xc3(\xe2\x82\xed\xa0\x80\xf4\x90\x80\x80\xc0\xaf end\xf0\x9f",
        "specials": b"<s>user</s> <bos><start_of_turn>model\n<|im_start|>user<|im_end|><|begin_of_text|><|eot_id|><unk>",
        "bos-first": b"<bos> x<bos>",
        "llama-bos-first": b"<|begin_of_text|> x",
        "spaces": b"   a  b \n \n\n   ",
        "long": b"a" * 600 + b" " * 600,
    }
    for kind in range(8):
        for flags in (0, 3):
            for name, data in samples.items():
                if kind in (0, 3, 5) or name == ("unicode" if flags else "specials"):
                    write("tokenizer", f"ok-{kind}-{flags}-{name}", bytes([kind, flags]) + data)
    ids = struct.pack("<40h", *range(40))
    write("tokenizer", "ok-ids", bytes([5, 4]) + ids)
    write("tokenizer", "ok-byte-ids", bytes([6, 4]) + struct.pack("<256h", *range(256)))
    write("tokenizer", "bad-ids-negative", bytes([0, 4]) + struct.pack("<2h", 1, -1))
    write("tokenizer", "bad-ids-past-the-end", bytes([0, 4]) + struct.pack("<2h", 1, 32000))


def command():
    commands = ["run", "build", "fork", "info", "tree", "bench", "verify", "tokenize", "detokenize", "logits", "perplexity",
                "models"]
    lines = {
        "ok-run": (0, "-m\nx.gguf\n-p\nhello\n-n5\n--temp\n0.5\n--top-p=1\n-s\n18446744073709551615\nrest"),
        "ok-kv": (6, "--kv\nq8\n--page-tokens\n16\n--ctx-mem-budget\n1.5GiB\n-t\n2"),
        "ok-end": (3, "--\n--verify"),
        "bad-near": (0, "--promt\nx"),
        "bad-letters": (0, "-tmep\n1"),
        "bad-short-for-two": (0, "--t\n1"),
        "bad-no-value": (5, "--reps"),
        "bad-value": (0, "--temp\nnan"),
        "bad-pages": (6, "--page-tokens\n17"),
        "bad-flag-with-a-value": (3, "--verify=yes"),
        "bad-overflow": (0, "-n\n4294967296"),
        "bad-choice": (6, "--kernels\navx"),
    }
    for name, (index, argument_lines) in lines.items():
        write("cli", f"{name}-{commands[index]}", bytes([0, index]) + argument_lines.encode())
    for number in ("0", "007", "18446744073709551615", "1.5K", "512MiB", "8G", "8000000T"):
        write("cli", f"ok-number-{number}", bytes([1, 0]) + number.encode())
    for number in ("", "-1", "+1", " 1", "18446744073709551616x", "1e999", "nan", "1Q", "9e18", "1e18", "8388608T"):
        write("cli", f"bad-number-{number.strip() or 'none'}", bytes([1, 0]) + number.encode())
    for name, ids in {"ok-ids": "1, 2,3\n[4]", "ok-no-ids": "[]", "bad-ids-negative": "-1", "bad-ids-word": "1 two",
                      "bad-ids-overflow": "2147483648", "bad-ids-nul": "1\0002"}.items():
        write("cli", name, bytes([2, 0]) + ids.encode())
    for name, data in {"json": b'a"\\\n\t\x01\x7f/', "json-utf8": "é日🎉\0".encode(),
                       "json-not-utf8": b"\xff\xc3(\xed\xa0\x80\xf4\x90\x80\x80", "json-nan": b"\0" * 6 + b"\xf8\x7f"}.items():
        write("cli", f"ok-{name}", bytes([4, 0]) + data)
    layers = '{"layers":[{"mediaType":"application/vnd.ollama.image.params","digest":"sha256:b"},%s]}'
    model = '{"mediaType":"application/vnd.ollama.image.model","digest":%s}'
    for name, data in {"ok-manifest": layers % model % '"sha256:a"', "bad-manifest-no-blob": layers % model % '"sha256:c"',
                       "bad-manifest-path": layers % model % '"sha256:../blobs/sha256-a"',
                       "bad-manifest-number": layers % model % "1", "bad-manifest-null": "null",
                       "bad-manifest-layers": '{"layers":{"mediaType":1}}', "bad-manifest-deep": "[" * 3000}.items():
        write("cli", name, bytes([3, 0]) + data.encode())


def main():
    shutil.rmtree(HERE / "corpus", ignore_errors=True)
    good_models()
    tokenizer_models()
    split_models()
    hostile_gguf()
    adapters()
    snapshots()
    texts()
    command()
    for folder in sorted((HERE / "corpus").iterdir()):
        files = list(folder.iterdir())
        print(f"{folder.name}: {len(files)} seeds, {sum(f.stat().st_size for f in files)} bytes")


if __name__ == "__main__":
    main()
