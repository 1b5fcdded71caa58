/* SPDX-License-Identifier: Apache-2.0
 *
 * The GGUF reader (facts/models.md 3.2). A header has no stated length, so the file is read in steps as the
 * parser advances; the buffer never holds more than the file does, and no count or length in it is believed
 * before that many bytes are known to follow.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ck.h"
#include "model/checkpoint_priv.h"
#include "model/gguf_types.h"

#define STEP_BYTES ((uint64_t)256 * 1024)
#define MAX_STRING ((uint64_t)1 << 30)
#define MAX_ARRAY ((uint64_t)1 << 30)
enum {
    MIN_KV = 13,
    MIN_TENSOR = 24,
    MAX_KEY = 65535,
    MAX_TENSOR_NAME = 63,
    MAX_RANK = 4,
    DEFAULT_ALIGN = 32,
    MAX_ALIGN = 65536
};

typedef struct reader {
    tpl_checkpoint *cp;
    const tpl_file *f;
    char *buf;
    uint64_t have, cap, at; /* bytes read, room, position */
    uint64_t n_tensors, n_kvs, align;
    tpl_kv *kvs;
    uint32_t n, cap_kvs;
    tpl_names by_key;
} reader;

/* -- Bytes ---- */

static tpl_status fail(const reader *r, tpl_status code, tpl_err *err, const char *fmt, ...) TPL_PRINTF(4, 5);
static tpl_status fail(const reader *r, tpl_status code, tpl_err *err, const char *fmt, ...)
{
    char msg[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return tpl_fail(err, code, 0, tpl_where_offset(r->f->name, r->at).s, "%s", msg);
}

static tpl_status make_room(reader *r, uint64_t end, tpl_err *err)
{
    uint64_t cap = r->cap ? r->cap : STEP_BYTES;
    if (end <= r->cap) return TPL_OK;
    while (cap < end)
        if (!ck_mul(cap, 2, &cap)) return ckpt_no_memory(r->f->name, err);
    if (cap > r->f->size) cap = r->f->size;
    char *buf = realloc(r->buf, cap);
    if (!buf) return ckpt_no_memory(r->f->name, err);
    r->buf = buf;
    r->cap = cap;
    return TPL_OK;
}

/* The next n bytes are in the buffer, or the file is too short: `what` says for what. */
static tpl_status need(reader *r, uint64_t n, const char *what, tpl_err *err)
{
    uint64_t end, target;
    if (!ck_range(r->at, n, r->f->size) || !ck_add(r->at, n, &end))
        return fail(r, TPL_ERR_FORMAT, err, "%s of %" PRIu64 " bytes, only %" PRIu64 " are left in the file",
                    what, n, r->f->size - r->at);
    if (end <= r->have) return TPL_OK;
    if (!ck_add(r->have, STEP_BYTES, &target) || target < end) target = end;
    if (target > r->f->size) target = r->f->size;
    TPL_TRY(make_room(r, target, err));
    TPL_TRY(tpl_file_read(r->f, r->have, target - r->have, r->buf + r->have, err));
    r->have = target;
    return TPL_OK;
}

static tpl_status take(reader *r, int n, uint64_t *out, const char *what, tpl_err *err)
{
    TPL_TRY(need(r, (uint64_t)n, what, err));
    *out = 0;
    for (int i = n - 1; i >= 0; i--) *out = *out << 8 | (unsigned char)r->buf[r->at + (uint64_t)i];
    r->at += (uint64_t)n;
    return TPL_OK;
}

/* Length and bytes; *s points into the buffer until the next read. */
static tpl_status take_string(reader *r, tpl_str *s, uint64_t max, const char *what, tpl_err *err)
{
    uint64_t len;
    TPL_TRY(take(r, 8, &len, what, err));
    if (len > max)
        return fail(r, TPL_ERR_FORMAT, err, "%s of %" PRIu64 " bytes, at most %" PRIu64, what, len, max);
    TPL_TRY(need(r, len, what, err));
    *s = (tpl_str){ r->buf + r->at, (size_t)len };
    r->at += len;
    return TPL_OK;
}

static tpl_status keep_string(reader *r, tpl_str s, const char **out, tpl_err *err)
{
    uint64_t bytes;
    char *p = ck_add(s.len, 1, &bytes) ? ckpt_alloc(r->cp, bytes) : NULL;
    if (!p) return ckpt_no_memory(r->f->name, err);
    memcpy(p, s.s, s.len);
    p[s.len] = 0;
    *out = p;
    return TPL_OK;
}

/* -- Keys and values ---- */

static int scalar_bytes(uint64_t type)
{
    static const int8_t size[TPL_N_KV_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return size[type];
}

static tpl_status skip_strings(reader *r, uint64_t n, const char *key, tpl_err *err)
{
    tpl_str s;
    uint64_t least;
    if (!ck_mul(n, 8, &least) || !ck_range(r->at, least, r->f->size))
        return fail(r, TPL_ERR_FORMAT, err,
                    "'%.60s': array of %" PRIu64 " strings does not fit into the file", key, n);
    for (uint64_t i = 0; i < n; i++) TPL_TRY(take_string(r, &s, MAX_STRING, "string", err));
    return TPL_OK;
}

static tpl_status skip_scalars(reader *r, tpl_kv *kv, uint64_t n, tpl_err *err)
{
    uint64_t bytes;
    if (!ck_mul(n, (uint64_t)scalar_bytes(kv->type), &bytes))
        return fail(r, TPL_ERR_FORMAT, err, "'%.60s': size overflow, array of %" PRIu64, kv->key, n);
    if (!ck_range(r->at, bytes, r->f->size))
        return fail(r, TPL_ERR_FORMAT, err, "'%.60s': %s%" PRIu64 " of %s does not fit into the file",
                    kv->key, kv->is_array ? "array of " : "", n, tpl_kv_type_name(kv));
    TPL_TRY(need(r, bytes, "value", err));
    for (uint64_t i = 0; kv->type == TPL_KV_BOOL && i < n; i++)
        if ((unsigned char)r->buf[r->at + i] > 1)
            return fail(r, TPL_ERR_FORMAT, err, "'%.60s': a bool that is neither 0 nor 1", kv->key);
    r->at += bytes;
    return TPL_OK;
}

static tpl_status take_value(reader *r, tpl_kv *kv, tpl_err *err)
{
    uint64_t type, n = 1;
    TPL_TRY(take(r, 4, &type, "value type", err));
    kv->is_array = type == TPL_KV_ARRAY;
    if (kv->is_array) {
        TPL_TRY(take(r, 4, &type, "element type", err));
        TPL_TRY(take(r, 8, &n, "array length", err));
        if (type == TPL_KV_ARRAY)
            return fail(r, TPL_ERR_UNSUPPORTED, err, "'%.60s' is an array of arrays", kv->key);
        if (n > MAX_ARRAY)
            return fail(r, TPL_ERR_FORMAT, err, "'%.60s': array of %" PRIu64 ", at most 2^30", kv->key, n);
    }
    if (type >= TPL_N_KV_TYPES)
        return fail(r, TPL_ERR_FORMAT, err, "'%.60s' has value type %" PRIu64 ", which GGUF does not define",
                    kv->key, type);
    kv->type = (uint8_t)type;
    kv->n = n;
    uint64_t from = r->at;
    TPL_TRY(type == TPL_KV_STR ? skip_strings(r, n, kv->key, err) : skip_scalars(r, kv, n, err));
    kv->data =
        (const unsigned char *)(uintptr_t)from; /* an offset until the buffer stops moving, see settle */
    kv->bytes = r->at - from;
    return TPL_OK;
}

static tpl_status take_key(reader *r, const char **out, tpl_err *err)
{
    tpl_str s;
    TPL_TRY(take_string(r, &s, MAX_KEY, "key", err));
    if (!s.len) return fail(r, TPL_ERR_FORMAT, err, "an empty key");
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.s[i] < 0x20 || (unsigned char)s.s[i] > 0x7e)
            return fail(r, TPL_ERR_FORMAT, err, "a key that is not printable ASCII");
    return keep_string(r, s, out, err);
}

static tpl_str key_of(const void *ctx, uint32_t i)
{
    const tpl_kv *kv = &((const reader *)ctx)->kvs[i];
    return (tpl_str){ kv->key, strlen(kv->key) };
}

static tpl_status take_kvs(reader *r, tpl_err *err)
{
    for (uint64_t i = 0; i < r->n_kvs; i++) {
        tpl_kv kv = { 0 };
        TPL_TRY(take_key(r, &kv.key, err));
        TPL_TRY(take_value(r, &kv, err));
        if (!ckpt_grow(&r->kvs, r->n, &r->cap_kvs, sizeof *r->kvs)) return ckpt_no_memory(r->f->name, err);
        r->kvs[r->n++] = kv;
    }
    tpl_names_result res = tpl_names_build(&r->by_key, r->n, key_of, r);
    if (res == TPL_NAMES_NO_MEMORY) return ckpt_no_memory(r->f->name, err);
    if (res == TPL_NAMES_OK) return TPL_OK;
    const char *key = r->kvs[r->by_key.n_dup_second].key;
    return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_key(r->f->name, key).s, "duplicate key %.60s", key);
}

