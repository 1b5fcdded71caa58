/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of the probe, per ISA. Each burns its unit of work once and returns a value that depends on all
 * of it. Any thread.
 */
#ifndef TPL_KERNELS_CPU_PROBE_H
#define TPL_KERNELS_CPU_PROBE_H

#include <stddef.h>
#include <stdint.h>

typedef struct tpl_probe_loops {
    uint64_t (*read)(const void *p, size_t bytes); /* bytes % 256 == 0, 64-byte aligned; prefetches beyond */
    /* `rounds` rounds of independent operations in registers; the number of arithmetic operations per round.
     * NULL: not there. */
    uint64_t (*f32)(int rounds);
    uint64_t (*bf16)(int rounds);
    uint64_t (*i8)(int rounds);
    int f32_ops, bf16_ops, i8_ops;
} tpl_probe_loops;

tpl_probe_loops tpl_probe_loops_avx2(void);
tpl_probe_loops tpl_probe_loops_avx512(void);
tpl_probe_loops tpl_probe_loops_amx(void);
tpl_probe_loops tpl_probe_loops_neon(void);
uint64_t tpl_probe_i8_dotprod(int rounds);
enum { TPL_PROBE_I8_DOTPROD_OPS = 16 * 16 * 2 }; /* of tpl_probe_i8_dotprod, per round */

#endif
