/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on float rows, AVX2 with FMA and F16C: half a panel per vector, 8 inputs are expanded at a time. Any
 * thread.
 */
#define VEC_ISA avx2
#include "kernels/cpu/linear_f32.inc"
