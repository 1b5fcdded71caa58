/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/weights.h"

#include <inttypes.h>
#include <string.h>

#include "base/ck.h"
#include "base/mem.h"
#include "kernels/pack.h"

enum { MAX_SWAPPED = 64 };     /* ranges of a shard that a planted fault may swap */
enum { READ_BYTES = 512 << 10 }; /* a read buffer: it stays in L2 between the copy from the page cache and the packing */

static const tpl_index *list(const tpl_program *p, tpl_num n, int local)
{
    return &p->indices[tpl_num_get(p, n, local)];
}

static tpl_status shard_bytes(const tpl_prog_weight *d, const tpl_weight *w, uint64_t *bytes, tpl_err *err)
{
    bool ok = d->is_vector ? ck_mul((uint64_t)w->cols, 4, bytes) && ck_align(*bytes, 64, bytes)
                           : tpl_pack_bytes(d->dtype, (uint64_t)w->rows, (uint64_t)w->cols, bytes);
    if (ok) return TPL_OK;
    return tpl_fail(err, TPL_ERR_FORMAT, 0, d->name,
                    "a shard of %" PRId64 " x %" PRId64 " %s cannot be stored in whole blocks", w->rows, w->cols,
                    tpl_dtypes[d->dtype].name);
}

tpl_status tpl_weights_measure(const tpl_program *p, int local, tpl_weight *weights, size_t *total, tpl_err *err)
{
    uint64_t sum = 0, bytes;
    for (int i = 0; i < p->n_weights; i++) {
        const tpl_prog_weight *d = &p->weights[i];
        weights[i] = (tpl_weight){ .name = d->name,
                                   .dtype = d->is_vector ? TPL_DTYPE_F32 : d->dtype,
                                   .rows = list(p, d->row_index, local)->total,
                                   .cols = list(p, d->col_index, local)->total };
        TPL_TRY(shard_bytes(d, &weights[i], &bytes, err));
        if (!ck_add(sum, bytes, &sum))
            return tpl_fail(err, TPL_ERR_FORMAT, 0, d->name, "the size of the weights overflows");
    }
    return ck_size(sum, total) ? TPL_OK
                               : tpl_fail(err, TPL_ERR_MEM, 0, "weights", "the weights do not fit the address space");
}

void tpl_weights_place(const tpl_program *p, tpl_weight *weights, void *mem)
{
    char *at = mem;
    uint64_t bytes = 0;
    for (int i = 0; i < p->n_weights; i++) {
        weights[i].data = at;
        (void)!shard_bytes(&p->weights[i], &weights[i], &bytes, NULL); /* measured before */
        at += bytes;
    }
}

/* -- Which bytes ------------------------------------------------------------------------------------------ */

/* A planted fault: the index list of the next rank, filled up or cut to this rank's length; its own where that takes
 * too many ranges. */
static void swapped(const tpl_index *own, const tpl_index *other, tpl_range *room, tpl_index *out)
{
    if (own->n + other->n > MAX_SWAPPED) {
        *out = *own;
        return;
    }
    *out = (tpl_index){ .ranges = room };
    const tpl_index *src[2] = { other, own };
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < src[s]->n && out->total < own->total; i++) {
            tpl_range r = src[s]->ranges[i];
            if (r.count > own->total - out->total) r.count = own->total - out->total;
            room[out->n++] = r;
            out->total += r.count;
        }
}

bool tpl_weights_is_swapped(const tpl_program *p, int local, const tpl_prog_weight *d, const tpl_fault *fault)
{
    return p->n_ranks > 1 && tpl_fault_hits(fault, TPL_FAULT_SWAP_SHARD, p->first_rank + local, d->name, -1);
}

typedef struct shard {
    const tpl_ckpt_tensor *tensor;
    const tpl_prog_weight *desc;
    tpl_index rows, cols;
    uint64_t row_bytes, local_row_bytes; /* in the file, and of this rank's columns */
    bool all_cols;
} shard;

