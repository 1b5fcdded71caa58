/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ck.h"

/* -- Memory ----------------------------------------------------------------------------------------------- */

typedef struct tpl_prog_block {
    struct tpl_prog_block *next;
    _Alignas(16) char bytes[];
} tpl_prog_block;

static void *take(tpl_program *p, size_t n, size_t size)
{
    uint64_t bytes, total;
    if (!ck_mul(n ? n : 1, size, &bytes) || !ck_add(bytes, sizeof(tpl_prog_block), &total)) return NULL;
    tpl_prog_block *b = calloc(1, total);
    if (!b) return NULL;
    b->next = p->blocks;
    p->blocks = b;
    return b->bytes;
}

/* -- Reading words of a line ------------------------------------------------------------------------------ */

typedef struct reader {
    tpl_program *p;
    const char *at, *end; /* of the whole text */
    const char *word;     /* current word, not NUL-terminated */
    size_t len;
    int line;
    tpl_err *err;
} reader;

enum { N_HEAD = 5 }; /* lines: version, stage, ranks, caps, arena */

static tpl_status bad(reader *r, const char *what)
{
    char where[32];
    snprintf(where, sizeof where, "program:%d", r->line);
    return tpl_fail(r->err, TPL_ERR_FORMAT, 0, where, "%s at '%.*s'", what, (int)(r->len < 40 ? r->len : 40),
                    r->word ? r->word : "");
}

static bool next_word(reader *r)
{
    if (r->at >= r->end || *r->at == '\n') return false;
    if (*r->at == ' ') r->at++;
    r->word = r->at;
    while (r->at < r->end && *r->at != ' ' && *r->at != '\n') r->at++;
    r->len = (size_t)(r->at - r->word);
    return r->len > 0;
}

static bool is_word(const reader *r, const char *s)
{
    return r->len == strlen(s) && !memcmp(r->word, s, r->len);
}

static char *copy_word(reader *r)
{
    char *s = take(r->p, r->len + 1, 1);
    if (s) memcpy(s, r->word, r->len);
    return s;
}

/* A number that ends at `stop` or at the word's end; returns the end or NULL. */
static const char *read_int(const char *s, const char *end, int64_t *out)
{
    bool minus = s < end && *s == '-';
    uint64_t v = 0;
    if (minus) s++;
    if (s >= end || *s < '0' || *s > '9') return NULL;
    for (; s < end && *s >= '0' && *s <= '9'; s++)
        if (!ck_mul(v, 10, &v) || !ck_add(v, (uint64_t)(*s - '0'), &v) || v > INT64_MAX) return NULL;
    *out = minus ? -(int64_t)v : (int64_t)v;
    return s;
}

static bool word_int(reader *r, int64_t *out)
{
    return next_word(r) && read_int(r->word, r->word + r->len, out) == r->word + r->len;
}

static bool word_count(reader *r, int64_t most, int64_t *out)
{
    return word_int(r, out) && *out >= 0 && *out <= most;
}

/* "12", "$3", or (floats allowed) "1e-05". */
static bool read_num(reader *r, const char *s, const char *end, tpl_num *out)
{
    *out = (tpl_num){ .k = -1 };
    int64_t k;
    if (s < end && *s == '$') {
        if (read_int(s + 1, end, &k) != end || k < 0 || k >= r->p->n_consts) return false;
        out->k = (int32_t)k;
        return true;
    }
    if (read_int(s, end, &out->v) == end) {
        out->f = (double)out->v;
        return true;
    }
    char buf[40], *stop;
    if (end - s >= (long)sizeof buf) return false;
    memcpy(buf, s, (size_t)(end - s));
    buf[end - s] = 0;
    out->f = strtod(buf, &stop);
    out->is_float = true;
    return stop > buf && !*stop;
}

static bool word_num(reader *r, tpl_num *out)
{
    return next_word(r) && read_num(r, r->word, r->word + r->len, out);
}

static bool word_whole(reader *r, tpl_num *out)
{
    return word_num(r, out) && !out->is_float;
}

