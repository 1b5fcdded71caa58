/* SPDX-License-Identifier: Apache-2.0
 *
 * The quant op's code for NEON: the arithmetic of quant_rows.inc by hand, a block in eight registers; fcvtns rounds
 * to nearest, ties to even, as there. bf16.inc as the compiler vectorises it. Any thread.
 */
#define VEC_ISA neon
#include <arm_neon.h>
#include <math.h>

#include "kernels/cpu/bf16.inc"
#include "kernels/cpu/quant.h"
#include "kernels/ops.h"

/* 16 values as integers to bytes at p; returns their sum. */
static inline int32x4_t store_16(const int32x4_t v[4], int8_t *p)
{
    const int16x8_t lo = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
    const int16x8_t hi = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
    return vaddq_s32(vaddq_s32(v[0], v[1]), vaddq_s32(v[2], v[3]));
}

/* 16 values: q and r to memory, their integers added to *sum and *rest. */
static inline void quant_16(const float32x4_t x[4], float inverse, int8_t *q, int8_t *r, int32x4_t *sum,
                            int32x4_t *rest)
{
    int32x4_t near[4], fine[4];
    for (int i = 0; i < 4; i++) {
        const float32x4_t at = vmulq_n_f32(x[i], inverse);
        near[i] = vcvtnq_s32_f32(at);
        fine[i] = vcvtnq_s32_f32(vmulq_n_f32(vsubq_f32(at, vcvtq_f32_s32(near[i])), 254.0f));
    }
    *sum = vaddq_s32(*sum, store_16(near, q));
    *rest = vaddq_s32(*rest, store_16(fine, r));
}

void tpl_quant_blocks_neon(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds)
{
    for (int64_t b = 0; b < n; b++, x += 32, q += 32, r += 32) {
        float32x4_t v[8];
        uint32x4_t bits = vdupq_n_u32(0); /* magnitudes as integers: infinities and NaNs above every number */
        for (int i = 0; i < 8; i++) {
            v[i] = vld1q_f32(x + 4 * i);
            bits = vmaxq_u32(bits, vreinterpretq_u32_f32(vabsq_f32(v[i])));
        }
        const float most = vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(bits))), 0);
        const float scale = most / 127.0f;
        const int is_finite = most < INFINITY;
        const float inverse = is_finite && scale > 0x1p-126f ? 1.0f / scale : 0.0f;
        if (!is_finite)
            for (int i = 0; i < 8; i++) v[i] = vdupq_n_f32(0);
        int32x4_t sum = vdupq_n_s32(0), rest = sum;
        quant_16(v, inverse, q, r, &sum, &rest);
        quant_16(v + 4, inverse, q + 16, r + 16, &sum, &rest);
        d[b] = is_finite ? (inverse > 0 ? scale : 0.0f) : __builtin_nanf("");
        ds[b] = d[b] * ((float)vaddvq_s32(sum) + (float)vaddvq_s32(rest) * TPL_Q8_FINE);
    }
}
