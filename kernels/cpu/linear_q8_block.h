/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of a panel (32 inputs x 16 rows) of the types with an integer path, as eight registers of
 * unsigned bytes (group g of 4 inputs in w[g]: lane r holds row r) and the scales and mins as floats.
 * Shared by the AVX-512 and the AMX files of linear, which alone may include it. Any thread.
 */
#ifndef TPL_KERNELS_CPU_LINEAR_Q8_BLOCK_H
#define TPL_KERNELS_CPU_LINEAR_Q8_BLOCK_H

#include <immintrin.h>

#include "kernels/cpu/linear.h"

typedef struct block {
    __m512i w[8];
    __m512 d, m;
} block;

TPL_INLINE __m512 halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TPL_INLINE __m512i load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

TPL_INLINE int zero_of(tpl_dtype type)
{
    return type == TPL_DTYPE_Q4_0 ? 8 : type == TPL_DTYPE_Q5_0 ? 16 : type == TPL_DTYPE_Q8_0 ? 128 : 0;
}

TPL_INLINE void nibbles(const uint8_t *qs, __m512i w[8])
{
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m512i v = load(qs + 64 * j);
        w[j] = _mm512_and_si512(v, low);
        w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
}

/* Bit g of each byte is the fifth bit of group g. */
TPL_INLINE void fifth_bits(const uint8_t *qh, __m512i w[8])
{
    const __m512i v = load(qh), bit = _mm512_set1_epi8(16);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        const __m512i at =
            g < 4 ? _mm512_slli_epi16(v, 4 - (unsigned)g) : _mm512_srli_epi16(v, (unsigned)g - 4);
        w[g] = _mm512_ternarylogic_epi32(w[g], at, bit, 0xf8); /* w | (at & bit) */
    }
}

TPL_INLINE block load_block(tpl_dtype type, const uint8_t *p)
{
    block b;
    b.d = halves(p);
    b.m = _mm512_setzero_ps();
    switch (type) {
    case TPL_DTYPE_Q4_0: nibbles(p + PANEL_Q4_0_QS, b.w); break;
    case TPL_DTYPE_Q4_1: nibbles(p + PANEL_Q4_1_QS, b.w), b.m = halves(p + PANEL_Q4_1_M); break;
    case TPL_DTYPE_Q5_0: nibbles(p + PANEL_Q5_0_QS, b.w), fifth_bits(p + PANEL_Q5_0_QH, b.w); break;
    case TPL_DTYPE_Q5_1:
        nibbles(p + PANEL_Q5_1_QS, b.w), fifth_bits(p + PANEL_Q5_1_QH, b.w), b.m = halves(p + PANEL_Q5_1_M);
        break;
    default:
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            b.w[g] = _mm512_xor_si512(load(p + PANEL_Q8_0_QS + 64 * g), _mm512_set1_epi8(-128));
    }
    return b;
}

#endif
