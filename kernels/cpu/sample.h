/* SPDX-License-Identifier: Apache-2.0
 *
 * Between sample.c and its sweeps per instruction set. Any thread.
 */
#ifndef TPL_KERNELS_CPU_SAMPLE_H
#define TPL_KERNELS_CPU_SAMPLE_H

#include "kernels/ops.h"
#include "kernels/sampler.h"

void tpl_sample_rows(const tpl_op_ctx *ctx, const tpl_bound *op, const tpl_row_code *code);
extern const tpl_row_code tpl_row_code_avx2, tpl_row_code_avx512, tpl_row_code_neon;

#endif
