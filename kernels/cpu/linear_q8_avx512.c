/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on q8 rows with AVX-512 VNNI. vpdpbusd multiplies unsigned with signed bytes: the weights, moved up
 * to be unsigned (q4: 0..15, q5: 0..31, q8: + 128), are the unsigned side, and what the shift adds is taken
 * off through the block's sum of x. (q6_k has two scales per block of x, so there the sums of 16 are taken anew.) One block of a panel (8 groups of 4 inputs x 16 rows) sits in 8 registers
 * and is run over all rows of x. Per (row of x, block):
 *
 *   t = float(dot q) * d_x + float(dot r) * d_x / 254 - zero * ds_x;   y = fma(d_w, t, y);   with a min: y = fma(m_w, ds_x, y)
 *
 * Any thread.
 */
#include "kernels/cpu/linear_q8_block.h"

enum { GROUP = 4 }; /* rows of x taken together */

TPL_INLINE __m512i four(const char *x)
{
    int32_t v;
    memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}

/* The scaled sums of a block's inputs, integer parts dot (of q) and fine (of r). */
TPL_INLINE __m512 scaled(__m512i dot, __m512i fine, const char *d)
{
    const float scale = *(const float *)(const void *)d;
    const __m512 p = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(scale));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(fine), _mm512_set1_ps(scale * TPL_Q8_FINE), p);
}

/* Adds block number b of n rows of x, xstride bytes apart, to their sums. The rows' chains are interleaved,
 * so that instructions come in about the order in which they can start: the scheduler is too small to find
 * that order itself (one row at a time: a tenth slower). */
TPL_INLINE void add_rows(tpl_dtype type, const block *w, const char *x, size_t xstride, int n, int64_t cols,
                         int64_t b, __m512 *y)
{
    __m512i dot[GROUP], fine[GROUP];
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
#pragma GCC unroll 8
        for (int t = 0; t < n; t++) {
            const char *q = x + (size_t)t * xstride + 32 * b + 4 * g;
            dot[t] = _mm512_dpbusd_epi32(g ? dot[t] : _mm512_setzero_si512(), w->w[g], four(q));
            fine[t] = _mm512_dpbusd_epi32(g ? fine[t] : _mm512_setzero_si512(), w->w[g], four(q + cols));
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < n; t++) {
        const char *d = x + (size_t)t * xstride + 2 * cols + 4 * b, *ds = d + cols / 8;
        const __m512 sum = _mm512_set1_ps(*(const float *)ds);
        __m512 p = scaled(dot[t], fine[t], d);
        if (zero_of(type)) p = _mm512_fnmadd_ps(sum, _mm512_set1_ps((float)zero_of(type)), p);
        y[t] = _mm512_fmadd_ps(w->d, p, y[t]);
        if (has_min(type)) y[t] = _mm512_fmadd_ps(w->m, sum, y[t]);
    }
}

/* The same for q6_k: each half of the block less 32 times its sum of x, then its scale. */
TPL_INLINE void add_rows_q6_k(const block *w, const char *x, size_t xstride, int n, int64_t cols, int64_t b,
                              __m512 *y)
{
    const __m512i zeros = _mm512_set1_epi8((char)zero_of(TPL_DTYPE_Q6_K));
    for (int half = 0; half < 2; half++) {
        __m512i dot[GROUP], fine[GROUP], moved[GROUP], moved_fine[GROUP];
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
#pragma GCC unroll 4
            for (int t = 0; t < n; t++) {
                const char *q = x + (size_t)t * xstride + 32 * b + 16 * half + 4 * g;
                const __m512i none = _mm512_setzero_si512(), v = four(q), r = four(q + cols);
                dot[t] = _mm512_dpbusd_epi32(g ? dot[t] : none, w->w[4 * half + g], v);
                fine[t] = _mm512_dpbusd_epi32(g ? fine[t] : none, w->w[4 * half + g], r);
                moved[t] = _mm512_dpbusd_epi32(g ? moved[t] : none, zeros, v);
                moved_fine[t] = _mm512_dpbusd_epi32(g ? moved_fine[t] : none, zeros, r);
            }
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            const char *d = x + (size_t)t * xstride + 2 * cols + 4 * b;
            const __m512 p = scaled(_mm512_sub_epi32(dot[t], moved[t]), _mm512_sub_epi32(fine[t], moved_fine[t]), d);
            y[t] = _mm512_fmadd_ps(half ? w->d2 : w->d, p, y[t]);
        }
    }
}

