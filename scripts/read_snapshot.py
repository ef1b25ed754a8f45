#!/usr/bin/env python3
"""Reads a ramet snapshot, from docs/FORMAT.md alone, and prints what is in it as JSON.

    scripts/read_snapshot.py FILE [--key KEYFILE] [--values]

With --values also values_sha256: of what the rows mean, each as float32; for each position, layer by layer, the K of each KV
head, then the V of each.
Shares no code with the library: a test compares the two. Standard library only, but for the module cryptography for
encrypted files; checksums are compared when the module xxhash can be imported. Exit code 5 and one line on stderr for a
file that is not as the format says.
"""
import argparse
import array
import hashlib
import hmac
import json
import struct
import sys

try:
    import xxhash
except ImportError:
    xxhash = None

PREAMBLE = struct.Struct("<8sIIIIQ32s32s8sII")
ENCRYPTED = 1
PRECISIONS = ["f32", "f16", "vq8", "q8"]
SECTIONS = ["tokens", "logits", "sampler", "recurrent", "positions"]
TILE = 64
TEXT, RAW, U32, U64, U64X5 = range(5)
FIELDS = {
    0x0001: ("model_name", TEXT, 127),
    0x0002: ("arch", TEXT, 31),
    0x0003: ("owner", TEXT, 127),
    0x0004: ("marking", TEXT, 127),
    0x8001: ("numerics_id", TEXT, 32),
    0x8002: ("weights_sha256", RAW, 32),
    0x8003: ("tokenizer_sha256", RAW, 32),
    0x8004: ("n_layers", U32, 4),
    0x8005: ("n_kv_heads", U32, 4),
    0x8006: ("head_dim", U32, 4),
    0x8007: ("n_vocab", U32, 4),
    0x8008: ("kv", U32, 4),
    0x8009: ("payload", U32, 4),
    0x800A: ("n_tokens", U32, 4),
    0x800B: ("has_logits", U32, 4),
    0x800C: ("section_bytes", U64X5, 40),
    0x800D: ("generation", U64, 8),
}
SINCE = {"generation": 2}  # the version that brought a field; the others are of version 1


class Malformed(Exception):
    pass


def require(condition, what):
    if not condition:
        raise Malformed(what)


def check_hash(data, stored, what):
    if xxhash is not None:
        require(xxhash.xxh3_128_digest(data) == stored, f"checksum of {what}")


def read_value(kind, limit, value, name):
    require(len(value) <= limit if kind == TEXT else len(value) == limit, f"length of {name}")
    if kind == TEXT:
        require(b"\0" not in value, f"NUL in {name}")
        return value.decode("utf-8", "replace")
    if kind == RAW:
        return value.hex()
    numbers = list(struct.unpack({U32: "<I", U64: "<Q", U64X5: "<5Q"}[kind], value))
    return numbers if kind == U64X5 else numbers[0]


def read_fields(data, n_fields, version):
    found, at, last = {}, 0, 0
    known = {tag: field for tag, field in FIELDS.items() if SINCE.get(field[0], 1) <= version}
    for _ in range(n_fields):
        require(at + 8 <= len(data), "field past the header")
        tag, zero, length = struct.unpack_from("<HHI", data, at)
        value = data[at + 8 : at + 8 + length]
        require(len(value) == length and zero == 0 and tag > last, f"field {tag:#06x}")
        at, last = at + 8 + length, tag
        if tag in known:
            name, kind, limit = known[tag]
            found[name] = read_value(kind, limit, value, name)
        else:
            require(not tag & 0x8000, f"unknown critical field {tag:#06x}")
    require(at == len(data), "bytes left over in the header")
    require(len(found) == len(known), "missing fields")
    return found


def row_bytes(header):
    d, b = header["head_dim"], (header["head_dim"] + 31) // 32
    vector = {"f32": 8 * d, "f16": 4 * d, "vq8": 3 * d + 2 * b, "q8": 2 * d + 4 * b}
    return header["n_layers"] * header["n_kv_heads"] * vector[PRECISIONS[header["payload"]]]


