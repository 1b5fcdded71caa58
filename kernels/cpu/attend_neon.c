/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, compiled for NEON.
 */
#define VEC_ISA neon
#define VEC_NEON 1

#include <math.h>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/attend.inc"
