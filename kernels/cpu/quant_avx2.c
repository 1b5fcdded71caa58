/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl_quant_blocks_avx2: quant_rows.inc compiled for avx2. Any thread.
 */
#define VEC_ISA avx2
#include "kernels/cpu/quant_rows.inc"
