/* SPDX-License-Identifier: Apache-2.0
 *
 * What the readers of the two formats share: the growing lists, and the checks that hold for both. Only
 * core/model includes this. During open one thread owns everything.
 */
#ifndef TPL_MODEL_CHECKPOINT_PRIV_H
#define TPL_MODEL_CHECKPOINT_PRIV_H

#include "base/file.h"
#include "model/checkpoint.h"
#include "model/names.h"

enum {
    CKPT_MAX_TENSORS = 1000000, /* reliability.md A11 */
    CKPT_MAX_FILES = 4096,
    CKPT_MAX_KVS = 65536,
    CKPT_MAX_DIMS = 8, /* A3 */
    CKPT_MAX_NAME = 1024,
    CKPT_MAX_HEADER = 100000000, /* facts/models.md 3.1, for JSON headers */
};
#define CKPT_MAX_ELEMS ((uint64_t)1 << 48) /* A3 */

typedef struct ckpt_block ckpt_block;

typedef struct ckpt_source {
    tpl_file f;
    char *head;        /* the header's bytes, kept: names and values point into it */
    uint64_t data;     /* where tensor data begins */
    uint32_t first, n; /* its tensors */
} ckpt_source;

struct tpl_checkpoint {
    tpl_checkpoint_kind kind;
    char *folder;
    char *warning;
    ckpt_source *files;
    uint32_t n_files;
    tpl_ckpt_tensor *tensors;
    uint32_t n_tensors, cap_tensors;
    tpl_names by_name;
    tpl_kv *kvs;
    uint32_t n_kvs, cap_kvs;
    tpl_names by_key;
    ckpt_block *arena;   /* dims, GGUF names and keys */
    uint64_t bytes_read; /* atomic */
};

/* Memory that lives as long as the checkpoint, 8-byte aligned; NULL when there is none. */
void *ckpt_alloc(tpl_checkpoint *cp, uint64_t bytes);
/* Makes room for one element more in a list of n elements of `size` bytes; doubles. false: no memory. */
bool ckpt_grow(void *list, uint32_t n, uint32_t *cap, uint64_t size);
tpl_status ckpt_no_memory(const char *name, tpl_err *err);

/* Appends a file to the list; takes f, also on failure (f is closed then). Its index is cp->n_files - 1. */
tpl_status ckpt_add_file(tpl_checkpoint *cp, tpl_file *f, tpl_err *err);

/* A tensor as its header describes it. dims in C order; offset relative to the start of the data. */
typedef struct ckpt_claim {
    const char *name;
    size_t name_len;
    const uint64_t *dims;
    uint32_t n_dims;
    int type; /* index into tpl_stored_types */
    uint64_t offset;
    const char *file_name; /* and place of the claim, for messages */
    uint64_t at;
    bool has_bytes; /* the header states the size too: it must agree */
    uint64_t bytes;
} ckpt_claim;

/* Checks name, dims, block and byte size, and that the bytes lie inside the file, and appends the tensor to
 * cp. `name` must live as long as cp. */
tpl_status ckpt_add_tensor(tpl_checkpoint *cp, uint32_t file, const ckpt_claim *c, tpl_err *err);

/* After all headers: unique names, and no two tensors share bytes; with `tiled` also no gap and nothing after
 * the last. */
tpl_status ckpt_finish(tpl_checkpoint *cp, bool tiled, tpl_err *err);

/* Reads the header of file 0, and of its siblings when it is one of a split set. */
tpl_status ckpt_read_gguf(tpl_checkpoint *cp, tpl_err *err);
/* Reads the header of one file. */
tpl_status ckpt_read_safetensors(tpl_checkpoint *cp, uint32_t file, tpl_err *err);
/* Opens and reads all that a path stands for. */
tpl_status ckpt_open_index(tpl_checkpoint *cp, const char *path, tpl_err *err);
tpl_status ckpt_open_folder(tpl_checkpoint *cp, const char *path, tpl_err *err);
tpl_status ckpt_open_file(tpl_checkpoint *cp, const char *path, tpl_err *err);

/* The text after the last '/'. */
const char *ckpt_basename(const char *path);
/* "folder/base", to free(). */
char *ckpt_join(const char *folder, const char *base);

#endif
