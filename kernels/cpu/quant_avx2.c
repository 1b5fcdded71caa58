/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_rows.inc and bf16.inc compiled for avx2. Any thread.
 */
#define VEC_ISA avx2
#include "kernels/cpu/quant_rows.inc"
#include "kernels/cpu/bf16.inc"
