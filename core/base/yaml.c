/* SPDX-License-Identifier: Apache-2.0 */
#include "base/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/str.h"

#define MAX_DEPTH 512
#define MAX_WHOLE 9007199254740992.0 /* 2^53: a double holds every whole number below */

/* As base/json.c: values that any text may have, and bytes of text that each further one needs. */
#define VALUES_FREE 200000
#define BYTES_PER_VALUE 3

/* An open list or mapping. */
typedef struct frame {
    json_t *node;
    json_t *key;        /* of a mapping: the key whose value comes next, owned; NULL: a key comes next */
    const char *wanted; /* what of the wanted path is left below this node; NULL: the path does not pass here */
    size_t n;           /* of a list: items begun */
} frame;

typedef struct reader {
    yaml_parser_t parser;
    const char *name;
    tpl_err *err;
    json_t *docs;
    frame *stack;
    const char *wanted; /* the path whose line is asked for; NULL: none */
    const char *text;
    size_t len, max_docs;
    uint64_t n_values;
    int depth, max_depth, found_line;
} reader;

/* -- Failures ---- */

/* Line as libyaml counts it, from 0; it lets a text end in the line behind its last one. */
static tpl_status fail_at(reader *r, size_t line, tpl_status code, const char *what)
{
    char where[sizeof r->err->where] = "";
    size_t last = 0;
    for (size_t i = 0; last < line && i + 1 < r->len; i++) last += r->text[i] == '\n';
    if (line > last) line = last;
    if (*r->name) snprintf(where, sizeof where, "%.100s:%zu", r->name, line + 1);
    return tpl_fail(r->err, code, 0, where, "YAML line %zu: %s", line + 1, what);
}

static tpl_status no_memory(reader *r)
{
    return tpl_fail(r->err, TPL_ERR_MEM, 0, r->name, "out of memory");
}

static tpl_status parser_failed(reader *r)
{
    const yaml_parser_t *p = &r->parser;
    char what[200];
    if (p->error == YAML_MEMORY_ERROR) return no_memory(r);
    if (p->error == YAML_READER_ERROR) { /* bytes that are no text; the reader counts bytes, not lines */
        snprintf(what, sizeof what, "no valid YAML near byte %zu: %s", p->problem_offset,
                 p->problem ? p->problem : "unreadable");
        return fail_at(r, p->mark.line, TPL_ERR_FORMAT, what);
    }
    snprintf(what, sizeof what, "no valid YAML: %s%s%s", p->context ? p->context : "", p->context ? ": " : "",
             p->problem ? p->problem : "unreadable");
    return fail_at(r, p->problem_mark.line, TPL_ERR_FORMAT, what);
}

/* -- Scalars ---- */

static bool is_one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(s, *words)) return true;
    return false;
}

static bool is_null(const char *s)
{
    static const char *const words[] = { "", "~", "null", "Null", "NULL", NULL };
    return is_one_of(s, words);
}

static bool is_true(const char *s)
{
    static const char *const words[] = { "true", "True", "TRUE", NULL };
    return is_one_of(s, words);
}

static bool is_false(const char *s)
{
    static const char *const words[] = { "false", "False", "FALSE", NULL };
    return is_one_of(s, words);
}

/* .inf and .nan in every form of the core schema */
static bool is_special(const char *s)
{
    static const char *const words[] = { ".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN", NULL };
    return is_one_of(*s == '-' || *s == '+' ? s + 1 : s, words);
}

/* [-+]?[0-9]+ | 0o[0-7]+ | 0x[0-9a-fA-F]+ ; *value may be 2^53 or more. */
static bool is_whole(const char *s, double *value)
{
    double v = 0;
    bool negative = *s == '-';
    int base = 10;
    if (s[0] == '0' && (s[1] == 'o' || s[1] == 'x')) {
        base = s[1] == 'o' ? 8 : 16;
        s += 2;
    } else if (*s == '-' || *s == '+') {
        s++;
    }
    if (!*s) return false;
    for (; *s; s++) {
        int d = *s >= '0' && *s <= '9'                 ? *s - '0'
                : base == 16 && *s >= 'a' && *s <= 'f' ? *s - 'a' + 10
                : base == 16 && *s >= 'A' && *s <= 'F' ? *s - 'A' + 10
                                                       : 99;
        if (d >= base) return false;
        v = v * base + d;
    }
    *value = negative ? -v : v;
    return true;
}

