/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe's loop over dot products of bytes (sdot). Any thread.
 */
#include <arm_neon.h>

#include "kernels/cpu/probe.h"

enum { CHAINS = 16 };
_Static_assert(TPL_PROBE_I8_DOTPROD_OPS == CHAINS * 16 * 2, "16 products and sums per chain");

uint64_t tpl_probe_i8_dotprod(int rounds)
{
    int32x4_t a[CHAINS];
    const int8x16_t x = vdupq_n_s8(1), y = vdupq_n_s8(2);
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++) a[i] = vdupq_n_s32(i);
    for (int r = 0; r < rounds; r++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) {
            a[i] = vdotq_s32(a[i], x, y);
            __asm__ volatile("" : "+w"(a[i])); /* neither fold the chains nor move them to memory */
        }
    }
    int32x4_t sum = a[0];
#pragma GCC unroll 16
    for (int i = 1; i < CHAINS; i++) sum = vaddq_s32(sum, a[i]);
    return (uint64_t)(uint32_t)vaddvq_s32(sum);
}
