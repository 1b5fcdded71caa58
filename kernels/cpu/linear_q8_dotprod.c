/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on q8 rows with NEON and sdot (Armv8.2 FEAT_DotProd), which multiplies signed bytes and adds four
 * products to each 32-bit lane: a group of four inputs of four rows is one instruction. Any thread.
 */
#define VEC_ISA dotprod
#define VEC_NEON 1
#include <arm_neon.h>

#include "kernels/cpu/linear.h"

/* Contract in linear_q8_neon.inc. */
TPL_INLINE int32x4_t dot_32(tpl_dtype type, const int8x16_t w[8], const int8_t *x)
{
    (void)type; /* 32 bits hold any */
    const int8x16_t lo = vld1q_s8(x), hi = vld1q_s8(x + 16);
    int32x4_t sum = vdotq_laneq_s32(vdupq_n_s32(0), w[0], lo, 0);
    sum = vdotq_laneq_s32(sum, w[1], lo, 1);
    sum = vdotq_laneq_s32(sum, w[2], lo, 2);
    sum = vdotq_laneq_s32(sum, w[3], lo, 3);
    sum = vdotq_laneq_s32(sum, w[4], hi, 0);
    sum = vdotq_laneq_s32(sum, w[5], hi, 1);
    sum = vdotq_laneq_s32(sum, w[6], hi, 2);
    return vdotq_laneq_s32(sum, w[7], hi, 3);
}

#include "kernels/cpu/linear_q8_neon.inc"
