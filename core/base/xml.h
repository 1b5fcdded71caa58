/* SPDX-License-Identifier: Apache-2.0
 *
 * XML files as a flat tree, by libexpat. Nothing outside the text is ever read: a DOCTYPE may name a DTD, which is not
 * opened, and a text that declares entities is refused (they can expand without bound). A text that ends or breaks in the
 * middle gives what was read up to there, with the failure. One owner thread.
 */
#ifndef TPL_BASE_XML_H
#define TPL_BASE_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TPL_XML_DEPTH 128                     /* nesting of elements */
#define TPL_XML_MAX_NODES 1000000             /* elements and pieces of text */
#define TPL_XML_MAX_BYTES ((size_t)64 << 20) /* longest text */

typedef struct tpl_xml_attr {
    uint32_t name, value; /* offsets into `bytes`, each ends with NUL */
} tpl_xml_attr;

/* An element, or (tag 0) a piece of text of its parent. Indices are into `nodes`; 0 is the root and so stands for "none". */
typedef struct tpl_xml_node {
    uint32_t tag, text; /* offsets into `bytes`; each is 0 where it has none */
    uint32_t text_len;
    uint32_t attr, n_attr; /* attr[attr .. attr + n_attr) */
    uint32_t parent, first, last, next;
    uint32_t line; /* from 1 */
} tpl_xml_node;

typedef struct tpl_xml {
    char *bytes; /* bytes[0] is 0, so that offset 0 is the empty string */
    tpl_xml_node *nodes;
    tpl_xml_attr *attrs;
    size_t n_bytes, n_nodes, n_attrs, cap_bytes, cap_nodes, cap_attrs;
} tpl_xml;

/* Always gives a tree, which the caller frees (*out is NULL only without memory at the start); on failure it holds what came
 * before it and has n_nodes 0 if that was nothing. `name` is the file for `where` ("name:line"), "" for none; *line is the
 * line of the failure, 0 if it has none. */
TPL_NODISCARD tpl_status tpl_xml_parse(tpl_xml **out, const char *text, size_t len, const char *name, int *line, tpl_err *err);
void tpl_xml_free(tpl_xml *x); /* NULL allowed */

#endif
