/* SPDX-License-Identifier: Apache-2.0
 *
 * What this machine can do at most, measured: memory read bandwidth, arithmetic peaks with everything in
 * registers, and the price of a team barrier. Speed is reported as a share of these. Starts its own threads;
 * setup only. The figures hold for the moment they were taken: shared machines vary by half and more.
 */
#ifndef TPL_KERNELS_PROBE_H
#define TPL_KERNELS_PROBE_H

#include <stddef.h>

#include "base/err.h"

/* 0: unknown, or this machine (or build) lacks it. */
typedef struct tpl_probe_result {
    double read_gb_s;    /* 1e9 bytes/s, all threads together, the best pass */
    size_t read_bytes;   /* size of the buffer it was read from */
    double f32_gflop_s;  /* fused multiply-adds count two */
    double bf16_gflop_s; /* dot products of bf16 pairs (vdpbf16ps, tdpbf16ps) */
    double i8_gflop_s;   /* dot products of bytes (vpdpbusd, tdpbsud) */
    double barrier_us;
    const char *isa; /* static storage */
} tpl_probe_result;

/* Takes about `seconds` (a fifth of it or less per figure) plus the time to fill the buffer. bytes 0: 512 MB,
 * or an eighth of the memory that is free where that is less. Fails MEM, IO. */
TPL_NODISCARD tpl_status tpl_probe_run(int n_threads, double seconds, size_t bytes, tpl_probe_result *out,
                                       tpl_err *err);

#endif
