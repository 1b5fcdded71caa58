/* SPDX-License-Identifier: Apache-2.0
 *
 * A backtracking regex engine takes the first alternative that matches at a position, greedily. The
 * alternatives of these patterns are told apart by the class of one or two characters, so each becomes a
 * branch; where an alternative gives characters back
 * (\s+(?!\S) leaves one space, \s*[\r\n]+ ends at the last line break of a run) the branch says so.
 */
#include "token/scan.h"

#include <string.h>

#include "token/unicode.h"
#include "token/utf8.h"

#define LETTER_OR_NUMBER (TPL_UC_LETTER | TPL_UC_NUMBER)

typedef struct glyph {
    uint32_t c;
    size_t end;  /* behind the character */
    uint8_t cls; /* 0 with end == pos: no character left */
} glyph;

static glyph look(const char *s, size_t len, size_t pos)
{
    glyph g = { 0, pos, 0 };
    if (pos >= len) return g;
    g.c = tpl_utf8_next(s, &g.end);
    g.cls = tpl_unicode_get(g.c);
    return g;
}

static bool is_letter(glyph g) { return tpl_unicode_in(g.cls, TPL_UC_LETTER); }
static bool is_number(glyph g) { return tpl_unicode_in(g.cls, TPL_UC_NUMBER); }
static bool is_space(glyph g) { return g.cls & TPL_UC_IS_SPACE; }

/* [^\s\p{L}\p{N}]; false at the end of the text */
static bool is_other(glyph g, size_t pos)
{
    return g.end > pos && !is_space(g) && !tpl_unicode_in(g.cls, LETTER_OR_NUMBER);
}

static size_t run_of(const char *s, size_t len, size_t pos, uint32_t mask)
{
    for (glyph g = look(s, len, pos); tpl_unicode_in(g.cls, mask) && g.end > pos; g = look(s, len, pos))
        pos = g.end;
    return pos;
}

static size_t run_of_others(const char *s, size_t len, size_t pos)
{
    for (glyph g = look(s, len, pos); is_other(g, pos); g = look(s, len, pos)) pos = g.end;
    return pos;
}

/* \s+(?!\S)|\s+ at a space: the whole run at the end of the text; before something else all but its last
 * character, or that one. */
static size_t run_of_spaces(const char *s, size_t len, size_t pos)
{
    size_t end = pos, last = pos;
    for (glyph g = look(s, len, pos); is_space(g); g = look(s, len, end)) {
        last = end;
        end = g.end;
    }
    return end == len || last == pos ? end : last;
}

/* End of 's 't 'm 'd 're 've 'll at the apostrophe at pos, or pos. With fold, the letters are (?i:..),
 * and that makes U+017F an s. */
static size_t contraction(const char *s, size_t len, size_t pos, bool fold)
{
    size_t left = len - pos - 1;
    const char *p = s + pos + 1;
    char a = left > 0 ? p[0] : 0, b = left > 1 ? p[1] : 0;
    if (fold) {
        if (left > 1 && !memcmp(p, "\xC5\xBF", 2)) return pos + 3;
        if (a >= 'A' && a <= 'Z') a += 32;
        if (b >= 'A' && b <= 'Z') b += 32;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return pos + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return pos + 3;
    return pos;
}

size_t tpl_scan_gpt2(const char *s, size_t len, size_t pos)
{
    if (s[pos] == '\'') {
        size_t end = contraction(s, len, pos, false);
        if (end > pos) return end;
    }
    size_t from = s[pos] == ' ' ? pos + 1 : pos; /* " ?" */
    glyph g = look(s, len, from);
    if (is_letter(g)) return run_of(s, len, g.end, TPL_UC_LETTER);
    if (is_number(g)) return run_of(s, len, g.end, TPL_UC_NUMBER);
    if (is_other(g, from)) return run_of_others(s, len, g.end);
    return run_of_spaces(s, len, pos);
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at a space */
static size_t spaces_or_lines(const char *s, size_t len, size_t pos)
{
    size_t end = pos, line_end = pos;
    for (glyph g = look(s, len, pos); is_space(g); g = look(s, len, end)) {
        end = g.end;
        if (g.c == '\n' || g.c == '\r') line_end = end;
    }
    return line_end > pos ? line_end : run_of_spaces(s, len, pos);
}

static size_t line_breaks(const char *s, size_t len, size_t pos)
{
    while (pos < len && (s[pos] == '\n' || s[pos] == '\r')) pos++;
    return pos;
}

static size_t numbers(const char *s, size_t len, size_t pos, int max)
{
    for (glyph g = look(s, len, pos); max > 0 && is_number(g); g = look(s, len, pos), max--) pos = g.end;
    return pos;
}

static inline size_t scan_cl100k(const char *s, size_t len, size_t pos, int max_digits)
{
    if (s[pos] == '\'') {
        size_t end = contraction(s, len, pos, true);
        if (end > pos) return end;
    }
    glyph g = look(s, len, pos);
    if (is_letter(g)) return run_of(s, len, g.end, TPL_UC_LETTER);
    if (is_number(g)) return numbers(s, len, pos, max_digits);
    if (g.c != '\r' && g.c != '\n') { /* any one character in front of letters */
        glyph next = look(s, len, g.end);
        if (is_letter(next)) return run_of(s, len, next.end, TPL_UC_LETTER);
    }
    size_t from = s[pos] == ' ' ? pos + 1 : pos;
    glyph first = look(s, len, from);
    if (is_other(first, from)) return line_breaks(s, len, run_of_others(s, len, first.end));
    return spaces_or_lines(s, len, pos);
}

size_t tpl_scan_llama3(const char *s, size_t len, size_t pos) { return scan_cl100k(s, len, pos, 3); }

size_t tpl_scan_qwen2(const char *s, size_t len, size_t pos) { return scan_cl100k(s, len, pos, 1); }

tpl_scan_fn tpl_scan_find(tpl_str pattern)
{
    static const struct {
        const char *pattern;
        tpl_scan_fn scan;
    } known[] = {
        { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
          tpl_scan_gpt2 },
        { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
          "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
          "\\s+(?!\\S)|\\s+",
          tpl_scan_llama3 },
        { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
          "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
          "\\s+(?!\\S)|\\s+",
          tpl_scan_qwen2 },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].pattern) == pattern.len && !memcmp(known[i].pattern, pattern.s, pattern.len))
            return known[i].scan;
    return NULL;
}
