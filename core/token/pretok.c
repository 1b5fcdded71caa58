/* SPDX-License-Identifier: Apache-2.0 */
#include "token/pretok.h"

#include "token/unicode.h"
#include "token/utf8.h"

static tpl_status cut_from(tpl_pretok_run *run, int i, tpl_str text, bool at_start, tpl_err *err);

/* -- Finding matches -------------------------------------------------------------------------- */

/* Hugging Face's Punctuation has the categories of Unicode 7.0 (crate unicode_categories 0.1), its Digits
 * those of 17.0 (Rust's standard library). The differences from our tables, found by comparing tokenizers
 * 0.23.3 over all characters: */
static const tpl_unicode_range no_punctuation[] = {
    { 0x61D, 0x61D },     { 0x9FD, 0x9FD },     { 0xA76, 0xA76 },     { 0xC77, 0xC77 },
    { 0xC84, 0xC84 },     { 0x1B4E, 0x1B4F },   { 0x1B7D, 0x1B7F },   { 0x2E43, 0x2E4F },
    { 0x2E52, 0x2E5D },   { 0x10D6E, 0x10D6E }, { 0x10EAD, 0x10EAD }, { 0x10F55, 0x10F59 },
    { 0x10F86, 0x10F89 }, { 0x113D4, 0x113D8 }, { 0x1144B, 0x1145D }, { 0x11660, 0x1166C },
    { 0x116B9, 0x116B9 }, { 0x1183B, 0x1183B }, { 0x11944, 0x11946 }, { 0x119E2, 0x119E2 },
    { 0x11A3F, 0x11A46 }, { 0x11A9A, 0x11AA2 }, { 0x11B00, 0x11B09 }, { 0x11BE1, 0x11BE1 },
    { 0x11C41, 0x11C45 }, { 0x11C70, 0x11C71 }, { 0x11EF7, 0x11EF8 }, { 0x11F43, 0x11F4F },
    { 0x11FFF, 0x11FFF }, { 0x12FF1, 0x12FF2 }, { 0x16D6D, 0x16D6F }, { 0x16E97, 0x16E9A },
    { 0x16FE2, 0x16FE2 }, { 0x1E5FF, 0x1E5FF }, { 0x1E95E, 0x1E95F },
};

static bool is_number(uint32_t c)
{
    if ((c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6)) return true;
    return tpl_unicode_in(tpl_unicode_get(c), TPL_UC_NUMBER);
}

static bool is_punctuation(uint32_t c)
{
    uint8_t cls = tpl_unicode_get(c);
    if (c < 0x80) return tpl_unicode_in(cls, TPL_UC_PUNCT | TPL_UC_SYMBOL);
    if (!tpl_unicode_in(cls, TPL_UC_PUNCT)) return c == 0x166D || c == 0x111C9;
    for (size_t i = 0; i < sizeof no_punctuation / sizeof *no_punctuation; i++)
        if (c >= no_punctuation[i].first && c <= no_punctuation[i].last) return false;
    return true;
}

static bool is_match(tpl_pretok_kind kind, uint32_t c)
{
    return kind == TPL_PRETOK_NUMBERS ? is_number(c) : is_punctuation(c);
}

static void find_class(tpl_pretok_kind kind, tpl_str text, size_t from, size_t *start, size_t *end)
{
    *start = *end = SIZE_MAX;
    while (from < text.len) {
        size_t at = from;
        if (is_match(kind, tpl_utf8_next(text.s, &from))) {
            *start = at;
            *end = from;
            return;
        }
    }
}

static void find_string(const tpl_buf *what, tpl_str text, size_t from, size_t *start, size_t *end)
{
    const char *hit =
        from < text.len ? memmem(text.s + from, text.len - from, what->s, what->len) : NULL;
    *start = hit ? (size_t)(hit - text.s) : SIZE_MAX;
    *end = hit ? *start + what->len : SIZE_MAX;
}

static tpl_status find(tpl_pretok_run *run, const tpl_pretok_step *s, tpl_str text, size_t from,
                       size_t *start, size_t *end, tpl_err *err)
{
    if (s->kind == TPL_PRETOK_REGEX)
        return tpl_regex_find(s->regex, run->work, text, from, start, end, err);
    if (s->kind == TPL_PRETOK_NUMBERS || s->kind == TPL_PRETOK_PUNCTUATION)
        find_class(s->kind, text, from, start, end);
    else find_string(&s->text, text, from, start, end);
    return TPL_OK;
}

/* -- What becomes of them --------------------------------------------------------------------- */

typedef struct cutter {
    tpl_pretok_run *run;
    int i_next; /* the step that gets the pieces */
    tpl_str text;
    bool at_start;
    tpl_split_behavior behavior;
    bool has_pending, pending_match;
    size_t start, end; /* pending piece */
} cutter;

static tpl_status emit(cutter *c, size_t start, size_t end, tpl_err *err)
{
    if (start == end) return TPL_OK;
    return cut_from(c->run, c->i_next, (tpl_str){ c->text.s + start, end - start },
                    c->at_start && !start, err);
}

static tpl_status flush(cutter *c, tpl_err *err)
{
    if (!c->has_pending) return TPL_OK;
    c->has_pending = false;
    return emit(c, c->start, c->end, err);
}

static tpl_status replace_pending(cutter *c, size_t start, size_t end, bool match, tpl_err *err)
{
    TPL_TRY(flush(c, err));
    c->has_pending = true;
    c->pending_match = match;
    c->start = start;
    c->end = end;
    return TPL_OK;
}

