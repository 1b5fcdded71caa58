/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing of weight rows into panels and back, driven by a table of the block fields (panel.h shows the
 * layout). Works at load time and for embedding look-ups. Any thread.
 */
#include "kernels/cpu/panel.h"

#include "base/ck.h"

enum { MAX_BLOCK_BYTES = 256, AHEAD = 2048 /* bytes of a panel asked for before they are written */ };

/* {file, panel, unit, n, is_q5_bits}; file offsets as in facts/models.md 2.6 (the GGUF block structs). */
static const tpl_panel_field fields[TPL_N_DTYPES][TPL_PANEL_FIELDS] = {
    [TPL_DTYPE_F32] = { { 0, 0, 4, 1, 0 } },
    [TPL_DTYPE_F16] = { { 0, 0, 2, 1, 0 } },
    [TPL_DTYPE_BF16] = { { 0, 0, 2, 1, 0 } }, /* but in pairs: bf16_at */
    [TPL_DTYPE_Q4_0] = { { 0, 0, 2, 1, 0 }, { 2, PANEL_Q4_0_QS, 4, 4, 0 } },
    [TPL_DTYPE_Q4_1] = { { 0, 0, 2, 1, 0 }, { 2, PANEL_Q4_1_M, 2, 1, 0 }, { 4, PANEL_Q4_1_QS, 4, 4, 0 } },
    [TPL_DTYPE_Q5_0] = { { 0, 0, 2, 1, 0 }, { 2, PANEL_Q5_0_QH, 4, 1, 1 }, { 6, PANEL_Q5_0_QS, 4, 4, 0 } },
    [TPL_DTYPE_Q5_1] = { { 0, 0, 2, 1, 0 },
                         { 2, PANEL_Q5_1_M, 2, 1, 0 },
                         { 4, PANEL_Q5_1_QH, 4, 1, 1 },
                         { 8, PANEL_Q5_1_QS, 4, 4, 0 } },
    [TPL_DTYPE_Q8_0] = { { 0, 0, 2, 1, 0 }, { 2, PANEL_Q8_0_QS, 4, 8, 0 } },
    [TPL_DTYPE_Q4_K] = { { 0, 0, 2, 1, 0 },
                         { 2, PANEL_QK_M, 2, 1, 0 },
                         { 4, PANEL_QK_SC, 1, 12, 0 },
                         { 16, PANEL_Q4_K_QS, 4, 32, 0 } },
    [TPL_DTYPE_Q5_K] = { { 0, 0, 2, 1, 0 },
                         { 2, PANEL_QK_M, 2, 1, 0 },
                         { 4, PANEL_QK_SC, 1, 12, 0 },
                         { 16, PANEL_Q5_K_QH, 4, 8, 0 },
                         { 48, PANEL_Q5_K_QS, 4, 32, 0 } },
    [TPL_DTYPE_Q6_K] = { { 208, 0, 2, 1, 0 },
                         { 192, PANEL_Q6_K_SC, 1, 16, 0 },
                         { 128, PANEL_Q6_K_QH, 4, 16, 0 },
                         { 0, PANEL_Q6_K_QL, 4, 32, 0 } },
};

const tpl_panel_field *tpl_panel_fields(tpl_dtype dtype)
{
    return (unsigned)dtype < TPL_N_DTYPES && fields[dtype][0].unit ? fields[dtype] : NULL;
}

bool tpl_pack_bytes(tpl_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out)
{
    uint64_t row_bytes, padded, total;
    return tpl_panel_fields(dtype) && tpl_dtype_row_bytes(dtype, cols, &row_bytes) &&
           ck_align(rows, TPL_PANEL_ROWS, &padded) && ck_mul(padded, row_bytes, &total) &&
           ck_align(total, 64, out);
}

/* Bit e of the file's word (input e) to bit 8 * (e % 4) + e / 4. */
static uint32_t q5_bits_to_groups(uint32_t w)
{
    uint32_t r = 0;
    for (int e = 0; e < 32; e++) r |= (w >> e & 1) << (8 * (e % 4) + e / 4);
    return r;
}