static tpl_status find_tensor(const tpl_load_job *job, const tpl_prog_weight *d, shard *s, tpl_err *err)
{
    const tpl_ckpt_tensor *t = tpl_checkpoint_find(job->cp, d->tensor);
    tpl_dtype dtype;
    if (!t) return tpl_fail(err, TPL_ERR_FORMAT, 0, d->tensor, "the checkpoint has no tensor '%s'", d->tensor);
    TPL_TRY(tpl_checkpoint_dtype(job->cp, t, &dtype, err));
    int64_t n = 1, last = t->n_dims ? t->dims[t->n_dims - 1] : 1;
    uint64_t want;
    for (int i = 0; i < t->n_dims; i++) n *= t->dims[i]; /* checked at open against the file's size */
    if (!ck_mul((uint64_t)d->rows, (uint64_t)d->cols, &want) || (uint64_t)n != want ||
        (!d->is_vector && last != d->cols) || dtype != d->dtype)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, d->tensor,
                        "tensor '%s' is %" PRId64 " elements of %s, the plan wants %" PRId64 " x %" PRId64 " %s",
                        d->tensor, n, tpl_dtypes[dtype].name, d->rows, d->cols, tpl_dtypes[d->dtype].name);
    s->tensor = t;
    return TPL_OK;
}

static tpl_status open_shard(const tpl_load_job *job, const tpl_prog_weight *d, tpl_range room[2][MAX_SWAPPED],
                             shard *s, tpl_err *err)
{
    const tpl_program *p = job->prog;
    s->desc = d;
    s->rows = *list(p, d->row_index, job->local);
    s->cols = *list(p, d->col_index, job->local);
    if (job->fault && tpl_weights_is_swapped(p, job->local, d, job->fault)) {
        int other = (job->local + 1) % p->n_ranks;
        tpl_index rows = s->rows, cols = s->cols;
        swapped(&rows, list(p, d->row_index, other), room[0], &s->rows);
        swapped(&cols, list(p, d->col_index, other), room[1], &s->cols);
    }
    TPL_TRY(find_tensor(job, d, s, err));
    uint32_t block = tpl_dtypes[d->dtype].n_elem;
    for (int i = 0; i < s->cols.n; i++)
        if (s->cols.ranges[i].first % block || s->cols.ranges[i].count % block)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, d->name,
                            "columns %" PRId64 "+%" PRId64 " do not lie on blocks of %u", s->cols.ranges[i].first,
                            s->cols.ranges[i].count, block);
    if (!tpl_dtype_row_bytes(d->dtype, (uint64_t)d->cols, &s->row_bytes) ||
        !tpl_dtype_row_bytes(d->dtype, (uint64_t)s->cols.total, &s->local_row_bytes))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, d->name, "rows of %" PRId64 " are not whole blocks of %s", d->cols,
                        tpl_dtypes[d->dtype].name);
    s->all_cols = s->cols.n == 1 && s->cols.total == d->cols;
    return TPL_OK;
}

static tpl_status read_at(tpl_load_job *job, const shard *s, uint64_t from, uint64_t len, void *dst, tpl_err *err)
{
    atomic_fetch_add_explicit(&job->read_bytes, len, memory_order_relaxed);
    return tpl_checkpoint_read_tensor(job->cp, s->tensor, from, len, dst, err);
}

/* n file rows from global row g on, this rank's columns of each, one after the other into dst. */
static tpl_status read_rows(tpl_load_job *job, const shard *s, int64_t g, int64_t n, char *dst, tpl_err *err)
{
    if (s->all_cols) return read_at(job, s, (uint64_t)g * s->row_bytes, (uint64_t)n * s->row_bytes, dst, err);
    uint32_t n_elem = tpl_dtypes[s->desc->dtype].n_elem, n_bytes = tpl_dtypes[s->desc->dtype].n_bytes;
    for (int64_t r = g; r < g + n; r++)
        for (int i = 0; i < s->cols.n; i++) {
            uint64_t from = (uint64_t)s->cols.ranges[i].first / n_elem * n_bytes,
                     len = (uint64_t)s->cols.ranges[i].count / n_elem * n_bytes;
            TPL_TRY(read_at(job, s, (uint64_t)r * s->row_bytes + from, len, dst, err));
            dst += len;
        }
    return TPL_OK;
}

