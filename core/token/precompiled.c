/* SPDX-License-Identifier: Apache-2.0
 *
 * The trie is Darts-clone's: a unit of 32 bits has its label in the low byte, in bit 8 whether a value
 * hangs on it, in bit 9 how its offset is scaled, and the offset above; a unit that is a value has bit 31
 * set. A file may lie, so that every index is checked: what leads outside is not there.
 *
 * SentencePiece takes the longest entry that begins a text. Hugging Face tokenizers look up a whole
 * cluster and take the shortest entry that begins it, for all of it; ids follow the latter.
 */
#include "token/precompiled.h"

#include <utf8proc.h>

#include "token/unicode.h"
#include "token/utf8.h"

#define CLUSTER_MAX 6 /* bytes; clusters this long go character by character */
#define MAP_MAX ((size_t)64 << 20)

/* -- Reading ---------------------------------------------------------------------------------- */

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* RFC 4648, with padding; false: it is no base64. out has room. */
static bool read_base64(tpl_str s, tpl_buf *out)
{
    if (s.len % 4) return false;
    while (s.len && s.s[s.len - 1] == '=') s.len--;
    if (s.len % 4 == 1) return false;
    uint32_t bits = 0;
    for (size_t i = 0; i < s.len; i++) {
        int v = base64_value(s.s[i]);
        if (v < 0) return false;
        bits = bits << 6 | (uint32_t)v;
        if (i % 4) out->s[out->len++] = (char)(bits >> (6 - 2 * (i % 4)) & 0xFF);
    }
    return true;
}

static uint32_t u32_at(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

tpl_status tpl_precompiled_read(tpl_str base64, tpl_buf *map, const char *where, tpl_err *err)
{
    const char *what = "normalizer Precompiled: 'precompiled_charsmap'";
    if (base64.len > MAP_MAX)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s has %zu bytes, at most %zu", what, base64.len,
                        MAP_MAX);
    if (!tpl_buf_reserve(map, base64.len))
        return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for a normalizer");
    if (!read_base64(base64, map))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s is not base64", what);
    uint32_t trie = map->len >= 4 ? u32_at(map->s) : 0;
    if (!trie || trie % 4 || trie > map->len - 4)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s of %zu bytes has a trie of %u bytes", what,
                        map->len, trie);
    size_t n_texts = map->len - 4 - trie;
    if (tpl_utf8_valid(map->s + 4 + trie, n_texts) != n_texts)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s: its replacements are not UTF-8", what);
    return TPL_OK;
}

/* -- Looking up ------------------------------------------------------------------------------- */

typedef struct charmap {
    const char *trie;
    size_t n_units;
    tpl_str texts;
} charmap;

static charmap open_map(const tpl_buf *map)
{
    size_t trie = u32_at(map->s);
    return (charmap){ map->s + 4, trie / 4, { map->s + 4 + trie, map->len - 4 - trie } };
}

static size_t offset_of(uint32_t unit) { return (size_t)(unit >> 10) << (unit >> 6 & 8); }

/* What the shortest entry that begins key gives; s NULL: there is none. */
static tpl_str find(const charmap *m, tpl_str key)
{
    size_t at = offset_of(u32_at(m->trie));
    for (size_t i = 0; i < key.len && key.s[i]; i++) {
        uint8_t c = (uint8_t)key.s[i];
        at ^= c;
        if (at >= m->n_units) break;
        uint32_t unit = u32_at(m->trie + 4 * at);
        if ((unit & 0x800000FFu) != c) break;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        size_t value = at < m->n_units ? u32_at(m->trie + 4 * at) & 0x7FFFFFFFu : SIZE_MAX;
        if (value > m->texts.len) break;
        const char *s = m->texts.s + value;
        if (value < m->texts.len && (*s & 0xC0) == 0x80) break; /* in the middle of a character */
        return (tpl_str){ s, strnlen(s, m->texts.len - value) };
    }
    return (tpl_str){ NULL, 0 };
}

/* -- Running ---------------------------------------------------------------------------------- */

static bool is_ascii(tpl_str text, size_t pos) { return pos >= text.len || !(text.s[pos] & 0x80); }

/* A mark that is newer than utf8proc's data counts as one that it knows. */
static utf8proc_int32_t known(uint32_t c)
{
    bool is_new = c >= 0x300 && tpl_unicode_in(tpl_unicode_get(c), TPL_UC_MARK) &&
                  utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_CN;
    return is_new ? 0x300 : (utf8proc_int32_t)c;
}

/* End of the grapheme cluster that begins at pos (UAX 29). */
static size_t cluster_end(tpl_str text, size_t pos)
{
    size_t end = pos;
    utf8proc_int32_t state = 0, c = known(tpl_utf8_next(text.s, &end));
    if (c < 0x80 && c != '\r' && is_ascii(text, end)) return end;
    for (size_t next = end; next < text.len; end = next) {
        utf8proc_int32_t d = known(tpl_utf8_next(text.s, &next));
        if (utf8proc_grapheme_break_stateful(c, d, &state)) break;
        c = d;
    }
    return end;
}

static bool put_chars(const charmap *m, tpl_str text, size_t pos, size_t end, tpl_buf *out)
{
    while (pos < end) {
        size_t start = pos;
        tpl_utf8_next(text.s, &pos);
        tpl_str c = { text.s + start, pos - start }, to = find(m, c);
        if (!(to.s ? tpl_buf_add(out, to.s, to.len) : tpl_buf_add(out, c.s, c.len))) return false;
    }
    return true;
}

bool tpl_precompiled_run(const tpl_buf *map, tpl_str text, size_t most, tpl_buf *out)
{
    charmap m = open_map(map);
    if (!tpl_buf_reserve(out, text.len)) return false;
    for (size_t pos = 0, end; pos < text.len && out->len <= most; pos = end) {
        end = cluster_end(text, pos);
        tpl_str to = { NULL, 0 };
        if (end - pos < CLUSTER_MAX) to = find(&m, (tpl_str){ text.s + pos, end - pos });
        if (!(to.s ? tpl_buf_add(out, to.s, to.len) : put_chars(&m, text, pos, end, out))) return false;
    }
    return true;
}
