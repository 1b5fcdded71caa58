/* SPDX-License-Identifier: Apache-2.0 */
#include "model/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ck.h"
#include "model/checkpoint_priv.h"
#include "model/gguf_types.h"

/* -- Opening ---- */

/* ckpt_block's first member links to the next block. */
static void free_arena(ckpt_block *b)
{
    while (b) {
        ckpt_block *next = *(ckpt_block **)b;
        free(b);
        b = next;
    }
}

void tpl_checkpoint_close(tpl_checkpoint *cp)
{
    if (!cp) return;
    for (uint32_t i = 0; i < cp->n_files; i++) {
        free(cp->files[i].head);
        tpl_file_close(&cp->files[i].f);
    }
    tpl_names_free(&cp->by_name);
    tpl_names_free(&cp->by_key);
    free_arena(cp->arena);
    free(cp->files);
    free(cp->tensors);
    free(cp->kvs);
    free(cp->folder);
    free(cp->warning);
    free(cp);
}

const char *ckpt_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *ckpt_join(const char *folder, const char *base)
{
    uint64_t bytes;
    size_t n = strlen(folder), m = strlen(base);
    if (!ck_add(n, m, &bytes) || !ck_add(bytes, 2, &bytes)) return NULL;
    char *s = malloc(bytes);
    if (!s) return NULL;
    memcpy(s, folder, n);
    if (n && folder[n - 1] != '/') s[n++] = '/';
    memcpy(s + n, base, m + 1);
    return s;
}

/* What dirname(3) gives, for a path that names a file. */
static char *folder_of(const char *path)
{
    const char *base = ckpt_basename(path);
    if (base == path) return strdup(".");
    size_t n = (size_t)(base - path);
    while (n > 1 && path[n - 1] == '/') n--;
    return strndup(path, n);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

tpl_status ckpt_open_file(tpl_checkpoint *cp, const char *path, tpl_err *err)
{
    tpl_file f;
    char magic[4] = { 0 };
    if (ends_with(path, ".json")) return ckpt_open_index(cp, path, err);
    TPL_TRY(tpl_file_open(&f, path, err));
    TPL_TRY(ckpt_add_file(cp, &f, err));
    const tpl_file *first = &cp->files[cp->n_files - 1].f;
    if (first->size >= sizeof magic) TPL_TRY(tpl_file_read(first, 0, sizeof magic, magic, err));
    if (!memcmp(magic, "GGUF", 4) || ends_with(path, ".gguf")) return ckpt_read_gguf(cp, err);
    cp->kind = TPL_CHECKPOINT_SAFETENSORS;
    return ckpt_read_safetensors(cp, cp->n_files - 1, err);
}

static tpl_status open_path(tpl_checkpoint *cp, const char *path, tpl_err *err)
{
    struct stat st;
    if (stat(path, &st))
        return tpl_fail(err, TPL_ERR_IO, errno, path, "cannot be opened: %s", strerror(errno));
    bool is_folder = S_ISDIR(st.st_mode);
    cp->folder = is_folder ? strdup(path) : folder_of(path);
    if (!cp->folder) return ckpt_no_memory(path, err);
    TPL_TRY(is_folder ? ckpt_open_folder(cp, path, err) : ckpt_open_file(cp, path, err));
    return cp->by_name.slots ? TPL_OK : ckpt_finish(cp, cp->kind == TPL_CHECKPOINT_SAFETENSORS, err);
}

tpl_status tpl_checkpoint_open(tpl_checkpoint **out, const char *path, tpl_err *err)
{
    *out = NULL;
    tpl_checkpoint *cp = calloc(1, sizeof *cp);
    if (!cp) return ckpt_no_memory(path, err);
    tpl_status st = open_path(cp, path, err);
    if (st) {
        tpl_checkpoint_close(cp);
        return st;
    }
    *out = cp;
    return TPL_OK;
}

/* -- What is in it ---- */

tpl_checkpoint_kind tpl_checkpoint_kind_of(const tpl_checkpoint *cp)
{
    return cp->kind;
}

const char *tpl_checkpoint_kind_name(const tpl_checkpoint *cp)
{
    return cp->kind == TPL_CHECKPOINT_GGUF ? "gguf" : "safetensors";
}

const char *tpl_checkpoint_folder(const tpl_checkpoint *cp)
{
    return cp->folder;
}

const char *tpl_checkpoint_warning(const tpl_checkpoint *cp)
{
    return cp->warning;
}

uint32_t tpl_checkpoint_n_files(const tpl_checkpoint *cp)
{
    return cp->n_files;
}

tpl_ckpt_file tpl_checkpoint_file(const tpl_checkpoint *cp, uint32_t i)
{
    return (tpl_ckpt_file){ cp->files[i].f.name, cp->files[i].f.size };
}

uint32_t tpl_checkpoint_n_tensors(const tpl_checkpoint *cp)
{
    return cp->n_tensors;
}

const tpl_ckpt_tensor *tpl_checkpoint_tensor(const tpl_checkpoint *cp, uint32_t i)
{
    return i < cp->n_tensors ? &cp->tensors[i] : NULL;
}

static tpl_str tensor_name(const void *ctx, uint32_t i)
{
    const tpl_ckpt_tensor *t = &((const tpl_checkpoint *)ctx)->tensors[i];
    return (tpl_str){ t->name, t->name_len };
}

const tpl_ckpt_tensor *tpl_checkpoint_find(const tpl_checkpoint *cp, const char *name)
{
    int64_t i = tpl_names_find(&cp->by_name, tensor_name, cp, name, strlen(name));
    return i < 0 ? NULL : &cp->tensors[i];
}

const char *tpl_checkpoint_type_name(const tpl_ckpt_tensor *t)
{
    return tpl_stored_types[t->type].name;
}

tpl_status tpl_checkpoint_dtype(const tpl_checkpoint *cp, const tpl_ckpt_tensor *t, tpl_dtype *out,
                                tpl_err *err)
{
    if (t->dtype >= 0) {
        *out = (tpl_dtype)t->dtype;
        return TPL_OK;
    }
    tpl_where w = tpl_where_key(cp->files[t->file].f.name, t->name);
    return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, w.s,
                    "tensor '%s' has type %s, which tpl does not compute with", t->name,
                    tpl_checkpoint_type_name(t));
}

