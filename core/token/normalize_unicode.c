/* SPDX-License-Identifier: Apache-2.0
 *
 * Unicode normalization from utf8proc's character data, cut down to Unicode 9.0. utf8proc's own
 * whole-string function sorts combining marks by exchanging neighbours, so that 500,000 marks in
 * alternating order (1 MB of hostile text) take hours. Here characters are decomposed one by one, each run
 * of marks is sorted by counting (stable, UAX 15 D109), and utf8proc composes the result, which is linear.
 */
#include <utf8proc.h>

#include "token/normalizer.h"
#include "token/utf8.h"

/* Characters that Unicode 9.0 does not have but later versions up to 16.0 decompose, compose or reorder.
 * The crate that Hugging Face tokenizers normalise with leaves them alone (unicode-normalization-alignments
 * 0.1; the ranges are the differences of tokenizers 0.23.3 from Python's unicodedata2 16.0, over all
 * characters and their places among marks). U+11A7 is among them because utf8proc lets it vanish into a
 * Hangul syllable. */
static const struct {
    uint32_t first, last;
} newer[] = {
    { 0x7FD, 0x7FD },     { 0x897, 0x89F },     { 0x8CA, 0x8D3 },     { 0x9FE, 0x9FE },
    { 0xC3C, 0xC3C },     { 0xD3B, 0xD3C },     { 0xEBA, 0xEBA },     { 0x11A7, 0x11A7 },
    { 0x1715, 0x1715 },   { 0x1ABF, 0x1ACE },   { 0x1DF6, 0x1DFA },   { 0x32FF, 0x32FF },
    { 0xA7F2, 0xA7F4 },   { 0xA82C, 0xA82C },   { 0xAB69, 0xAB69 },   { 0x105C9, 0x105E4 },
    { 0x10781, 0x107BA }, { 0x10D24, 0x10D27 }, { 0x10D69, 0x10D6D }, { 0x10EAB, 0x10EAC },
    { 0x10EFD, 0x10EFF }, { 0x10F46, 0x10F50 }, { 0x10F82, 0x10F85 }, { 0x11070, 0x11070 },
    { 0x1133B, 0x1133B }, { 0x11382, 0x113D0 }, { 0x1145E, 0x1145E }, { 0x11839, 0x1183A },
    { 0x11930, 0x11943 }, { 0x119E0, 0x119E0 }, { 0x11A34, 0x11A34 }, { 0x11A47, 0x11A47 },
    { 0x11A99, 0x11A99 }, { 0x11D42, 0x11D45 }, { 0x11D97, 0x11D97 }, { 0x11F41, 0x11F42 },
    { 0x1611E, 0x1612F }, { 0x16D63, 0x16D6A }, { 0x16FF0, 0x16FF1 }, { 0x1CCD6, 0x1CCF9 },
    { 0x1E030, 0x1E06D }, { 0x1E08F, 0x1E08F }, { 0x1E130, 0x1E136 }, { 0x1E2AE, 0x1E2AE },
    { 0x1E2EC, 0x1E2EF }, { 0x1E4EC, 0x1E4EF }, { 0x1E5EE, 0x1E5EF }, { 0x1F16C, 0x1F16C },
    { 0x1FBF0, 0x1FBF9 },
};

static bool is_newer(uint32_t c)
{
    size_t low = 0, high = sizeof newer / sizeof *newer;
    if (c < newer[0].first) return false;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (c > newer[mid].last) low = mid + 1;
        else high = mid;
    }
    return low < sizeof newer / sizeof *newer && c >= newer[low].first;
}

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
        if (is_newer(c)) {
            out->c[out->n++] = (utf8proc_int32_t)c;
            continue;
        }
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, out->c + out->n, 32,
                                                     (utf8proc_option_t)options, &boundary);
        if (n < 0 || n > 32) return false;
        out->n += (size_t)n;
    }
    return true;
}

static unsigned mark_class(utf8proc_int32_t c)
{
    if (c < 0x300 || is_newer((uint32_t)c)) return 0;
    return (unsigned)utf8proc_get_property(c)->combining_class & 255;
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

/* Composes what lies between newer characters, which are to be starters that compose with nothing. */
static bool compose(points *p)
{
    size_t n = 0;
    for (size_t i = 0, end; i < p->n; i = end) {
        for (end = i; end < p->n && !is_newer((uint32_t)p->c[end]);) end++;
        utf8proc_ssize_t len = 0;
        if (end > i)
            len = utf8proc_normalize_utf32(p->c + i, (utf8proc_ssize_t)(end - i),
                                           UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (len < 0) return false;
        memmove(p->c + n, p->c + i, (size_t)len * sizeof *p->c);
        n += (size_t)len;
        if (end < p->n) p->c[n++] = p->c[end++];
    }
    p->n = n;
    return true;
}

static bool encode(const points *p, tpl_buf *out)
{
    uint64_t most;
    if (!ck_mul(p->n, 4, &most) || !tpl_buf_reserve(out, most)) return false;
    for (size_t i = 0; i < p->n; i++)
        out->len += (size_t)tpl_utf8_put(out->s + out->len, (uint32_t)p->c[i]);
    return true;
}

tpl_status tpl_normalize_unicode(tpl_norm_kind form, tpl_str text, tpl_buf *out, tpl_err *err)
{
    bool compat = form == TPL_NORM_NFKC || form == TPL_NORM_NFKD,
         composed = form == TPL_NORM_NFC || form == TPL_NORM_NFKC;
    points p = { 0 };
    bool ok =
        decompose(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0), &p) &&
        order_marks(&p);
    ok = ok && (!composed || compose(&p)) && encode(&p, out);
    free(p.c);
    return ok ? TPL_OK
              : tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory while normalising %zu bytes", text.len);
}

/* -- Lower case ------------------------------------------------------------------------------- */

/* Letters with a lower case that Unicode 16.0 and 17.0 added to utf8proc's 15.0: Rust's standard library,
 * by which Hugging Face tokenizers lower, has them. */
static uint32_t lower_new(uint32_t c)
{
    if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20; /* Garay */
    if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B; /* Beria Erfe */
    switch (c) {
    case 0x1C89: return 0x1C8A;
    case 0xA7CB: return 0x264;
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA: return c + 1;
    case 0xA7DC: return 0x19B;
    default: return c;
    }
}

bool tpl_normalize_lower(tpl_str text, tpl_buf *out)
{
    for (size_t pos = 0; pos < text.len;) {
        if (!tpl_buf_reserve(out, 4)) return false;
        uint32_t c = tpl_utf8_next(text.s, &pos);
        if (c < 0x80) {
            out->s[out->len++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        } else if (c == 0x130) { /* the only one that becomes two: i and a dot above (SpecialCasing.txt) */
            memcpy(out->s + out->len, "i\xCC\x87", 3);
            out->len += 3;
        } else {
            c = lower_new((uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
            out->len += (size_t)tpl_utf8_put(out->s + out->len, c);
        }
    }
    return true;
}

/* --------------------------------------------------------------------------------------------- */

bool tpl_normalize_is_plain(tpl_norm_kind form, tpl_str text)
{
    /* below U+0300 nothing composes or is reordered (UAX 15, NFC_Quick_Check); in UTF-8 that is a lead
     * byte below 0xCC */
    unsigned char most = form == TPL_NORM_NFC ? 0xCB : 0x7F;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.s[i];
        if (c > most || (form == TPL_NORM_LOWERCASE && c >= 'A' && c <= 'Z')) return false;
    }
    return true;
}
