/* SPDX-License-Identifier: Apache-2.0
 *
 * linear in plain GNU C: four lanes per vector, which every 64-bit target has. The q8 form multiplies quants
 * as floats: all sums of a block stay below 2^24, so its integer part is exact here too. Any thread.
 */
#define VEC_ISA portable
#include "kernels/cpu/linear_f32.inc"

enum { PARTS = TPL_PANEL_ROWS / VW };

/* One block of 32 inputs: raw quants as floats. */
TPL_INLINE void q8_weights(tpl_dtype type, const uint8_t *panel, int64_t b, vf w[32][PARTS], vf d[PARTS],
                           vf m[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        const sub s = sub_at(type, panel, b, i * VW);
        d[i] = s.d;
        m[i] = s.m;
#pragma GCC unroll 32
        for (int k = 0; k < 32; k++) w[k][i] = quant_at(type, &s, k);
    }
}

TPL_INLINE void q8_tile(tpl_dtype type, const uint8_t *panel, int64_t cols, const char *x, size_t xstride,
                        int nt, float *y)
{
    memset(y, 0, (size_t)nt * TPL_PANEL_ROWS * 4);
    for (int64_t b = 0; b < cols / 32; b++) {
        vf w[32][PARTS], d[PARTS], m[PARTS];
        q8_weights(type, panel, b, w, d, m);
        for (int t = 0; t < nt; t++) {
            const char *row = x + (size_t)t * xstride;
            const int8_t *q = (const int8_t *)row + 32 * b, *r = q + cols;
            const float dx = ((const float *)(row + 2 * cols))[b],
                        ds = ((const float *)(row + 2 * cols))[cols / 32 + b];
            vf dot[PARTS] = { 0 }, fine[PARTS] = { 0 };
            for (int k = 0; k < 32; k++)
                for (int i = 0; i < PARTS; i++) {
                    dot[i] += w[k][i] * (float)q[k];
                    fine[i] += w[k][i] * (float)r[k];
                }
            for (int i = 0; i < PARTS; i++) {
                vf_loose *at = (vf_loose *)(y + t * TPL_PANEL_ROWS + i * VW);
                *at = *at + d[i] * (dot[i] * dx + fine[i] * (dx * TPL_Q8_FINE)) + m[i] * ds;
            }
        }
    }
}

#define X(id, name)                                                                                    \
    static void q8_tile_##name(const void *panel, int64_t cols, const void *x, size_t xstride, int nt, \
                               float *y)                                                               \
    {                                                                                                  \
        q8_tile(TPL_DTYPE_##id, panel, cols, x, xstride, nt, y);                                       \
    }
TPL_LIN_Q8_TYPES(X)
#undef X

const tpl_lin_tile tpl_lin_q8_portable[TPL_N_DTYPES] = {
#define X(id, name) [TPL_DTYPE_##id] = q8_tile_##name,
    TPL_LIN_Q8_TYPES(X)
#undef X
};
