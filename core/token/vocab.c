/* SPDX-License-Identifier: Apache-2.0 */
#include "token/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "token/buf.h"

tpl_shown tpl_show(const char *s, size_t len)
{
    tpl_shown o;
    size_t n = 0, max = sizeof o.s - 6;
    o.s[n++] = '\'';
    for (size_t i = 0; i < len && n < max; i++) o.s[n++] = (unsigned char)s[i] < 0x20 ? '?' : s[i];
    while (n > 1 && n >= max && ((unsigned char)o.s[n - 1] & 0xC0) == 0x80)
        n--; /* not in the middle of a character */
    if (n >= max - 4 && n > 1 && len >= max - 1) memcpy(o.s + n, "...", 3), n += 3;
    o.s[n++] = '\'';
    o.s[n] = 0;
    return o;
}

tpl_status tpl_vocab_init(tpl_vocab *v, size_t n_tokens, size_t text_bytes, const char *where,
                          tpl_err *err)
{
    *v = (tpl_vocab){ 0 };
    if (!n_tokens) return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "vocabulary is empty");
    if (n_tokens > TPL_VOCAB_MAX)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "vocabulary has %zu tokens, at most %d", n_tokens,
                        TPL_VOCAB_MAX);
    uint64_t n_slots = 16;
    while (n_slots < n_tokens * 2) n_slots *= 2;
    v->slots = calloc(n_slots, sizeof *v->slots);
    v->text = malloc(text_bytes ? text_bytes : 1);
    if (!v->slots || !v->text) {
        tpl_vocab_free(v);
        return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for %zu tokens", n_tokens);
    }
    memset(v->slots, 0xFF, n_slots * sizeof *v->slots);
    v->key = tpl_hash_key_new();
    v->id_end = n_tokens < (TPL_VOCAB_MAX - TPL_VOCAB_HOLES) / 4 ? (int32_t)n_tokens * 4 + TPL_VOCAB_HOLES : TPL_VOCAB_MAX;
    v->slot_mask = (uint32_t)(n_slots - 1);
    v->text_cap = text_bytes;
    return TPL_OK;
}

void tpl_vocab_free(tpl_vocab *v)
{
    free(v->tokens);
    free(v->slots);
    free(v->text);
    *v = (tpl_vocab){ 0 };
}

static uint32_t slot_of(const tpl_vocab *v, const char *s, size_t len)
{
    uint32_t i = (uint32_t)(tpl_hash_bytes(v->key, s, len) >> 20) & v->slot_mask;
    for (;; i = (i + 1) & v->slot_mask) {
        int32_t id = v->slots[i];
        if (id < 0) return i;
        if (v->tokens[id].len == len && !memcmp(v->tokens[id].s, s, len)) return i;
    }
}

/* Grows the id table; new entries are holes. */
static bool reach(tpl_vocab *v, int32_t id)
{
    if (id < v->n) return true;
    if (!tpl_grow((void **)&v->tokens, &v->cap, (size_t)id + 1024, sizeof *v->tokens)) return false;
    memset(v->tokens + v->n, 0, (size_t)(id + 1 - v->n) * sizeof *v->tokens);
    v->n = id + 1;
    return true;
}

tpl_status tpl_vocab_add(tpl_vocab *v, int64_t id, tpl_str s, uint32_t flags, const char *where,
                         tpl_err *err)
{
    if (id < 0 || id >= v->id_end)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "token %s has id %lld, expected 0 to %d",
                        tpl_show(s.s, s.len).s, (long long)id, v->id_end - 1);
    if (!reach(v, (int32_t)id))
        return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for token %lld", (long long)id);
    tpl_token *t = &v->tokens[id];
    if (t->flags)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "tokens %s and %s have the same id %lld",
                        tpl_show(t->s, t->len).s, tpl_show(s.s, s.len).s, (long long)id);
    uint32_t slot = slot_of(v, s.s, s.len);
    if (v->slots[slot] >= 0)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "token %s has two ids, %d and %lld",
                        tpl_show(s.s, s.len).s, v->slots[slot], (long long)id);
    if (!ck_range(v->text_len, s.len, v->text_cap) || v->n_used >= v->slot_mask / 2 + 1)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "vocabulary grew while it was read");
    if (s.len) memcpy(v->text + v->text_len, s.s, s.len);
    *t = (tpl_token){ .s = v->text + v->text_len,
                      .len = (uint32_t)s.len,
                      .flags = flags | TPL_TOKEN_USED };
    v->text_len += s.len;
    v->slots[slot] = (int32_t)id;
    v->n_used++;
    return TPL_OK;
}

int32_t tpl_vocab_find(const tpl_vocab *v, const char *s, size_t len)
{
    return v->slots[slot_of(v, s, len)];
}

int32_t tpl_vocab_find_model(const tpl_vocab *v, const char *s, size_t len)
{
    int32_t id = tpl_vocab_find(v, s, len);
    return id >= 0 && v->tokens[id].flags & TPL_TOKEN_MODEL ? id : -1;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool tpl_vocab_is_byte_like(const char *s, size_t len)
{
    return len == 6 && !memcmp(s, "<0x", 3) && s[5] == '>';
}

int tpl_vocab_byte(const char *s, size_t len)
{
    if (!tpl_vocab_is_byte_like(s, len)) return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}
