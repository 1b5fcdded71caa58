/* SPDX-License-Identifier: Apache-2.0
 *
 * What the linear driver (linear.c) asks of an ISA: for each weight type and activation form, a function
 * that multiplies one panel with some rows. A tile function does the same float operations in the same
 * order for each (row of x, row of w) whatever nt is, so results do not depend on batch or threads. Any
 * thread.
 */
#ifndef TPL_KERNELS_CPU_LINEAR_H
#define TPL_KERNELS_CPU_LINEAR_H

#include "kernels/cpu/panel.h"

/* y[t][0..15] = sum over k of x[t][k] * panel[k][0..15], for nt rows of x that lie xstride bytes apart. y
 * is 64-byte aligned, rows of 16. x: cols floats, or a q8 row of cols. Prefetches beyond the panel. */
typedef void (*tpl_lin_tile)(const void *panel, int64_t cols, const void *x, size_t xstride, int nt,
                             float *y);

/* The way of an ISA that multiplies 16 q8 rows at once and pays for that with preparation: panels are
 * expanded to bytes once for many rows, the scales of 16 rows laid out once for many panels. Same bits as
 * the tile functions beside it. begin and end enclose the calls of `multiply` on a thread. */
typedef struct tpl_lin_wide {
    void (*begin)(void);
    void (*end)(void);
    /* A panel to TPL_WIDE_BLOCK bytes per block; out 64-byte aligned. */
    void (*expand)(tpl_dtype type, const void *panel, int64_t cols, uint8_t *out);
    /* The scales of 16 rows: TPL_WIDE_SCALES floats per block; out 64-byte aligned. */
    void (*scales)(const void *x, size_t xstride, int64_t cols, float *out);
    /* y as of a tile function for 16 rows; work: TPL_WIDE_WORK bytes, 64-byte aligned. */
    void (*multiply)(tpl_dtype type, const uint8_t *panel, int64_t cols, const void *x, size_t xstride,
                     const float *scales, void *work, float *y);
} tpl_lin_wide;

enum {
    TPL_WIDE_ROWS = 16,
    TPL_WIDE_BLOCK = 640,                /* 32 inputs x 16 rows of bytes, 16 scales, 16 mins */
    TPL_WIDE_SCALES = 3 * TPL_WIDE_ROWS, /* d, d / 254, ds */
    TPL_WIDE_WORK = 4096
};

/* The way of an ISA that multiplies bf16 rows, up to TPL_BF16_BLOCK at once, with panels expanded to bf16. The
 * products of a row do not depend on the other rows. begin and end enclose the calls of `multiply` on a thread;
 * begin says for how many rows. */
typedef struct tpl_lin_bf16 {
    const char *name;
    void (*begin)(int rows);
    void (*end)(void);
    /* Inputs [k0, k1) of a panel of cols inputs, both multiples of 32, zero beyond cols: per pair of inputs 64 bytes,
     * lane r holding output r's pair, which is the layout of whole bf16 panels. out 64-byte aligned. */
    void (*expand)(tpl_dtype type, const void *panel, int64_t cols, int64_t k0, int64_t k1, void *out);
    /* y[p][t][0..15] = (add ? y : 0) + sum over k < cols of x[t][k] * w[p][k][0..15], for 1 or 2 panels; cols a
     * multiple of 32, rows of y 64-byte pieces ystride[p] bytes apart. */
    void (*multiply)(const uint8_t *const w[2], int panels, int64_t cols, const void *x, size_t xstride, int rows,
                     float *const y[2], const size_t ystride[2], bool add);
} tpl_lin_bf16;

enum { TPL_BF16_BLOCK = 32 /* rows */ };

typedef struct tpl_lin_kernels {
    const tpl_lin_tile *f32; /* [TPL_N_DTYPES], NULL where there is none */
    const tpl_lin_tile *q8;  /* where NULL, q8 rows are made float and go to f32 */
    const tpl_lin_wide *wide; /* for types in blocks of 32, or NULL */
    const tpl_lin_bf16 *bf16; /* or NULL: bf16 rows are made float and go to f32 */
    void (*silu_mul)(const float *g, const float *u, float *out, int n);
    void (*quant)(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds); /* quant.h */
} tpl_lin_kernels;

extern const tpl_lin_tile tpl_lin_f32_portable[TPL_N_DTYPES], tpl_lin_q8_portable[TPL_N_DTYPES];
extern const tpl_lin_tile tpl_lin_f32_avx2[TPL_N_DTYPES], tpl_lin_q8_avx2[TPL_N_DTYPES];
extern const tpl_lin_tile tpl_lin_f32_avx512[TPL_N_DTYPES], tpl_lin_q8_avx512[TPL_N_DTYPES];
extern const tpl_lin_tile tpl_lin_f32_neon[TPL_N_DTYPES], tpl_lin_q8_neon[TPL_N_DTYPES];
extern const tpl_lin_tile tpl_lin_q8_dotprod[TPL_N_DTYPES]; /* NEON with sdot: same bits as without */
extern const tpl_lin_wide tpl_lin_wide_amx;
extern const tpl_lin_bf16 tpl_lin_bf16_amx, tpl_lin_bf16_avx512bf16;
void tpl_lin_silu_portable(const float *g, const float *u, float *out, int n);
void tpl_lin_silu_avx2(const float *g, const float *u, float *out, int n);
void tpl_lin_silu_avx512(const float *g, const float *u, float *out, int n);
void tpl_lin_silu_neon(const float *g, const float *u, float *out, int n);

/* Bytes ahead of the one being read that tiles ask for. Out-of-order execution alone gives 13 GB/s on two
 * shared Emerald Rapids cores, 1 KB ahead 17, 2 KB 21, from 3 KB on all there is; more would only fetch
 * what lies beyond a thread's share. */
enum { TPL_LIN_AHEAD = 3072 };

#define TPL_INLINE static inline __attribute__((always_inline))

/* X(ENUM, name): the weight types in blocks of 32 and of 256, and all of them. */
#define TPL_LIN_Q8_TYPES(X) X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q8_0, q8_0)
#define TPL_LIN_K_TYPES(X) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k)
#define TPL_LIN_TYPES(X) X(F32, f32) X(F16, f16) X(BF16, bf16) TPL_LIN_Q8_TYPES(X) TPL_LIN_K_TYPES(X)

/* The block sizes of dtype.h as constants: inside a tile the type is one, and dtype.c's table is out of the
 * compiler's sight. */
TPL_INLINE int lin_block_elems(tpl_dtype type)
{
    switch (type) {
#define X(id, name, n, b, gguf) \
    case TPL_DTYPE_##id: return n;
        TPL_DTYPES(X)
#undef X
    default: return 1;
    }
}

/* Bytes that 16 rows take for one block. */
TPL_INLINE int lin_block_bytes(tpl_dtype type)
{
    switch (type) {
#define X(id, name, n, b, gguf) \
    case TPL_DTYPE_##id: return b * TPL_PANEL_ROWS;
        TPL_DTYPES(X)
#undef X
    default: return 0;
    }
}

#endif