static uint32_t q5_bits_to_file(uint32_t w)
{
    uint32_t r = 0;
    for (int e = 0; e < 32; e++) r |= (w >> (8 * (e % 4) + e / 4) & 1) << e;
    return r;
}

/* One field of one block of row r. The common units get fixed-size copies, which compile to single moves. */
static void pack_field(const tpl_panel_field *f, const uint8_t *src, uint8_t *dst, int r)
{
    src += f->file;
    dst += f->panel + (size_t)r * f->unit;
    if (f->is_q5_bits) {
        uint32_t w;
        memcpy(&w, src, 4);
        w = q5_bits_to_groups(w);
        memcpy(dst, &w, 4);
    } else if (f->unit == 4) {
        for (int u = 0; u < f->n; u++) memcpy(dst + u * 64, src + u * 4, 4);
    } else if (f->unit == 2) {
        for (int u = 0; u < f->n; u++) memcpy(dst + u * 32, src + u * 2, 2);
    } else {
        for (int u = 0; u < f->n; u++) dst[u * 16] = src[u];
    }
}

/* Where input k of row r of a bf16 panel lies: in pairs, an odd last input alone. */
static size_t bf16_at(int64_t cols, int64_t k, int r)
{
    const size_t pair = (size_t)(k / 2) * 4 * TPL_PANEL_ROWS;
    return k == (cols & ~INT64_C(1)) ? pair + (size_t)r * 2 : pair + (size_t)r * 4 + (size_t)(k & 1) * 2;
}

typedef uint32_t quad __attribute__((vector_size(16)));
typedef quad quad_loose __attribute__((aligned(1), may_alias));

#if defined(__clang__) || __GNUC__ >= 12
#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MIX(a, b, ...) __builtin_shuffle(a, b, (quad){ __VA_ARGS__ })
#endif

/* n units of 4 bytes from each of 16 rows that lie row_bytes apart, unit u of row r to dst + 64 u + 4 r: squares of
 * 4 x 4 are transposed in registers. */
static void pack_units(const uint8_t *src, size_t row_bytes, int64_t n, uint8_t *dst)
{
    int64_t u = 0;
    for (; u + 4 <= n; u += 4)
        for (size_t r = 0; r < TPL_PANEL_ROWS; r += 4) {
            quad x[4];
            for (size_t i = 0; i < 4; i++) x[i] = *(const quad_loose *)(src + (r + i) * row_bytes + 4 * u);
            const quad a = MIX(x[0], x[1], 0, 4, 1, 5), b = MIX(x[2], x[3], 0, 4, 1, 5);
            const quad c = MIX(x[0], x[1], 2, 6, 3, 7), d = MIX(x[2], x[3], 2, 6, 3, 7);
            quad_loose *to = (quad_loose *)(dst + 64 * u + 4 * r);
            to[0] = MIX(a, b, 0, 1, 4, 5), to[4] = MIX(a, b, 2, 3, 6, 7);
            to[8] = MIX(c, d, 0, 1, 4, 5), to[12] = MIX(c, d, 2, 3, 6, 7);
        }
    for (; u < n; u++)
        for (size_t r = 0; r < TPL_PANEL_ROWS; r++) memcpy(dst + 64 * u + 4 * r, src + r * row_bytes + 4 * u, 4);
}

/* The same for units of 2 bytes: unit u of row r to dst + 32 u + 2 r. */
static void pack_halves(const uint8_t *src, size_t row_bytes, int64_t n, uint8_t *dst)
{
    for (int64_t u = 0; u < n; u++) {
        uint16_t x[TPL_PANEL_ROWS];
        for (size_t r = 0; r < TPL_PANEL_ROWS; r++) memcpy(&x[r], src + r * row_bytes + 2 * u, 2);
        memcpy(dst + 32 * u, x, sizeof x);
    }
}

