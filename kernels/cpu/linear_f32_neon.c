/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on float rows, NEON: a quarter of a panel per vector, 16 inputs are expanded at a time. Any thread.
 */
#define VEC_ISA neon
#define VEC_NEON 1
#include "kernels/cpu/linear_f32.inc"
