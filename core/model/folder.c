/* SPDX-License-Identifier: Apache-2.0
 *
 * From a model folder or an index to files. Names in an index come from strangers: they are plain names
 * opened inside the folder (reliability.md A8). Code and pickles in a folder are never opened (A12); one
 * warning says so.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ck.h"
#include "base/jscan.h"
#include "base/json.h"
#include "model/checkpoint_priv.h"

#define INDEX_NAME "model.safetensors.index.json"
enum { MAX_INDEX_METADATA = 1 << 20 };

/* -- The index ---- */

typedef struct entry {
    const char *tensor;
    uint32_t len, file;
} entry;

typedef struct index_file {
    const char *path; /* as given */
    char *text;
    entry *entries;
    uint32_t n, cap;
    tpl_str *shards;
    uint32_t n_shards, cap_shards;
    tpl_names by_tensor;
    bool has_map;
} index_file;

static tpl_str entry_name(const void *ctx, uint32_t i)
{
    const entry *e = &((const index_file *)ctx)->entries[i];
    return (tpl_str){ e->tensor, e->len };
}

/* Indexes list tensors shard by shard, mostly: the last hit is tried first. */
static tpl_status shard_number(tpl_jscan *s, index_file *x, tpl_str name, uint32_t *out, tpl_err *err)
{
    if (!tpl_file_is_basename(name.s, name.len))
        return tpl_jscan_fail(s, err, "shard name '%.80s' is not a plain name of [A-Za-z0-9._-]+", name.s);
    uint32_t last = x->n ? x->entries[x->n - 1].file : 0;
    for (uint32_t i = 0; i < x->n_shards; i++) {
        uint32_t at = i + last < x->n_shards ? i + last : i + last - x->n_shards;
        if (x->shards[at].len == name.len && !memcmp(x->shards[at].s, name.s, name.len)) {
            *out = at;
            return TPL_OK;
        }
    }
    if (x->n_shards >= CKPT_MAX_FILES) return tpl_jscan_fail(s, err, "more than %d shards", CKPT_MAX_FILES);
    if (!ckpt_grow(&x->shards, x->n_shards, &x->cap_shards, sizeof *x->shards))
        return ckpt_no_memory(s->name, err);
    *out = x->n_shards;
    x->shards[x->n_shards++] = name;
    return TPL_OK;
}

static tpl_status scan_map(tpl_jscan *s, index_file *x, tpl_err *err)
{
    uint32_t n = 0, file = 0;
    bool more;
    if (x->has_map) return tpl_jscan_fail(s, err, "duplicate key weight_map");
    x->has_map = true;
    TPL_TRY(tpl_jscan_eat(s, '{', err));
    for (;;) {
        tpl_str tensor, shard;
        TPL_TRY(tpl_jscan_next(s, '}', &n, &more, err));
        if (!more) return TPL_OK;
        TPL_TRY(tpl_jscan_key(s, &tensor, err));
        TPL_TRY(tpl_jscan_string(s, &shard, err));
        TPL_TRY(shard_number(s, x, shard, &file, err));
        if (n > CKPT_MAX_TENSORS) return tpl_jscan_fail(s, err, "more than %d tensors", CKPT_MAX_TENSORS);
        if (!ckpt_grow(&x->entries, x->n, &x->cap, sizeof *x->entries)) return ckpt_no_memory(s->name, err);
        x->entries[x->n++] = (entry){ tensor.s, (uint32_t)tensor.len, file };
    }
}

/* Other members (metadata.total_size) are only advisory, but must be JSON. */
static tpl_status scan_other(tpl_jscan *s, bool *seen_metadata, tpl_str key, tpl_err *err)
{
    tpl_str text;
    json_t *value;
    if (strcmp(key.s, "metadata"))
        return tpl_jscan_fail(s, err, "an index has metadata and weight_map, this one also '%.40s'", key.s);
    if (*seen_metadata) return tpl_jscan_fail(s, err, "duplicate key metadata");
    *seen_metadata = true;
    TPL_TRY(tpl_jscan_skip(s, &text, err));
    if (text.len > MAX_INDEX_METADATA)
        return tpl_jscan_fail(s, err, "metadata of more than %d bytes", MAX_INDEX_METADATA);
    TPL_TRY(tpl_json_parse(&value, text.s, text.len, 0, s->name, err));
    json_decref(value);
    return TPL_OK;
}

static tpl_status scan_index(tpl_jscan *s, index_file *x, tpl_err *err)
{
    uint32_t n = 0;
    bool more, seen_metadata = false;
    TPL_TRY(tpl_jscan_eat(s, '{', err));
    for (;;) {
        tpl_str key;
        TPL_TRY(tpl_jscan_next(s, '}', &n, &more, err));
        if (!more) break;
        TPL_TRY(tpl_jscan_key(s, &key, err));
        TPL_TRY(strcmp(key.s, "weight_map") ? scan_other(s, &seen_metadata, key, err) : scan_map(s, x, err));
    }
    if (tpl_jscan_peek(s) || s->p < s->end) return tpl_jscan_fail(s, err, "text after the JSON object");
    if (!x->n)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_key(s->name, "weight_map").s,
                        "'weight_map' is missing or empty");
    tpl_names_result res = tpl_names_build(&x->by_tensor, x->n, entry_name, x);
    if (res == TPL_NAMES_NO_MEMORY) return ckpt_no_memory(s->name, err);
    if (res == TPL_NAMES_OK) return TPL_OK;
    const char *tensor = x->entries[x->by_tensor.n_dup_second].tensor;
    return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_key(s->name, tensor).s,
                    "duplicate key %.60s in weight_map", tensor);
}

