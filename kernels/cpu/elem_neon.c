/* SPDX-License-Identifier: Apache-2.0
 *
 * The element-wise and row-wise ops, compiled for NEON.
 */
#define VEC_ISA neon
#define VEC_NEON 1

#include <math.h>

#include "kernels/cpu/simple.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/add.inc"
#include "kernels/cpu/norm.inc"
#include "kernels/cpu/rope.inc"
#include "kernels/cpu/sample.inc"
