/* SPDX-License-Identifier: Apache-2.0
 *
 * What the quant op does to the elements of a row (kernels/ops.h), per ISA: n blocks of 32 floats to q, r, d and ds
 * of a q8 row; n floats to bf16, to nearest, ties to even. Any thread.
 */
#ifndef TPL_KERNELS_CPU_QUANT_H
#define TPL_KERNELS_CPU_QUANT_H

#include <stdint.h>

void tpl_quant_blocks_portable(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);
void tpl_quant_blocks_avx2(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);
void tpl_quant_blocks_neon(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);
void tpl_quant_blocks_avx512(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);

void tpl_bf16_of_floats_portable(const float *x, int64_t n, uint16_t *out);
void tpl_bf16_of_floats_avx2(const float *x, int64_t n, uint16_t *out);
void tpl_bf16_of_floats_neon(const float *x, int64_t n, uint16_t *out);
void tpl_bf16_of_floats_avx512(const float *x, int64_t n, uint16_t *out);

#endif