static tpl_status read_shards(tpl_checkpoint *cp, const index_file *x, int dirfd, tpl_err *err)
{
    for (uint32_t i = 0; i < x->n_shards; i++) {
        tpl_file f;
        char *shown = ckpt_join(cp->folder, x->shards[i].s);
        if (!shown) return ckpt_no_memory(x->path, err);
        tpl_status st = tpl_file_open_at(&f, dirfd, x->shards[i].s, shown, err);
        free(shown);
        if (st == TPL_ERR_IO && err && err->sys == ENOENT)
            tpl_hint(err, st, "it is named by %.120s", ckpt_basename(x->path));
        TPL_TRY(st);
        TPL_TRY(ckpt_add_file(cp, &f, err));
        TPL_TRY(ckpt_read_safetensors(cp, cp->n_files - 1, err));
    }
    return TPL_OK;
}

static tpl_status check_map(const tpl_checkpoint *cp, const index_file *x, tpl_err *err)
{
    for (uint32_t i = 0; i < x->n; i++) {
        const entry *e = &x->entries[i];
        const tpl_ckpt_tensor *t = strlen(e->tensor) == e->len ? tpl_checkpoint_find(cp, e->tensor) : NULL;
        if (!t || t->file != e->file)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, tpl_where_key(x->path, e->tensor).s,
                            "tensor '%.60s' is not in %.100s", e->tensor, x->shards[e->file].s);
    }
    return TPL_OK;
}

static tpl_status open_index(tpl_checkpoint *cp, index_file *x, int dirfd, tpl_err *err)
{
    size_t len;
    TPL_TRY(tpl_file_load(x->path, CKPT_MAX_HEADER, &x->text, &len, err));
    tpl_jscan s = { x->text, x->text, x->text + len, 0, x->path };
    TPL_TRY(scan_index(&s, x, err));
    TPL_TRY(read_shards(cp, x, dirfd, err));
    TPL_TRY(ckpt_finish(cp, true, err));
    return check_map(cp, x, err);
}

tpl_status ckpt_open_index(tpl_checkpoint *cp, const char *path, tpl_err *err)
{
    index_file x = { .path = path };
    cp->kind = TPL_CHECKPOINT_SAFETENSORS;
    int dirfd = open(cp->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0)
        return tpl_fail(err, TPL_ERR_IO, errno, cp->folder, "cannot be opened: %s", strerror(errno));
    tpl_status st = open_index(cp, &x, dirfd, err);
    close(dirfd);
    tpl_names_free(&x.by_tensor);
    free(x.entries);
    free(x.shards);
    free(x.text);
    return st;
}

/* -- The folder ---- */

typedef struct listing {
    char **names; /* sorted: model-*.safetensors and *.gguf */
    uint32_t n, cap;
    bool has_index, has_model;
    char ignored[160]; /* names for the warning */
    uint32_t n_ignored;
    bool has_pickle;
} listing;

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

static bool is_pickle(const char *s)
{
    return ends_with(s, ".bin") || ends_with(s, ".pt") || ends_with(s, ".pth") || ends_with(s, ".ckpt") ||
           ends_with(s, ".pkl");
}

static void note_ignored(listing *l, const char *name)
{
    size_t at = strlen(l->ignored);
    l->has_pickle = l->has_pickle || is_pickle(name);
    l->n_ignored++;
    if (at < 100) snprintf(l->ignored + at, sizeof l->ignored - at, "%s%.50s", at ? ", " : "", name);
}

static bool note_file(listing *l, const char *name)
{
    if (!strcmp(name, INDEX_NAME)) l->has_index = true;
    if (!strcmp(name, "model.safetensors")) l->has_model = true;
    if (is_pickle(name) || ends_with(name, ".py") || ends_with(name, ".lua")) note_ignored(l, name);
    bool shard = !strncmp(name, "model-", 6) && ends_with(name, ".safetensors");
    bool gguf = ends_with(name, ".gguf") && strncmp(name, "mmproj", 6);
    if (!shard && !gguf) return true;
    if (!ckpt_grow(&l->names, l->n, &l->cap, sizeof *l->names)) return false;
    l->names[l->n] = strdup(name);
    return l->names[l->n++] != NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tpl_status list_folder(const char *path, listing *l, tpl_err *err)
{
    DIR *dir = opendir(path);
    if (!dir) return tpl_fail(err, TPL_ERR_IO, errno, path, "cannot be opened: %s", strerror(errno));
    tpl_status st = TPL_OK;
    for (struct dirent *d = readdir(dir); d && !st; d = readdir(dir)) {
        if (l->n > CKPT_MAX_FILES)
            st = tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, path, "more than %d model files", CKPT_MAX_FILES);
        if (!st && !note_file(l, d->d_name)) st = ckpt_no_memory(path, err);
    }
    closedir(dir);
    if (!st && l->n) qsort(l->names, l->n, sizeof *l->names, by_name);
    return st;
}