/* -- Lines ------------------------------------------------------------------------------------------------ */

static bool word_id(reader *r, int32_t want)
{
    int64_t id;
    return word_int(r, &id) && id == want;
}

static tpl_status read_table(reader *r)
{
    tpl_program *p = r->p;
    tpl_prog_table *t = &p->tables[p->n_tables];
    int64_t n;
    if (!word_id(r, p->n_tables) || !next_word(r) || !(t->name = copy_word(r)) || !word_count(r, 1 << 20, &n))
        return bad(r, "bad table");
    t->n = (int32_t)n;
    t->v = take(p, (size_t)n, sizeof *t->v);
    if (!t->v) return tpl_fail(r->err, TPL_ERR_MEM, 0, "program", "out of memory");
    for (int64_t i = 0; i < n; i++) {
        tpl_num v;
        if (!word_num(r, &v) || v.k >= 0) return bad(r, "bad table entry");
        t->v[i] = v.f;
    }
    p->n_tables++;
    return TPL_OK;
}

static tpl_status read_index(reader *r)
{
    tpl_program *p = r->p;
    tpl_index *x = &p->indices[p->n_indices];
    if (!word_id(r, p->n_indices) || !next_word(r)) return bad(r, "bad index");
    const char *s = r->word, *end = r->word + r->len;
    int n = is_word(r, "-") ? 0 : 1;
    for (const char *q = s; q < end; q++) n += *q == ',';
    tpl_range *ranges = take(p, (size_t)n, sizeof *ranges);
    if (!ranges) return tpl_fail(r->err, TPL_ERR_MEM, 0, "program", "out of memory");
    for (int i = 0; i < n; i++) {
        s = read_int(s, end, &ranges[i].first);
        if (!s || s >= end || *s != ':') return bad(r, "bad range");
        s = read_int(s + 1, end, &ranges[i].count);
        uint64_t sum;
        if (!s || ranges[i].first < 0 || ranges[i].count <= 0 ||
            !ck_add((uint64_t)x->total, (uint64_t)ranges[i].count, &sum) || sum > INT64_MAX ||
            ranges[i].first > INT64_MAX - ranges[i].count)
            return bad(r, "bad range");
        x->total = (int64_t)sum;
        if (i + 1 < n ? s == end || *s++ != ',' : s != end) return bad(r, "bad range");
    }
    x->n = n;
    x->ranges = ranges;
    p->n_indices++;
    return TPL_OK;
}

static tpl_status read_const(reader *r)
{
    tpl_program *p = r->p;
    if (!word_id(r, p->n_consts)) return bad(r, "bad rank constant");
    int64_t *v = take(p, (size_t)p->n_ranks, sizeof *v);
    if (!v) return tpl_fail(r->err, TPL_ERR_MEM, 0, "program", "out of memory");
    for (int i = 0; i < p->n_ranks; i++)
        if (!word_int(r, &v[i])) return bad(r, "bad rank constant");
    p->consts[p->n_consts++] = v;
    return TPL_OK;
}

static tpl_status read_group(reader *r)
{
    tpl_program *p = r->p;
    tpl_prog_group *g = &p->groups[p->n_groups];
    if (!word_id(r, p->n_groups) || !next_word(r) || !(g->axes = copy_word(r)) || !next_word(r))
        return bad(r, "bad group");
    const char *s = r->word, *end = r->word + r->len;
    int n = 1, most = 1;
    for (const char *q = s; q < end; q++) n += *q == ';', most += *q == ',' || *q == ';';
    g->sizes = take(p, (size_t)n, sizeof *g->sizes);
    g->ranks = take(p, (size_t)n, sizeof *g->ranks);
    int32_t *all = take(p, (size_t)most, sizeof *all);
    if (!g->sizes || !g->ranks || !all) return tpl_fail(r->err, TPL_ERR_MEM, 0, "program", "out of memory");
    g->n = n;
    for (int i = 0, k = 0; i < n; i++) {
        g->ranks[i] = all + k;
        for (;;) {
            int64_t v;
            s = read_int(s, end, &v);
            if (!s || v < p->first_rank || v >= p->first_rank + p->n_ranks) return bad(r, "bad rank in a group");
            all[k++] = (int32_t)v;
            g->sizes[i]++;
            if (s == end || *s == ';') break;
            if (*s++ != ',') return bad(r, "bad group");
        }
        if (i + 1 < n && (s == end || *s++ != ';')) return bad(r, "bad group");
    }
    p->n_groups++;
    return TPL_OK;
}

