/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks that both formats share, and the lists they fill. Every number here may come from a hostile
 * file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ck.h"
#include "model/checkpoint_priv.h"
#include "model/gguf_types.h"

/* -- Memory ---- */

#define BLOCK_BYTES ((uint64_t)64 * 1024)

struct ckpt_block {
    ckpt_block *next;
    uint64_t used, size;
    uint64_t data[]; /* 8-byte aligned */
};

static ckpt_block *new_block(ckpt_block *next, uint64_t size)
{
    uint64_t total;
    ckpt_block *b = ck_add(size, sizeof *b, &total) ? malloc(total) : NULL;
    if (b) *b = (ckpt_block){ next, 0, size };
    return b;
}

void *ckpt_alloc(tpl_checkpoint *cp, uint64_t bytes)
{
    if (!ck_align(bytes, 8, &bytes)) return NULL;
    if (!cp->arena || !ck_range(cp->arena->used, bytes, cp->arena->size)) {
        ckpt_block *b = new_block(cp->arena, bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
        if (!b) return NULL;
        cp->arena = b;
    }
    char *p = (char *)cp->arena->data + cp->arena->used;
    cp->arena->used += bytes;
    return p;
}

bool ckpt_grow(void *list, uint32_t n, uint32_t *cap, uint64_t size)
{
    uint64_t more, bytes;
    if (n < *cap) return true;
    if (!ck_mul(*cap ? *cap : 8, *cap ? 2 : 1, &more) || more > UINT32_MAX || !ck_mul(more, size, &bytes))
        return false;
    void *old, *p;
    memcpy(&old, list, sizeof old);
    p = realloc(old, bytes);
    if (!p) return false;
    memcpy(list, &p, sizeof p);
    *cap = (uint32_t)more;
    return true;
}

tpl_status ckpt_no_memory(const char *name, tpl_err *err)
{
    return tpl_fail(err, TPL_ERR_MEM, 0, name, "out of memory");
}

tpl_status ckpt_add_file(tpl_checkpoint *cp, tpl_file *f, tpl_err *err)
{
    uint64_t n, bytes;
    tpl_status st = TPL_OK;
    ckpt_source *files = NULL;
    if (cp->n_files >= CKPT_MAX_FILES)
        st =
            tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, f->name, "more than %d files in one model", CKPT_MAX_FILES);
    else if (!ck_add(cp->n_files, 1, &n) || !ck_mul(n, sizeof *files, &bytes) ||
             !(files = realloc(cp->files, bytes)))
        st = ckpt_no_memory(f->name, err);
    if (st) {
        tpl_file_close(f);
        return st;
    }
    cp->files = files;
    cp->files[cp->n_files++] = (ckpt_source){ .f = *f };
    *f = (tpl_file)TPL_FILE_CLOSED;
    return TPL_OK;
}

/* -- One tensor ---- */

typedef struct dims_text {
    char s[96];
} dims_text;

static dims_text show_dims(const ckpt_claim *c)
{
    dims_text t = { "[" };
    for (uint32_t i = 0; i < c->n_dims; i++) {
        size_t at = strlen(t.s);
        snprintf(t.s + at, sizeof t.s - at, i ? ",%" PRIu64 : "%" PRIu64, c->dims[i]);
    }
    size_t at = strlen(t.s);
    snprintf(t.s + at, sizeof t.s - at, "]");
    return t;
}

/* Where a claim stands is put into words only now: a million good ones need none. */
static tpl_status refuse(const ckpt_claim *c, tpl_status code, tpl_err *err, const char *fmt, ...)
    TPL_PRINTF(4, 5);
