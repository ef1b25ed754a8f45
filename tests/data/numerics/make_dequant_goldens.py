"""Writes dequant.bin: random blocks of every type and what the gguf package (0.19) says they mean.

Per record, little-endian: u32 type, u32 n_blocks, the blocks, the float32 values. Needs numpy and gguf.
"""
import numpy as np
import gguf.quants as quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

HALVES = {  # where a block's binary16 scales are
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}

rng = np.random.default_rng(20)
with open("dequant.bin", "wb") as out:
    for name in ["F32", "F16", "BF16", *HALVES]:
        kind = Type[name]
        block, size = GGML_QUANT_SIZES[kind]
        n = 2 if block == 256 else 4 if block == 32 else 64
        if name in HALVES:
            data = rng.integers(0, 256, (n, size), dtype=np.uint8)
            for off in HALVES[name]:
                scale = rng.normal(size=n).astype(np.float16)
                scale[0] = np.float16(3e-6)  # a denormal
                data[:, off:off + 2] = scale.view(np.uint8).reshape(n, 2)
        else:
            values = (rng.normal(size=n) * np.exp(rng.normal(size=n) * 5)).astype(np.float32)
            data = np.atleast_2d(quants.quantize(values, kind).view(np.uint8))
        values = quants.dequantize(data, kind).astype("<f4")
        out.write(np.array([kind.value, n], dtype="<u4").tobytes() + data.tobytes() + values.tobytes())
