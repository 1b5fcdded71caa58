/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, compiled for AVX-512.
 */
#define VEC_ISA avx512

#include <math.h>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/attend.inc"