static tpl_status read_value(reader *r)
{
    tpl_program *p = r->p;
    tpl_prog_value *v = &p->values[p->n_values];
    int64_t n;
    if (!word_id(r, p->n_values) || !next_word(r) || !(v->name = copy_word(r)) || !next_word(r))
        return bad(r, "bad value");
    int act = 0;
    while (act < TPL_N_ACTS && !is_word(r, tpl_act_names[act])) act++;
    if (act == TPL_N_ACTS) return bad(r, "unknown value type");
    v->act = (tpl_act)act;
    if (!next_word(r) || r->len < 5 || r->word[3] != '/') return bad(r, "bad value rows");
    if (!memcmp(r->word, "out", 3))
        v->sym = TPL_SYM_OUT;
    else if (memcmp(r->word, "tok", 3))
        return bad(r, "unknown symbol");
    if (read_int(r->word + 4, r->word + r->len, &n) != r->word + r->len || n < 1 || n > 4096)
        return bad(r, "bad divisor");
    v->div = (uint32_t)n;
    if (!word_whole(r, &v->cols) || !next_word(r) || *r->word != '@') return bad(r, "bad value");
    if (read_int(r->word + 1, r->word + r->len, &n) != r->word + r->len || n < 0 || n % 64)
        return bad(r, "bad offset");
    v->offset = (uint64_t)n;
    p->n_values++;
    return TPL_OK;
}

static tpl_status read_weight(reader *r)
{
    tpl_program *p = r->p;
    tpl_prog_weight *w = &p->weights[p->n_weights];
    if (!word_id(r, p->n_weights) || !next_word(r) || !(w->name = copy_word(r)) || !next_word(r))
        return bad(r, "bad weight");
    w->is_vector = is_word(r, "vector");
    if (!w->is_vector && !is_word(r, "matrix")) return bad(r, "unknown weight kind");
    if (!next_word(r) || !(w->tensor = copy_word(r)) || !next_word(r)) return bad(r, "bad weight");
    char name[16] = "";
    if (r->len < sizeof name) memcpy(name, r->word, r->len);
    int dtype = tpl_dtype_find(name);
    if (dtype < 0) return bad(r, "unknown dtype");
    w->dtype = (tpl_dtype)dtype;
    if (!word_count(r, INT64_MAX, &w->rows) || !word_count(r, INT64_MAX, &w->cols)) return bad(r, "bad weight shape");
    if (!word_whole(r, &w->row_index) || !word_whole(r, &w->col_index)) return bad(r, "bad weight index");
    p->n_weights++;
    return TPL_OK;
}

static tpl_status read_state(reader *r)
{
    tpl_program *p = r->p;
    tpl_prog_state *s = &p->states[p->n_states];
    int64_t layer;
    if (!word_id(r, p->n_states) || !next_word(r) || !(s->name = copy_word(r)) || !word_count(r, 65535, &layer) ||
        !word_whole(r, &s->kvh) || !word_whole(r, &s->hd))
        return bad(r, "bad state");
    s->layer = (int32_t)layer;
    p->n_states++;
    return TPL_OK;
}

/* "3,4" -> ids below `most` */
static bool read_ids(const char *s, const char *end, int most, int cap, int32_t *out, int32_t *n)
{
    for (*n = 0; s < end;) {
        int64_t v;
        if (*n == cap || !(s = read_int(s, end, &v)) || v < 0 || v >= most) return false;
        out[(*n)++] = (int32_t)v;
        if (s < end && (*s++ != ',' || s == end)) return false;
    }
    return *n > 0;
}