/* -- Loading ---------------------------------------------------------------------------------------------- */

/* Walks local rows in file runs: the run that holds local row i, and how many of it follow. */
static int64_t global_row(const tpl_index *x, int64_t i, int64_t *run)
{
    for (int k = 0; k < x->n; k++) {
        if (i < x->ranges[k].count) {
            *run = x->ranges[k].count - i;
            return x->ranges[k].first + i;
        }
        i -= x->ranges[k].count;
    }
    *run = 0;
    return 0;
}

static tpl_status load_matrix(tpl_load_job *job, const shard *s, const tpl_weight *w, char *buf, size_t buf_bytes,
                              tpl_err *err)
{
    int64_t batch = (int64_t)(buf_bytes / s->local_row_bytes) / TPL_PANEL_ROWS * TPL_PANEL_ROWS;
    for (int64_t i = 0; i < w->rows; i += batch) {
        int64_t n = w->rows - i < batch ? w->rows - i : batch, run;
        for (int64_t k = 0; k < n; k += run) {
            int64_t g = global_row(&s->rows, i + k, &run);
            if (run > n - k) run = n - k;
            TPL_TRY(read_rows(job, s, g, run, buf + (uint64_t)k * s->local_row_bytes, err));
        }
        for (int64_t k = 0; k < n; k += TPL_PANEL_ROWS) {
            int rows = n - k < TPL_PANEL_ROWS ? (int)(n - k) : TPL_PANEL_ROWS;
            tpl_pack_panel(s->desc->dtype, w->cols, buf + (uint64_t)k * s->local_row_bytes, rows,
                           (i + k) / TPL_PANEL_ROWS, (void *)(uintptr_t)w->data);
        }
    }
    return TPL_OK;
}

static tpl_status load_vector(tpl_load_job *job, const shard *s, const tpl_weight *w, char *buf, tpl_err *err)
{
    TPL_TRY(read_rows(job, s, 0, 1, buf, err));
    tpl_dequant_row(s->desc->dtype, buf, w->cols, (float *)(uintptr_t)w->data);
    return TPL_OK;
}

static tpl_status load_one(tpl_load_job *job, int i, char **buf, size_t *buf_bytes, tpl_err *err)
{
    const tpl_prog_weight *d = &job->prog->weights[i];
    const tpl_weight *w = &job->weights[i];
    tpl_range room[2][MAX_SWAPPED];
    shard s;
    TPL_TRY(open_shard(job, d, room, &s, err));
    if (!w->rows || !w->cols) return TPL_OK;
    uint64_t want = s.local_row_bytes * (d->is_vector ? 1 : TPL_PANEL_ROWS);
    if (want < READ_BYTES) want = READ_BYTES;
    if (*buf_bytes < want) {
        tpl_mem_unmap(*buf, *buf_bytes);
        *buf_bytes = 0;
        void *p;
        TPL_TRY(tpl_mem_map(&p, want, err));
        *buf = p;
        *buf_bytes = want;
    }
    return d->is_vector ? load_vector(job, &s, w, *buf, err) : load_matrix(job, &s, w, *buf, *buf_bytes, err);
}

tpl_status tpl_weights_load(tpl_load_job *job, tpl_err *err)
{
    char *buf = NULL;
    size_t buf_bytes = 0;
    tpl_status st = TPL_OK;
    while (!st && !atomic_load(job->stop)) {
        int i = atomic_fetch_add(&job->next, 1);
        uint64_t bytes;
        if (i >= job->prog->n_weights) break;
        st = load_one(job, i, &buf, &buf_bytes, err);
        if (!st) st = shard_bytes(&job->prog->weights[i], &job->weights[i], &bytes, err);
        if (!st) atomic_fetch_add_explicit(&job->done_bytes, bytes, memory_order_relaxed);
    }
    if (st) atomic_store(job->stop, true);
    tpl_mem_unmap(buf, buf_bytes);
    return st;
}
