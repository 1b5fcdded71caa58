/* SPDX-License-Identifier: Apache-2.0
 *
 * Damages a file in one of many ways; the same number gives the same damage everywhere, so a finding is named by seed and number.
 */
#ifndef TPL_SPEC_FUZZ_DAMAGE_H
#define TPL_SPEC_FUZZ_DAMAGE_H

#include <stddef.h>
#include <stdint.h>

typedef struct tpl_bytes {
    uint8_t *s;
    size_t n;
} tpl_bytes;

/* Writes the seed with damage `number` to out, which has room for tpl_damage_room(seed.n). Numbers count the kinds of damage in turn, so
 * any run of them has all kinds; `what` names the one it was. `other` is a file of the same kind, to take pieces from. */
size_t tpl_damage(uint8_t *out, tpl_bytes seed, tpl_bytes other, uint64_t number, int is_text, const char **what);
size_t tpl_damage_room(size_t n);

#endif