/* Takes the next span; spans come in order and tile the text. */
static tpl_status take(cutter *c, size_t start, size_t end, bool match, tpl_err *err)
{
    switch (c->behavior) {
    case TPL_SPLIT_ISOLATED: return emit(c, start, end, err);
    case TPL_SPLIT_REMOVED: return match ? TPL_OK : emit(c, start, end, err);
    case TPL_SPLIT_CONTIGUOUS:
        if (!c->has_pending || c->pending_match != match)
            return replace_pending(c, start, end, match, err);
        c->end = end;
        return TPL_OK;
    case TPL_SPLIT_MERGED_WITH_PREVIOUS:
        if (!match || !c->has_pending || c->pending_match)
            return replace_pending(c, start, end, match, err);
        c->end = end;
        c->pending_match = true;
        return TPL_OK;
    case TPL_SPLIT_MERGED_WITH_NEXT:
        if (match) return replace_pending(c, start, end, true, err);
        if (!c->has_pending) return emit(c, start, end, err);
        c->end = end;
        return flush(c, err);
    }
    return TPL_OK;
}

static tpl_status split(tpl_pretok_run *run, int i, tpl_str text, bool at_start, tpl_err *err)
{
    const tpl_pretok_step *s = &run->p->steps[i];
    cutter c = {
        .run = run, .i_next = i + 1, .text = text, .at_start = at_start, .behavior = s->behavior
    };
    size_t done = 0, from = 0, a, b;
    while (from < text.len) {
        TPL_TRY(find(run, s, text, from, &a, &b, err));
        if (a == SIZE_MAX) break;
        if (a > done) TPL_TRY(take(&c, done, a, s->invert, err));
        done = from = b;
        if (b > a) TPL_TRY(take(&c, a, b, !s->invert, err));
        else if (from < text.len)
            tpl_utf8_next(text.s, &from); /* an empty match cuts, and the search goes on behind */
    }
    if (done < text.len) TPL_TRY(take(&c, done, text.len, s->invert, err));
    return flush(&c, err);
}

/* -- Steps ------------------------------------------------------------------------------------ */

static tpl_status scan(tpl_pretok_run *run, int i, tpl_str text, bool at_start, tpl_err *err)
{
    tpl_scan_fn fn = run->p->steps[i].scan;
    for (size_t pos = 0, end; pos < text.len; pos = end) {
        end = fn(text.s, text.len, pos);
        TPL_TRY(cut_from(run, i + 1, (tpl_str){ text.s + pos, end - pos }, at_start && !pos, err));
    }
    return TPL_OK;
}

static tpl_status no_memory(tpl_str text, tpl_err *err)
{
    return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory while cutting %zu bytes", text.len);
}

static tpl_status prefix_space(tpl_pretok_run *run, int i, tpl_str text, bool at_start, tpl_err *err)
{
    tpl_buf *b = &run->scratch[i];
    if (text.s[0] == ' ') return cut_from(run, i + 1, text, at_start, err);
    b->len = 0;
    if (!tpl_buf_add(b, " ", 1) || !tpl_buf_add(b, text.s, text.len)) return no_memory(text, err);
    return cut_from(run, i + 1, (tpl_str){ b->s, b->len }, at_start, err);
}

static bool write_marks(const tpl_pretok_step *s, tpl_str text, bool at_start, tpl_buf *out)
{
    bool starts =
        (text.len >= s->text.len && !memcmp(text.s, s->text.s, s->text.len)) || text.s[0] == ' ';
    out->len = 0;
    if (!starts && (s->scheme == TPL_PREPEND_ALWAYS || (s->scheme == TPL_PREPEND_FIRST && at_start)))
        if (!tpl_buf_add(out, s->text.s, s->text.len)) return false;
    for (size_t i = 0, run_end; i < text.len; i = run_end) {
        const char *space = memchr(text.s + i, ' ', text.len - i);
        run_end = space ? (size_t)(space - text.s) : text.len;
        if (!tpl_buf_add(out, text.s + i, run_end - i)) return false;
        if (space && (run_end++, !tpl_buf_add(out, s->text.s, s->text.len))) return false;
    }
    return true;
}

static tpl_status metaspace(tpl_pretok_run *run, int i, tpl_str text, bool at_start, tpl_err *err)
{
    const tpl_pretok_step *s = &run->p->steps[i];
    tpl_buf *b = &run->scratch[i];
    if (!write_marks(s, text, at_start, b)) return no_memory(text, err);
    tpl_str marked = { b->s, b->len };
    return s->split ? split(run, i, marked, at_start, err) : cut_from(run, i + 1, marked, at_start, err);
}

static tpl_status cut_from(tpl_pretok_run *run, int i, tpl_str text, bool at_start, tpl_err *err)
{
    if (i == run->p->n) return run->piece(run->ctx, text, err);
    switch (run->p->steps[i].kind) {
    case TPL_PRETOK_SCAN: return scan(run, i, text, at_start, err);
    case TPL_PRETOK_PREFIX_SPACE: return prefix_space(run, i, text, at_start, err);
    case TPL_PRETOK_METASPACE: return metaspace(run, i, text, at_start, err);
    default: return split(run, i, text, at_start, err);
    }
}

tpl_status tpl_pretok_cut(tpl_pretok_run *run, tpl_str text, bool at_start, tpl_err *err)
{
    return text.len ? cut_from(run, 0, text, at_start, err) : TPL_OK;
}

void tpl_pretok_run_free(tpl_pretok_run *run)
{
    for (int i = 0; i < TPL_PRETOK_STEPS_MAX; i++) tpl_buf_free(&run->scratch[i]);
}