static tpl_status refuse(const ckpt_claim *c, tpl_status code, tpl_err *err, const char *fmt, ...)
{
    char msg[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return tpl_fail(err, code, 0, tpl_where_offset(c->file_name, c->at).s, "%s", msg);
}

static bool is_clean_name(const char *s, size_t len)
{
    const char *end = s + len;
    while (s < end) {
        int n = tpl_utf8_len(s, end);
        if (!n || (unsigned char)*s < 0x20 || *s == 0x7f) return false;
        s += n;
    }
    return true;
}

static tpl_status check_name(const ckpt_claim *c, tpl_err *err)
{
    if (c->name_len == 0 || c->name_len > CKPT_MAX_NAME)
        return refuse(c, TPL_ERR_FORMAT, err, "tensor name of %zu bytes, expected 1 to %d", c->name_len,
                      CKPT_MAX_NAME);
    if (!is_clean_name(c->name, c->name_len))
        return refuse(c, TPL_ERR_FORMAT, err, "tensor name '%.60s' holds control characters or is not UTF-8",
                      c->name);
    return TPL_OK;
}

/* Elements and bytes of a claim whose name and type are good. */
static tpl_status measure(const ckpt_claim *c, uint64_t *bytes, tpl_err *err)
{
    const tpl_stored_type *t = &tpl_stored_types[c->type];
    uint64_t elems = 1, row = c->n_dims ? c->dims[c->n_dims - 1] : 1;
    if (c->n_dims > CKPT_MAX_DIMS)
        return refuse(c, TPL_ERR_FORMAT, err, "tensor '%.60s' has %u dims, at most %d", c->name, c->n_dims,
                      CKPT_MAX_DIMS);
    for (uint32_t i = 0; i < c->n_dims; i++)
        if (c->dims[i] > CKPT_MAX_ELEMS || !ck_mul(elems, c->dims[i], &elems) || elems > CKPT_MAX_ELEMS)
            return refuse(c, TPL_ERR_FORMAT, err,
                          "tensor '%.60s': size overflow, dims %s are more than 2^48 elements", c->name,
                          show_dims(c).s);
    /* GGUF blocks lie within rows; the packed types of safetensors fill the tensor as a whole. */
    if ((t->gguf >= 0 ? row : elems) % t->n_elem)
        return refuse(c, TPL_ERR_FORMAT, err,
                      "tensor '%.60s': dims %s of %s are not whole blocks of %u elements", c->name,
                      show_dims(c).s, t->name, t->n_elem);
    if (!ck_mul(elems / t->n_elem, t->n_bytes, bytes))
        return refuse(c, TPL_ERR_FORMAT, err, "tensor '%.60s': size overflow", c->name);
    if (c->has_bytes && c->bytes != *bytes)
        return refuse(c, TPL_ERR_FORMAT, err,
                      "tensor '%.60s': dims %s of %s are %" PRIu64 " bytes, its offsets give %" PRIu64,
                      c->name, show_dims(c).s, t->name, *bytes, c->bytes);
    return TPL_OK;
}

/* The tensor's absolute begin, when all of it lies in the file. */
static tpl_status locate(const ckpt_source *src, const ckpt_claim *c, uint64_t bytes, uint64_t *begin,
                         tpl_err *err)
{
    uint64_t end;
    if (!ck_add(src->data, c->offset, begin) || !ck_add(*begin, bytes, &end))
        return refuse(c, TPL_ERR_FORMAT, err, "tensor '%.60s': size overflow, offset %" PRIu64, c->name,
                      c->offset);
    if (end > src->f.size)
        return refuse(c, TPL_ERR_FORMAT, err,
                      "tensor '%.60s' takes bytes %" PRIu64 " to %" PRIu64 ", the file is %" PRIu64
                      " bytes short",
                      c->name, *begin, end, end - src->f.size);
    return TPL_OK;
}

static const int64_t *keep_dims(tpl_checkpoint *cp, const ckpt_claim *c)
{
    uint64_t bytes;
    int64_t *dims = ck_mul(c->n_dims, sizeof *dims, &bytes) ? ckpt_alloc(cp, bytes) : NULL;
    for (uint32_t i = 0; dims && i < c->n_dims; i++) dims[i] = (int64_t)c->dims[i];
    return dims;
}

tpl_status ckpt_add_tensor(tpl_checkpoint *cp, uint32_t file, const ckpt_claim *c, tpl_err *err)
{
    uint64_t bytes = 0, begin = 0;
    TPL_TRY(check_name(c, err));
    TPL_TRY(measure(c, &bytes, err));
    TPL_TRY(locate(&cp->files[file], c, bytes, &begin, err));
    if (cp->n_tensors >= CKPT_MAX_TENSORS)
        return refuse(c, TPL_ERR_UNSUPPORTED, err, "more than %d tensors in one model", CKPT_MAX_TENSORS);
    if (!ckpt_grow(&cp->tensors, cp->n_tensors, &cp->cap_tensors, sizeof *cp->tensors))
        return ckpt_no_memory(c->file_name, err);
    const int64_t *dims = NULL;
    if (c->n_dims && !(dims = keep_dims(cp, c))) return ckpt_no_memory(c->file_name, err);
    cp->tensors[cp->n_tensors++] = (tpl_ckpt_tensor){
        .name = c->name,
        .name_len = (uint16_t)c->name_len,
        .dims = dims,
        .n_dims = (uint8_t)c->n_dims,
        .type = (uint8_t)c->type,
        .dtype = (int8_t)tpl_dtype_find(tpl_stored_types[c->type].name),
        .file = (uint16_t)file,
        .offset = begin,
        .bytes = bytes,
    };
    return TPL_OK;
}

/* -- All tensors ---- */

static tpl_str tensor_name(const void *ctx, uint32_t i)
{
    const tpl_ckpt_tensor *t = &((const tpl_checkpoint *)ctx)->tensors[i];
    return (tpl_str){ t->name, t->name_len };
}

static tpl_status index_names(tpl_checkpoint *cp, tpl_err *err)
{
    tpl_names_result r = tpl_names_build(&cp->by_name, cp->n_tensors, tensor_name, cp);
    if (r == TPL_NAMES_NO_MEMORY) return ckpt_no_memory(cp->files[0].f.name, err);
    if (r == TPL_NAMES_OK) return TPL_OK;
    const tpl_ckpt_tensor *a = &cp->tensors[cp->by_name.n_dup_first],
                          *b = &cp->tensors[cp->by_name.n_dup_second];
    const char *name = cp->files[b->file].f.name;
    tpl_where w = tpl_where_key(name, b->name);
    if (a->file == b->file)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, w.s, "duplicate key %.60s: two tensors of one name", b->name);
    return tpl_fail(err, TPL_ERR_FORMAT, 0, w.s, "duplicate key %.60s: also in %.100s", b->name,
                    ckpt_basename(cp->files[a->file].f.name));
}

