/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for CPUs with AMX: items of few rows as on AVX-512, those of many rows on tiles.
 */
#define VEC_ISA amx
#define ATT_HAS_TILES 1

#include <math.h>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/attend.h"
#include "kernels/cpu/bf16_lanes.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/attend.inc"