static bool read_imms(reader *r, const char *s, const char *end, tpl_prog_op *op)
{
    while (s < end) {
        const char *q = s;
        while (q < end && *q != ',') q++;
        if (op->n_imm == TPL_MAX_IMM || !read_num(r, s, q, &op->imm[op->n_imm])) return false;
        op->n_imm++;
        s = q < end ? q + 1 : q;
    }
    return op->n_imm > 0;
}

static bool read_one(const char *s, const char *end, int most, int32_t *out)
{
    int32_t n;
    return read_ids(s, end, most, 1, out, &n);
}

static bool read_key(reader *r, tpl_prog_op *op)
{
    const tpl_program *p = r->p;
    const char *eq = memchr(r->word, '=', r->len), *end = r->word + r->len;
    if (!eq) return false;
    size_t k = (size_t)(eq - r->word);
    const char *s = eq + 1;
#define KEY(name) (k == sizeof name - 1 && !memcmp(r->word, name, k))
    if (KEY("out")) return read_ids(s, end, p->n_values, TPL_MAX_OPERANDS, op->out, &op->n_out);
    if (KEY("in")) return read_ids(s, end, p->n_values, TPL_MAX_OPERANDS, op->in, &op->n_in);
    if (KEY("w")) return read_ids(s, end, p->n_weights, TPL_MAX_OPERANDS, op->w, &op->n_w);
    if (KEY("state")) return read_one(s, end, p->n_states, &op->state);
    if (KEY("group")) return read_one(s, end, p->n_groups, &op->group);
    if (KEY("cseq")) return read_one(s, end, INT32_MAX, &op->cseq);
    if (KEY("imm")) return read_imms(r, s, end, op);
    if (KEY("src")) {
        r->word = s;
        r->len = (size_t)(end - s);
        return (op->src = copy_word(r)) != NULL;
    }
#undef KEY
    return false;
}

/* Counts and types against the op list: as many immediates as it names, whole numbers where it wants them. */
static tpl_status check_op(reader *r, const tpl_prog_op *op)
{
    const tpl_op_info *info = &tpl_op_infos[op->kind];
    int n = 0;
    if (op->n_out > info->n_out || op->n_in > info->n_in || op->n_w > info->n_w) return bad(r, "too many operands");
    if ((info->flags & TPL_OP_XFER) && (op->n_out < info->n_out || op->n_in < info->n_in))
        return bad(r, "a transfer needs its value");
    for (const char *imm = info->imm; *imm; imm++) {
        if (*imm != ':') continue;
        if (n < op->n_imm && imm[1] == 'i' && op->imm[n].is_float)
            return bad(r, "an immediate is not a whole number");
        n++;
    }
    if (op->n_imm != n) return bad(r, "wrong number of immediates");
    if ((info->flags & TPL_OP_STATE) && op->state < 0) return bad(r, "op needs a state");
    if ((info->flags & TPL_OP_COLL) && (op->group < 0 || op->cseq < 0))
        return bad(r, "collective needs group and cseq");
    return TPL_OK;
}

static tpl_status read_op(reader *r)
{
    tpl_program *p = r->p;
    tpl_prog_op *op = &p->ops[p->n_ops];
    char kind[24] = "";
    int64_t layer;
    op->state = op->group = op->cseq = -1;
    if (!next_word(r) || !(op->name = copy_word(r)) || !next_word(r)) return bad(r, "bad op");
    if (r->len < sizeof kind) memcpy(kind, r->word, r->len);
    int k = tpl_op_find(kind);
    if (k < 0) return bad(r, "unknown op");
    op->kind = (tpl_op_kind)k;
    if (!word_int(r, &layer) || layer < -1 || layer > 65535 || !next_word(r) || !(op->mark = copy_word(r)) ||
        !next_word(r))
        return bad(r, "bad op");
    op->layer = (int32_t)layer;
    for (size_t i = 0; i < r->len; i++) {
        if (r->word[i] == 'b')
            op->flags |= TPL_OPF_BARRIER;
        else if (r->word[i] == 'r')
            op->flags |= TPL_OPF_ROOT;
        else if (r->word[i] != '-')
            return bad(r, "unknown op flag");
    }
    while (next_word(r))
        if (!read_key(r, op)) return bad(r, "bad op field");
    TPL_TRY(check_op(r, op));
    p->n_ops++;
    return TPL_OK;
}

