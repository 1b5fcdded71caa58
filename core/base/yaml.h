/* SPDX-License-Identifier: Apache-2.0
 *
 * YAML as data, by the events of libyaml: what JSON can say and no more. Scalars mean what the core schema of YAML 1.2
 * says (null, true, whole numbers below 2^53, numbers; quoted = text; `yes` and `on` are texts). Refused, with the line:
 * anchors and aliases, duplicate keys, tags of one's own, .nan and .inf, too deep, too large. A value is a json_t tree
 * (base/json.h), with one owner thread.
 */
#ifndef TPL_BASE_YAML_H
#define TPL_BASE_YAML_H

#include <jansson.h>

#include "base/err.h"

#define TPL_YAML_DEPTH 64                      /* nesting that is accepted unless the caller says otherwise */
#define TPL_YAML_MAX_BYTES ((size_t)64 << 20) /* longest text */

/* Parses a text of exactly one document. `name` is the file for `where` ("name:line"), "" for none. max_depth is 1..512,
 * 0 means TPL_YAML_DEPTH. The caller owns *out (json_decref). */
TPL_NODISCARD tpl_status tpl_yaml_parse(json_t **out, const char *text, size_t len, int max_depth, const char *name,
                                        tpl_err *err);
/* The same for a stream of documents (a Kubernetes manifest): *out is the array of them, empty for an empty text. */
TPL_NODISCARD tpl_status tpl_yaml_parse_all(json_t **out, const char *text, size_t len, int max_depth, const char *name,
                                            tpl_err *err);

/* The line (from 1) in which the value at `path` begins, for messages about a text that was parsed before: paths are
 * written as "devices[2].name", indices from 1. 0 when there is none. */
int tpl_yaml_line(const char *text, size_t len, const char *path);

#endif
