/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors reader (facts/models.md 3.1): u64 length, JSON header, data without holes. The header is
 * scanned in place, so names are not copied and a million entries take 50 bytes each.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ck.h"
#include "base/jscan.h"
#include "model/checkpoint_priv.h"
#include "model/gguf_types.h"

enum { MAX_METADATA = 65536 };

/* -- __metadata__: checked, not kept ---- */

typedef struct key_list {
    tpl_str *keys;
    uint32_t n, cap;
} key_list;

static tpl_str key_of(const void *ctx, uint32_t i)
{
    return ((const key_list *)ctx)->keys[i];
}

static tpl_status scan_strings(tpl_jscan *s, key_list *list, tpl_err *err)
{
    uint32_t n = 0;
    bool more;
    tpl_str key, value;
    TPL_TRY(tpl_jscan_eat(s, '{', err));
    for (;;) {
        TPL_TRY(tpl_jscan_next(s, '}', &n, &more, err));
        if (!more) return TPL_OK;
        TPL_TRY(tpl_jscan_key(s, &key, err));
        if (tpl_jscan_peek(s) != '"')
            return tpl_jscan_fail(s, err, "__metadata__ '%.60s' is not a string", key.s);
        TPL_TRY(tpl_jscan_string(s, &value, err));
        if (n > MAX_METADATA)
            return tpl_jscan_fail(s, err, "__metadata__ has more than %d keys", MAX_METADATA);
        if (!ckpt_grow(&list->keys, list->n, &list->cap, sizeof *list->keys))
            return ckpt_no_memory(s->name, err);
        list->keys[list->n++] = key;
    }
}

static tpl_status scan_metadata(tpl_jscan *s, tpl_err *err)
{
    key_list list = { 0 };
    tpl_names names = { 0 };
    tpl_status st = scan_strings(s, &list, err);
    tpl_names_result res = st ? TPL_NAMES_OK : tpl_names_build(&names, list.n, key_of, &list);
    if (res == TPL_NAMES_NO_MEMORY) st = ckpt_no_memory(s->name, err);
    if (res == TPL_NAMES_DUPLICATE)
        st = tpl_jscan_fail(s, err, "duplicate key %.60s in __metadata__", list.keys[names.n_dup_second].s);
    tpl_names_free(&names);
    free(list.keys);
    return st;
}

/* -- One entry: {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]} ---- */

static tpl_status scan_numbers(tpl_jscan *s, const char *name, uint64_t *out, uint32_t max, uint32_t *n,
                               tpl_err *err)
{
    bool more;
    *n = 0;
    TPL_TRY(tpl_jscan_eat(s, '[', err));
    for (;;) {
        TPL_TRY(tpl_jscan_next(s, ']', n, &more, err));
        if (!more) return TPL_OK;
        if (*n > max)
            return tpl_jscan_fail(s, err, "tensor '%.60s': a list of more than %u numbers", name, max);
        TPL_TRY(tpl_jscan_uint(s, &out[*n - 1], err));
    }
}

static tpl_status scan_type(tpl_jscan *s, ckpt_claim *c, tpl_err *err)
{
    tpl_str type;
    TPL_TRY(tpl_jscan_string(s, &type, err));
    c->type = tpl_stored_type_from_safetensors(type.s);
    if (c->type >= 0) return TPL_OK;
    return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0,
                    tpl_where_offset(s->name, s->base + (uint64_t)(s->p - s->start)).s,
                    "tensor '%.60s' has dtype '%.20s', which is not known", c->name, type.s);
}

static tpl_status scan_offsets(tpl_jscan *s, ckpt_claim *c, tpl_err *err)
{
    uint64_t range[2];
    uint32_t n;
    TPL_TRY(scan_numbers(s, c->name, range, 2, &n, err));
    if (n != 2 || range[0] > range[1])
        return tpl_jscan_fail(s, err, "tensor '%.60s': data_offsets are no range", c->name);
    c->offset = range[0];
    c->has_bytes = true;
    c->bytes = range[1] - range[0];
    return TPL_OK;
}

