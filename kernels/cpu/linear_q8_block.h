/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of a panel (32 inputs x 16 rows) of the types with an integer path, as eight registers of
 * unsigned bytes (group g of 4 inputs in w[g]: lane r holds row r) and the scales and mins as floats. Of the K-quants
 * a block is one of the eight parts that have a scale of their own. Shared by the AVX-512 and the AMX files of linear,
 * which alone may include it. Any thread.
 */
#ifndef TPL_KERNELS_CPU_LINEAR_Q8_BLOCK_H
#define TPL_KERNELS_CPU_LINEAR_Q8_BLOCK_H

#include <immintrin.h>

#include "kernels/cpu/linear.h"

typedef struct block {
    __m512i w[8];
    __m512 d, m;
    __m512 d2; /* q6_k: the scale of groups 4 to 7, where d is that of 0 to 3 */
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
    return type == TPL_DTYPE_Q4_0 ? 8 : type == TPL_DTYPE_Q5_0 ? 16 : type == TPL_DTYPE_Q8_0 ? 128 : type == TPL_DTYPE_Q6_K ? 32 : 0;
}

TPL_INLINE bool has_min(tpl_dtype type)
{
    return type == TPL_DTYPE_Q4_1 || type == TPL_DTYPE_Q5_1 || type == TPL_DTYPE_Q4_K || type == TPL_DTYPE_Q5_K;
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

/* 16 bytes to floats: unsigned, signed. */
TPL_INLINE __m512i bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TPL_INLINE __m512 signed_bytes(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* Scale and min of part u of q4_k and q5_k: 6 bits each, as facts/models.md 2.6 has them. The min is subtracted. */
TPL_INLINE void scale_k45(const uint8_t *p, int u, block *b)
{
    const uint8_t *sc = p + PANEL_QK_SC;
    const __m512i low4 = _mm512_set1_epi32(15), low6 = _mm512_set1_epi32(63);
    __m512i scale, min;
    if (u < 4) {
        scale = _mm512_and_si512(bytes(sc + 16 * u), low6);
        min = _mm512_and_si512(bytes(sc + 16 * (u + 4)), low6);
    } else {
        const __m512i both = bytes(sc + 16 * (u + 4));
        const __m512i scale_top = _mm512_srli_epi32(bytes(sc + 16 * (u - 4)), 6);
        const __m512i min_top = _mm512_srli_epi32(bytes(sc + 16 * u), 6);
        scale = _mm512_or_si512(_mm512_and_si512(both, low4), _mm512_slli_epi32(scale_top, 4));
        min = _mm512_or_si512(_mm512_srli_epi32(both, 4), _mm512_slli_epi32(min_top, 4));
    }
    b->d = _mm512_mul_ps(halves(p), _mm512_cvtepi32_ps(scale));
    b->m = _mm512_mul_ps(halves(p + PANEL_QK_M), _mm512_cvtepi32_ps(min));
    b->m = _mm512_sub_ps(_mm512_setzero_ps(), b->m);
}

/* Part u of a panel's superblock: 32 of its 256 inputs. */
TPL_INLINE block load_part(tpl_dtype type, const uint8_t *p, int u)
{
    const __m512i low = _mm512_set1_epi8(15), two = _mm512_set1_epi8(3), one = _mm512_set1_epi8(1);
    block b;
    if (type == TPL_DTYPE_Q6_K) {
        const uint8_t *ql = p + PANEL_Q6_K_QL + 1024 * (u / 4) + 512 * (u & 1), *qh = p + PANEL_Q6_K_QH + 512 * (u / 4);
        const __m512 d = halves(p);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            const __m512i nibble = _mm512_and_si512(_mm512_srl_epi16(load(ql + 64 * g), _mm_cvtsi32_si128(4 * (u % 4 / 2))), low);
            const __m512i pair = _mm512_and_si512(_mm512_srl_epi16(load(qh + 64 * g), _mm_cvtsi32_si128(2 * (u % 4))), two);
            b.w[g] = _mm512_or_si512(nibble, _mm512_slli_epi16(pair, 4));
        }
        b.d = _mm512_mul_ps(d, signed_bytes(p + PANEL_Q6_K_SC + 32 * u));
        b.d2 = _mm512_mul_ps(d, signed_bytes(p + PANEL_Q6_K_SC + 32 * u + 16));
        b.m = _mm512_setzero_ps();
        return b;
    }
    const uint8_t *qs = p + (type == TPL_DTYPE_Q4_K ? PANEL_Q4_K_QS : PANEL_Q5_K_QS) + 512 * (u / 2);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        b.w[g] = _mm512_and_si512(_mm512_srl_epi16(load(qs + 64 * g), _mm_cvtsi32_si128(4 * (u & 1))), low);
        if (type != TPL_DTYPE_Q5_K) continue;
        const __m512i high = _mm512_srl_epi16(load(p + PANEL_Q5_K_QH + 64 * g), _mm_cvtsi32_si128(u));
        b.w[g] = _mm512_or_si512(b.w[g], _mm512_slli_epi16(_mm512_and_si512(high, one), 4));
    }
    scale_k45(p, u, &b);
    b.d2 = b.d;
    return b;
}

/* Block `at` of a panel. */
TPL_INLINE block load_block(tpl_dtype type, const uint8_t *panel, int64_t at)
{
    if (lin_block_elems(type) == 256)
        return load_part(type, panel + at / 8 * lin_block_bytes(type), (int)(at % 8));
    const uint8_t *p = panel + at * lin_block_bytes(type);
    block b;
    b.d = b.d2 = halves(p);
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
