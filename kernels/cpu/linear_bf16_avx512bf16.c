/* SPDX-License-Identifier: Apache-2.0
 *
 * linear on bf16 rows with vdpbf16ps: 12 rows of x times two panels in 24 registers of sums, over all inputs. Any
 * thread.
 */
#define VEC_ISA avx512bf16
#include <immintrin.h>

#include "kernels/cpu/linear_expand.inc"

enum { MOST = 12 }; /* rows at a time */

static void begin(int rows)
{
    (void)rows;
}

static void end(void)
{
}

TPL_INLINE __m512bh pair_of(const char *x)
{
    int32_t pair;
    memcpy(&pair, x, 4);
    return (__m512bh)_mm512_set1_epi32(pair);
}

/* n rows, a constant after inlining. Row r lies at base[r / 3] + (r % 3) * xstride: an address each in four registers
 * and a scaled stride, where 12 pointers would not fit. */
TPL_INLINE void some_rows(int n, int panels, const uint8_t *const w[2], int64_t cols, const char *x, size_t xstride,
                          float *const y[2], const size_t ystride[2], bool add)
{
    const char *base[4];
    __m512 acc[MOST][2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) base[i] = x + (size_t)(3 * i < n ? 3 * i : 0) * xstride;
#pragma GCC unroll 12
    for (int r = 0; r < n; r++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++)
            acc[r][p] = add ? _mm512_loadu_ps((char *)y[p] + (size_t)r * ystride[p]) : _mm512_setzero_ps();
    const uint8_t *w0 = w[0], *w1 = w[panels - 1];
    for (int64_t k = 0; k < cols; k += 2, w0 += 64, w1 += 64) {
        const __m512bh a = (__m512bh)_mm512_load_si512(w0), b = (__m512bh)_mm512_load_si512(w1);
#pragma GCC unroll 12
        for (int r = 0; r < n; r++) {
            const __m512bh v = pair_of(base[r / 3] + (size_t)(r % 3) * xstride + 2 * k);
            acc[r][0] = _mm512_dpbf16_ps(acc[r][0], a, v);
            if (panels == 2) acc[r][1] = _mm512_dpbf16_ps(acc[r][1], b, v);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < n; r++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) _mm512_storeu_ps((char *)y[p] + (size_t)r * ystride[p], acc[r][p]);
}

TPL_INLINE void all_rows(int panels, const uint8_t *const w[2], int64_t cols, const char *x, size_t xstride, int rows,
                         float *const y[2], const size_t ystride[2], bool add)
{
    float *at[2] = { y[0], y[1] };
    for (int left = rows, n; left > 0; left -= n) {
        n = left >= 12 ? 12 : left >= 8 ? 8 : left >= 4 ? 4 : 1;
        switch (n) {
        case 12: some_rows(12, panels, w, cols, x, xstride, at, ystride, add); break;
        case 8: some_rows(8, panels, w, cols, x, xstride, at, ystride, add); break;
        case 4: some_rows(4, panels, w, cols, x, xstride, at, ystride, add); break;
        default: some_rows(1, panels, w, cols, x, xstride, at, ystride, add);
        }
        x += (size_t)n * xstride;
        for (int p = 0; p < panels; p++) at[p] = (float *)(void *)((char *)at[p] + (size_t)n * ystride[p]);
    }
}

static void multiply(const uint8_t *const w[2], int panels, int64_t cols, const void *x, size_t xstride, int rows,
                     float *const y[2], const size_t ystride[2], bool add)
{
    if (panels == 2)
        all_rows(2, w, cols, x, xstride, rows, y, ystride, add);
    else
        all_rows(1, w, cols, x, xstride, rows, y, ystride, add);
}

const tpl_lin_bf16 tpl_lin_bf16_avx512bf16 = { "bf16_avx512bf16", begin, end, expand, multiply };
