/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on float rows, AVX-512: one vector holds the 16 rows of a panel, 16 inputs are expanded at a time.
 * Any thread.
 */
#define VEC_ISA avx512
#include "kernels/cpu/linear_f32.inc"
