/* SPDX-License-Identifier: Apache-2.0 */
#include "token/split_rewrite.h"

#include <stdio.h>

#include "token/unicode.h"

#define PATTERN_MAX 65536
#define REWRITTEN_MAX (1 << 20) /* the properties are spelt out */

/* White_Space as class items, and all the rest; PCRE2's own \s under UCP has U+180E too */
#define SPACE_ITEMS                                                     \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"  \
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define OTHER_ITEMS                                                     \
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}"      \
    "\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"           \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"         \
    "\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"

typedef struct rewriter {
    tpl_str in;
    size_t i;
    bool in_class, at_class_start;
    tpl_buf *out;
    const char *refused; /* construct that means something else in PCRE2 */
} rewriter;

static bool put(rewriter *r, const char *s) { return tpl_buf_add(r->out, s, strlen(s)); }

/* -- Properties ------------------------------------------------------------------------------- */

/* The categories of a name like "L" or "Lu" as TPL_UC bits, 0: it is not a general category. */
static uint32_t category_mask(tpl_str name)
{
    static const char names[] =
        "CnCcCfCoCsLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZp"; /* order of unicode.h */
    uint32_t mask = 0;
    for (int i = 0; names[2 * i]; i++)
        if (name.s[0] == names[2 * i] &&
            (name.len == 1 || (name.len == 2 && name.s[1] == names[2 * i + 1])))
            mask |= 1u << i;
    return name.s[0] == 'C' ? 0 : mask; /* what was unassigned is not taken out of C */
}

static bool put_new_items(rewriter *r, uint32_t mask)
{
    char item[32];
    for (int i = 0; i < tpl_unicode_n_new; i++) {
        tpl_unicode_range x = tpl_unicode_new[i];
        if (!tpl_unicode_in(tpl_unicode_get(x.first), mask)) continue;
        snprintf(item, sizeof item, "\\x{%x}-\\x{%x}", x.first, x.last);
        if (!put(r, item)) return false;
    }
    return true;
}

/* \p{L}, \p{^L}, \pL and their negations, at the backslash. */
static bool put_property(rewriter *r, bool negated)
{
    const char *p = r->in.s + r->i, *end = r->in.s + r->in.len, *close = NULL;
    tpl_str name = { p + 2, p + 2 < end };
    if (name.len && *name.s == '{') {
        close = memchr(name.s, '}', (size_t)(end - name.s));
        name = close ? (tpl_str){ p + 3, (size_t)(close - p) - 3 } : (tpl_str){ "", 0 };
    }
    if (name.len && *name.s == '^') negated = !negated, name.s++, name.len--;
    size_t len = close ? (size_t)(close + 1 - p) : 3;
    uint32_t mask = name.len ? category_mask(name) : 0;
    if (!name.len || len > r->in.len - r->i) {
        r->refused = "a malformed \\p{..}";
        return true;
    }
    r->i += len;
    if (!mask || (negated && r->in_class))
        return tpl_buf_add(r->out, p, len); /* a script; or inexact for new characters */
    if (!r->in_class && !put(r, negated ? "[^" : "[")) return false;
    bool ok =
        put(r, "\\p{") && tpl_buf_add(r->out, name.s, name.len) && put(r, "}") && put_new_items(r, mask);
    return ok && (r->in_class || put(r, "]"));
}

/* -- The rest --------------------------------------------------------------------------------- */

static bool put_escape(rewriter *r)
{
    char c = r->i + 1 < r->in.len ? r->in.s[r->i + 1] : 0;
    if (c == 'p' || c == 'P') return put_property(r, c == 'P');
    r->i += 2;
    switch (c) {
    case 's': return put(r, r->in_class ? SPACE_ITEMS : "[" SPACE_ITEMS "]");
    case 'S': return put(r, r->in_class ? OTHER_ITEMS : "[^" SPACE_ITEMS "]");
    case 'h':
    case 'H': r->refused = "\\h (a hexadecimal digit)"; return true;
    case 'M':
    case 'C':
    case 'c':
    case 'g':
    case 'k': r->refused = "\\M, \\C, \\c, \\g or \\k"; return true;
    case 0: r->refused = "a backslash at the end"; return true;
    default: return tpl_buf_add(r->out, r->in.s + r->i - 2, 2);
    }
}

static bool starts(const rewriter *r, const char *s)
{
    size_t n = strlen(s);
    return r->in.len - r->i >= n && !memcmp(r->in.s + r->i, s, n);
}

static bool step_in_class(rewriter *r, char c)
{
    bool first = r->at_class_start;
    if (c == '^' && first) return r->i++, put(r, "^");
    r->at_class_start = false;
    if (starts(r, "&&")) r->refused = "&& in a class";
    else if (c == '[' && !starts(r, "[:")) r->refused = "a class in a class";
    else if (c == ']' && !first) r->in_class = false;
    r->i++;
    return tpl_buf_add(r->out, &c, 1);
}

static bool step(rewriter *r)
{
    char c = r->in.s[r->i];
    if (c == '\\') {
        r->at_class_start = false;
        return put_escape(r);
    }
    if (r->in_class) return step_in_class(r, c);
    if (starts(r, "(?m") || starts(r, "(?x") || starts(r, "(?~") || starts(r, "(?{") || starts(r, "(*"))
        r->refused = "an option or verb group other than (?i:";
    if (starts(r, "}+")) r->refused = "{..}+ (not possessive in Ruby syntax)";
    if (c == '[') r->in_class = r->at_class_start = true;
    r->i++;
    return tpl_buf_add(r->out, &c, 1);
}

/* Fills r->out with the PCRE2 pattern. */
static tpl_status rewrite(rewriter *r, const char *where, tpl_err *err)
{
    if (r->in.len > PATTERN_MAX)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where, "regex has %zu bytes, at most %d", r->in.len,
                        PATTERN_MAX);
    while (r->i < r->in.len && !r->refused)
        if (r->out->len > REWRITTEN_MAX) r->refused = "more than a few hundred \\p{..}";
        else if (!step(r)) return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for a regex");
    if (r->refused)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where,
                        "regex '%.80s%s' has %s, which is not supported", r->in.s,
                        r->in.len > 80 ? "..." : "", r->refused);
    return TPL_OK;
}

tpl_status tpl_split_rewrite(tpl_str pattern, tpl_buf *out, const char *where, tpl_err *err)
{
    rewriter r = { .in = pattern, .out = out };
    return rewrite(&r, where, err);
}
