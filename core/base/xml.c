/* SPDX-License-Identifier: Apache-2.0 */
#include "base/xml.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    XML_Parser parser;
    tpl_xml *x;
    const char *problem; /* static text; set when one of the handlers stops the parser */
    uint32_t open;       /* the element that the text stands in */
    int depth;
    bool is_mem;
} reader;

static void stop(reader *r, const char *problem)
{
    if (!r->problem) r->problem = problem;
    XML_StopParser(r->parser, XML_FALSE);
}

/* -- Growing ---- */

/* Room for n more items of `size` bytes behind `used`; all counts stay below 2^32, since offsets are 32 bits wide. */
static bool reserve(reader *r, void **p, size_t *cap, size_t used, size_t n, size_t size)
{
    if (n > UINT32_MAX - used) {
        stop(r, "too large");
        return false;
    }
    if (used + n <= *cap) return true;
    size_t want = *cap ? *cap : 64;
    while (want < used + n) want *= 2;
    void *q = reallocarray(*p, want, size);
    if (!q) {
        r->is_mem = true;
        stop(r, "out of memory");
        return false;
    }
    *p = q;
    *cap = want;
    return true;
}

/* Copies len bytes and a NUL; 0 (the empty string) without memory, or for an empty one. */
static uint32_t add_bytes(reader *r, const char *s, size_t len)
{
    tpl_xml *x = r->x;
    if (!len || !reserve(r, (void **)&x->bytes, &x->cap_bytes, x->n_bytes, len + 1, 1)) return 0;
    uint32_t at = (uint32_t)x->n_bytes;
    memcpy(x->bytes + at, s, len);
    x->bytes[at + len] = 0;
    x->n_bytes += len + 1;
    return at;
}

/* A node behind the last child of the open element; NULL without room. */
static tpl_xml_node *add_node(reader *r)
{
    tpl_xml *x = r->x;
    if (x->n_nodes == TPL_XML_MAX_NODES) {
        stop(r, "too many elements");
        return NULL;
    }
    if (!reserve(r, (void **)&x->nodes, &x->cap_nodes, x->n_nodes, 1, sizeof *x->nodes)) return NULL;
    uint32_t i = (uint32_t)x->n_nodes++;
    tpl_xml_node *node = &x->nodes[i], *parent = &x->nodes[r->open];
    *node = (tpl_xml_node){ .parent = r->open, .line = (uint32_t)XML_GetCurrentLineNumber(r->parser) };
    if (i) {
        if (parent->first)
            x->nodes[parent->last].next = i;
        else
            parent->first = i;
        parent->last = i;
    }
    return node;
}

/* -- Handlers ---- */

static void on_start(void *user, const char *tag, const char **attr)
{
    reader *r = user;
    tpl_xml *x = r->x;
    size_t n = 0;
    if (r->problem) return;
    if (r->depth == TPL_XML_DEPTH) {
        stop(r, "nested too deep");
        return;
    }
    while (attr[2 * n]) n++;
    if (!reserve(r, (void **)&x->attrs, &x->cap_attrs, x->n_attrs, n, sizeof *x->attrs)) return;
    tpl_xml_node *node = add_node(r);
    if (!node) return;
    r->depth++;
    r->open = (uint32_t)(node - x->nodes);
    node->tag = add_bytes(r, tag, strlen(tag));
    node->attr = (uint32_t)x->n_attrs;
    node->n_attr = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        uint32_t name = add_bytes(r, attr[2 * i], strlen(attr[2 * i]));
        uint32_t value = add_bytes(r, attr[2 * i + 1], strlen(attr[2 * i + 1]));
        x->attrs[x->n_attrs++] = (tpl_xml_attr){ name, value };
    }
}

static void on_end(void *user, const char *tag)
{
    reader *r = user;
    (void)tag;
    if (r->problem) return;
    r->depth--;
    r->open = r->x->nodes[r->open].parent;
}

/* Text comes in pieces (a line each, mostly); pieces that follow each other are one node. */
static void on_text(void *user, const char *s, int len)
{
    reader *r = user;
    tpl_xml *x = r->x;
    if (r->problem || !r->depth || len <= 0) return;
    uint32_t last = x->nodes[r->open].last;
    tpl_xml_node *node = last && !x->nodes[last].tag ? &x->nodes[last] : NULL;
    if (node && (size_t)node->text + node->text_len + 1 == x->n_bytes) {
        if (!reserve(r, (void **)&x->bytes, &x->cap_bytes, x->n_bytes, (size_t)len, 1)) return;
        memcpy(x->bytes + x->n_bytes - 1, s, (size_t)len);
        x->n_bytes += (size_t)len;
        x->bytes[x->n_bytes - 1] = 0;
        node->text_len += (uint32_t)len;
        return;
    }
    node = add_node(r);
    if (!node) return;
    node->text = add_bytes(r, s, (size_t)len);
    node->text_len = node->text ? (uint32_t)len : 0;
}

static void on_entity(void *user, const char *name, int is_parameter, const char *value, int len, const char *base,
                      const char *system, const char *public, const char *notation)
{
    (void)name, (void)is_parameter, (void)value, (void)len, (void)base, (void)system, (void)public, (void)notation;
    stop(user, "declares entities, which are refused");
}

static void on_skipped(void *user, const char *name, int is_parameter)
{
    (void)name;
    if (!is_parameter) stop(user, "uses an entity that is not declared");
}

/* -- Public ---- */

void tpl_xml_free(tpl_xml *x)
{
    if (!x) return;
    free(x->bytes);
    free(x->nodes);
    free(x->attrs);
    free(x);
}

static tpl_status parse(reader *r, const char *text, size_t len, const char *name, int *line, tpl_err *err)
{
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, on_start, on_end);
    XML_SetCharacterDataHandler(r->parser, on_text);
    XML_SetEntityDeclHandler(r->parser, on_entity);
    XML_SetSkippedEntityHandler(r->parser, on_skipped);
    if (XML_Parse(r->parser, text, (int)len, 1) == XML_STATUS_OK) return TPL_OK;
    char where[sizeof err->where] = "";
    *line = (int)XML_GetCurrentLineNumber(r->parser);
    if (*name) snprintf(where, sizeof where, "%.100s:%d", name, *line);
    bool is_mem = r->is_mem || XML_GetErrorCode(r->parser) == XML_ERROR_NO_MEMORY;
    return tpl_fail(err, is_mem ? TPL_ERR_MEM : TPL_ERR_FORMAT, 0, where, "XML line %d: %s", *line,
                    r->problem ? r->problem : XML_ErrorString(XML_GetErrorCode(r->parser)));
}

tpl_status tpl_xml_parse(tpl_xml **out, const char *text, size_t len, const char *name, int *line, tpl_err *err)
{
    tpl_xml *x = calloc(1, sizeof *x);
    *out = x;
    *line = 0;
    if (!x) return tpl_fail(err, TPL_ERR_MEM, 0, name, "out of memory");
    if (len > TPL_XML_MAX_BYTES)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, name, "XML of %zu bytes, at most %zu are read", len, TPL_XML_MAX_BYTES);
    x->cap_bytes = 256;
    x->bytes = calloc(1, x->cap_bytes);
    x->n_bytes = 1;
    reader r = { .parser = XML_ParserCreate(NULL), .x = x };
    if (!x->bytes || !r.parser) {
        if (r.parser) XML_ParserFree(r.parser);
        return tpl_fail(err, TPL_ERR_MEM, 0, name, "out of memory");
    }
    tpl_status st = parse(&r, text, len, name, line, err);
    XML_ParserFree(r.parser);
    return st;
}
