/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's weights as files: GGUF v2/v3 (single or split) and safetensors (single, sharded with an index, or
 * all model-*), behind one list of tensors. Opening reads and checks the headers only (reliability.md 2.A:
 * sizes, ranges, overlaps, duplicates, names; nothing is mapped or executed, files of other kinds are not
 * opened); tensor bytes are read on demand. After open everything is read-only: any thread may call every
 * function but open and close. All pointers handed out live until close.
 */
#ifndef TPL_MODEL_CHECKPOINT_H
#define TPL_MODEL_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/str.h"

typedef struct tpl_checkpoint tpl_checkpoint;

typedef enum tpl_checkpoint_kind { TPL_CHECKPOINT_GGUF, TPL_CHECKPOINT_SAFETENSORS } tpl_checkpoint_kind;

typedef struct tpl_ckpt_tensor {
    const char *name;    /* UTF-8 without control characters */
    const int64_t *dims; /* C order, slowest first, last is contiguous ([out, in]); NULL for a scalar. >= 1 in
                            GGUF, >= 0 in safetensors */
    uint64_t offset;     /* absolute, in file `file`; no alignment is promised for safetensors */
    uint64_t bytes;
    uint16_t name_len;
    uint16_t file;  /* index into the list of files */
    uint8_t type;   /* storage type, see tpl_checkpoint_type_name */
    int8_t dtype;   /* tpl_dtype, or -1: a type tpl does not compute with */
    uint8_t n_dims; /* 0..8 */
} tpl_ckpt_tensor;

typedef struct tpl_ckpt_file {
    const char *path;
    uint64_t bytes;
} tpl_ckpt_file;

/* GGUF value types, facts/models.md 3.2 */
typedef enum tpl_kv_type {
    TPL_KV_U8,
    TPL_KV_I8,
    TPL_KV_U16,
    TPL_KV_I16,
    TPL_KV_U32,
    TPL_KV_I32,
    TPL_KV_F32,
    TPL_KV_BOOL,
    TPL_KV_STR,
    TPL_KV_ARRAY,
    TPL_KV_U64,
    TPL_KV_I64,
    TPL_KV_F64,
    TPL_N_KV_TYPES
} tpl_kv_type;

/* One GGUF key with its value as stored; every length in it was checked at open. */
typedef struct tpl_kv {
    const char *key;
    const unsigned char *data; /* n elements, little endian and unaligned; a string is u64 length, bytes */
    uint64_t n;                /* 1 for a scalar */
    uint64_t bytes;
    uint8_t type; /* of an element: never TPL_KV_ARRAY */
    bool is_array;
} tpl_kv;

/* -- Opening ---- */

/* `path` is a file or a folder. A folder holds, in this order of preference: model.safetensors.index.json and
 * its shards, model.safetensors, all model-*.safetensors, one .gguf or one split set. TPL_ERR_IO: missing, or
 * a folder without weights; TPL_ERR_FORMAT and _UNSUPPORTED: exit 6; TPL_ERR_ARG: the folder is ambiguous.
 * `where` is "file:offset" or "file:key". */
TPL_NODISCARD tpl_status tpl_checkpoint_open(tpl_checkpoint **out, const char *path, tpl_err *err);
void tpl_checkpoint_close(tpl_checkpoint *cp);

/* -- What is in it ---- */

tpl_checkpoint_kind tpl_checkpoint_kind_of(const tpl_checkpoint *cp);
const char *tpl_checkpoint_kind_name(const tpl_checkpoint *cp); /* "gguf" | "safetensors" */
const char *tpl_checkpoint_folder(
    const tpl_checkpoint *cp); /* that holds the files: where config.json would be */
const char *tpl_checkpoint_warning(
    const tpl_checkpoint *cp); /* one line on files that were ignored, NULL if there are none */

uint32_t tpl_checkpoint_n_files(const tpl_checkpoint *cp);
tpl_ckpt_file tpl_checkpoint_file(const tpl_checkpoint *cp, uint32_t i);

uint32_t tpl_checkpoint_n_tensors(const tpl_checkpoint *cp); /* 0: a vocabulary without weights */
const tpl_ckpt_tensor *tpl_checkpoint_tensor(const tpl_checkpoint *cp, uint32_t i); /* in file order */
const tpl_ckpt_tensor *tpl_checkpoint_find(const tpl_checkpoint *cp,
                                           const char *name);   /* NULL if it is not there */
const char *tpl_checkpoint_type_name(const tpl_ckpt_tensor *t); /* "q4_0", "iq4_nl", "f8_e4m3" */
/* The tpl_dtype, or TPL_ERR_UNSUPPORTED naming tensor and type. */
TPL_NODISCARD tpl_status tpl_checkpoint_dtype(const tpl_checkpoint *cp, const tpl_ckpt_tensor *t,
                                              tpl_dtype *out, tpl_err *err);

/* -- Reading ---- */

/* Exactly len bytes at an absolute offset of a file. */
TPL_NODISCARD tpl_status tpl_checkpoint_read(const tpl_checkpoint *cp, uint32_t file, uint64_t offset,
                                             uint64_t len, void *dst, tpl_err *err);
/* len bytes from `from` on inside the tensor; a failure names it. */
TPL_NODISCARD tpl_status tpl_checkpoint_read_tensor(const tpl_checkpoint *cp, const tpl_ckpt_tensor *t,
                                                    uint64_t from, uint64_t len, void *dst, tpl_err *err);
/* Bytes read by the two functions above, by all threads. */
uint64_t tpl_checkpoint_bytes_read(const tpl_checkpoint *cp);

/* -- GGUF keys ---- (none in safetensors) */

uint32_t tpl_checkpoint_n_kvs(const tpl_checkpoint *cp);
const tpl_kv *tpl_checkpoint_kv_at(const tpl_checkpoint *cp, uint32_t i);
const tpl_kv *tpl_checkpoint_kv(const tpl_checkpoint *cp, const char *key); /* NULL if it is not there */

/* Element i < n as a C value; false when the type or the value does not fit. Integers of any width convert,
 * also to f64; floats do not become integers. */
bool tpl_kv_u64(const tpl_kv *kv, uint64_t i, uint64_t *out);
bool tpl_kv_i64(const tpl_kv *kv, uint64_t i, int64_t *out);
bool tpl_kv_f64(const tpl_kv *kv, uint64_t i, double *out);
bool tpl_kv_bool(const tpl_kv *kv, uint64_t i, bool *out);
/* A scalar string. */
bool tpl_kv_str(const tpl_kv *kv, tpl_str *out);
/* All n strings of an array (or of a scalar) into out[n]; false for another type. No copy is made. */
bool tpl_kv_strings(const tpl_kv *kv, tpl_str *out);
/* "u32", "str", ...: of an element. */
const char *tpl_kv_type_name(const tpl_kv *kv);

#endif