static const char *skip_digits(const char *s)
{
    while (*s >= '0' && *s <= '9') s++;
    return s;
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_number(const char *s)
{
    if (*s == '-' || *s == '+') s++;
    const char *whole = skip_digits(s);
    bool some = whole > s;
    if (*whole == '.') {
        const char *part = skip_digits(whole + 1);
        some = some || part > whole + 1;
        whole = part;
    }
    if (!some) return false;
    if (*whole == 'e' || *whole == 'E') {
        const char *exp = whole + 1;
        if (*exp == '-' || *exp == '+') exp++;
        whole = skip_digits(exp);
        if (whole == exp) return false;
    }
    return !*whole;
}

/* What a scalar's tag asks for. */
typedef enum want { WANT_ANY, WANT_STR, WANT_INT, WANT_FLOAT, WANT_BOOL, WANT_NULL, WANT_BAD } want;

static want wanted_type(const yaml_event_t *e)
{
    static const char *const tags[] = { YAML_STR_TAG, YAML_INT_TAG, YAML_FLOAT_TAG, YAML_BOOL_TAG, YAML_NULL_TAG, NULL };
    static const want types[] = { WANT_STR, WANT_INT, WANT_FLOAT, WANT_BOOL, WANT_NULL };
    const char *tag = (const char *)e->data.scalar.tag;
    if (!tag) return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? WANT_ANY : WANT_STR;
    if (!strcmp(tag, "!")) return WANT_STR;
    for (int i = 0; tags[i]; i++)
        if (!strcmp(tag, tags[i])) return types[i];
    return WANT_BAD;
}

static tpl_status scalar_number(reader *r, const yaml_event_t *e, const char *s, want type, json_t **out)
{
    double v;
    if (type != WANT_FLOAT && is_whole(s, &v)) {
        if (fabs(v) >= MAX_WHOLE)
            return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT,
                           "a whole number of 2^53 or more, which would lose digits (quote it if it is an id)");
        *out = json_integer((json_int_t)v);
    } else if (type != WANT_INT && is_number(s)) {
        v = strtod(s, NULL);
        if (!isfinite(v)) return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "a number too large for a double");
        *out = json_real(v);
    }
    return TPL_OK;
}

/* *out stays NULL when memory is short. */
static tpl_status scalar_value(reader *r, const yaml_event_t *e, json_t **out)
{
    const char *s = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    want type = wanted_type(e);
    *out = NULL;
    if (type == WANT_BAD)
        return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "a tag other than !!str, !!int, !!float, !!bool, !!null");
    if (type != WANT_STR && strlen(s) == len) {
        if ((type == WANT_ANY || type == WANT_NULL) && is_null(s))
            *out = json_null();
        else if ((type == WANT_ANY || type == WANT_BOOL) && is_true(s))
            *out = json_true();
        else if ((type == WANT_ANY || type == WANT_BOOL) && is_false(s))
            *out = json_false();
        else if (type != WANT_BOOL && type != WANT_NULL) {
            if (is_special(s))
                return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, ".inf and .nan are no values here");
            TPL_TRY(scalar_number(r, e, s, type, out));
        }
    }
    if (*out) return TPL_OK;
    if (type != WANT_ANY && type != WANT_STR)
        return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "a scalar that its tag does not fit");
    *out = json_stringn(s, len); /* checks UTF-8, as libyaml did */
    return *out ? TPL_OK : no_memory(r);
}

/* -- The wanted path ---- */

