/* SPDX-License-Identifier: Apache-2.0
 *
 * Test only: the tile intrinsics that the AMX sources use, in plain C, so that those sources run on
 * machines without AMX (they still need AVX-512). Written from the instruction descriptions in the Intel
 * SDM, volume 2 (LDTILECFG, TILEZERO, TILELOADD, TILESTORED, TDPBSUD, TDPBF16PS). Stricter than the hardware: an
 * unconfigured tile, shapes that do not fit and a tile read before it was written abort. Include after
 * immintrin.h and before the source.
 */
#ifndef SPEC_AMX_EMULATED_H
#define SPEC_AMX_EMULATED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct emu_tile {
    int rows, row_bytes, is_set;
    uint8_t data[16][64];
} emu_tile;

static _Thread_local emu_tile emu_tiles[8];
static _Thread_local int emu_configured;

static void emu_need(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "emulated AMX: %s\n", what);
    abort();
}

static inline void emu_loadconfig(const void *cfg)
{
    const uint8_t *p = cfg;
    emu_need(p[0] == 1, "palette 1 expected");
    memset(emu_tiles, 0, sizeof emu_tiles);
    for (int i = 0; i < 8; i++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, p + 16 + 2 * i, 2);
        emu_tiles[i].rows = p[48 + i], emu_tiles[i].row_bytes = row_bytes;
        emu_need(p[48 + i] <= 16 && row_bytes <= 64 && !p[48 + i] == !row_bytes, "bad tile shape");
    }
    emu_configured = 1;
}

static inline void emu_release(void)
{
    memset(emu_tiles, 0, sizeof emu_tiles);
    emu_configured = 0;
}

static inline emu_tile *emu_at(int i, int must_be_set)
{
    emu_need(emu_configured && emu_tiles[i].rows, "tile not configured");
    emu_need(!must_be_set || emu_tiles[i].is_set, "tile read before it was written");
    return &emu_tiles[i];
}

static inline void emu_zero(int i)
{
    emu_tile *t = emu_at(i, 0);
    memset(t->data, 0, sizeof t->data);
    t->is_set = 1;
}

static inline void emu_loadd(int i, const void *base, size_t stride)
{
    emu_zero(i);
    for (int r = 0; r < emu_tiles[i].rows; r++)
        memcpy(emu_tiles[i].data[r], (const char *)base + (size_t)r * stride, (size_t)emu_tiles[i].row_bytes);
}

static inline void emu_stored(int i, void *base, size_t stride)
{
    const emu_tile *t = emu_at(i, 1);
    for (int r = 0; r < t->rows; r++)
        memcpy((char *)base + (size_t)r * stride, t->data[r], (size_t)t->row_bytes);
}

/* c += a (signed) * b (unsigned): dword n of row m gets the sum over k of the four byte products. */
static inline void emu_dpbsud(int ci, int ai, int bi)
{
    emu_tile *c = emu_at(ci, 1);
    const emu_tile *a = emu_at(ai, 1), *b = emu_at(bi, 1);
    emu_need(c->rows == a->rows && c->row_bytes == b->row_bytes && a->row_bytes == 4 * b->rows,
             "tdpbsud: shapes do not fit");
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->row_bytes / 4; n++) {
            int32_t sum;
            memcpy(&sum, &c->data[m][4 * n], 4);
            for (int k = 0; k < a->row_bytes; k++)
                sum += (int8_t)a->data[m][k] * b->data[k / 4][4 * n + k % 4];
            memcpy(&c->data[m][4 * n], &sum, 4);
        }
}

static inline float emu_bf16(const uint8_t *p)
{
    const uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* c += a * b, bf16 pairs: each pair's two products are added one after the other, which the SDM's text leaves open to a
 * rounding; no denormals are expected. */
static inline void emu_dpbf16ps(int ci, int ai, int bi)
{
    emu_tile *c = emu_at(ci, 1);
    const emu_tile *a = emu_at(ai, 1), *b = emu_at(bi, 1);
    emu_need(c->rows == a->rows && c->row_bytes == b->row_bytes && a->row_bytes == 4 * b->rows,
             "tdpbf16ps: shapes do not fit");
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->row_bytes / 4; n++) {
            float sum;
            memcpy(&sum, &c->data[m][4 * n], 4);
            for (int k = 0; k < a->row_bytes / 2; k++)
                sum += emu_bf16(&a->data[m][2 * k]) * emu_bf16(&b->data[k / 2][4 * n + 2 * (k % 2)]);
            memcpy(&c->data[m][4 * n], &sum, 4);
        }
}

#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbsud
#undef _tile_dpbf16ps
#define _tile_loadconfig(cfg) emu_loadconfig(cfg)
#define _tile_release() emu_release()
#define _tile_zero(t) emu_zero(t)
#define _tile_loadd(t, base, stride) emu_loadd(t, base, (size_t)(stride))
#define _tile_stream_loadd(t, base, stride) emu_loadd(t, base, (size_t)(stride))
#define _tile_stored(t, base, stride) emu_stored(t, base, (size_t)(stride))
#define _tile_dpbsud(c, a, b) emu_dpbsud(c, a, b)
#define _tile_dpbf16ps(c, a, b) emu_dpbf16ps(c, a, b)

#endif
