/* SPDX-License-Identifier: Apache-2.0
 *
 * The static program of one pipeline stage: an op list shared by all ranks of the stage, whose differences lie in rank constants. Lua plans
 * it and hands it over as text, the one form that is hashed, printed by `plan --text`, sent and reviewed; this file reads and prints it.
 * The format is line based, fields separated by one space:
 *
 *   tpl-program 1
 *   stage INDEX KINDS                      kinds: decode,mixed
 *   ranks FIRST COUNT                      global number of the stage's first rank
 *   caps tok N seq N out N vocab N
 *   arena BYTES
 *   table ID NAME N v..                    constant table of doubles (rotary frequencies)
 *   index ID first:count,..                index list ("-" when empty)
 *   k ID v..                               rank constant: its value on each rank
 *   group ID AXES r,r;r,r                  groups of global ranks over some mesh axes
 *   value ID NAME f32|q8|bf16|q8_bf16 tok|out/DIV COLS @OFFSET
 *   weight ID NAME matrix|vector TENSOR DTYPE ROWS COLS ROWINDEX COLINDEX
 *   state ID NAME LAYER KVH HD
 *   op NAME KIND LAYER MARK FLAGS key=..   keys: out in w state group cseq imm src
 *
 * Where a number may differ by rank it is written $ID. FLAGS: any of b (team barrier before), r (first rank of the stage only), or -.
 * Setup only; a program is read-only after tpl_program_parse.
 */
#ifndef TPL_EXEC_PROGRAM_H
#define TPL_EXEC_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/index.h"
#include "kernels/ops.h"

enum { TPL_PROGRAM_VERSION = 1, TPL_MAX_OUTS = 4 };
enum { TPL_OPF_BARRIER = 1, TPL_OPF_ROOT = 2 };

/* A number, or a rank constant (k >= 0). */
typedef struct tpl_num {
    int64_t v;
    double f;      /* immediates only */
    int32_t k;
    bool is_float;
} tpl_num;

typedef struct tpl_prog_value {
    char *name;
    tpl_act act;
    tpl_sym sym;
    uint32_t div;
    tpl_num cols;
    uint64_t offset;
} tpl_prog_value;

typedef struct tpl_prog_weight {
    char *name, *tensor;
    bool is_vector;
    tpl_dtype dtype;
    int64_t rows, cols;          /* of the whole tensor; a vector has rows 1 */
    tpl_num row_index, col_index;
} tpl_prog_weight;

typedef struct tpl_prog_state {
    char *name;
    int32_t layer;
    tpl_num kvh, hd;
} tpl_prog_state;

typedef struct tpl_prog_table {
    char *name;
    int32_t n;
    double *v;
} tpl_prog_table;

typedef struct tpl_prog_group {
    char *axes;
    int32_t n;        /* groups */
    int32_t *sizes;   /* [n] */
    int32_t **ranks;  /* [n][size], global ranks in group order */
} tpl_prog_group;

typedef struct tpl_prog_op {
    char *name, *mark, *src;
    tpl_op_kind kind;
    int32_t layer;
    uint32_t flags;
    int32_t n_out, n_in, n_w;
    int32_t out[TPL_MAX_OPERANDS], in[TPL_MAX_OPERANDS], w[TPL_MAX_OPERANDS];
    int32_t state, group, cseq; /* -1: none */
    int32_t n_imm;
    tpl_num imm[TPL_MAX_IMM];
} tpl_prog_op;

typedef struct tpl_program {
    int32_t stage, first_rank, n_ranks;
    char *kinds;
    tpl_step_caps caps;
    uint64_t arena_bytes;
    int32_t n_tables, n_indices, n_consts, n_groups, n_values, n_weights, n_states, n_ops;
    tpl_prog_table *tables;
    tpl_index *indices;
    int64_t **consts; /* [n_consts][n_ranks] */
    tpl_prog_group *groups;
    tpl_prog_value *values;
    tpl_prog_weight *weights;
    tpl_prog_state *states;
    tpl_prog_op *ops;
    struct tpl_prog_block *blocks; /* owns all of the above */
} tpl_program;

/* Reads and checks a program: every id defined before use, operand counts by the op list, offsets inside the arena on every rank. */
tpl_status tpl_program_parse(tpl_program **out, const char *text, size_t len, tpl_err *err);
void tpl_program_free(tpl_program *p);
/* The text again, byte for byte; malloc'ed, NUL-terminated, for the caller to free. */
char *tpl_program_print(const tpl_program *p);

/* The value of a number on a rank of the stage (0-based within the stage). */
static inline int64_t tpl_num_get(const tpl_program *p, tpl_num n, int rank)
{
    return n.k >= 0 ? p->consts[n.k][rank] : n.v;
}

#endif
