/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "token/split_regex.h"

#include <pcre2.h>
#include <stdlib.h>

#include "token/split_rewrite.h"

/* Steps that all matches of a text may take: so many, and so many for each byte that they pass. Published
 * patterns take up to about 10 a byte, more only on short texts. A step is an item of the pattern that is
 * tried, or a character that is passed between two of them. */
#define STEPS_FREE 20000000
#define STEPS_PER_BYTE 100
/* Bounds of one match. */
#define MATCH_LIMIT 100000000
#define DEPTH_LIMIT 1000000
#define HEAP_LIMIT_KB 65536
#define JIT_STACK_MAX (8 << 20)

struct tpl_regex {
    pcre2_code *code;
};

struct tpl_regex_work {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    uint64_t steps;  /* taken in all matches */
    uint64_t passed; /* bytes of text that matches are through with */
    uint64_t bytes;  /* these, and what the present match has before it */
    PCRE2_SIZE at;   /* where the last step was */
};

/* Called before every item of the pattern. */
static int count_step(pcre2_callout_block *b, void *ctx)
{
    tpl_regex_work *w = ctx;
    PCRE2_SIZE at = b->current_position;
    w->steps += 1 + (at > w->at ? at - w->at : 0);
    w->at = at;
    bool over = w->steps > STEPS_FREE && (w->steps - STEPS_FREE) / STEPS_PER_BYTE > w->bytes;
    return over ? PCRE2_ERROR_MATCHLIMIT : 0;
}

static tpl_status compile(tpl_regex *re, const tpl_buf *pattern, const char *where, tpl_err *err)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for a regex");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    re->code = pcre2_compile((PCRE2_SPTR)pattern->s, pattern->len,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                                 PCRE2_AUTO_CALLOUT,
                             &code, &at, context);
    pcre2_compile_context_free(context);
    if (!re->code) {
        PCRE2_UCHAR text[128] = "";
        pcre2_get_error_message(code, text, sizeof text);
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where, "regex does not compile: %s", (char *)text);
    }
    pcre2_jit_compile(re->code,
                      PCRE2_JIT_COMPLETE); /* without JIT the interpreter runs, under the same limits */
    return TPL_OK;
}

tpl_status tpl_regex_new(tpl_regex **out, tpl_str pattern, const char *where, tpl_err *err)
{
    tpl_buf rewritten = { 0 };
    *out = NULL;
    tpl_regex *re = calloc(1, sizeof *re);
    tpl_status st = re ? tpl_split_rewrite(pattern, &rewritten, where, err)
                       : tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for a regex");
    if (!st) st = compile(re, &rewritten, where, err);
    tpl_buf_free(&rewritten);
    if (st) tpl_regex_free(re);
    else *out = re;
    return st;
}

void tpl_regex_free(tpl_regex *re)
{
    if (re) pcre2_code_free(re->code);
    free(re);
}

static tpl_regex_work *work_new(void)
{
    tpl_regex_work *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->match = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_MAX, NULL); /* NULL where JIT is absent */
    if (!w->match || !w->context) {
        tpl_regex_work_free(w);
        return NULL;
    }
    pcre2_set_callout(w->context, count_step, w);
    pcre2_set_match_limit(w->context, MATCH_LIMIT);
    pcre2_set_depth_limit(w->context, DEPTH_LIMIT);
    pcre2_set_heap_limit(w->context, HEAP_LIMIT_KB);
    if (w->stack) pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return w;
}

void tpl_regex_work_free(tpl_regex_work *w)
{
    if (!w) return;
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    if (w->stack) pcre2_jit_stack_free(w->stack);
    free(w);
}

tpl_status tpl_regex_find(const tpl_regex *re, tpl_regex_work **work, tpl_str text, size_t from,
                          size_t *start, size_t *end, tpl_err *err)
{
    if (!*work && !(*work = work_new()))
        return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for a regex match");
    tpl_regex_work *w = *work;
    w->at = from;
    w->bytes = w->passed + (text.len - from);
    int n = pcre2_match(re->code, (PCRE2_SPTR)text.s, text.len, from, PCRE2_NO_UTF_CHECK, w->match,
                        w->context);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->match);
    *start = *end = SIZE_MAX;
    w->passed += (n > 0 ? at[1] : text.len) - from;
    if (n == PCRE2_ERROR_NOMATCH) return TPL_OK;
    if (n < 0) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(n, why, sizeof why);
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "",
                        "a regex of the tokenizer gave up on %zu bytes of text: %s", text.len,
                        (char *)why);
    }
    *start = at[0];
    *end = at[1];
    return TPL_OK;
}