static tpl_status read_caps(reader *r)
{
    static const char *const names[] = { "tok", "seq", "out", "vocab" };
    uint32_t *to[] = { &r->p->caps.tok, &r->p->caps.seq, &r->p->caps.out, &r->p->caps.vocab };
    for (int i = 0; i < 4; i++) {
        int64_t v;
        if (!next_word(r) || !is_word(r, names[i]) || !word_count(r, 1 << 28, &v) || v < 1) return bad(r, "bad caps");
        *to[i] = (uint32_t)v;
    }
    return TPL_OK;
}

/* Lines of the head come first and once: what follows is sized by them. */
static tpl_status read_head(reader *r, bool *handled)
{
    static const char *const names[] = { "tpl-program", "stage", "ranks", "caps", "arena" };
    tpl_program *p = r->p;
    int64_t a, b;
    int at = 0;
    while (at < N_HEAD && !is_word(r, names[at])) at++;
    *handled = at < N_HEAD;
    if (*handled && r->line != at + 1) return bad(r, "the lines of the head are not in order");
    if (is_word(r, "tpl-program"))
        return word_int(r, &a) && a == TPL_PROGRAM_VERSION ? TPL_OK : bad(r, "unknown program version");
    if (is_word(r, "stage")) {
        if (!word_count(r, 4096, &a) || !next_word(r) || !(p->kinds = copy_word(r))) return bad(r, "bad stage");
        p->stage = (int32_t)a;
        return TPL_OK;
    }
    if (is_word(r, "ranks")) {
        if (!word_count(r, 65536, &a) || !word_count(r, 4096, &b) || b < 1) return bad(r, "bad ranks");
        p->first_rank = (int32_t)a;
        p->n_ranks = (int32_t)b;
        return TPL_OK;
    }
    if (is_word(r, "caps")) return read_caps(r);
    if (is_word(r, "arena")) {
        if (!word_count(r, INT64_MAX, &a)) return bad(r, "bad arena");
        p->arena_bytes = (uint64_t)a;
    }
    return TPL_OK;
}

static tpl_status read_line(reader *r)
{
    bool handled;
    TPL_TRY(read_head(r, &handled));
    if (handled) return TPL_OK;
    if (r->line <= N_HEAD) return bad(r, "the head of the program is missing");
    if (is_word(r, "table")) return read_table(r);
    if (is_word(r, "index")) return read_index(r);
    if (is_word(r, "k")) return read_const(r);
    if (is_word(r, "group")) return read_group(r);
    if (is_word(r, "value")) return read_value(r);
    if (is_word(r, "weight")) return read_weight(r);
    if (is_word(r, "state")) return read_state(r);
    if (is_word(r, "op")) return read_op(r);
    return bad(r, "unknown line");
}

/* Arrays are sized by a first pass that counts the lines. */
static bool size_arrays(tpl_program *p, const char *text, size_t len)
{
    size_t n[8] = { 0 };
    static const char *const words[] = { "table", "index", "k", "group", "value", "weight", "state", "op" };
    reader r = { .at = text, .end = text + len }; /* the same words as the second pass sees */
    while (r.at < r.end) {
        bool has_word = next_word(&r);
        for (int i = 0; has_word && i < 8; i++) n[i] += is_word(&r, words[i]);
        const char *nl = memchr(r.at, '\n', (size_t)(r.end - r.at));
        r.at = nl ? nl + 1 : r.end;
    }
    return (p->tables = take(p, n[0], sizeof *p->tables)) && (p->indices = take(p, n[1], sizeof *p->indices)) &&
           (p->consts = take(p, n[2], sizeof *p->consts)) && (p->groups = take(p, n[3], sizeof *p->groups)) &&
           (p->values = take(p, n[4], sizeof *p->values)) && (p->weights = take(p, n[5], sizeof *p->weights)) &&
           (p->states = take(p, n[6], sizeof *p->states)) && (p->ops = take(p, n[7], sizeof *p->ops));
}

