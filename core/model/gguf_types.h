/* SPDX-License-Identifier: Apache-2.0
 *
 * Every element type that a checkpoint may hold, with its storage, whether tpl computes with it or not: sizes
 * must be checked and files listed either way. Block sizes: facts/models.md 2.6 and 3.1; those of the types
 * that tpl does not compute with agree with the GGML_QUANT_SIZES table of gguf-py (llama.cpp b10451).
 * Read-only tables; any thread.
 */
#ifndef TPL_MODEL_GGUF_TYPES_H
#define TPL_MODEL_GGUF_TYPES_H

#include <stdint.h>

/* X(GGUF id, name, elements per block, bytes per block). Not listed: 4, 5, 31-33, 36-38, which were removed
 * from the format. */
#define TPL_GGUF_TYPES(X)     \
    X(0, "f32", 1, 4)         \
    X(1, "f16", 1, 2)         \
    X(2, "q4_0", 32, 18)      \
    X(3, "q4_1", 32, 20)      \
    X(6, "q5_0", 32, 22)      \
    X(7, "q5_1", 32, 24)      \
    X(8, "q8_0", 32, 34)      \
    X(9, "q8_1", 32, 36)      \
    X(10, "q2_k", 256, 84)    \
    X(11, "q3_k", 256, 110)   \
    X(12, "q4_k", 256, 144)   \
    X(13, "q5_k", 256, 176)   \
    X(14, "q6_k", 256, 210)   \
    X(15, "q8_k", 256, 292)   \
    X(16, "iq2_xxs", 256, 66) \
    X(17, "iq2_xs", 256, 74)  \
    X(18, "iq3_xxs", 256, 98) \
    X(19, "iq1_s", 256, 50)   \
    X(20, "iq4_nl", 32, 18)   \
    X(21, "iq3_s", 256, 110)  \
    X(22, "iq2_s", 256, 82)   \
    X(23, "iq4_xs", 256, 136) \
    X(24, "i8", 1, 1)         \
    X(25, "i16", 1, 2)        \
    X(26, "i32", 1, 4)        \
    X(27, "i64", 1, 8)        \
    X(28, "f64", 1, 8)        \
    X(29, "iq1_m", 256, 56)   \
    X(30, "bf16", 1, 2)       \
    X(34, "tq1_0", 256, 54)   \
    X(35, "tq2_0", 256, 66)   \
    X(39, "mxfp4", 32, 17)    \
    X(40, "nvfp4", 64, 36)    \
    X(41, "q1_0", 128, 18)    \
    X(42, "q2_0", 64, 18)

/* X(safetensors name, name here, elements per block, bytes per block). Sub-byte types are packed over the
 * whole tensor. */
#define TPL_SAFETENSORS_TYPES(X)  \
    X("F32", "f32", 1, 4)         \
    X("F16", "f16", 1, 2)         \
    X("BF16", "bf16", 1, 2)       \
    X("I32", "i32", 1, 4)         \
    X("BOOL", "bool", 1, 1)       \
    X("U8", "u8", 1, 1)           \
    X("I8", "i8", 1, 1)           \
    X("U16", "u16", 1, 2)         \
    X("I16", "i16", 1, 2)         \
    X("U32", "u32", 1, 4)         \
    X("U64", "u64", 1, 8)         \
    X("I64", "i64", 1, 8)         \
    X("F64", "f64", 1, 8)         \
    X("C64", "c64", 1, 8)         \
    X("F8_E4M3", "f8_e4m3", 1, 1) \
    X("F8_E5M2", "f8_e5m2", 1, 1) \
    X("F8_E8M0", "f8_e8m0", 1, 1) \
    X("F6_E2M3", "f6_e2m3", 4, 3) \
    X("F6_E3M2", "f6_e3m2", 4, 3) \
    X("F4", "f4", 2, 1)

typedef struct tpl_stored_type {
    int gguf;                /* GGUF id, -1 for a safetensors type */
    const char *safetensors; /* NULL for a GGUF type */
    const char *name;        /* lower case; equals tpl_dtype_info.name where tpl computes with it */
    uint32_t n_elem, n_bytes;
} tpl_stored_type;

extern const tpl_stored_type tpl_stored_types[];
extern const int tpl_n_stored_types;

/* Index into tpl_stored_types, or -1. */
int tpl_stored_type_from_gguf(uint32_t id);
int tpl_stored_type_from_safetensors(const char *name);
/* True for an id that GGUF once had and took back. */
int tpl_gguf_type_was_removed(uint32_t id);

#endif
