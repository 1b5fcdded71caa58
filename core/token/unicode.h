/* SPDX-License-Identifier: Apache-2.0
 *
 * Character classes of Unicode 16.0, the version of the regex engine (Oniguruma 6.9.10) in whose terms
 * tokenizers define their splits. One byte a code point: general category in the low five bits, then
 * White_Space, then word character (UTS 18: Alphabetic, M, Nd, Pc, Join_Control). Any thread; read-only
 * tables made by spec/fixtures/make/unicode_tables.py.
 */
#ifndef TPL_TOKEN_UNICODE_H
#define TPL_TOKEN_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

enum { /* order of CATEGORIES in the generator */
       TPL_UC_CN,
       TPL_UC_CC,
       TPL_UC_CF,
       TPL_UC_CO,
       TPL_UC_CS,
       TPL_UC_LU,
       TPL_UC_LL,
       TPL_UC_LT,
       TPL_UC_LM,
       TPL_UC_LO,
       TPL_UC_MN,
       TPL_UC_MC,
       TPL_UC_ME,
       TPL_UC_ND,
       TPL_UC_NL,
       TPL_UC_NO,
       TPL_UC_PC,
       TPL_UC_PD,
       TPL_UC_PS,
       TPL_UC_PE,
       TPL_UC_PI,
       TPL_UC_PF,
       TPL_UC_PO,
       TPL_UC_SM,
       TPL_UC_SC,
       TPL_UC_SK,
       TPL_UC_SO,
       TPL_UC_ZS,
       TPL_UC_ZL,
       TPL_UC_ZP,
};
#define TPL_UC_BITS(first, last) (((2u << (last)) - 1) & ~((1u << (first)) - 1))
#define TPL_UC_LETTER TPL_UC_BITS(TPL_UC_LU, TPL_UC_LO)
#define TPL_UC_MARK TPL_UC_BITS(TPL_UC_MN, TPL_UC_ME)
#define TPL_UC_NUMBER TPL_UC_BITS(TPL_UC_ND, TPL_UC_NO)
#define TPL_UC_PUNCT TPL_UC_BITS(TPL_UC_PC, TPL_UC_PO)
#define TPL_UC_SYMBOL TPL_UC_BITS(TPL_UC_SM, TPL_UC_SO)
#define TPL_UC_IS_SPACE 0x20
#define TPL_UC_IS_WORD 0x40

extern const uint16_t tpl_unicode_index[8704];
extern const uint8_t tpl_unicode_class[];

/* Code points assigned since Unicode 14.0, in runs of one category. */
typedef struct tpl_unicode_range {
    uint32_t first, last;
} tpl_unicode_range;
extern const int tpl_unicode_n_new;
extern const tpl_unicode_range tpl_unicode_new[];

static inline uint8_t tpl_unicode_get(uint32_t c)
{
    return c < 0x110000 ? tpl_unicode_class[tpl_unicode_index[c >> 7] * 128u + (c & 127)] : 0;
}

/* True when the class byte's general category is in the set of TPL_UC_* masks. */
static inline bool tpl_unicode_in(uint8_t cls, uint32_t mask) { return mask >> (cls & 31) & 1; }

#endif
