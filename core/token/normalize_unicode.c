/* SPDX-License-Identifier: Apache-2.0
 *
 * Unicode normalization from utf8proc's character data. utf8proc's own whole-string function sorts
 * combining marks by exchanging neighbours, so that 500,000 marks in alternating order (1 MB of hostile
 * text) take hours. Here characters are decomposed one by one, each run of marks is sorted by counting
 * (stable, UAX 15 D109), and utf8proc composes the result, which is linear.
 */
#include <utf8proc.h>

#include "token/normalizer.h"
#include "token/utf8.h"

typedef struct points {
    utf8proc_int32_t *c;
    size_t n, cap;
} points;

static bool points_reserve(points *p, size_t more)
{
    uint64_t need;
    return ck_add(p->n, more, &need) && tpl_grow((void **)&p->c, &p->cap, need, sizeof *p->c);
}

static bool decompose(tpl_str text, int options, points *out)
{
    size_t pos = 0;
    if (!points_reserve(out, text.len)) return false;
    while (pos < text.len) {
        uint32_t c = tpl_utf8_next(text.s, &pos);
        if (!points_reserve(out, 32)) return false; /* the longest decomposition, U+FDFA, has 18 */
        int boundary = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, out->c + out->n, 32,
                                                     (utf8proc_option_t)options, &boundary);
        if (n < 0 || n > 32) return false;
        out->n += (size_t)n;
    }
    return true;
}

static unsigned mark_class(utf8proc_int32_t c)
{
    return c < 0x300 ? 0 : (unsigned)utf8proc_get_property(c)->combining_class & 255;
}

static void sort_short(utf8proc_int32_t *c, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        utf8proc_int32_t x = c[i];
        size_t k = i;
        for (; k > 0 && mark_class(c[k - 1]) > mark_class(x); k--) c[k] = c[k - 1];
        c[k] = x;
    }
}

static bool sort_long(utf8proc_int32_t *c, size_t n)
{
    size_t first[257] = { 0 };
    utf8proc_int32_t *sorted = calloc(n, sizeof *sorted);
    if (!sorted) return false;
    for (size_t i = 0; i < n; i++) first[mark_class(c[i]) + 1]++;
    for (int k = 1; k < 257; k++) first[k] += first[k - 1];
    for (size_t i = 0; i < n; i++) sorted[first[mark_class(c[i])]++] = c[i];
    memcpy(c, sorted, n * sizeof *c);
    free(sorted);
    return true;
}

static bool order_marks(points *p)
{
    for (size_t i = 0; i < p->n;) {
        size_t end = i;
        while (end < p->n && mark_class(p->c[end])) end++;
        if (end - i > 32) {
            if (!sort_long(p->c + i, end - i)) return false;
        } else {
            sort_short(p->c + i, end - i);
        }
        i = end + 1;
    }
    return true;
}

static bool encode(const points *p, size_t n, tpl_buf *out)
{
    uint64_t most;
    if (!ck_mul(n, 4, &most) || !tpl_buf_reserve(out, most)) return false;
    for (size_t i = 0; i < n; i++)
        out->len += (size_t)tpl_utf8_put(out->s + out->len, (uint32_t)p->c[i]);
    return true;
}

tpl_status tpl_normalize_unicode(tpl_norm_kind form, tpl_str text, tpl_buf *out, tpl_err *err)
{
    bool compat = form == TPL_NORM_NFKC || form == TPL_NORM_NFKD,
         compose = form == TPL_NORM_NFC || form == TPL_NORM_NFKC;
    points p = { 0 };
    bool ok =
        decompose(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0), &p) &&
        order_marks(&p);
    utf8proc_ssize_t n = (utf8proc_ssize_t)p.n;
    if (ok && compose && n) n = utf8proc_normalize_utf32(p.c, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    ok = ok && n >= 0 && encode(&p, (size_t)n, out);
    free(p.c);
    return ok ? TPL_OK
              : tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory while normalising %zu bytes", text.len);
}

bool tpl_normalize_is_plain(tpl_norm_kind form, tpl_str text)
{
    /* below U+0300 nothing composes or is reordered (UAX 15, NFC_Quick_Check); in UTF-8 that is a lead
     * byte below 0xCC */
    unsigned char most = form == TPL_NORM_NFC ? 0xCB : 0x7F;
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.s[i] > most) return false;
    return true;
}
