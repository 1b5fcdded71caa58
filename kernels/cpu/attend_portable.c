/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, compiled for the base line of the architecture.
 */
#define VEC_ISA portable

#include <math.h>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/attend.inc"
