/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on bf16 rows with AMX tiles: 32 rows of x times two panels, a 2 x 2 square of C tiles, so that each tile
 * that is loaded is used twice. Sums stay in the tiles over all inputs. The panels come from L2 with the hint that they
 * will not be read again soon, which leaves L1 to the rows of x (1540 against 1260 GFLOP/s on one core of a shared Emerald
 * Rapids guest; with everything in L1 it were 2600). Where another guest has the other half of the core, tile loads
 * and products do not overlap at all, in no order of instructions: 450.
 *
 * Any thread; begin and end on the thread that multiplies.
 */
#define VEC_ISA amx
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear_expand.inc"

/* Tiles 0 to 3: sums, [rows 0-15, rows 16-31] x [first, second panel]; 4, 5: x; 6, 7: the panels. */
static void begin(int rows)
{
    const uint8_t low = (uint8_t)(rows < 16 ? rows : 16), high = (uint8_t)(rows - low), high_bytes = high ? 64 : 0;
    const uint8_t all_rows[8] = { low, low, high, high, low, high, 16, 16 };
    const uint8_t bytes[8] = { 64, 64, high_bytes, high_bytes, 64, high_bytes, 64, 64 };
    amx_configure(all_rows, bytes);
}

static void end(void)
{
    _tile_release();
}

/* Macros, because tile numbers are constants of the instructions. */
#define START(tile, y, stride)              \
    do {                                    \
        if (add)                            \
            _tile_loadd(tile, y, stride);   \
        else                                \
            _tile_zero(tile);               \
    } while (0)

enum { HIDDEN = 8 }; /* steps of 32 inputs behind which the lines of y are fetched for writing */

/* Part `step` of them: y lies in L3 or beyond, and stores that miss would stop the tiles. */
TPL_INLINE void ask_for(int halves, int panels, float *const y[2], const size_t ystride[2], int step)
{
    const int each = 16 * halves / HIDDEN;
    for (int p = 0; p < panels; p++)
        for (int r = step * each; r < (step + 1) * each; r++)
            __builtin_prefetch((char *)y[p] + (size_t)r * ystride[p], 1);
}

/* halves: 1 or 2 times 16 rows of x; panels: 1 or 2. */
TPL_INLINE void square(int halves, int panels, const uint8_t *const w[2], int64_t cols, const char *x, size_t xstride,
                       float *const y[2], const size_t ystride[2], bool add)
{
    const char *x1 = x + 16 * xstride;
    const uint8_t *w0 = w[0], *w1 = w[panels - 1];
    char *y0 = (char *)y[0], *y1 = (char *)y[panels - 1];
    START(0, y0, ystride[0]);
    if (panels == 2) START(1, y1, ystride[1]);
    if (halves == 2) START(2, y0 + 16 * ystride[0], ystride[0]);
    if (halves == 2 && panels == 2) START(3, y1 + 16 * ystride[1], ystride[1]);
    for (int64_t k = 0; k < cols; k += 32, x += 64, x1 += 64, w0 += 1024, w1 += 1024) {
        if (k < 32 * HIDDEN) ask_for(halves, panels, y, ystride, (int)(k / 32));
        _tile_stream_loadd(6, w0, 64);
        _tile_loadd(4, x, xstride);
        if (panels == 2) _tile_stream_loadd(7, w1, 64);
        if (halves == 2) _tile_loadd(5, x1, xstride);
        _tile_dpbf16ps(0, 4, 6);
        if (panels == 2) _tile_dpbf16ps(1, 4, 7);
        if (halves == 2) _tile_dpbf16ps(2, 5, 6);
        if (halves == 2 && panels == 2) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, y0, ystride[0]);
    if (panels == 2) _tile_stored(1, y1, ystride[1]);
    if (halves == 2) _tile_stored(2, y0 + 16 * ystride[0], ystride[0]);
    if (halves == 2 && panels == 2) _tile_stored(3, y1 + 16 * ystride[1], ystride[1]);
}

static void multiply(const uint8_t *const w[2], int panels, int64_t cols, const void *x, size_t xstride, int rows,
                     float *const y[2], const size_t ystride[2], bool add)
{
    if (rows > 16 && panels == 2)
        square(2, 2, w, cols, x, xstride, y, ystride, add);
    else if (rows > 16)
        square(2, 1, w, cols, x, xstride, y, ystride, add);
    else if (panels == 2)
        square(1, 2, w, cols, x, xstride, y, ystride, add);
    else
        square(1, 1, w, cols, x, xstride, y, ystride, add);
}

const tpl_lin_bf16 tpl_lin_bf16_amx = { "bf16_amx", begin, end, expand, multiply };