/* A key of this file as an unsigned number of any width; *out stays as it is when the key is absent. The
 * buffer may still move, so the value is copied into a tpl_kv that points at it now. */
static tpl_status number_key(const reader *r, const char *key, uint64_t *out, tpl_err *err)
{
    int64_t i = tpl_names_find(&r->by_key, key_of, r, key, strlen(key));
    if (i < 0) return TPL_OK;
    tpl_kv kv = r->kvs[i];
    kv.data = (const unsigned char *)r->buf + (uintptr_t)kv.data;
    if (kv.is_array || !tpl_kv_u64(&kv, 0, out))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_key(r->f->name, key).s,
                        "'%s' is %s%s, expected an unsigned integer", key, kv.is_array ? "an array of " : "",
                        tpl_kv_type_name(&kv));
    return TPL_OK;
}

static tpl_status take_alignment(reader *r, tpl_err *err)
{
    static const char key[] = "general.alignment";
    int64_t i = tpl_names_find(&r->by_key, key_of, r, key, strlen(key));
    r->align = DEFAULT_ALIGN;
    if (i < 0) return TPL_OK;
    tpl_where w = tpl_where_key(r->f->name, key);
    if (r->kvs[i].is_array || r->kvs[i].type != TPL_KV_U32)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, w.s, "'%s' is %s, expected u32", key,
                        tpl_kv_type_name(&r->kvs[i]));
    TPL_TRY(number_key(r, key, &r->align, err));
    if (r->align < 1 || r->align > MAX_ALIGN || (r->align & (r->align - 1)))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, w.s, "'%s' is %" PRIu64 ", expected a power of two up to %d",
                        key, r->align, MAX_ALIGN);
    return TPL_OK;
}

