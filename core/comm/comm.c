/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of transports, and the calls that only pass on to one.
 */
#include <string.h>

#include "comm/transport.h"

enum { MAX_MEMBERS = 64 }; /* bits of the mask of absent members */

static const tpl_transport *const transports[] = { &tpl_transport_shm };
enum { N_TRANSPORTS = sizeof transports / sizeof *transports };

const char *const *tpl_comm_transports(void)
{
    static const char *const names[] = { "shm", NULL }; /* in the order of `transports` */
    return names;
}

static const tpl_transport *find(const char *name)
{
    for (int i = 0; i < N_TRANSPORTS; i++)
        if (!strcmp(transports[i]->name, name)) return transports[i];
    return NULL;
}

static tpl_status check_group(const tpl_comm_desc *d, int g, tpl_err *err)
{
    int n = d->group_sizes[g];
    if (n < 1 || n > MAX_MEMBERS)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "mesh", "group %d has %d members, 1 to %d are supported",
                        g, n, MAX_MEMBERS);
    for (int i = 0; i < n; i++) {
        int rank = d->group_ranks[g][i];
        if (rank < 0 || rank >= d->n_ranks)
            return tpl_fail(err, TPL_ERR_ARG, 0, "mesh", "group %d names rank %d, there are %d ranks", g,
                            rank, d->n_ranks);
        for (int j = 0; j < i; j++)
            if (d->group_ranks[g][j] == rank)
                return tpl_fail(err, TPL_ERR_ARG, 0, "mesh", "group %d names rank %d twice", g, rank);
    }
    return TPL_OK;
}

tpl_status tpl_comm_open(tpl_comm **out, const char *transport, const tpl_comm_desc *desc, tpl_err *err)
{
    *out = NULL;
    const tpl_transport *t = find(transport);
    if (!t) {
        tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "transport", "no transport named '%s' in this build",
                 transport);
        return tpl_hint(err, TPL_ERR_UNSUPPORTED, "`tpl version` lists the transports");
    }
    for (int g = 0; g < desc->n_groups; g++) TPL_TRY(check_group(desc, g, err));
    return t->open(out, desc, err);
}

void tpl_comm_close(tpl_comm *c)
{
    if (c) c->transport->close(c);
}

void tpl_comm_reset(tpl_comm *c)
{
    c->transport->reset(c);
}

tpl_group *tpl_comm_group(tpl_comm *c, int g, int rank)
{
    return c->transport->group(c, g, rank);
}

int tpl_group_size(const tpl_group *g)
{
    return g->size;
}

int tpl_group_index(const tpl_group *g)
{
    return g->index;
}

const int *tpl_group_ranks(const tpl_group *g)
{
    return g->ranks;
}

bool tpl_coll_run(tpl_group *g, const tpl_coll *c, tpl_team *team, int ith)
{
    return g->transport->run(g, c, team, ith);
}

uint64_t tpl_group_absent(const tpl_group *g, size_t *bytes, const char **name, uint32_t *cseq)
{
    return g->transport->absent(g, bytes, name, cseq);
}
