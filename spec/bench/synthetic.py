# SPDX-License-Identifier: Apache-2.0
"""Write a GGUF of 1.2 B parameters in Q4_0 whose every cut is even (the shape of Llama 3.2 1B, without a tokenizer):

    synthetic.py FILE.gguf [WIDTH LAYERS FF HEADS KV_HEADS VOCAB]     another shape

For speed and memory only: the weights are one pseudo-random pattern over and over.
"""
import random
import struct
import sys

SHAPE = (2048, 16, 8192, 32, 8, 128256)
DIM, LAYERS, FF, HEADS, KV_HEADS, VOCAB = (int(x) for x in sys.argv[2:8]) if len(sys.argv) > 7 else SHAPE
F32, Q4_0, BLOCK, BLOCK_BYTES, ALIGN = 0, 2, 32, 18, 32
U32, FLOAT, STRING = 4, 6, 8


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def field(key, kind, value):
    return text(key) + struct.pack("<I", kind) + (text(value) if kind == STRING else struct.pack("<I" if kind == U32 else "<f", value))


def fields():
    head = DIM // HEADS
    return [field("general.architecture", STRING, "llama"), field("general.file_type", U32, 2), field("llama.context_length", U32, 8192),
            field("llama.embedding_length", U32, DIM), field("llama.block_count", U32, LAYERS), field("llama.feed_forward_length", U32, FF),
            field("llama.attention.head_count", U32, HEADS), field("llama.attention.head_count_kv", U32, KV_HEADS),
            field("llama.attention.layer_norm_rms_epsilon", FLOAT, 1e-5), field("llama.rope.dimension_count", U32, head),
            field("llama.rope.freq_base", FLOAT, 500000.0), field("llama.vocab_size", U32, VOCAB),
            field("tokenizer.ggml.model", STRING, "no_vocab")]


def tensors():
    """Name and dims, the fastest first; one dim means a vector of ones."""
    kv = DIM // HEADS * KV_HEADS
    yield "token_embd.weight", (DIM, VOCAB)
    yield "output_norm.weight", (DIM,)
    for i in range(LAYERS):
        for name, dims in (("attn_norm", (DIM,)), ("attn_q", (DIM, DIM)), ("attn_k", (DIM, kv)), ("attn_v", (DIM, kv)),
                           ("attn_output", (DIM, DIM)), ("ffn_norm", (DIM,)), ("ffn_gate", (DIM, FF)), ("ffn_up", (DIM, FF)),
                           ("ffn_down", (FF, DIM))):
            yield f"blk.{i}.{name}.weight", dims


def bytes_of(dims):
    return 4 * dims[0] if len(dims) == 1 else dims[0] * dims[1] // BLOCK * BLOCK_BYTES


def padded(n):
    return (n + ALIGN - 1) // ALIGN * ALIGN


def main():
    draw = random.Random(1)
    scale = struct.pack("<e", 0.004)
    pattern = b"".join(scale + draw.randbytes(BLOCK_BYTES - 2) for _ in range(8192))
    header, at, listed = fields(), 0, list(tensors())
    out = [b"GGUF", struct.pack("<IQQ", 3, len(listed), len(header)), *header]
    for name, dims in listed:
        out.append(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, F32 if len(dims) == 1 else Q4_0, at))
        at += padded(bytes_of(dims))
    with open(sys.argv[1], "wb") as f:
        f.write(b"".join(out))
        f.write(bytes(padded(f.tell()) - f.tell()))
        for _, dims in listed:
            n = bytes_of(dims)
            source = struct.pack("<f", 1.0) * dims[0] if len(dims) == 1 else pattern
            f.writelines(source[:n - start] for start in range(0, n, len(source)))
            f.write(bytes(padded(n) - n))


if __name__ == "__main__":
    main()