/* What is left of the wanted path below the next value of frame f; NULL when the path does not pass there. */
static const char *below(const frame *f)
{
    const char *w = f->wanted;
    if (!w) return NULL;
    if (f->key) {
        size_t len = json_string_length(f->key);
        if (*w == '.') w++;
        return !strncmp(w, json_string_value(f->key), len) && strchr(".[", w[len]) ? w + len : NULL;
    }
    char text[32];
    int len = snprintf(text, sizeof text, "[%zu]", f->n);
    return !strncmp(w, text, (size_t)len) ? w + len : NULL;
}

/* -- Building ---- */

/* Takes value and puts it where the parser stands. */
static tpl_status place(reader *r, const yaml_event_t *e, json_t *value)
{
    frame *f = r->depth ? &r->stack[r->depth - 1] : NULL;
    int failed;
    if (!f) {
        failed = json_array_append_new(r->docs, value);
    } else if (f->key) {
        failed = json_object_setn_new_nocheck(f->node, json_string_value(f->key), json_string_length(f->key), value);
        json_decref(f->key);
        f->key = NULL;
    } else {
        failed = json_array_append_new(f->node, value);
    }
    return failed ? no_memory(r) : TPL_OK;
}

static bool expects_key(const reader *r)
{
    const frame *f = r->depth ? &r->stack[r->depth - 1] : NULL;
    return f && json_is_object(f->node) && !f->key;
}

/* A key is its text: `1: x` and `true: x` have the keys "1" and "true", as in JSON. */
static tpl_status take_key(reader *r, const yaml_event_t *e)
{
    frame *f = &r->stack[r->depth - 1];
    const char *s = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    if (wanted_type(e) == WANT_BAD) return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "a key with a tag");
    if (memchr(s, 0, len)) return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "a key with a NUL byte");
    if (json_object_getn(f->node, s, len)) {
        char what[120];
        snprintf(what, sizeof what, "duplicate key '%.80s'", s);
        return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, what);
    }
    f->key = json_stringn(s, len);
    if (!f->key) return no_memory(r);
    const char *left = below(f);
    if (left && !*left && !r->found_line) r->found_line = (int)e->start_mark.line + 1;
    return TPL_OK;
}

/* Counts a value that begins, and looks whether it is the one whose line is wanted. */
static tpl_status begin_value(reader *r, const yaml_event_t *e, const char **left)
{
    frame *f = r->depth ? &r->stack[r->depth - 1] : NULL;
    *left = r->wanted;
    if (++r->n_values > VALUES_FREE && r->n_values - VALUES_FREE > r->len / BYTES_PER_VALUE)
        return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "too many values for the length of the text");
    if (!f) return TPL_OK;
    if (!f->key) f->n++;
    *left = below(f);
    if (*left && !**left && !r->found_line) r->found_line = (int)e->start_mark.line + 1;
    return TPL_OK;
}

static tpl_status open_node(reader *r, const yaml_event_t *e, json_t *node, const char *tag, const char *wanted_tag)
{
    const char *left;
    if (!node) return no_memory(r);
    tpl_status st = TPL_OK;
    if (tag && strcmp(tag, "!") && strcmp(tag, wanted_tag))
        st = fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "a tag other than !!map and !!seq");
    else if (expects_key(r))
        st = fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "a list or mapping as a key");
    else if (r->depth == r->max_depth)
        st = fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "nested too deep");
    else
        st = begin_value(r, e, &left);
    if (st) {
        json_decref(node);
        return st;
    }
    TPL_TRY(place(r, e, node)); /* the tree owns node from here, whatever comes */
    r->stack[r->depth++] = (frame){ .node = node, .wanted = left };
    return TPL_OK;
}

static tpl_status take_scalar(reader *r, const yaml_event_t *e)
{
    const char *left;
    json_t *value;
    if (expects_key(r)) return take_key(r, e);
    TPL_TRY(begin_value(r, e, &left));
    TPL_TRY(scalar_value(r, e, &value));
    return place(r, e, value);
}