/* -- Checks over the whole -------------------------------------------------------------------------------- */

static tpl_status check_index(const tpl_program *p, tpl_num n, int64_t size, const char *what, tpl_err *err)
{
    for (int r = 0; r < p->n_ranks; r++) {
        int64_t i = tpl_num_get(p, n, r);
        if (i < 0 || i >= p->n_indices)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, "program", "%s: index list %" PRId64 " is not defined", what, i);
        const tpl_index *x = &p->indices[i];
        for (int j = 0; j < x->n; j++)
            if (x->ranges[j].first + x->ranges[j].count > size)
                return tpl_fail(err, TPL_ERR_FORMAT, 0, "program",
                                "%s: index list %" PRId64 " exceeds the size %" PRId64, what, i, size);
    }
    return TPL_OK;
}

static tpl_status check_value(const tpl_program *p, const tpl_prog_value *v, tpl_err *err)
{
    uint64_t cap = v->sym == TPL_SYM_TOK ? p->caps.tok : p->caps.out;
    for (int r = 0; r < p->n_ranks; r++) {
        int64_t cols = tpl_num_get(p, v->cols, r);
        uint64_t bytes;
        if (cols < 0 || cols > INT32_MAX || (tpl_act_in_blocks(v->act) && cols % 32))
            return tpl_fail(err, TPL_ERR_FORMAT, 0, "program", "value '%s' has %" PRId64 " columns", v->name, cols);
        uint64_t stride = tpl_row_bytes(v->act, cols);
        if (!ck_mul((cap + v->div - 1) / v->div, stride, &bytes) || !ck_range(v->offset, bytes, p->arena_bytes))
            return tpl_fail(err, TPL_ERR_FORMAT, 0, "program", "value '%s' lies outside the arena", v->name);
    }
    return TPL_OK;
}

static tpl_status check(const tpl_program *p, tpl_err *err)
{
    if (!p->kinds || !p->caps.tok || !p->n_ops)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, "program", "the program is incomplete");
    for (int i = 0; i < p->n_values; i++) TPL_TRY(check_value(p, &p->values[i], err));
    for (int i = 0; i < p->n_weights; i++) {
        TPL_TRY(check_index(p, p->weights[i].row_index, p->weights[i].rows, p->weights[i].name, err));
        TPL_TRY(check_index(p, p->weights[i].col_index, p->weights[i].cols, p->weights[i].name, err));
    }
    return TPL_OK;
}

tpl_status tpl_program_parse(tpl_program **out, const char *text, size_t len, tpl_err *err)
{
    *out = NULL;
    tpl_program *p = calloc(1, sizeof *p);
    if (!p) return tpl_fail(err, TPL_ERR_MEM, 0, "program", "out of memory");
    reader r = { .p = p, .at = text, .end = text + len, .err = err };
    tpl_status st = size_arrays(p, text, len) ? TPL_OK : tpl_fail(err, TPL_ERR_MEM, 0, "program", "out of memory");
    while (!st && r.at < r.end) {
        r.line++;
        r.word = NULL;
        if (!next_word(&r))
            st = bad(&r, "empty line");
        else
            st = read_line(&r);
        if (!st && r.at < r.end && *r.at++ != '\n') st = bad(&r, "too many words");
    }
    if (!st) st = check(p, err);
    if (st) {
        tpl_program_free(p);
        return st;
    }
    *out = p;
    return TPL_OK;
}

void tpl_program_free(tpl_program *p)
{
    if (!p) return;
    for (tpl_prog_block *b = p->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(p);
}
