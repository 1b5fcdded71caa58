/* SPDX-License-Identifier: Apache-2.0
 *
 * The shapes of the tile registers. Only files compiled for AMX may include it, and tests that emulate the tiles
 * (spec/c/amx_emulated.h). A thread configures its own tiles, and releases them when it is done, since what is
 * configured is saved at every switch of threads.
 */
#ifndef TPL_KERNELS_CPU_AMX_TILES_H
#define TPL_KERNELS_CPU_AMX_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* Tile i has rows[i] rows of row_bytes[i] bytes; 0 and 0: not used.
 * GCC 12 takes only 8 bytes of the configuration for input of ldtilecfg and drops the stores to the rest; the empty asm makes
 * them stay (facts/perf.md 0a). */
static inline __attribute__((always_inline)) void amx_configure(const uint8_t rows[8], const uint8_t row_bytes[8])
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } cfg __attribute__((aligned(64))) = { .palette = 1 };
    for (int i = 0; i < 8; i++) cfg.rows[i] = rows[i], cfg.row_bytes[i] = row_bytes[i];
    __asm__ volatile("" ::"r"(&cfg) : "memory");
    _tile_loadconfig(&cfg);
}

/* All tiles of 16 rows of 64 bytes. */
static inline __attribute__((always_inline)) void amx_configure_full(void)
{
    static const uint8_t rows[8] = { 16, 16, 16, 16, 16, 16, 16, 16 }, bytes[8] = { 64, 64, 64, 64, 64, 64, 64, 64 };
    amx_configure(rows, bytes);
}

#endif