static tpl_status take_event(reader *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (json_array_size(r->docs) == r->max_docs)
            return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "a second document, where one is read");
        return TPL_OK;
    case YAML_ALIAS_EVENT: return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "aliases (*name) are refused");
    case YAML_SCALAR_EVENT:
        if (e->data.scalar.anchor) break;
        return take_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT:
        if (e->data.sequence_start.anchor) break;
        return open_node(r, e, json_array(), (const char *)e->data.sequence_start.tag, YAML_SEQ_TAG);
    case YAML_MAPPING_START_EVENT:
        if (e->data.mapping_start.anchor) break;
        return open_node(r, e, json_object(), (const char *)e->data.mapping_start.tag, YAML_MAP_TAG);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: r->depth--; return TPL_OK;
    default: return TPL_OK;
    }
    return fail_at(r, e->start_mark.line, TPL_ERR_FORMAT, "anchors (&name) are refused");
}

static tpl_status read_events(reader *r)
{
    for (bool done = false; !done && !(r->wanted && r->found_line);) {
        yaml_event_t e;
        if (!yaml_parser_parse(&r->parser, &e)) return parser_failed(r);
        done = e.type == YAML_STREAM_END_EVENT;
        tpl_status st = take_event(r, &e);
        yaml_event_delete(&e);
        if (st) return st;
    }
    return TPL_OK;
}

/* Reads into r->docs, which the caller owns afterwards, also on failure. */
static tpl_status read_text(reader *r, const char *text, size_t len)
{
    if (r->max_depth == 0) r->max_depth = TPL_YAML_DEPTH;
    if (r->max_depth < 1 || r->max_depth > MAX_DEPTH)
        return tpl_fail(r->err, TPL_ERR_ARG, 0, r->name, "YAML depth %d, expected 1 to %d", r->max_depth, MAX_DEPTH);
    if (len > TPL_YAML_MAX_BYTES)
        return tpl_fail(r->err, TPL_ERR_FORMAT, 0, r->name, "YAML of %zu bytes, at most %zu are read", len,
                        TPL_YAML_MAX_BYTES);
    r->text = text;
    r->len = len;
    r->docs = json_array();
    r->stack = calloc((size_t)r->max_depth, sizeof *r->stack);
    if (!r->docs || !r->stack || !yaml_parser_initialize(&r->parser)) {
        free(r->stack);
        return no_memory(r);
    }
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, len);
    tpl_status st = read_events(r);
    for (int i = 0; i < r->max_depth; i++) json_decref(r->stack[i].key); /* set where a failure came between key and value */
    yaml_parser_delete(&r->parser);
    free(r->stack);
    return st;
}

/* -- Public ---- */

tpl_status tpl_yaml_parse_all(json_t **out, const char *text, size_t len, int max_depth, const char *name, tpl_err *err)
{
    reader r = { .name = name, .err = err, .max_depth = max_depth, .max_docs = SIZE_MAX };
    *out = NULL;
    tpl_status st = read_text(&r, text, len);
    if (st)
        json_decref(r.docs);
    else
        *out = r.docs;
    return st;
}

tpl_status tpl_yaml_parse(json_t **out, const char *text, size_t len, int max_depth, const char *name, tpl_err *err)
{
    reader r = { .name = name, .err = err, .max_depth = max_depth, .max_docs = 1 };
    *out = NULL;
    tpl_status st = read_text(&r, text, len);
    if (!st && json_array_size(r.docs) == 0)
        st = tpl_fail(err, TPL_ERR_FORMAT, 0, name, "an empty text, expected a YAML document");
    if (!st) *out = json_incref(json_array_get(r.docs, 0));
    json_decref(r.docs);
    return st;
}

int tpl_yaml_line(const char *text, size_t len, const char *path)
{
    tpl_err err = { 0 };
    reader r = { .name = "", .err = &err, .wanted = path, .max_docs = SIZE_MAX };
    tpl_status st = read_text(&r, text, len);
    json_decref(r.docs);
    (void)st; /* a text that fails further down may still have said it */
    return r.found_line;
}
