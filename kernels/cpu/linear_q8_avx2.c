/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on q8 rows with AVX2. maddubs multiplies unsigned with signed bytes and adds pairs to 16 bits with
 * saturation. q4 and q5 quants are the unsigned side as stored: a pair is at most 2 * 15 * 127 (q4) or 2 * 31
 * * 127 (q5), so four of them add up in 16 bits. q8 takes |w| and moves its sign to x: at most 2 * 128 * 127,
 * which just fits, so each pair is widened at once. Per (row of x, block):
 *
 *   t = float(dot q) * d_x + float(dot r) * d_x / 254 - zero * ds_x;   y = fma(d_w, t, y);   with a min: y = fma(m_w, ds_x, y)
 *
 * Any thread.
 */
#include <immintrin.h>

#include "kernels/cpu/linear.h"

/* One block of 8 rows, half a panel. */
typedef struct block {
    __m256i w[8];
    __m256 d, m;
} block;

TPL_INLINE __m256 halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TPL_INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

TPL_INLINE int zero_of(tpl_dtype type)
{
    return type == TPL_DTYPE_Q4_0 ? 8 : type == TPL_DTYPE_Q5_0 ? 16 : 0;
}

TPL_INLINE void nibbles(const uint8_t *qs, __m256i w[8])
{
    const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m256i v = load(qs + 64 * j);
        w[j] = _mm256_and_si256(v, low);
        w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
}

TPL_INLINE void fifth_bits(const uint8_t *qh, __m256i w[8])
{
    const __m256i v = load(qh), bit = _mm256_set1_epi8(16);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        const __m256i at = g < 4 ? _mm256_slli_epi16(v, 4 - g) : _mm256_srli_epi16(v, g - 4);
        w[g] = _mm256_or_si256(w[g], _mm256_and_si256(at, bit));
    }
}

/* half: 0 or 1, which 8 rows of the panel. */
TPL_INLINE block load_block(tpl_dtype type, const uint8_t *p, int half)
{
    block b;
    const int at = 32 * half;
    b.d = halves(p + 16 * half);
    b.m = _mm256_setzero_ps();
    switch (type) {
    case TPL_DTYPE_Q4_0: nibbles(p + PANEL_Q4_0_QS + at, b.w); break;
    case TPL_DTYPE_Q4_1:
        nibbles(p + PANEL_Q4_1_QS + at, b.w), b.m = halves(p + PANEL_Q4_1_M + 16 * half);
        break;
    case TPL_DTYPE_Q5_0: nibbles(p + PANEL_Q5_0_QS + at, b.w), fifth_bits(p + PANEL_Q5_0_QH + at, b.w); break;
    case TPL_DTYPE_Q5_1:
        nibbles(p + PANEL_Q5_1_QS + at, b.w), fifth_bits(p + PANEL_Q5_1_QH + at, b.w);
        b.m = halves(p + PANEL_Q5_1_M + 16 * half);
        break;
    default:
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) b.w[g] = load(p + PANEL_Q8_0_QS + 64 * g + at);
    }
    return b;
}

TPL_INLINE __m256i four(const char *x)
{
    int32_t v;
    memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}

TPL_INLINE __m256i dot_block(tpl_dtype type, const block *w, const char *q)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256(), pairs = sum;
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        const __m256i x = four(q + 4 * g);
        if (type == TPL_DTYPE_Q8_0) {
            const __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(w->w[g]), _mm256_sign_epi8(x, w->w[g]));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(p, ones));
        } else {
            const __m256i p = _mm256_maddubs_epi16(w->w[g], x);
            pairs = g % 4 ? _mm256_add_epi16(pairs, p) : p;
            if (g % 4 == 3) sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
    }
    return sum;
}

TPL_INLINE __m256 add_block(tpl_dtype type, const block *w, const char *row, int64_t cols, int64_t b,
                            __m256 y)
{
    const char *d = row + 2 * cols + 4 * b, *ds = d + cols / 8;
    const __m256 sum = _mm256_set1_ps(*(const float *)ds);
    const __m256 dx = _mm256_set1_ps(*(const float *)d), fine = _mm256_set1_ps(*(const float *)d * TPL_Q8_FINE);
    __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(dot_block(type, w, row + 32 * b)), dx);
    t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot_block(type, w, row + cols + 32 * b)), fine, t);
    if (zero_of(type)) t = _mm256_fnmadd_ps(sum, _mm256_set1_ps((float)zero_of(type)), t);
    y = _mm256_fmadd_ps(w->d, t, y);
    if (type == TPL_DTYPE_Q4_1 || type == TPL_DTYPE_Q5_1) y = _mm256_fmadd_ps(w->m, sum, y);
    return y;
}

TPL_INLINE void ahead(const uint8_t *p, int bytes)
{
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(p + TPL_LIN_AHEAD + i);
}

TPL_INLINE void one(tpl_dtype type, const uint8_t *panel, int64_t cols, const char *x, float *y)
{
    __m256 lo = _mm256_setzero_ps(), hi = lo;
    for (int64_t b = 0; b < cols / 32; b++, panel += lin_block_bytes(type)) {
        ahead(panel, lin_block_bytes(type));
        const block w0 = load_block(type, panel, 0);
        lo = add_block(type, &w0, x, cols, b, lo);
        const block w1 = load_block(type, panel, 1);
        hi = add_block(type, &w1, x, cols, b, hi);
    }
    _mm256_store_ps(y, lo);
    _mm256_store_ps(y + 8, hi);
}

TPL_INLINE void many(tpl_dtype type, const uint8_t *panel, int64_t cols, const char *x, size_t xstride,
                     int nt, float *y)
{
    memset(y, 0, (size_t)nt * TPL_PANEL_ROWS * 4);
    for (int64_t b = 0; b < cols / 32; b++, panel += lin_block_bytes(type)) {
        ahead(panel, lin_block_bytes(type));
        for (int half = 0; half < 2; half++) {
            const block w = load_block(type, panel, half);
            const char *row = x;
            for (int t = 0; t < nt; t++, row += xstride) {
                float *at = y + t * TPL_PANEL_ROWS + 8 * half;
                _mm256_store_ps(at, add_block(type, &w, row, cols, b, _mm256_load_ps(at)));
            }
        }
    }
}

#define X(id, name)                                                                                 \
    static void tile_##name(const void *panel, int64_t cols, const void *x, size_t xstride, int nt, \
                            float *y)                                                               \
    {                                                                                               \
        if (nt == 1)                                                                                \
            one(TPL_DTYPE_##id, panel, cols, x, y);                                                 \
        else                                                                                        \
            many(TPL_DTYPE_##id, panel, cols, x, xstride, nt, y);                                   \
    }
TPL_LIN_Q8_TYPES(X)
#undef X

const tpl_lin_tile tpl_lin_q8_avx2[TPL_N_DTYPES] = {
#define X(id, name) [TPL_DTYPE_##id] = tile_##name,
    TPL_LIN_Q8_TYPES(X)
#undef X
};