def read_header(data):
    require(len(data) >= PREAMBLE.size, "shorter than a preamble")
    preamble = PREAMBLE.unpack_from(data)
    magic, version, header_bytes, flags, chunk_bytes, file_bytes, salt, commitment, reserved, n_fields, zero = preamble
    require(magic == b"RAMETSNP", "magic")
    require(version in (1, 2), f"version {version}")
    require(file_bytes == len(data), f"file has {len(data)} bytes, header says {file_bytes}")
    require(128 <= header_bytes <= min(65536, len(data)), "header_bytes")
    header_hash = data[header_bytes - 16 : header_bytes]
    check_hash(data[: header_bytes - 16], header_hash, "the header")
    require(flags == 0 or (flags == ENCRYPTED and version >= 2), f"flags {flags:#x}")
    require(1 << 17 <= chunk_bytes <= 1 << 24, "chunk_bytes")
    require(not any(reserved if flags else salt + commitment + reserved) and zero == 0, "reserved bytes")
    header = {"format_version": version, "header_bytes": header_bytes, "file_bytes": file_bytes, "chunk_bytes": chunk_bytes}
    header["encrypted"] = bool(flags)
    header.update(read_fields(data[PREAMBLE.size : header_bytes - 16], n_fields, version))
    require(0 < header["n_vocab"] < 1 << 31 and header["kv"] < 4 and header["payload"] < 4 and header["has_logits"] < 2, "ranges")
    n_tokens = header["n_tokens"]
    sizes = dict(zip(SECTIONS, header["section_bytes"]))
    require(sizes["tokens"] == 4 * n_tokens, "token bytes")
    require(sizes["logits"] == 4 * header["n_vocab"] * header["has_logits"], "logit bytes")
    require(sizes["sampler"] <= 65536 and sizes["recurrent"] == 0, "sampler or recurrent bytes")
    require(sizes["positions"] == n_tokens * row_bytes(header), "position bytes")
    require(header["payload"] >= header["kv"], "rows of a wider precision than the cache's")
    return header, header_hash


def derive(header_raw, key):
    """The digest of an encrypted file's header and the file's key, after the commitment."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    salt, commitment = header_raw[32:64], header_raw[64:96]
    digest = hashlib.sha256(header_raw[:64] + bytes(32) + header_raw[96:-16]).digest()
    made = HKDF(SHA256(), 64, salt, b"ramet snapshot" + digest).derive(key)
    require(hmac.compare_digest(made[32:], commitment), "key commitment: another key, or a changed header")
    return digest, made[:32]


def open_chunk(chunk, tag, index, n_chunks, digest, file_key):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(file_key).decrypt(struct.pack("<QI", index, index + 1 == n_chunks), chunk + tag, digest)
    except InvalidTag:
        raise Malformed(f"seal of chunk {index}") from None


def read_body(data, header, header_hash, key):
    begin, size = header["header_bytes"], header["chunk_bytes"]
    end = begin + sum(header["section_bytes"])
    n_chunks = (end + size - 1) // size if end > begin else 0
    require(len(data) == end + 16 * n_chunks, "file length")
    require(key is not None or not header["encrypted"], "encrypted: --key is needed")
    secrets = derive(data[:begin], key) if header["encrypted"] else None
    body = []
    for index in range(n_chunks):
        chunk = data[max(index * size, begin) : min((index + 1) * size, end)]
        stored = data[end + 16 * index : end + 16 * index + 16]
        if secrets:
            chunk = open_chunk(chunk, stored, index, n_chunks, *secrets)
        else:
            check_hash(chunk + header_hash + struct.pack("<Q", index), stored, f"chunk {index}")
        body.append(chunk)
    return b"".join(body)


def codes(header):
    """Of a K and of a V: (elements, bytes of one), and of those with scales the same of these."""
    d, blocks = header["head_dim"], (header["head_dim"] + 31) // 32
    f32, f16, q8 = [(d, 4)], [(d, 2)], [(d, 1), (blocks, 2)]
    return {"f32": (f32, f32), "f16": (f16, f16), "vq8": (f16, q8), "q8": (q8, q8)}[PRECISIONS[header["payload"]]]


def vector_parts(header):
    """Of one layer's tile: per vector (elements, bytes of one, whether positions are adjacent), heads in order."""
    heads, (k, v) = header["n_kv_heads"], codes(header)
    return [(n, width, True) for n, width in k] * heads + [(n, width, False) for n, width in v] * heads


