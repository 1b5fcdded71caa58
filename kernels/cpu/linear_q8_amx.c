/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on q8 rows with AMX int8 tiles, 16 rows of x times one panel at a time. A block of a panel
 * expanded to unsigned bytes (8 groups of 4 inputs x 16 rows) is a B tile as it stands, and 32 bytes each
 * of 16 rows of x an A tile, so tdpbsud gives the integer dot products of a block for q and for r. Each
 * block has scales of its own, so after every block the sums leave the tile unit through L1 and are scaled
 * there, by the float operations of linear_q8_avx512.c in the same order: a row has the same bits
 * whichever code computes it. Three blocks are under way at a time: multiplied, stored, scaled.
 *
 * Measured on a shared Emerald Rapids guest without counters, in ns per block of 16 x 16: products 11,
 * stores 11, loads 7, scaling 17 to 20, each alone; all together about 42. So tile work and scaling hardly
 * overlap. The cause is not known: scaling from another buffer than the one being stored, finer
 * interleaving and phases of 2 to 18 blocks were tried, and none was clearly faster.
 *
 * Any thread; begin and end on the thread that
 * multiplies.
 */
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear_q8_block.h"

enum { ROWS = TPL_WIDE_ROWS, ACC = 256 /* integers of a C tile */ };

/* Tiles 0 to 3: sums of q and r for even and odd blocks; 4, 5: q and r of x; 6: weights. */
static void begin(void)
{
    static const uint8_t rows[8] = { ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, 8, 0 }, bytes[8] = { 64, 64, 64, 64, 32, 32, 64, 0 };
    amx_configure(rows, bytes);
}

static void end(void)
{
    _tile_release();
}

TPL_INLINE void expand_type(tpl_dtype type, const uint8_t *panel, int64_t cols, uint8_t *out)
{
    for (int64_t b = 0; b < cols / 32; b++, out += TPL_WIDE_BLOCK) {
        for (int i = 0; i < lin_block_bytes(type); i += 64)
            __builtin_prefetch(panel + b * lin_block_bytes(type) + TPL_LIN_AHEAD + i);
        const block w = load_block(type, panel, b);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) _mm512_store_si512(out + 64 * g, w.w[g]);
        _mm512_store_ps(out + 512, w.d);
        _mm512_store_ps(out + 576, w.m);
    }
}

static void expand(tpl_dtype type, const void *panel, int64_t cols, uint8_t *out)
{
    switch (type) {
#define X(id, name) \
    case TPL_DTYPE_##id: expand_type(TPL_DTYPE_##id, panel, cols, out); break;
        TPL_LIN_Q8_TYPES(X)
#undef X
    default: break;
    }
}

static void scales(const void *x, size_t xstride, int64_t cols, float *out)
{
    const int64_t n = cols / 32;
    const float *d = (const float *)((const char *)x + 2 * cols), *ds = d + n;
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i rows = _mm512_mullo_epi32(first, _mm512_set1_epi32((int)(xstride / 4))); /* in floats */
    for (int64_t b = 0; b < n; b++, out += TPL_WIDE_SCALES) {
        const __m512 v = _mm512_i32gather_ps(rows, d + b, 4);
        _mm512_store_ps(out, v);
        _mm512_store_ps(out + ROWS, _mm512_mul_ps(v, _mm512_set1_ps(TPL_Q8_FINE)));
        _mm512_store_ps(out + 2 * ROWS, _mm512_i32gather_ps(rows, ds + b, 4));
    }
}

/* What moves along the blocks: weights, q and r of the next product; weights and scales of the next
 * scaling. */
typedef struct cursor {
    const uint8_t *w, *scaled;
    const char *q, *r;
    const float *s;
    size_t stride;
    __m512 zero;
    bool has_min;
} cursor;

/* Rows [from, from + 8) of a block: its integer sums c, [q, r][row of x][16], to the float sums. */
TPL_INLINE void scale_rows(const cursor *at, int from, const int32_t *c, __m512 acc[ROWS])
{
    const __m512 d = _mm512_load_ps(at->scaled + 512), m = _mm512_load_ps(at->scaled + 576);
    const float *s = at->s;
#pragma GCC unroll 8
    for (int t = from; t < from + 8; t++) {
        const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(c + 16 * t));
        const __m512 fine = _mm512_cvtepi32_ps(_mm512_load_si512(c + ACC + 16 * t));
        const __m512 sum = _mm512_set1_ps(s[2 * ROWS + t]);
        __m512 p = _mm512_mul_ps(dot, _mm512_set1_ps(s[t]));
        p = _mm512_fmadd_ps(fine, _mm512_set1_ps(s[ROWS + t]), p);
        if (!at->has_min) p = _mm512_fnmadd_ps(sum, at->zero, p);
        acc[t] = _mm512_fmadd_ps(d, p, acc[t]);
        if (at->has_min) acc[t] = _mm512_fmadd_ps(m, sum, acc[t]);
    }
}

