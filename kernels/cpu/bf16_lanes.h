/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of bf16 as vdpbf16ps and tdpbf16ps take them. Only files compiled for AVX-512 BF16 may include it. Any thread.
 */
#ifndef TPL_KERNELS_CPU_BF16_LANES_H
#define TPL_KERNELS_CPU_BF16_LANES_H

#include <immintrin.h>

/* Lane r: the pair (lo[r], hi[r]), rounded to nearest, ties to even. */
static inline __attribute__((always_inline)) __m512i bf16_lanes(__m512 lo, __m512 hi)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(hi, lo));
}

#endif
