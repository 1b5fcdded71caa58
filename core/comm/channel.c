/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring of slots between pipeline stages. `sent` counts messages; each reader counts what it has taken.
 * Message k lies in the slot of message k - n_slots, and may be written once every reader has taken message k
 * - n_slots. Counts wrap, only their differences matter; which slot comes next is kept apart for that reason.
 */
#include <stdalign.h>
#include <string.h>

#include "base/ck.h"
#include "base/gate.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "comm/pull_priv.h"

typedef struct reader {
    alignas(TPL_LINE) tpl_gate taken;
    int slot; /* of the next message; written by the team's thread 0 */
} reader;

struct tpl_channel {
    int n_readers, n_slots;
    size_t slot_bytes, stride, map_bytes;
    uint32_t spin;
    tpl_abort *abort;
    char *slots;    /* [n_slots] stride bytes each */
    size_t *bytes;  /* [n_slots] size of the message in it */
    reader *readers;
    alignas(TPL_LINE) tpl_gate sent;
    int slot;       /* of the next message; written by the writer's thread 0 */
};

tpl_status tpl_channel_new(tpl_channel **out, int n_readers, int n_slots, size_t slot_bytes, uint32_t spin,
                           tpl_abort *abort, tpl_err *err)
{
    uint64_t stride, total;
    *out = NULL;
    if (n_readers < 1 || n_slots < 1)
        return tpl_fail(err, TPL_ERR_ARG, 0, "", "a channel needs readers and slots, not %d and %d",
                        n_readers, n_slots);
    if (!ck_align(slot_bytes, TPL_LINE, &stride) || !ck_mul(stride, (uint64_t)n_slots, &total))
        return tpl_fail(err, TPL_ERR_MEM, 0, "", "a channel of %d slots of %zu bytes is too large", n_slots,
                        slot_bytes);
    tpl_channel *c = tpl_mem_alloc(sizeof *c);
    if (!c) return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for a channel");
    *c = (tpl_channel){
        .n_readers = n_readers, .n_slots = n_slots, .slot_bytes = slot_bytes, .stride = stride
    };
    c->map_bytes = total;
    c->spin = spin;
    c->abort = abort;
    c->bytes = tpl_mem_alloc((size_t)n_slots * sizeof *c->bytes);
    c->readers = tpl_mem_alloc((size_t)n_readers * sizeof *c->readers);
    void *slots = NULL;
    tpl_status st = tpl_mem_map(&slots, total, err);
    if (!c->bytes || !c->readers) st = tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for a channel");
    c->slots = slots;
    if (st) {
        tpl_channel_free(c);
        return st;
    }
    *out = c;
    return TPL_OK;
}

void tpl_channel_free(tpl_channel *c)
{
    if (!c) return;
    tpl_mem_unmap(c->slots, c->map_bytes);
    tpl_mem_free(c->bytes);
    tpl_mem_free(c->readers);
    tpl_mem_free(c);
}

void tpl_channel_reset(tpl_channel *c)
{
    uint32_t sent = tpl_gate_get(&c->sent);
    for (int r = 0; r < c->n_readers; r++) {
        tpl_gate_set(&c->readers[r].taken, sent);
        c->readers[r].slot = c->slot;
    }
}

static bool wrong_size(const tpl_channel *c, const char *verb, size_t got, size_t want)
{
    tpl_err err = { 0 };
    tpl_fail(&err, TPL_ERR_COMM, 0, "channel", "%s %zu bytes where %zu were expected", verb, got, want);
    if (c->abort) tpl_abort_raise(c->abort, &err);
    return false;
}

static bool barrier(tpl_team *team, int ith)
{
    return !team || tpl_team_barrier(team, ith);
}

/* Lines of 64 bytes, as spans of floats are. */
static void copy_share(void *dst, const void *src, size_t bytes, tpl_team *team, int ith)
{
    tpl_span s = tpl_span_of((int64_t)((bytes + 3) / 4), ith, team ? tpl_team_size(team) : 1);
    size_t begin = (size_t)s.begin * 4, end = (size_t)s.end * 4 < bytes ? (size_t)s.end * 4 : bytes;
    if (begin < end) memcpy((char *)dst + begin, (const char *)src + begin, end - begin);
}

/* First barrier: src is complete, and nobody is still in the last call, so that `sent` and `slot` stand
 * still. Second: the slot is complete. */
bool tpl_channel_send(tpl_channel *c, const void *src, size_t bytes, tpl_team *team, int ith)
{
    if (bytes > c->slot_bytes) return wrong_size(c, "sent", bytes, c->slot_bytes);
    if (!barrier(team, ith)) return false;
    uint32_t k = atomic_load_explicit(&c->sent.word, memory_order_relaxed);
    for (int r = 0; r < c->n_readers; r++)
        if (!tpl_gate_wait(&c->readers[r].taken, k + 1 - (uint32_t)c->n_slots, c->spin, c->abort))
            return false;
    int slot = c->slot;
    copy_share(c->slots + (size_t)slot * c->stride, src, bytes, team, ith);
    if (!barrier(team, ith)) return false;
    if (ith == 0) {
        c->bytes[slot] = bytes;
        c->slot = (slot + 1) % c->n_slots;
        tpl_gate_set(&c->sent, k + 1);
    }
    return true;
}

/* First barrier: nobody uses dst any more or is still in the last call. Second: dst is complete and the
 * slot is read. */
bool tpl_channel_recv(tpl_channel *c, int reader_index, void *dst, size_t bytes, tpl_team *team, int ith)
{
    reader *r = &c->readers[reader_index];
    if (!barrier(team, ith)) return false;
    uint32_t k = atomic_load_explicit(&r->taken.word, memory_order_relaxed);
    if (!tpl_gate_wait(&c->sent, k + 1, c->spin, c->abort)) return false;
    int slot = r->slot;
    if (c->bytes[slot] != bytes) return wrong_size(c, "received", c->bytes[slot], bytes);
    copy_share(dst, c->slots + (size_t)slot * c->stride, bytes, team, ith);
    if (!barrier(team, ith)) return false;
    if (ith == 0) {
        r->slot = (slot + 1) % c->n_slots;
        tpl_gate_set(&r->taken, k + 1);
    }
    return true;
}
