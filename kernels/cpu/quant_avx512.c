/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl_quant_blocks_avx512: quant_rows.inc compiled for avx512. Any thread.
 */
#define VEC_ISA avx512
#include "kernels/cpu/quant_rows.inc"