def rows_of(tile, n, header):
    """The rows of a tile of n positions: each position's own bytes, in the order of the tile."""
    rows, at = [[] for _ in range(n)], 0
    for count, width, adjacent in vector_parts(header) * header["n_layers"]:
        matrix = array.array({4: "I", 2: "H", 1: "B"}[width], tile[at : at + n * count * width])
        at += n * count * width
        for pos in range(n):
            vector = matrix[pos::n] if adjacent else matrix[pos * count : (pos + 1) * count]
            rows[pos].append(vector.tobytes())
    require(at == len(tile), "tile bytes")
    return b"".join(part for row in rows for part in row)


def read_rows(positions, header):
    size, out = row_bytes(header), []
    for first in range(0, header["n_tokens"], TILE):
        n = min(TILE, header["n_tokens"] - first)
        out.append(rows_of(positions[first * size : (first + n) * size], n, header))
    return b"".join(out)


def vector_values(row, at, parts):
    """The numbers of one vector that begins at `at` of a row, and where it ends."""
    (count, width), *scales = parts
    values = struct.unpack_from(f"<{count}{ {4: 'f', 2: 'e', 1: 'b'}[width] }", row, at)
    at += count * width
    if scales:
        blocks = struct.unpack_from(f"<{scales[0][0]}e", row, at)
        at += 2 * len(blocks)
        values = [value * blocks[i // 32] for i, value in enumerate(values)]
    return values, at


def values_of(rows, header):
    """The rows of all positions as float32: a product of a scale and an integer has 18 bits, so it is exact."""
    k, v = codes(header)
    out, at = [], 0
    while at < len(rows):
        for parts in [k] * header["n_kv_heads"] + [v] * header["n_kv_heads"]:
            values, at = vector_values(rows, at, parts)
            out.append(struct.pack(f"<{len(values)}f", *values))
    return b"".join(out)


def read_snapshot(data, key=None, with_values=False):
    header, header_hash = read_header(data)
    body, at, part = read_body(data, header, header_hash, key), 0, {}
    for name, n in zip(SECTIONS, header["section_bytes"]):
        part[name], at = body[at : at + n], at + n
    tokens = list(struct.unpack(f"<{header['n_tokens']}i", part["tokens"]))
    require(all(0 <= t < header["n_vocab"] for t in tokens), "token outside the vocabulary")
    part["positions"] = read_rows(part["positions"], header)
    if with_values:
        header["values_sha256"] = hashlib.sha256(values_of(part["positions"], header)).hexdigest()
    header["kv"], header["payload"] = PRECISIONS[header["kv"]], PRECISIONS[header["payload"]]
    header["has_logits"] = bool(header["has_logits"])
    header["row_bytes"] = len(part["positions"]) // len(tokens) if tokens else 0
    header["tokens"] = tokens
    for name in ("logits", "sampler", "positions"):
        header[name + "_sha256"] = hashlib.sha256(part[name]).hexdigest()
    header["lossy"] = header["payload"] != header["kv"]
    header["checksums"] = "ok" if xxhash is not None else "not checked"
    return header


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--key", metavar="KEYFILE")
    parser.add_argument("--values", action="store_true", help="also decode the rows")
    options = parser.parse_args()
    path, key = options.file, None
    with open(path, "rb") as f:
        data = f.read()
    if options.key:
        with open(options.key, "rb") as f:
            key = f.read()
    try:
        print(json.dumps(read_snapshot(data, key, options.values), sort_keys=True))
    except Malformed as e:
        print(f"{path}: {e}", file=sys.stderr)
        sys.exit(5)


if __name__ == "__main__":
    main()
