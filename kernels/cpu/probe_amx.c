/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe loops for AMX: those of AVX-512, but bytes and bf16 are multiplied in tiles, 16 x 64 bytes times 16 rows
 * of 64 bytes per instruction, four independent sums. Any thread; the tile unit is configured and released within a loop.
 */
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/probe.h"

enum { I8_OPS = 16 * 16 * 64 * 2, BF16_OPS = 16 * 16 * 32 * 2 };

/* The factors are zero. */
static void begin(void)
{
    amx_configure_full();
    _tile_zero(4);
    _tile_zero(5);
}

static uint64_t end(void)
{
    int32_t sums[16 * 16] __attribute__((aligned(64)));
    _tile_stored(0, sums, 64);
    _tile_release();
    return (uint64_t)(uint32_t)sums[0];
}

static uint64_t i8_loop(int rounds)
{
    begin();
    for (int r = 0; r < rounds; r += 4) {
        _tile_dpbsud(0, 4, 5);
        _tile_dpbsud(1, 4, 5);
        _tile_dpbsud(2, 4, 5);
        _tile_dpbsud(3, 4, 5);
    }
    return end();
}

static uint64_t bf16_loop(int rounds)
{
    begin();
    for (int r = 0; r < rounds; r += 4) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    return end();
}

tpl_probe_loops tpl_probe_loops_amx(void)
{
    tpl_probe_loops loops = tpl_probe_loops_avx512();
    loops.i8 = i8_loop, loops.i8_ops = I8_OPS;
    loops.bf16 = bf16_loop, loops.bf16_ops = BF16_OPS;
    return loops;
}