/* Panels of plain elements: whole panels in units, the rest one by one. */
static void pack_plain(tpl_dtype dtype, int64_t cols, const uint8_t *rows, int n, uint8_t *out)
{
    const size_t size = tpl_dtypes[dtype].n_bytes, row_bytes = (size_t)cols * size;
    int64_t k0 = 0;
    if (n == TPL_PANEL_ROWS) {
        k0 = dtype == TPL_DTYPE_BF16 ? cols & ~INT64_C(1) : cols;
        if (dtype == TPL_DTYPE_F16)
            pack_halves(rows, row_bytes, cols, out);
        else
            pack_units(rows, row_bytes, k0 * (int64_t)size / 4, out);
    }
    for (int r = 0; r < n; r++)
        for (int64_t k = k0; k < cols; k++) {
            const size_t at = dtype == TPL_DTYPE_BF16 ? bf16_at(cols, k, r) : ((size_t)k * TPL_PANEL_ROWS + (size_t)r) * size;
            memcpy(out + at, rows + (size_t)r * row_bytes + (size_t)k * size, size);
        }
}

static void pack_blocks(tpl_dtype dtype, int64_t cols, const uint8_t *rows, int n, uint8_t *out)
{
    const size_t block = tpl_dtypes[dtype].n_bytes, n_blocks = (size_t)(cols / tpl_dtypes[dtype].n_elem);
    const size_t row_bytes = n_blocks * block;
    for (size_t b = 0; b < n_blocks; b++, rows += block, out += block * TPL_PANEL_ROWS) {
        for (size_t at = 0; at < block * TPL_PANEL_ROWS; at += 64) __builtin_prefetch(out + AHEAD + at, 1);
        for (const tpl_panel_field *f = fields[dtype]; f < fields[dtype] + TPL_PANEL_FIELDS && f->unit; f++)
            if (n == TPL_PANEL_ROWS && f->unit == 4 && !f->is_q5_bits)
                pack_units(rows + f->file, row_bytes, f->n, out + f->panel);
            else if (n == TPL_PANEL_ROWS && f->unit == 2)
                pack_halves(rows + f->file, row_bytes, f->n, out + f->panel);
            else
                for (int r = 0; r < n; r++) pack_field(f, rows + (size_t)r * row_bytes, out, r);
    }
}

void tpl_pack_panel(tpl_dtype dtype, int64_t cols, const void *rows, int n, int64_t panel, void *dst)
{
    const size_t panel_bytes = tpl_panel_bytes(dtype, cols);
    uint8_t *out = (uint8_t *)dst + (size_t)panel * panel_bytes;
    if (n < TPL_PANEL_ROWS) memset(out, 0, panel_bytes);
    (tpl_dtypes[dtype].n_elem == 1 ? pack_plain : pack_blocks)(dtype, cols, rows, n, out);
}

static void unpack_field(const tpl_panel_field *f, const uint8_t *src, uint8_t *dst, int r)
{
    src += f->panel + (size_t)r * f->unit;
    dst += f->file;
    for (int u = 0; u < f->n; u++)
        memcpy(dst + u * f->unit, src + (size_t)u * f->unit * TPL_PANEL_ROWS, f->unit);
    if (f->is_q5_bits) {
        uint32_t w;
        memcpy(&w, dst, 4);
        w = q5_bits_to_file(w);
        memcpy(dst, &w, 4);
    }
}

void tpl_unpack_row(const tpl_weight *w, int64_t row, float *dst)
{
    const tpl_panel_field *f = tpl_panel_fields(w->dtype);
    const size_t block = tpl_dtypes[w->dtype].n_bytes, n_elem = tpl_dtypes[w->dtype].n_elem;
    const uint8_t *src =
        (const uint8_t *)w->data + (size_t)(row / TPL_PANEL_ROWS) * tpl_panel_bytes(w->dtype, w->cols);
    const int r = (int)(row % TPL_PANEL_ROWS);
    uint8_t file_block[MAX_BLOCK_BYTES];
    for (int64_t k = 0; w->dtype == TPL_DTYPE_BF16 && k < w->cols; k++)
        tpl_dequant_row(w->dtype, src + bf16_at(w->cols, k, r), 1, dst + k);
    if (w->dtype == TPL_DTYPE_BF16) return;
    for (size_t b = 0; b < (size_t)w->cols / n_elem; b++) {
        for (int i = 0; i < TPL_PANEL_FIELDS && f[i].unit; i++)
            unpack_field(&f[i], src + b * block * TPL_PANEL_ROWS, file_block, r);
        tpl_dequant_row(w->dtype, file_block, (int64_t)n_elem, dst + b * n_elem);
    }
}