static int by_position(const void *a, const void *b, void *ctx)
{
    const tpl_ckpt_tensor *x = &((const tpl_ckpt_tensor *)ctx)[*(const uint32_t *)a],
                          *y = &((const tpl_ckpt_tensor *)ctx)[*(const uint32_t *)b];
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* an empty one comes before its neighbour */
}

/* The tensors of one file in the order of their bytes; NULL when they are listed that way already, as writers
 * do. */
static bool sort_by_position(const tpl_ckpt_tensor *t, uint32_t n, uint32_t **order)
{
    uint64_t bytes;
    uint32_t i = 1;
    *order = NULL;
    for (uint32_t zero = 0, one = 1; i < n; i++)
        if (by_position(&zero, &one, (void *)(t + i - 1)) > 0) break;
    if (i >= n) return true;
    *order = ck_mul(n, sizeof **order, &bytes) ? malloc(bytes) : NULL;
    if (!*order) return false;
    for (i = 0; i < n; i++) (*order)[i] = i;
    qsort_r(*order, n, sizeof **order, by_position, (void *)t);
    return true;
}

static tpl_status check_ranges(const ckpt_source *src, const tpl_ckpt_tensor *t, const uint32_t *order,
                               bool tiled, tpl_err *err)
{
    uint64_t at = src->data;
    const char *last = "the header", *name = src->f.name;
    for (uint32_t i = 0; i < src->n; i++) {
        const tpl_ckpt_tensor *x = &t[order ? order[i] : i];
        if (x->offset < at)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_offset(name, x->offset).s,
                            "tensor '%.60s' overlaps '%.60s'", x->name, last);
        if (tiled && x->offset > at)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_offset(name, at).s,
                            "%" PRIu64 " unused bytes between '%.60s' and tensor '%.60s'", x->offset - at,
                            last, x->name);
        if (!ck_add(x->offset, x->bytes, &at))
            return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_offset(name, x->offset).s,
                            "tensor '%.60s': size overflow", x->name);
        last = x->name;
    }
    if (tiled && at != src->f.size)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_offset(name, at).s,
                        "%" PRIu64 " unused bytes after '%.60s'", src->f.size - at, last);
    return TPL_OK;
}

tpl_status ckpt_finish(tpl_checkpoint *cp, bool tiled, tpl_err *err)
{
    TPL_TRY(index_names(cp, err));
    for (uint32_t i = 0; i < cp->n_files; i++) {
        const ckpt_source *src = &cp->files[i];
        const tpl_ckpt_tensor *t = cp->tensors ? cp->tensors + src->first : NULL;
        uint32_t *order;
        if (!sort_by_position(t, src->n, &order)) return ckpt_no_memory(src->f.name, err);
        tpl_status st = check_ranges(src, t, order, tiled, err);
        free(order);
        TPL_TRY(st);
    }
    return TPL_OK;
}
