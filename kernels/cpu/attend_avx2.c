/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, compiled for AVX2, FMA and F16C.
 */
#define VEC_ISA avx2

#include <math.h>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/attend.inc"
