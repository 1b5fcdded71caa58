/* SPDX-License-Identifier: Apache-2.0
 *
 * Probe loops for NEON. Any thread.
 */
#include <arm_neon.h>

#include "kernels/cpu/probe.h"

/* Every loop over the chains is unrolled, or their array would live in memory. */
enum { CHAINS = 16, AHEAD = 1024 };

static uint64_t read_all(const void *at, size_t bytes)
{
    const char *p = at, *end = p + bytes;
    uint64x2_t a = vdupq_n_u64(0), b = a, c = a, d = a;
    for (; p < end; p += 64) {
        const uint64_t *v = (const uint64_t *)(const void *)p;
        __builtin_prefetch(p + AHEAD);
        a = vaddq_u64(a, vld1q_u64(v));
        b = vaddq_u64(b, vld1q_u64(v + 2));
        c = vaddq_u64(c, vld1q_u64(v + 4));
        d = vaddq_u64(d, vld1q_u64(v + 6));
    }
    return vaddvq_u64(vaddq_u64(vaddq_u64(a, b), vaddq_u64(c, d)));
}

static uint64_t f32_loop(int rounds)
{
    float32x4_t a[CHAINS];
    const float32x4_t x = vdupq_n_f32(0.5f), y = vdupq_n_f32(1.0f);
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++) a[i] = y;
    for (int r = 0; r < rounds; r++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) {
            a[i] = vfmaq_f32(a[i], x, y);
            __asm__ volatile("" : "+w"(a[i])); /* neither fold the chains nor move them to memory */
        }
    }
    float32x4_t sum = a[0];
#pragma GCC unroll 16
    for (int i = 1; i < CHAINS; i++) sum = vaddq_f32(sum, a[i]);
    return (uint64_t)vaddvq_f32(sum);
}

tpl_probe_loops tpl_probe_loops_neon(void)
{
    return (tpl_probe_loops){ .read = read_all, .f32 = f32_loop, .f32_ops = CHAINS * 4 * 2 };
}