static tpl_status open_inside(tpl_checkpoint *cp, const char *base, tpl_err *err)
{
    char *path = ckpt_join(cp->folder, base);
    if (!path) return ckpt_no_memory(cp->folder, err);
    tpl_status st = ckpt_open_file(cp, path, err);
    free(path);
    return st;
}

static tpl_status open_shard(tpl_checkpoint *cp, const char *base, tpl_err *err)
{
    tpl_file f;
    char *path = ckpt_join(cp->folder, base);
    if (!path) return ckpt_no_memory(cp->folder, err);
    tpl_status st = tpl_file_open(&f, path, err);
    free(path);
    TPL_TRY(st);
    TPL_TRY(ckpt_add_file(cp, &f, err));
    cp->kind = TPL_CHECKPOINT_SAFETENSORS;
    return ckpt_read_safetensors(cp, cp->n_files - 1, err);
}

static tpl_status open_all_shards(tpl_checkpoint *cp, const listing *l, uint32_t *n, tpl_err *err)
{
    *n = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        if (!ends_with(l->names[i], ".safetensors")) continue;
        TPL_TRY(open_shard(cp, l->names[i], err));
        ++*n;
    }
    return TPL_OK;
}

/* Of several files, those must be the parts of one set: as many as the name of the first says. */
static bool is_one_set(const listing *l, const char *first, uint32_t n)
{
    char tail[32];
    snprintf(tail, sizeof tail, "-of-%05u.gguf", n);
    if (!ends_with(first, tail)) return false;
    size_t stem = strlen(first) - strlen(tail);
    for (uint32_t i = 0; i < l->n; i++)
        if (ends_with(l->names[i], ".gguf") &&
            (!ends_with(l->names[i], tail) || stem < 5 || strncmp(l->names[i], first, stem - 5)))
            return false;
    return true;
}

static tpl_status open_gguf_of(tpl_checkpoint *cp, const listing *l, bool *found, tpl_err *err)
{
    uint32_t n = 0;
    const char *first = NULL, *second = NULL;
    for (uint32_t i = 0; i < l->n; i++) {
        if (!ends_with(l->names[i], ".gguf")) continue;
        if (n == 0) first = l->names[i];
        if (n == 1) second = l->names[i];
        n++;
    }
    *found = n > 0;
    if (n == 1 || (n > 1 && is_one_set(l, first, n))) return open_inside(cp, first, err);
    if (n == 0) return TPL_OK;
    tpl_status st = tpl_fail(err, TPL_ERR_ARG, 0, cp->folder,
                             "holds %u GGUF models (%.60s, %.60s, ...), expected one", n, first, second);
    return tpl_hint(err, st, "name the file instead of the folder");
}

static tpl_status nothing_found(const tpl_checkpoint *cp, const listing *l, tpl_err *err)
{
    tpl_status st = tpl_fail(
        err, l->has_pickle ? TPL_ERR_UNSUPPORTED : TPL_ERR_IO, l->has_pickle ? 0 : ENOENT, cp->folder,
        "no weights: looked for " INDEX_NAME ", model.safetensors, model-*.safetensors and *.gguf");
    if (l->has_pickle)
        return tpl_hint(err, st, "pickled weights are never opened (%.90s); convert them to safetensors",
                        l->ignored);
    return st;
}

static tpl_status open_listed(tpl_checkpoint *cp, const listing *l, tpl_err *err)
{
    uint32_t n;
    bool found;
    if (l->has_index) return open_inside(cp, INDEX_NAME, err);
    if (l->has_model) return open_inside(cp, "model.safetensors", err);
    TPL_TRY(open_all_shards(cp, l, &n, err));
    if (n) return TPL_OK;
    TPL_TRY(open_gguf_of(cp, l, &found, err));
    return found ? TPL_OK : nothing_found(cp, l, err);
}

static tpl_status keep_warning(tpl_checkpoint *cp, const listing *l, tpl_err *err)
{
    char text[256];
    if (!l->n_ignored) return TPL_OK;
    snprintf(text, sizeof text, "ignored, never opened: %s%s", l->ignored,
             l->n_ignored > 3 ? " and others" : "");
    cp->warning = strdup(text);
    return cp->warning ? TPL_OK : ckpt_no_memory(cp->folder, err);
}

tpl_status ckpt_open_folder(tpl_checkpoint *cp, const char *path, tpl_err *err)
{
    listing l = { 0 };
    tpl_status st = list_folder(path, &l, err);
    if (!st) st = open_listed(cp, &l, err);
    if (!st) st = keep_warning(cp, &l, err);
    for (uint32_t i = 0; i < l.n; i++) free(l.names[i]);
    free(l.names);
    return st;
}