/* -- Header and tensors ---- */

static tpl_status take_header(reader *r, tpl_err *err)
{
    uint64_t magic, version;
    TPL_TRY(take(r, 4, &magic, "magic", err));
    if (magic != 0x46554747) { /* "GGUF" */
        r->at = 0;
        return fail(r, TPL_ERR_FORMAT, err, "no GGUF file: it does not begin with GGUF");
    }
    TPL_TRY(take(r, 4, &version, "version", err));
    if ((version & 0xFFFF) == 0) return fail(r, TPL_ERR_UNSUPPORTED, err, "GGUF of the other byte order");
    if (version != 2 && version != 3)
        return fail(r, TPL_ERR_UNSUPPORTED, err, "GGUF version %" PRIu64 ", expected 2 or 3", version);
    TPL_TRY(take(r, 8, &r->n_tensors, "number of tensors", err));
    TPL_TRY(take(r, 8, &r->n_kvs, "number of keys", err));
    uint64_t left = r->f->size - r->at;
    if (r->n_tensors > left / MIN_TENSOR)
        return fail(r, TPL_ERR_FORMAT, err,
                    "%" PRIu64 " tensors do not fit into the %" PRIu64 " bytes that follow", r->n_tensors,
                    left);
    if (r->n_kvs > left / MIN_KV)
        return fail(r, TPL_ERR_FORMAT, err,
                    "%" PRIu64 " keys do not fit into the %" PRIu64 " bytes that follow", r->n_kvs, left);
    if (r->n_tensors > CKPT_MAX_TENSORS || r->n_kvs > CKPT_MAX_KVS)
        return fail(r, TPL_ERR_UNSUPPORTED, err,
                    "%" PRIu64 " tensors and %" PRIu64 " keys, at most %d and %d", r->n_tensors, r->n_kvs,
                    CKPT_MAX_TENSORS, CKPT_MAX_KVS);
    return TPL_OK;
}

/* dims in file order are fastest first; here slowest first. */
static tpl_status take_dims(reader *r, const char *name, uint64_t *dims, uint32_t *n_dims, tpl_err *err)
{
    uint64_t n;
    TPL_TRY(take(r, 4, &n, "number of dims", err));
    if (n > MAX_RANK)
        return fail(r, TPL_ERR_FORMAT, err, "tensor '%.60s' has %" PRIu64 " dims, at most %d", name, n,
                    MAX_RANK);
    for (uint64_t i = n; i-- > 0;) {
        TPL_TRY(take(r, 8, &dims[i], "dim", err));
        if (dims[i] == 0)
            return fail(r, TPL_ERR_FORMAT, err, "tensor '%.60s': a dim is 0, expected 1 or more", name);
    }
    *n_dims = (uint32_t)n;
    return TPL_OK;
}

