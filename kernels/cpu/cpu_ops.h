/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend's bind functions, one per op of kernels/ops.h that has TPL_OP_KERNEL, each in the file
 * named after it (add_norm in add.c or norm.c, rope_kv with rope, and so on). bind runs once at load: it
 * checks types and shapes, picks the code for the ISA, and sets op->run and op->variant; it does not
 * allocate. backend.c checks that this list and the op list agree. Any thread.
 */
#ifndef TPL_KERNELS_CPU_OPS_H
#define TPL_KERNELS_CPU_OPS_H

#include "kernels/ops.h"

/* X(ENUM, op name as a C identifier) */
#define TPL_CPU_OPS(X)      \
    X(EMBED, embed)         \
    X(NORM, norm)           \
    X(ADD, add)             \
    X(ADD_NORM, add_norm)   \
    X(QUANT, quant)         \
    X(LINEAR, linear)       \
    X(BIAS, bias)           \
    X(SILU_MUL, silu_mul)   \
    X(ROPE, rope)           \
    X(KV_WRITE, kv_write)   \
    X(ROPE_KV, rope_kv)     \
    X(ATTEND, attend)       \
    X(ROWS, rows)           \
    X(SLICE, slice)         \
    X(SLICE_TOK, slice_tok) \
    X(SAMPLE, sample)

#define X(id, name) tpl_status tpl_cpu_bind_##name(tpl_isa isa, tpl_bound *op, tpl_err *err);
TPL_CPU_OPS(X)
#undef X

/* Bytes of ctx->scratch that the matrix kernels use: a part of L2, which expanded panels fill (linear.c). */
enum { TPL_CPU_SCRATCH_BYTES = 768 * 1024 };

/* The x86-64 files are compiled only there; a dispatch table asks this before naming their symbols. */
#if defined(__x86_64__)
#define TPL_CPU_X86 1
#else
#define TPL_CPU_X86 0
#endif

/* Likewise the files of aarch64, whose base line has NEON. The dot products of bytes (sdot, Armv8.2) it has
 * not: they are asked for at bind. */
#if defined(__aarch64__)
#define TPL_CPU_ARM 1
bool tpl_cpu_has_dotprod(void);
#else
#define TPL_CPU_ARM 0
#endif

#endif