TPL_INLINE void add_block(tpl_dtype type, const block *w, const char *x, size_t xstride, int n, int64_t cols,
                          int64_t b, __m512 *y)
{
    if (type == TPL_DTYPE_Q6_K)
        add_rows_q6_k(w, x, xstride, n, cols, b, y);
    else
        add_rows(type, w, x, xstride, n, cols, b, y);
}

/* Bytes of 32 inputs of a panel. */
TPL_INLINE int bytes_of(tpl_dtype type)
{
    return lin_block_bytes(type) / (lin_block_elems(type) / 32);
}

TPL_INLINE void ahead(const uint8_t *p, int n)
{
    for (int i = 0; i < n; i += 64) __builtin_prefetch(p + TPL_LIN_AHEAD + i);
}

/* A few rows: their sums stay in registers. */
TPL_INLINE void few(tpl_dtype type, const uint8_t *panel, int64_t cols, const char *x, size_t xstride, int nt,
                    float *y)
{
    __m512 acc[GROUP];
#pragma GCC unroll 4
    for (int t = 0; t < nt; t++) acc[t] = _mm512_setzero_ps();
    for (int64_t b = 0; b < cols / 32; b++) {
        ahead(panel + b * bytes_of(type), bytes_of(type));
        const block w = load_block(type, panel, b);
        add_block(type, &w, x, xstride, nt, cols, b, acc);
    }
#pragma GCC unroll 4
    for (int t = 0; t < nt; t++) _mm512_store_ps(y + t * TPL_PANEL_ROWS, acc[t]);
}

TPL_INLINE void add_stored(tpl_dtype type, const block *w, const char *x, size_t xstride, int n, int64_t cols,
                           int64_t b, float *y)
{
    __m512 acc[GROUP];
#pragma GCC unroll 8
    for (int t = 0; t < n; t++) acc[t] = _mm512_load_ps(y + t * TPL_PANEL_ROWS);
    add_block(type, w, x, xstride, n, cols, b, acc);
#pragma GCC unroll 8
    for (int t = 0; t < n; t++) _mm512_store_ps(y + t * TPL_PANEL_ROWS, acc[t]);
}

/* Many rows: the sums wait in y, whose loads and stores hide behind the dot products. */
TPL_INLINE void many(tpl_dtype type, const uint8_t *panel, int64_t cols, const char *x, size_t xstride,
                     int nt, float *y)
{
    memset(y, 0, (size_t)nt * TPL_PANEL_ROWS * 4);
    for (int64_t b = 0; b < cols / 32; b++) {
        ahead(panel + b * bytes_of(type), bytes_of(type));
        const block w = load_block(type, panel, b);
        int t = 0;
        for (; t + GROUP <= nt; t += GROUP)
            add_stored(type, &w, x + (size_t)t * xstride, xstride, GROUP, cols, b, y + t * TPL_PANEL_ROWS);
        for (; t < nt; t++)
            add_stored(type, &w, x + (size_t)t * xstride, xstride, 1, cols, b, y + t * TPL_PANEL_ROWS);
    }
}

#define X(id, name)                                                                                 \
    static void tile_##name(const void *panel, int64_t cols, const void *x, size_t xstride, int nt, \
                            float *y)                                                               \
    {                                                                                               \
        switch (nt) {                                                                               \
        case 1: few(TPL_DTYPE_##id, panel, cols, x, xstride, 1, y); break;                          \
        case 2: few(TPL_DTYPE_##id, panel, cols, x, xstride, 2, y); break;                          \
        case 3: few(TPL_DTYPE_##id, panel, cols, x, xstride, 3, y); break;                          \
        case 4: few(TPL_DTYPE_##id, panel, cols, x, xstride, 4, y); break;                          \
        default: many(TPL_DTYPE_##id, panel, cols, x, xstride, nt, y); break;                       \
        }                                                                                           \
    }
TPL_LIN_Q8_TYPES(X)
TPL_LIN_K_TYPES(X)
#undef X

const tpl_lin_tile tpl_lin_q8_avx512[TPL_N_DTYPES] = {
#define X(id, name) [TPL_DTYPE_##id] = tile_##name,
    TPL_LIN_Q8_TYPES(X) TPL_LIN_K_TYPES(X)
#undef X
};
