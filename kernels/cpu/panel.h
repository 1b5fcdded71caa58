/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout inside a panel of 16 rows, shared by pack.c, dequant.c and the linear kernels. Any thread;
 * read-only tables.
 *
 * A panel is a sequence of blocks in the order of the inputs, each holding what the file keeps in 16 blocks
 * of 16 rows. Every field of the file's block is cut into units, and unit u of row r lies at u * 16 + r units
 * from the field's start:
 *
 *      unit:        0                       1
 *      row:     0  1  2 ...  15  |  0  1  2 ...  15  | ...
 *
 *   f16 scales, mins    2-byte units: one load gives 16 scales, lane r for row r
 *   6-bit and i8 scales 1-byte units, as in the file (K-quants)
 *   quants, high bits   4-byte units: four consecutive inputs of row r are the four bytes of lane r, which is
 *                       what a dot product of bytes (vpdpbusd, maddubs, sdot) wants against four activation
 *                       bytes spread over all lanes
 *   f32, f16            one unit per element: [input][16]
 *   bf16                pairs of inputs are 4-byte units (what vdpbf16ps and AMX tiles want); an odd last
 *                       input is [16] alone
 *
 *   q4_1, 320 bytes for 32 inputs x 16 rows:
 *      0        32        64              128             192             256             320
 *      | 16 d   | 16 m    | k 0-3, 16-19  | k 4-7, 20-23  | k 8-11, 24-27 | k 12-15, 28-31|
 *      low nibbles of byte 4r+i: row r, k = first + i; high nibbles: the second range, as in the file
 *   q4_0: no m, 288.   q8_0: d, then 8 groups of 64 bytes, 544.
 *   q5_0, q5_1: a 64-byte group of high bits before the nibbles, 352 and 384: bit g of byte 4r+i belongs to
 *      k = 4g+i of row r, so that one shift and one mask serve a whole group (the file's word has them in
 *      the order of k).
 *   q4_k, 2304 bytes for 256 inputs: 16 d | 16 dmin | 12 x 16 scale bytes | 32 groups of quants: group
 *      8v+j has k = 64v+4j+i low, 64v+32+4j+i high
 *   q5_k, 2816: as q4_k with 8 groups of high bits before the quants: bit u of byte i of group j belongs to
 *      k = 32u+4j+i
 *   q6_k, 3360: 16 d | 16 x 16 scale bytes | 16 groups of high bit pairs | 32 groups of nibbles; with
 *      k = 128n+32g+l the nibble is in byte 64n+32(g&1)+l of the row (low if g < 2), the pair at
 *      bit 2g of byte 32n+l
 */
#ifndef TPL_KERNELS_CPU_PANEL_H
#define TPL_KERNELS_CPU_PANEL_H

#include <stddef.h>
#include <string.h>

#include "kernels/pack.h"

/* Byte offsets of the fields in a panel block: scales at 0, then as listed. */
enum {
    PANEL_Q4_0_QS = 32,
    PANEL_Q4_1_M = 32, PANEL_Q4_1_QS = 64,
    PANEL_Q5_0_QH = 32, PANEL_Q5_0_QS = 96,
    PANEL_Q5_1_M = 32, PANEL_Q5_1_QH = 64, PANEL_Q5_1_QS = 128,
    PANEL_Q8_0_QS = 32,
    PANEL_QK_M = 32, PANEL_QK_SC = 64,
    PANEL_Q4_K_QS = 256,
    PANEL_Q5_K_QH = 256, PANEL_Q5_K_QS = 768,
    PANEL_Q6_K_SC = 32, PANEL_Q6_K_QH = 288, PANEL_Q6_K_QL = 1312,
};

/* n units of `unit` bytes: at `file` in the file's block, at `panel` in the panel's. */
typedef struct tpl_panel_field {
    uint16_t file, panel;
    uint8_t unit, n;
    uint8_t is_q5_bits; /* the unit's bits are put in group order */
} tpl_panel_field;

enum { TPL_PANEL_FIELDS = 5 };

/* The fields of a type's block, ended by unit == 0; NULL for types that are not weights. */
const tpl_panel_field *tpl_panel_fields(tpl_dtype dtype);

/* Bytes of one panel. cols must be whole blocks. */
static inline size_t tpl_panel_bytes(tpl_dtype dtype, int64_t cols)
{
    const tpl_dtype_info *t = &tpl_dtypes[dtype];
    return (size_t)(cols / t->n_elem) * t->n_bytes * TPL_PANEL_ROWS;
}

/* IEEE 754 binary16 to binary32, exactly: a multiplication moves the exponent's bias (and makes subnormals
 * normal), then infinities and NaNs are restored. */
static inline float tpl_half_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    float f;
    memcpy(&f, &bits, 4);
    f *= 0x1p112f;
    memcpy(&bits, &f, 4);
    if ((h & 0x7c00) == 0x7c00) bits |= 0x7f800000;
    bits |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&f, &bits, 4);
    return f;
}

#endif
