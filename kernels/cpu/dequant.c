/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact expansion of file rows to float: scale times quant, then minus (or plus) the min, each operation
 * rounded to float32, in the order of facts/models.md 2.6. Products of a half scale, a 6-bit scale and a
 * quant are exact in float32, so only the last addition rounds. Built without contraction (fused
 * multiply-adds), like the whole library. Any thread.
 */
#include "kernels/cpu/panel.h"

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return tpl_half_to_float(h);
}

/* Types without a min must not add a zero: that would turn -0 into +0. */
static void add_min(float m, float *y)
{
    for (int e = 0; e < 32; e++) y[e] += m;
}

static void q4_block(const uint8_t *qs, float d, int zero, float *y)
{
    for (int e = 0; e < 16; e++) {
        y[e] = d * (float)((qs[e] & 15) - zero);
        y[e + 16] = d * (float)((qs[e] >> 4) - zero);
    }
}

static void q5_block(const uint8_t *qs, const uint8_t *high, float d, int zero, float *y)
{
    uint32_t qh;
    memcpy(&qh, high, 4);
    for (int e = 0; e < 16; e++) {
        const int lo = (qs[e] & 15) | (int)(qh >> e & 1) << 4, hi = qs[e] >> 4 | (int)(qh >> (e + 16) & 1)
                                                                                     << 4;
        y[e] = d * (float)(lo - zero);
        y[e + 16] = d * (float)(hi - zero);
    }
}

static void q8_block(const uint8_t *b, float *y)
{
    const float d = half_at(b);
    for (int e = 0; e < 32; e++) y[e] = d * (float)(int8_t)b[2 + e];
}

/* The 6-bit scale and min of sub-block u of a Q4_K or Q5_K block. */
static void k_scale(const uint8_t *s, int u, int *sc, int *m)
{
    if (u < 4) {
        *sc = s[u] & 63;
        *m = s[u + 4] & 63;
    } else {
        *sc = (s[u + 4] & 15) | (s[u - 4] >> 6) << 4;
        *m = s[u + 4] >> 4 | (s[u] >> 6) << 4;
    }
}

/* qh NULL: Q4_K. */
static void q45_k_block(const uint8_t *b, const uint8_t *qh, const uint8_t *qs, float *y)
{
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int u = 0; u < 8; u++) {
        int sc, m;
        k_scale(b + 4, u, &sc, &m);
        const float scale = d * (float)sc, min = dmin * (float)m;
        for (int t = 0; t < 32; t++) {
            const int byte = qs[32 * (u / 2) + t];
            int q = u & 1 ? byte >> 4 : byte & 15;
            if (qh) q |= (qh[t] >> u & 1) << 4;
            y[32 * u + t] = scale * (float)q - min;
        }
    }
}

static void q6_k_block(const uint8_t *b, float *y)
{
    const float d = half_at(b + 208);
    for (int e = 0; e < 256; e++) {
        const int n = e / 128, g = e % 128 / 32, l = e % 32;
        const int byte = b[64 * n + l + 32 * (g & 1)], pair = b[128 + 32 * n + l] >> (2 * g) & 3;
        const int q = ((g < 2 ? byte & 15 : byte >> 4) | pair << 4) - 32;
        y[e] = d * (float)(int8_t)b[192 + 8 * n + 2 * g + l / 16] * (float)q;
    }
}

static void block_to_float(tpl_dtype dtype, const uint8_t *b, float *y)
{
    switch (dtype) {
    case TPL_DTYPE_Q4_0: q4_block(b + 2, half_at(b), 8, y); break;
    case TPL_DTYPE_Q4_1: q4_block(b + 4, half_at(b), 0, y), add_min(half_at(b + 2), y); break;
    case TPL_DTYPE_Q5_0: q5_block(b + 6, b + 2, half_at(b), 16, y); break;
    case TPL_DTYPE_Q5_1: q5_block(b + 8, b + 4, half_at(b), 0, y), add_min(half_at(b + 2), y); break;
    case TPL_DTYPE_Q8_0: q8_block(b, y); break;
    case TPL_DTYPE_Q4_K: q45_k_block(b, NULL, b + 16, y); break;
    case TPL_DTYPE_Q5_K: q45_k_block(b, b + 16, b + 48, y); break;
    case TPL_DTYPE_Q6_K: q6_k_block(b, y); break;
    default: break;
    }
}

void tpl_dequant_row(tpl_dtype dtype, const void *src, int64_t n, float *dst)
{
    const uint8_t *p = src;
    const uint32_t n_elem = tpl_dtypes[dtype].n_elem, n_bytes = tpl_dtypes[dtype].n_bytes;
    if (dtype == TPL_DTYPE_F32) {
        memcpy(dst, src, (size_t)n * 4);
    } else if (dtype == TPL_DTYPE_F16) {
        for (int64_t i = 0; i < n; i++) dst[i] = half_at(p + 2 * i);
    } else if (dtype == TPL_DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++) {
            const uint32_t bits = (uint32_t)(p[2 * i] | p[2 * i + 1] << 8) << 16;
            memcpy(dst + i, &bits, 4);
        }
    } else {
        for (int64_t i = 0; i < n; i += n_elem, p += n_bytes) block_to_float(dtype, p, dst + i);
    }
}
