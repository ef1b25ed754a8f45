#!/usr/bin/env python3
"""Take the tokenizer out of a GGUF file and put it, with texts and the ids they must give, into one small file for tests.

    make_tokenizer_fixture.py MODEL.gguf OUT.bin [--goldens GOLDENS.json [--key NAME]] [--chat CHAT.json]

GOLDENS.json is a list of {"text", "ids"}, or an object with such a list at NAME.texts. CHAT.json is a list of
{"rendered", "ids"}, or an object with such a list at chat.rendered. Ids have special tokens recognised and no BOS added.
Layout (little-endian; a string is a u32 length and its bytes):
    "RTOK" u32 version, string kind, u8 has_pre, string pre, u32 n_tokens, u32 n_merges, u8 has_scores, u8 has_types,
    i32 bos eos eot unk pad, i8 add_bos add_eos add_space_prefix (-1: absent),
    u16 piece bytes [n_tokens], pieces, f32 scores, u8 types, (left id, right id) [n_merges],
    ids of merges being u16 up to 65,536 tokens and u32 above,
    twice (texts, then chats): u32 count, count times {string text, u32 n, i32 ids [n]}
"""
import argparse
import json
import struct
from pathlib import Path

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Reader:
    """The metadata of a GGUF file, version 2 or 3."""

    def __init__(self, path):
        self.file = open(path, "rb")
        if self.file.read(4) != b"GGUF" or self.number("I") not in (2, 3):
            raise SystemExit(f"{path}: not a GGUF file of version 2 or 3")
        self.number("Q")
        self.keys = {}
        for _ in range(self.number("Q")):
            name = self.string().decode()
            self.keys[name] = self.value(self.number("I"))

    def number(self, code):
        return struct.unpack("<" + code, self.file.read(struct.calcsize("<" + code)))[0]

    def string(self):
        return self.file.read(self.number("Q"))

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            item, count = self.number("I"), self.number("Q")
            if item in SCALARS:
                code = f"<{count}{SCALARS[item]}"
                return list(struct.unpack(code, self.file.read(struct.calcsize(code))))
            return [self.value(item) for _ in range(count)]
        return self.number(SCALARS[kind])


def string(data):
    return struct.pack("<I", len(data)) + data


def pack_goldens(rows):
    parts = [struct.pack("<I", len(rows))]
    for text, ids in rows:
        parts += [string(text.encode()), struct.pack(f"<I{len(ids)}i", len(ids), *ids)]
    return b"".join(parts)


def pack_merges(merges, tokens):
    by_name = {token: index for index, token in enumerate(tokens)}
    code = "<2H" if len(tokens) <= 65536 else "<2I"
    return b"".join(struct.pack(code, *(by_name[side] for side in merge.split(b" "))) for merge in merges)


def pack(keys, goldens, chats):
    get = lambda name, default=None: keys.get("tokenizer.ggml." + name, default)  # noqa: E731
    tokens, merges, pre = get("tokens"), get("merges", []), get("pre")
    scores, types = get("scores"), get("token_type")
    ids = [get(name + "_token_id", -1) for name in ("bos", "eos", "eot", "unknown", "padding")]
    flags = [int(get(name, -1)) for name in ("add_bos_token", "add_eos_token", "add_space_prefix")]
    head = b"RTOK" + struct.pack("<I", 1) + string(get("model")) + struct.pack("<B", pre is not None) + string(pre or b"")
    head += struct.pack("<IIBB", len(tokens), len(merges), scores is not None, types is not None)
    head += struct.pack("<5i3b", *ids, *flags)
    body = struct.pack(f"<{len(tokens)}H", *map(len, tokens)) + b"".join(tokens)
    body += struct.pack(f"<{len(scores)}f", *scores) if scores else b""
    body += bytes(types) if types else b""
    return head + body + pack_merges(merges, tokens) + pack_goldens(goldens) + pack_goldens(chats)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--goldens", type=Path)
    parser.add_argument("--key")
    parser.add_argument("--chat", type=Path)
    options = parser.parse_args()
    goldens = json.loads(options.goldens.read_text(encoding="utf-8")) if options.goldens else []
    goldens = goldens[options.key]["texts"] if options.key else goldens
    chats = json.loads(options.chat.read_text(encoding="utf-8")) if options.chat else []
    chats = chats["chat"]["rendered"] if isinstance(chats, dict) else chats
    packed = pack(Reader(options.model).keys, [(row["text"], row["ids"]) for row in goldens],
                  [(row["rendered"], row["ids"]) for row in chats if "ids" in row])
    options.out.write_bytes(packed)
    print(f"{options.out}: {len(packed)} bytes, {len(goldens)} texts, {len(chats)} chats")


if __name__ == "__main__":
    main()
