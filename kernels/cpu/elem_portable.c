/* SPDX-License-Identifier: Apache-2.0
 *
 * The element-wise and row-wise ops, compiled for the base line of the architecture.
 */
#define VEC_ISA portable

#include <math.h>

#include "kernels/cpu/simple.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/add.inc"
#include "kernels/cpu/norm.inc"
#include "kernels/cpu/rope.inc"
#include "kernels/cpu/sample.inc"
