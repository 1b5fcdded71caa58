/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl_quant_blocks_avx512: the arithmetic of quant_rows.inc by hand, a block in two registers; conversions
 * round to nearest, ties to even, as there. The compiler's form of the loops took 32 ns a block, this one
 * 17. Any thread.
 */
#define VEC_ISA avx512
#include "kernels/cpu/bf16.inc"

#include <immintrin.h>
#include <math.h>

#include "kernels/cpu/quant.h"
#include "kernels/ops.h"

/* 16 values: q and r to memory, their integers added to *sum and *rest. */
static inline void quant_16(__m512 x, __m512 inverse, int8_t *q, int8_t *r, __m512i *sum, __m512i *rest)
{
    const __m512 at = _mm512_mul_ps(x, inverse);
    const __m512i near = _mm512_cvtps_epi32(at);
    const __m512 left = _mm512_sub_ps(at, _mm512_cvtepi32_ps(near));
    const __m512i fine = _mm512_cvtps_epi32(_mm512_mul_ps(left, _mm512_set1_ps(254.0f)));
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(near));
    _mm_storeu_si128((__m128i *)(void *)r, _mm512_cvtepi32_epi8(fine));
    *sum = _mm512_add_epi32(*sum, near);
    *rest = _mm512_add_epi32(*rest, fine);
}

void tpl_quant_blocks_avx512(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (int64_t b = 0; b < n; b++, x += 32, q += 32, r += 32) {
        __m512 lo = _mm512_loadu_ps(x), hi = _mm512_loadu_ps(x + 16);
        const __m512i bits = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(lo), magnitude),
                                              _mm512_and_si512(_mm512_castps_si512(hi), magnitude));
        const float most = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(bits))));
        const float scale = most / 127.0f;
        const int is_finite = most < INFINITY;
        const float inverse = is_finite && scale > 0x1p-126f ? 1.0f / scale : 0.0f;
        if (!is_finite) lo = hi = _mm512_setzero_ps();
        __m512i sum = _mm512_setzero_si512(), rest = sum;
        quant_16(lo, _mm512_set1_ps(inverse), q, r, &sum, &rest);
        quant_16(hi, _mm512_set1_ps(inverse), q + 16, r + 16, &sum, &rest);
        d[b] = is_finite ? (inverse > 0 ? scale : 0.0f) : __builtin_nanf("");
        ds[b] = d[b] * ((float)_mm512_reduce_add_epi32(sum) +
                        (float)_mm512_reduce_add_epi32(rest) * TPL_Q8_FINE);
    }
}
