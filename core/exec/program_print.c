/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a program, byte for byte what program.c reads. Setup only.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/program.h"

/* 17 digits are exact (C11 5.2.4.2.2, DBL_DECIMAL_DIG); always readable as a float. */
static void put_float(FILE *f, double x)
{
    char buf[40];
    snprintf(buf, sizeof buf, "%.17g", x);
    fprintf(f, "%s%s", buf, strpbrk(buf, ".en") ? "" : ".0");
}

static void put_num(FILE *f, tpl_num n)
{
    if (n.k >= 0)
        fprintf(f, "$%d", n.k);
    else if (n.is_float)
        put_float(f, n.f);
    else
        fprintf(f, "%" PRId64, n.v);
}

static void put_list(FILE *f, const char *key, const int32_t *ids, int n)
{
    if (!n) return;
    fprintf(f, " %s=%d", key, ids[0]);
    for (int i = 1; i < n; i++) fprintf(f, ",%d", ids[i]);
}

static void put_data(FILE *f, const tpl_program *p)
{
    for (int i = 0; i < p->n_tables; i++) {
        fprintf(f, "table %d %s %d", i, p->tables[i].name, p->tables[i].n);
        for (int j = 0; j < p->tables[i].n; j++) fprintf(f, " %.17g", p->tables[i].v[j]);
        fputc('\n', f);
    }
    for (int i = 0; i < p->n_indices; i++) {
        fprintf(f, "index %d ", i);
        const tpl_index *x = &p->indices[i];
        if (!x->n) fputc('-', f);
        for (int j = 0; j < x->n; j++)
            fprintf(f, "%s%" PRId64 ":%" PRId64, j ? "," : "", x->ranges[j].first, x->ranges[j].count);
        fputc('\n', f);
    }
    for (int i = 0; i < p->n_consts; i++) {
        fprintf(f, "k %d", i);
        for (int j = 0; j < p->n_ranks; j++) fprintf(f, " %" PRId64, p->consts[i][j]);
        fputc('\n', f);
    }
    for (int i = 0; i < p->n_groups; i++) {
        const tpl_prog_group *g = &p->groups[i];
        fprintf(f, "group %d %s ", i, g->axes);
        for (int j = 0; j < g->n; j++)
            for (int k = 0; k < g->sizes[j]; k++) fprintf(f, "%s%d", k ? "," : j ? ";" : "", g->ranks[j][k]);
        fputc('\n', f);
    }
}

static void put_ops(FILE *f, const tpl_program *p)
{
    for (int i = 0; i < p->n_ops; i++) {
        const tpl_prog_op *o = &p->ops[i];
        fprintf(f, "op %s %s %d %s %s%s%s", o->name, tpl_op_infos[o->kind].name, o->layer, o->mark,
                o->flags & TPL_OPF_BARRIER ? "b" : "", o->flags & TPL_OPF_ROOT ? "r" : "", o->flags ? "" : "-");
        put_list(f, "out", o->out, o->n_out);
        put_list(f, "in", o->in, o->n_in);
        put_list(f, "w", o->w, o->n_w);
        if (o->state >= 0) fprintf(f, " state=%d", o->state);
        if (o->group >= 0) fprintf(f, " group=%d", o->group);
        if (o->cseq >= 0) fprintf(f, " cseq=%d", o->cseq);
        for (int j = 0; j < o->n_imm; j++) {
            fputs(j ? "," : " imm=", f);
            put_num(f, o->imm[j]);
        }
        if (o->src) fprintf(f, " src=%s", o->src);
        fputc('\n', f);
    }
}

char *tpl_program_print(const tpl_program *p)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    fprintf(f, "tpl-program %d\nstage %d %s\nranks %d %d\ncaps tok %u seq %u out %u vocab %u\narena %" PRIu64 "\n",
            TPL_PROGRAM_VERSION, p->stage, p->kinds, p->first_rank, p->n_ranks, p->caps.tok, p->caps.seq, p->caps.out,
            p->caps.vocab, p->arena_bytes);
    put_data(f, p);
    for (int i = 0; i < p->n_values; i++) {
        const tpl_prog_value *v = &p->values[i];
        fprintf(f, "value %d %s %s %s/%u ", i, v->name, tpl_act_names[v->act],
                v->sym == TPL_SYM_TOK ? "tok" : "out", v->div);
        put_num(f, v->cols);
        fprintf(f, " @%" PRIu64 "\n", v->offset);
    }
    for (int i = 0; i < p->n_weights; i++) {
        const tpl_prog_weight *w = &p->weights[i];
        fprintf(f, "weight %d %s %s %s %s %" PRId64 " %" PRId64 " ", i, w->name, w->is_vector ? "vector" : "matrix",
                w->tensor, tpl_dtypes[w->dtype].name, w->rows, w->cols);
        put_num(f, w->row_index);
        fputc(' ', f);
        put_num(f, w->col_index);
        fputc('\n', f);
    }
    for (int i = 0; i < p->n_states; i++) {
        fprintf(f, "state %d %s %d ", i, p->states[i].name, p->states[i].layer);
        put_num(f, p->states[i].kvh);
        fputc(' ', f);
        put_num(f, p->states[i].hd);
        fputc('\n', f);
    }
    put_ops(f, p);
    bool failed = ferror(f);
    if (!fclose(f) && !failed) return text;
    free(text);
    return NULL;
}
