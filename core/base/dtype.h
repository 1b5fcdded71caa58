/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types of tensors, and their storage as rows of blocks. A block type stores n_elem consecutive elements of the innermost
 * dim in n_bytes; plain types have blocks of one. Numbers and layouts: the GGUF format (little endian). Any thread; read-only tables.
 */
#ifndef TPL_BASE_DTYPE_H
#define TPL_BASE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/* X(enum suffix, name, elements per block, bytes per block, GGUF type id or -1) */
#define TPL_DTYPES(X)          \
    X(F32, "f32", 1, 4, 0)     \
    X(F16, "f16", 1, 2, 1)     \
    X(BF16, "bf16", 1, 2, 30)  \
    X(I32, "i32", 1, 4, 26)    \
    X(Q4_0, "q4_0", 32, 18, 2) \
    X(Q4_1, "q4_1", 32, 20, 3) \
    X(Q5_0, "q5_0", 32, 22, 6) \
    X(Q5_1, "q5_1", 32, 24, 7) \
    X(Q8_0, "q8_0", 32, 34, 8) \
    X(Q4_K, "q4_k", 256, 144, 12) \
    X(Q5_K, "q5_k", 256, 176, 13) \
    X(Q6_K, "q6_k", 256, 210, 14)

typedef enum tpl_dtype {
#define X(id, name, n, b, gguf) TPL_DTYPE_##id,
    TPL_DTYPES(X)
#undef X
    TPL_N_DTYPES
} tpl_dtype;

typedef struct tpl_dtype_info {
    const char *name;
    uint32_t n_elem;  /* elements per block */
    uint32_t n_bytes; /* bytes per block */
    int gguf;         /* GGUF type id, -1 if none */
} tpl_dtype_info;

extern const tpl_dtype_info tpl_dtypes[TPL_N_DTYPES];

/* The type of this name, or -1. */
int tpl_dtype_find(const char *name);
/* The type of this GGUF id, or -1. */
int tpl_dtype_from_gguf(uint32_t id);
/* Bytes of a row of n elements, which must be whole blocks; false on overflow or a partial block. */
bool tpl_dtype_row_bytes(tpl_dtype type, uint64_t n, uint64_t *out);

#endif
