/* SPDX-License-Identifier: Apache-2.0 */
#include "token/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD"

int tpl_utf8_put(char *s, uint32_t c)
{
    if (c < 0x80) {
        s[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        s[0] = (char)(0xC0 | c >> 6);
        s[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        s[0] = (char)(0xE0 | c >> 12);
        s[1] = (char)(0x80 | (c >> 6 & 0x3F));
        s[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    s[0] = (char)(0xF0 | c >> 18);
    s[1] = (char)(0x80 | (c >> 12 & 0x3F));
    s[2] = (char)(0x80 | (c >> 6 & 0x3F));
    s[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

size_t tpl_utf8_valid(const char *s, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint64_t word;
        if (len - i >= 8) { /* eight ASCII bytes at once */
            memcpy(&word, s + i, 8);
            if (!(word & 0x8080808080808080u)) {
                i += 8;
                continue;
            }
        }
        int n = tpl_utf8_len(s + i, s + len);
        if (!n) return i;
        i += (size_t)n;
    }
    return i;
}

/* Sets the state for a lead byte; false when b cannot begin a character. Table 3-7 of the Unicode
 * standard. */
static bool begin(tpl_utf8_stream *st, unsigned char b)
{
    st->low = 0x80;
    st->high = 0xBF;
    if (b >= 0xC2 && b <= 0xDF) st->n_missing = 1;
    else if (b >= 0xE0 && b <= 0xEF) st->n_missing = 2;
    else if (b >= 0xF0 && b <= 0xF4) st->n_missing = 3;
    else return false;
    if (b == 0xE0) st->low = 0xA0;
    if (b == 0xED) st->high = 0x9F;
    if (b == 0xF0) st->low = 0x90;
    if (b == 0xF4) st->high = 0x8F;
    st->pending[0] = (char)b;
    st->n_pending = 1;
    return true;
}

static void add(tpl_buf *out, const char *s, size_t len)
{
    memcpy(out->s + out->len, s, len);
    out->len += len;
}

static void push_byte(tpl_utf8_stream *st, unsigned char b, tpl_buf *out)
{
    if (st->n_missing) {
        if (b >= st->low && b <= st->high) {
            st->pending[st->n_pending++] = (char)b;
            st->low = 0x80;
            st->high = 0xBF;
            if (--st->n_missing) return;
            add(out, st->pending, st->n_pending);
            st->n_pending = 0;
            return;
        }
        add(out, REPLACEMENT, 3);
        st->n_missing = st->n_pending = 0;
    }
    if (b < 0x80) out->s[out->len++] = (char)b;
    else if (!begin(st, b)) add(out, REPLACEMENT, 3);
}

bool tpl_utf8_push(tpl_utf8_stream *st, const char *s, size_t len, tpl_buf *out)
{
    uint64_t most; /* each byte gives three at most, and may end a part that was pending: 3 more */
    if (!ck_mul(len, 3, &most) || !ck_add(most, 6, &most) || !tpl_buf_reserve(out, most)) return false;
    for (size_t i = 0; i < len; i++) push_byte(st, (unsigned char)s[i], out);
    return true;
}

bool tpl_utf8_flush(tpl_utf8_stream *st, tpl_buf *out)
{
    bool has = st->n_missing > 0;
    *st = (tpl_utf8_stream){ 0 };
    return !has || tpl_buf_add(out, REPLACEMENT, 3);
}