/* Exactly the three fields, each once. dims has room for CKPT_MAX_DIMS. */
static tpl_status scan_entry(tpl_jscan *s, ckpt_claim *c, uint64_t *dims, tpl_err *err)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    uint32_t n = 0;
    int seen = 0;
    bool more;
    TPL_TRY(tpl_jscan_eat(s, '{', err));
    for (;;) {
        tpl_str key;
        TPL_TRY(tpl_jscan_next(s, '}', &n, &more, err));
        if (!more) break;
        TPL_TRY(tpl_jscan_key(s, &key, err));
        int field = !strcmp(key.s, "dtype")          ? DTYPE
                    : !strcmp(key.s, "shape")        ? SHAPE
                    : !strcmp(key.s, "data_offsets") ? OFFSETS
                                                     : 0;
        if (!field)
            return tpl_jscan_fail(s, err, "tensor '%.60s' has the field '%.20s', which is not known", c->name,
                                  key.s);
        if (seen & field) return tpl_jscan_fail(s, err, "duplicate key %s in tensor '%.60s'", key.s, c->name);
        seen |= field;
        if (field == DTYPE) TPL_TRY(scan_type(s, c, err));
        if (field == SHAPE) TPL_TRY(scan_numbers(s, c->name, dims, CKPT_MAX_DIMS, &c->n_dims, err));
        if (field == OFFSETS) TPL_TRY(scan_offsets(s, c, err));
    }
    if (seen != (DTYPE | SHAPE | OFFSETS))
        return tpl_jscan_fail(s, err, "tensor '%.60s' lacks dtype, shape or data_offsets", c->name);
    return TPL_OK;
}

/* -- The header ---- */

static tpl_status scan_header(tpl_checkpoint *cp, uint32_t file, tpl_jscan *s, tpl_err *err)
{
    uint32_t n = 0;
    bool more, has_metadata = false;
    uint64_t dims[CKPT_MAX_DIMS];
    TPL_TRY(tpl_jscan_eat(s, '{', err));
    for (;;) {
        tpl_str name;
        TPL_TRY(tpl_jscan_next(s, '}', &n, &more, err));
        if (!more) break;
        uint64_t at = s->base + (uint64_t)(s->p - s->start);
        TPL_TRY(tpl_jscan_key(s, &name, err));
        if (!strcmp(name.s, "__metadata__")) {
            if (has_metadata) return tpl_jscan_fail(s, err, "duplicate key __metadata__");
            has_metadata = true;
            TPL_TRY(scan_metadata(s, err));
            continue;
        }
        ckpt_claim c = { .name = name.s, .name_len = name.len, .dims = dims, .file_name = s->name, .at = at };
        TPL_TRY(scan_entry(s, &c, dims, err));
        TPL_TRY(ckpt_add_tensor(cp, file, &c, err));
    }
    if (tpl_jscan_peek(s) || s->p < s->end)
        return tpl_jscan_fail(s, err, "text after the header's JSON object");
    return TPL_OK;
}

/* Reads the length and the JSON text; the text is followed by a NUL and owned by the source. */
static tpl_status load_header(ckpt_source *src, uint64_t *len, tpl_err *err)
{
    unsigned char raw[8];
    uint64_t room;
    if (src->f.size < 8)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, src->f.name,
                        "has %" PRIu64 " bytes: neither GGUF nor safetensors", src->f.size);
    TPL_TRY(tpl_file_read(&src->f, 0, 8, raw, err));
    *len = 0;
    for (int i = 7; i >= 0; i--) *len = *len << 8 | raw[i];
    tpl_where w = tpl_where_offset(src->f.name, 0);
    if (*len > CKPT_MAX_HEADER || !ck_add(8, *len, &src->data))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, w.s,
                        "neither GGUF nor safetensors: a header of %" PRIu64 " bytes, at most %d", *len,
                        CKPT_MAX_HEADER);
    if (src->data > src->f.size)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, w.s,
                        "a header of %" PRIu64 " bytes, the file is %" PRIu64 " bytes short", *len,
                        src->data - src->f.size);
    if (!ck_add(*len, 1, &room) || !(src->head = malloc(room))) return ckpt_no_memory(src->f.name, err);
    TPL_TRY(tpl_file_read(&src->f, 8, *len, src->head, err));
    src->head[*len] = 0;
    if (src->head[0] != '{')
        return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_offset(src->f.name, 8).s,
                        "neither GGUF nor safetensors: the header is no JSON object");
    return TPL_OK;
}

tpl_status ckpt_read_safetensors(tpl_checkpoint *cp, uint32_t file, tpl_err *err)
{
    ckpt_source *src = &cp->files[file];
    uint64_t len = 0;
    TPL_TRY(load_header(src, &len, err));
    src->first = cp->n_tensors;
    tpl_jscan s = { src->head, src->head, src->head + len, 8, src->f.name };
    TPL_TRY(scan_header(cp, file, &s, err));
    src->n = cp->n_tensors - src->first;
    return TPL_OK;
}
