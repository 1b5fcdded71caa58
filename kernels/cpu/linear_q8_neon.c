/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on q8 rows with the NEON of every aarch64 machine. smlal multiplies bytes and adds the products to 16
 * bits, lane by lane, so a lane sums one of the four inputs of each group: over all 8 groups at most 8 * 15 *
 * 127 (q4) or 8 * 31 * 127 = 31496 (q5). Of q8 only two groups fit, 2 * 128 * 127 = 32512. Any thread.
 */
#define VEC_ISA neon
#define VEC_NEON 1
#include <arm_neon.h>

#include "kernels/cpu/linear.h"

/* Contract in linear_q8_neon.inc. */
TPL_INLINE int32x4_t dot_32(tpl_dtype type, const int8x16_t w[8], const int8_t *x)
{
    const int groups = type == TPL_DTYPE_Q8_0 ? 2 : 8; /* that 16 bits hold */
    int32x4_t sum_lo = vdupq_n_s32(0), sum_hi = sum_lo; /* rows 0 and 1, rows 2 and 3: two lanes each */
    int16x8_t lo = vdupq_n_s16(0), hi = lo;
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        const int8x8_t four = vreinterpret_s8_s32(vld1_dup_s32((const int32_t *)(const void *)(x + 4 * g)));
        const int8x8_t w_lo = vget_low_s8(w[g]), w_hi = vget_high_s8(w[g]);
        lo = g % groups ? vmlal_s8(lo, w_lo, four) : vmull_s8(w_lo, four);
        hi = g % groups ? vmlal_s8(hi, w_hi, four) : vmull_s8(w_hi, four);
        if (g % groups == groups - 1) {
            sum_lo = vpadalq_s16(sum_lo, lo);
            sum_hi = vpadalq_s16(sum_hi, hi);
        }
    }
    return vpaddq_s32(sum_lo, sum_hi);
}

#include "kernels/cpu/linear_q8_neon.inc"