static tpl_status take_type(reader *r, const char *name, int *type, tpl_err *err)
{
    uint64_t id;
    TPL_TRY(take(r, 4, &id, "tensor type", err));
    *type = tpl_stored_type_from_gguf((uint32_t)id);
    if (*type >= 0) return TPL_OK;
    if (tpl_gguf_type_was_removed((uint32_t)id))
        return fail(r, TPL_ERR_UNSUPPORTED, err,
                    "tensor '%.60s' has type %" PRIu64 ", which was removed from GGUF", name, id);
    return fail(r, TPL_ERR_UNSUPPORTED, err, "tensor '%.60s' has type %" PRIu64 ", which is not known", name,
                id);
}

/* The infos come before the data starts, so ranges are checked in a second pass: until then offset is as in
 * the file. */
static tpl_status take_info(reader *r, ckpt_claim *c, uint64_t dims[MAX_RANK], tpl_err *err)
{
    tpl_str name;
    const char *kept = NULL;
    TPL_TRY(take_string(r, &name, MAX_TENSOR_NAME, "tensor name", err));
    TPL_TRY(keep_string(r, name, &kept, err));
    *c = (ckpt_claim){ .name = kept, .name_len = name.len, .dims = dims };
    TPL_TRY(take_dims(r, kept, dims, &c->n_dims, err));
    TPL_TRY(take_type(r, kept, &c->type, err));
    return take(r, 8, &c->offset, "tensor offset", err);
}

static tpl_status skip_infos(reader *r, tpl_err *err)
{
    for (uint64_t i = 0; i < r->n_tensors; i++) {
        uint64_t n;
        tpl_str name;
        TPL_TRY(take_string(r, &name, MAX_TENSOR_NAME, "tensor name", err));
        TPL_TRY(take(r, 4, &n, "number of dims", err));
        if (n > MAX_RANK)
            return fail(r, TPL_ERR_FORMAT, err, "tensor '%.*s' has %" PRIu64 " dims, at most %d",
                        (int)name.len, name.s, n, MAX_RANK);
        TPL_TRY(need(r, n * 8 + 12, "tensor description", err));
        r->at += n * 8 + 12;
    }
    return TPL_OK;
}

static tpl_status take_tensors(reader *r, uint32_t file, tpl_err *err)
{
    ckpt_source *src = &r->cp->files[file];
    uint64_t infos = r->at, dims[MAX_RANK];
    ckpt_claim c;
    TPL_TRY(skip_infos(r, err));
    if (!ck_align(r->at, r->align, &src->data))
        return fail(r, TPL_ERR_FORMAT, err, "size overflow, alignment %" PRIu64, r->align);
    src->first = r->cp->n_tensors;
    r->at = infos;
    for (uint64_t i = 0; i < r->n_tensors; i++) {
        uint64_t at = r->at;
        TPL_TRY(take_info(r, &c, dims, err));
        c.file_name = r->f->name;
        c.at = at;
        if (c.offset % r->align)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_offset(r->f->name, at).s,
                            "tensor '%.60s': offset %" PRIu64 " is not a multiple of %" PRIu64, c.name,
                            c.offset, r->align);
        TPL_TRY(ckpt_add_tensor(r->cp, file, &c, err));
    }
    src->n = r->cp->n_tensors - src->first;
    return TPL_OK;
}

static tpl_status read_header(reader *r, uint32_t file, tpl_err *err)
{
    r->f = &r->cp->files[file].f;
    TPL_TRY(take_header(r, err));
    TPL_TRY(take_kvs(r, err));
    TPL_TRY(take_alignment(r, err));
    return take_tensors(r, file, err);
}

/* The header is complete: hands buffer and keys of the first file to cp, and turns offsets into pointers. */
static void settle(reader *r)
{
    char *head = r->at ? realloc(r->buf, r->at) : NULL;
    if (!head) head = r->buf;
    for (uint32_t i = 0; i < r->n; i++)
        r->kvs[i].data = (const unsigned char *)head + (uintptr_t)r->kvs[i].data;
    r->cp->files[0].head = head;
    r->cp->kvs = r->kvs;
    r->cp->n_kvs = r->n;
    r->cp->by_key = r->by_key;
    r->buf = NULL;
    r->kvs = NULL;
    r->by_key.slots = NULL;
}

static void release(reader *r)
{
    free(r->buf);
    free(r->kvs);
    tpl_names_free(&r->by_key);
}

/* -- Split files: name-00001-of-0000N.gguf ---- */

typedef struct split {
    uint64_t no, count, n_tensors;
} split;