TPL_INLINE void scale_block(cursor *at, const int32_t *c, __m512 acc[ROWS])
{
    scale_rows(at, 0, c, acc);
    scale_rows(at, 8, c, acc);
    at->scaled += TPL_WIDE_BLOCK, at->s += TPL_WIDE_SCALES;
}

/* Macros, because tile numbers are constants of the instructions; `at` and `acc` are the caller's.
 * Products of the next block in tiles cq and cr: */
#define LOAD(cq, cr)                                    \
    do {                                                \
        _tile_zero(cq);                                 \
        _tile_zero(cr);                                 \
        _tile_loadd(6, at.w, 64);                       \
        _tile_loadd(4, at.q, at.stride);                \
        _tile_loadd(5, at.r, at.stride);                \
        at.w += TPL_WIDE_BLOCK, at.q += 32, at.r += 32; \
    } while (0)
#define MULTIPLY(cq, cr)        \
    do {                        \
        LOAD(cq, cr);           \
        _tile_dpbsud(cq, 4, 6); \
        _tile_dpbsud(cr, 5, 6); \
    } while (0)
#define STORE(cq, cr, c)                 \
    do {                                 \
        _tile_stored(cq, c, 64);         \
        _tile_stored(cr, (c) + ACC, 64); \
    } while (0)
/* The products of block b + 2, while the sums of block b + 1 leave tiles pq and pr and block b is scaled.
 * */
#define STEP(cq, cr, pq, pr, c, scaled_c)                     \
    do {                                                      \
        LOAD(cq, cr);                                         \
        _tile_dpbsud(cq, 4, 6);                               \
        _tile_stored(pq, c, 64);                              \
        scale_rows(&at, 0, scaled_c, acc);                    \
        _tile_dpbsud(cr, 5, 6);                               \
        _tile_stored(pr, (c) + ACC, 64);                      \
        scale_rows(&at, 8, scaled_c, acc);                    \
        at.scaled += TPL_WIDE_BLOCK, at.s += TPL_WIDE_SCALES; \
    } while (0)

TPL_INLINE void multiply_type(cursor at, int64_t n, int32_t *even, float *y)
{
    int32_t *odd = even + 2 * ACC;
    __m512 acc[ROWS];
#pragma GCC unroll 16
    for (int t = 0; t < ROWS; t++) acc[t] = _mm512_setzero_ps();
    MULTIPLY(0, 1);
    STORE(0, 1, even);
    if (n > 1) MULTIPLY(2, 3);
    for (; n > 3; n -= 2) {
        STEP(0, 1, 2, 3, odd, even);
        STEP(2, 3, 0, 1, even, odd);
    }
    if (n == 3) STEP(0, 1, 2, 3, odd, even);
    if (n == 2) STORE(2, 3, odd);
    if (n == 3) {
        STORE(0, 1, even);
        scale_block(&at, odd, acc);
    }
    scale_block(&at, even, acc);
    if (n == 2) scale_block(&at, odd, acc);
#pragma GCC unroll 16
    for (int t = 0; t < ROWS; t++) _mm512_store_ps(y + 16 * t, acc[t]);
}

static void multiply(tpl_dtype type, const uint8_t *panel, int64_t cols, const void *x, size_t xstride,
                     const float *s, void *work, float *y)
{
    const char *q = x;
    cursor at = { panel, panel, q, q + cols, s, xstride, _mm512_set1_ps((float)zero_of(type)), false };
    if (type == TPL_DTYPE_Q4_1 || type == TPL_DTYPE_Q5_1) {
        at.has_min = true;
        multiply_type(at, cols / 32, work, y);
    } else {
        at.has_min = false;
        multiply_type(at, cols / 32, work, y);
    }
}

const tpl_lin_wide tpl_lin_wide_amx = { begin, end, expand, scales, multiply };
