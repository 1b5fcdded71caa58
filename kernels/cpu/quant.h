/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantising n blocks of 32 floats to q, r, d and ds of a q8 row (kernels/ops.h), per ISA. Any thread.
 */
#ifndef TPL_KERNELS_CPU_QUANT_H
#define TPL_KERNELS_CPU_QUANT_H

#include <stdint.h>

void tpl_quant_blocks_portable(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);
void tpl_quant_blocks_avx2(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);
void tpl_quant_blocks_neon(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);
void tpl_quant_blocks_avx512(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);

#endif
