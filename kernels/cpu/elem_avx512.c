/* SPDX-License-Identifier: Apache-2.0
 *
 * The element-wise and row-wise ops, compiled for AVX-512.
 */
#define VEC_ISA avx512

#include <math.h>

#include "kernels/cpu/simple.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/add.inc"
#include "kernels/cpu/norm.inc"
#include "kernels/cpu/rope.inc"
#include "kernels/cpu/sample.inc"