/* -- Reading ---- */

tpl_status tpl_checkpoint_read(const tpl_checkpoint *cp, uint32_t file, uint64_t offset, uint64_t len,
                               void *dst, tpl_err *err)
{
    if (file >= cp->n_files)
        return tpl_fail(err, TPL_ERR_ARG, 0, cp->folder, "file %u of %u", file, cp->n_files);
    TPL_TRY(tpl_file_read(&cp->files[file].f, offset, len, dst, err));
    __atomic_fetch_add(&((tpl_checkpoint *)cp)->bytes_read, len, __ATOMIC_RELAXED);
    return TPL_OK;
}

tpl_status tpl_checkpoint_read_tensor(const tpl_checkpoint *cp, const tpl_ckpt_tensor *t, uint64_t from,
                                      uint64_t len, void *dst, tpl_err *err)
{
    tpl_err inner = { 0 };
    uint64_t at = 0;
    if (!ck_range(from, len, t->bytes) || !ck_add(t->offset, from, &at))
        return tpl_fail(err, TPL_ERR_ARG, 0, cp->folder,
                        "tensor '%.60s' has %llu bytes, asked for %llu at %llu", t->name,
                        (unsigned long long)t->bytes, (unsigned long long)len, (unsigned long long)from);
    tpl_status st = tpl_checkpoint_read(cp, t->file, at, len, dst, &inner);
    if (st) return tpl_fail(err, st, inner.sys, inner.where, "tensor '%.60s': %.200s", t->name, inner.msg);
    return TPL_OK;
}

uint64_t tpl_checkpoint_bytes_read(const tpl_checkpoint *cp)
{
    return __atomic_load_n(&cp->bytes_read, __ATOMIC_RELAXED);
}
