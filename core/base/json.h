/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON documents in memory, by Jansson: strict UTF-8, no duplicate keys, strings may hold NUL (keys may not),
 * objects iterate in file order, nesting is bounded before the parser recurses. Integers outside int64 become
 * reals. The large tables of model files (a safetensors header, an index) are read by base/jscan.h instead,
 * without a tree. A json_t has one owner thread.
 */
#ifndef TPL_BASE_JSON_H
#define TPL_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define TPL_JSON_DEPTH 64 /* nesting that is accepted unless the caller says otherwise */

/* Parses exactly one value. `name` is the file or object for `where` ("name:line"). max_depth is 1..512, 0
 * means TPL_JSON_DEPTH. The caller owns *out (json_decref). */
TPL_NODISCARD tpl_status tpl_json_parse(json_t **out, const char *text, size_t len, int max_depth,
                                        const char *name, tpl_err *err);
/* The same for a file of at most max_bytes. */
TPL_NODISCARD tpl_status tpl_json_load(json_t **out, const char *path, uint64_t max_bytes, tpl_err *err);

/* Present and not null. */
bool tpl_json_has(const json_t *obj, const char *key);

/* One member of an object, which must be there and of this type and range; else TPL_ERR_FORMAT with `where` =
 * "name:key". For an optional member ask tpl_json_has first. Borrowed results live as long as obj.
 * tpl_json_num takes integers too. */
TPL_NODISCARD tpl_status tpl_json_int(const json_t *obj, const char *key, const char *name, int64_t min,
                                      int64_t max, int64_t *out, tpl_err *err);
TPL_NODISCARD tpl_status tpl_json_num(const json_t *obj, const char *key, const char *name, double *out,
                                      tpl_err *err);
TPL_NODISCARD tpl_status tpl_json_bool(const json_t *obj, const char *key, const char *name, bool *out,
                                       tpl_err *err);
TPL_NODISCARD tpl_status tpl_json_str(const json_t *obj, const char *key, const char *name, tpl_str *out,
                                      tpl_err *err);
TPL_NODISCARD tpl_status tpl_json_obj(const json_t *obj, const char *key, const char *name, json_t **out,
                                      tpl_err *err);
TPL_NODISCARD tpl_status tpl_json_arr(const json_t *obj, const char *key, const char *name, json_t **out,
                                      tpl_err *err);

/* The shortest decimal text that reads back as x, as "%.{p}g" writes it with the smallest such p. x must be
 * finite. */
typedef struct tpl_num_text {
    char s[32];
} tpl_num_text;
tpl_num_text tpl_json_shortest(double x);
/* x as Python's repr(float) writes it: 1.0, 1e+16, 0.0001, 1e-05, nan, inf. */
tpl_num_text tpl_json_pyrepr(double x);

#endif
