/* SPDX-License-Identifier: Apache-2.0
 *
 * Environment variables: the only place that reads them. Values are raw texts owned by the environment
 * (nobody calls setenv once threads run); an empty value counts as unset. Also the parser of TPL_FAULT, the
 * knob that makes tests fail on purpose. Any thread.
 */
#ifndef TPL_BASE_ENV_H
#define TPL_BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* X(ENUM, variable) */
#define TPL_ENVS(X)                                                                                     \
    X(ISA, "TPL_ISA")                     /* portable | avx2 | avx512 | amx | neon */                   \
    X(FAULT, "TPL_FAULT")                 /* see tpl_fault below */                                     \
    X(SEED, "TPL_SEED")                                                                                 \
    X(PAGE_ORDER, "TPL_PAGE_ORDER")       /* shuffle */                                                 \
    X(DETERMINISTIC, "TPL_DETERMINISTIC") /* 1 */                                                       \
    X(CACHE, "TPL_CACHE")                 /* folder of the model cache */                               \
    X(PATH, "TPL_PATH")                   /* folders of layouts, policies and models, ':' between */    \
    X(SHARED, "TPL_SHARED")               /* specs: where the shared folder lies */                     \
    X(NVML, "TPL_NVML")                   /* another NVML library */                                    \
    X(CUDA_VISIBLE_DEVICES, "CUDA_VISIBLE_DEVICES")                                                     \
    X(CUDA_DEVICE_ORDER, "CUDA_DEVICE_ORDER") /* PCI_BUS_ID | FASTEST_FIRST */                          \
    X(XDG_CACHE_HOME, "XDG_CACHE_HOME")                                                                 \
    X(HF_HOME, "HF_HOME")                 /* the Hugging Face cache is HF_HUB_CACHE, else */            \
    X(HF_HUB_CACHE, "HF_HUB_CACHE")       /* HF_HOME/hub */                                             \
    X(HOME, "HOME")                                                                                     \
    X(NO_COLOR, "NO_COLOR")                                                                             \
    X(COLUMNS, "COLUMNS")                                                                               \
    X(TERM, "TERM")

typedef enum tpl_env_id {
#define X(id, name) TPL_ENV_##id,
    TPL_ENVS(X)
#undef X
    TPL_N_ENVS
} tpl_env_id;

/* NULL when unset or empty. */
const char *tpl_env(tpl_env_id id);
/* Whether it is set, be it to "": CUDA_VISIBLE_DEVICES= hides every GPU. */
bool tpl_env_is_set(tpl_env_id id);
const char *tpl_env_name(tpl_env_id id);
int tpl_env_find(const char *name); /* or -1 */

/* -- Faults ------------------------------------------------------------------------------------------
 * TPL_FAULT=kind:rank:op:step, interface.md section 5. rank counts from 0; op is its name in `plan --text`
 * (blk.3.o_proj); '*' and a missing trailing field mean any. */
/* X(ENUM, name): what goes wrong on the ranks that are hit. stall never ends; the others give wrong results, and verify names the op. */
#define TPL_FAULTS(X)                                                                                            \
    X(STALL, "stall")                           /* an op does not begin until the abort */                       \
    X(SWAP_SHARD, "swap_shard")                 /* a weight's shard is the next rank's */                        \
    X(SHIFT_PARTITION, "shift_partition")       /* a weight's cut begins one unit late */                        \
    X(DROP_ALL_REDUCE, "drop_all_reduce")       /* an all_reduce leaves the rank's own part */                   \
    X(DOUBLE_ALL_REDUCE, "double_all_reduce")   /* an all_reduce is done twice: n times the sum */               \
    X(WRONG_GATHER_ORDER, "wrong_gather_order") /* pieces lie one member further than they should */             \
    X(WRONG_PIECE, "wrong_piece")               /* a slice takes the next rank's tokens or columns */            \
    X(BIAS_ON_ALL_RANKS, "bias_on_all_ranks")   /* the bias of a partial sum is added here too */                \
    X(WRONG_HEAD_MAP, "wrong_head_map")         /* query heads get their neighbour's result */                   \
    X(UNPERMUTED_ROPE, "unpermuted_rope")       /* rope turns the pairs of the other convention */               \
    X(STALE_POSITION, "stale_position")         /* rope turns by positions that are one behind */                \
    X(MASK_OFF_BY_ONE, "mask_off_by_one")       /* queries do not see their own key */                           \
    X(STALE_PAGE, "stale_page")                 /* attend reads the last page but one in place of the last */    \
    X(SHIFT_VOCAB, "shift_vocab")               /* the embedding looks up the next id's row */                   \
    X(SKIP_OP, "skip_op")                       /* a kernel does not run: its result is what memory held */

typedef enum tpl_fault_kind {
    TPL_FAULT_NONE,
#define X(id, name) TPL_FAULT_##id,
    TPL_FAULTS(X)
#undef X
    TPL_N_FAULTS
} tpl_fault_kind;

typedef struct tpl_fault {
    tpl_fault_kind kind; /* NONE hits nothing */
    int32_t rank;        /* -1: any */
    int64_t step;        /* -1: any */
    char op[96];         /* "": any */
} tpl_fault;

/* text NULL or "" gives kind NONE. Fails ARG, where = "TPL_FAULT". */
TPL_NODISCARD tpl_status tpl_fault_parse(tpl_fault *out, const char *text, tpl_err *err);
const char *tpl_fault_name(tpl_fault_kind kind);

/* Whether the fault acts here. rank or step -1 and op NULL: unknown here (at load there is no step), which
 * matches. No allocation. */
bool tpl_fault_hits(const tpl_fault *fault, tpl_fault_kind kind, int32_t rank, const char *op, int64_t step);

#endif