static tpl_status read_split_keys(const reader *r, split *s, tpl_err *err)
{
    *s = (split){ 0, 1, UINT64_MAX };
    TPL_TRY(number_key(r, "split.no", &s->no, err));
    TPL_TRY(number_key(r, "split.count", &s->count, err));
    TPL_TRY(number_key(r, "split.tensors.count", &s->n_tensors, err));
    if (s->count <= 1) *s = (split){ 0, 1, UINT64_MAX };
    return TPL_OK;
}

/* Where the five digits of the part's number are in a path that ends in -NNNNN-of-`count`.gguf; -1 for
 * another path. */
static int64_t part_digits(const char *path, uint64_t count)
{
    char tail[32];
    size_t n = strlen(path), m = (size_t)snprintf(tail, sizeof tail, "-of-%05u.gguf", (unsigned)count);
    if (n < m + 6 || strcmp(path + n - m, tail) || path[n - m - 6] != '-' ||
        strspn(path + n - m - 5, "0123456789") != 5)
        return -1;
    return (int64_t)(n - m - 5);
}

/* The path of part `no` (from 1); NULL: no memory. */
static char *part_path(const char *path, int64_t digits, uint64_t no)
{
    char number[24], *s = strdup(path);
    snprintf(number, sizeof number, "%05" PRIu64, no);
    if (s) memcpy(s + digits, number, 5);
    return s;
}

/* Opens part `no` (from 0) of the set and reads its header into r. */
static tpl_status read_part(tpl_checkpoint *cp, const char *path, uint64_t no, reader *r, split *s,
                            tpl_err *err)
{
    tpl_file f;
    uint64_t count = s->count, n_tensors = s->n_tensors;
    int64_t digits = part_digits(path, count);
    if (digits < 0)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, path,
                        "one of %" PRIu64 " parts, but not named NAME-00001-of-%05" PRIu64 ".gguf", count,
                        count);
    char *name = part_path(path, digits, no + 1);
    if (!name) return ckpt_no_memory(path, err);
    tpl_status st = tpl_file_open(&f, name, err);
    free(name);
    TPL_TRY(st);
    TPL_TRY(ckpt_add_file(cp, &f, err));
    *r = (reader){ .cp = cp };
    TPL_TRY(read_header(r, cp->n_files - 1, err));
    TPL_TRY(read_split_keys(r, s, err));
    if (s->no != no || s->count != count)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, r->f->name,
                        "says it is part %" PRIu64 " of %" PRIu64 ", expected part %" PRIu64 " of %" PRIu64,
                        s->no, s->count, no, count);
    if (n_tensors != UINT64_MAX && s->n_tensors != n_tensors)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, r->f->name, "split.tensors.count differs between the parts");
    return TPL_OK;
}

/* Forgets what was read of a single file, so that a set can be read from its first part on. */
static void start_over(tpl_checkpoint *cp)
{
    for (uint32_t i = 0; i < cp->n_files; i++) tpl_file_close(&cp->files[i].f);
    cp->n_files = 0;
    cp->n_tensors = 0;
}

static tpl_status read_set(tpl_checkpoint *cp, const char *path, split s, tpl_err *err)
{
    tpl_status st = TPL_OK;
    if (s.count > CKPT_MAX_FILES)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, path, "%" PRIu64 " parts, at most %d", s.count,
                        CKPT_MAX_FILES);
    for (uint64_t no = 0, count = s.count; no < count && !st; no++) {
        reader r = { 0 };
        st = read_part(cp, path, no, &r, &s, err);
        if (!st && no == 0) settle(&r);
        release(&r);
    }
    if (!st && s.n_tensors != cp->n_tensors)
        st = tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_key(path, "split.tensors.count").s,
                      "the parts hold %u tensors, split.tensors.count is %" PRIu64, cp->n_tensors,
                      s.n_tensors);
    return st;
}

tpl_status ckpt_read_gguf(tpl_checkpoint *cp, tpl_err *err)
{
    reader r = { .cp = cp };
    split s = { 0, 1, UINT64_MAX };
    cp->kind = TPL_CHECKPOINT_GGUF;
    tpl_status st = read_header(&r, 0, err);
    if (!st) st = read_split_keys(&r, &s, err);
    if (!st && s.count <= 1) settle(&r);
    release(&r);
    if (st || s.count <= 1) return st;
    char *path = strdup(cp->files[0].f.name);
    if (!path) return ckpt_no_memory(cp->folder, err);
    s.n_tensors = UINT64_MAX; /* the first part decides */
    start_over(cp);
    st = read_set(cp, path, s, err);
    free(path);
    return st;
}
