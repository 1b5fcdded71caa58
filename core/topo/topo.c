/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/topo_priv.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16 }; /* entries of a list: a machine has thousands of PCI functions at most */

tpl_topo_facts *tpl_topo_new(void)
{
    tpl_topo_facts *f = calloc(1, sizeof *f);
    if (f && tpl_topo_set(&f->cpus_allowed, "") && tpl_topo_set(&f->mems_allowed, "")) return f;
    tpl_topo_free(f);
    return NULL;
}

void tpl_topo_free(tpl_topo_facts *f)
{
    if (!f) return;
    for (int i = 0; i < f->n_nodes; i++) free(f->nodes[i].cpus);
    for (int i = 0; i < f->n_pcis; i++) {
        free(f->pcis[i].cpus);
        free(f->pcis[i].path);
    }
    free(f->nodes);
    free(f->pcis);
    free(f->nics);
    free(f->cpus_allowed);
    free(f->mems_allowed);
    free(f);
}

bool tpl_topo_set(char **to, const char *text)
{
    char *copy = strdup(text);
    if (!copy) return false;
    free(*to);
    *to = copy;
    return true;
}

tpl_status tpl_topo_no_memory(tpl_err *err)
{
    return tpl_fail(err, TPL_ERR_MEM, 0, "topology", "out of memory");
}

/* The place after n entries of `bytes` each, zeroed; doubles at powers of two. NULL without memory or over MOST. */
static void *grow(void **list, int n, size_t bytes)
{
    if (n >= MOST) return NULL;
    if ((n & (n - 1)) == 0) {
        void *p = realloc(*list, (size_t)(n ? 2 * n : 1) * bytes);
        if (!p) return NULL;
        *list = p;
    }
    return memset((char *)*list + (size_t)n * bytes, 0, bytes);
}

tpl_topo_node *tpl_topo_add_node(tpl_topo_facts *f)
{
    void *list = f->nodes;
    tpl_topo_node *x = grow(&list, f->n_nodes, sizeof *x);
    f->nodes = list;
    if (!x || !tpl_topo_set(&x->cpus, "")) return NULL;
    x->id = x->package = -1;
    f->n_nodes++;
    return x;
}

tpl_topo_pci *tpl_topo_add_pci(tpl_topo_facts *f)
{
    void *list = f->pcis;
    tpl_topo_pci *x = grow(&list, f->n_pcis, sizeof *x);
    f->pcis = list;
    if (!x || !tpl_topo_set(&x->cpus, "")) return NULL;
    if (!tpl_topo_set(&x->path, "")) {
        free(x->cpus);
        return NULL;
    }
    x->numa = -1;
    f->n_pcis++;
    return x;
}

tpl_topo_nic *tpl_topo_add_nic(tpl_topo_facts *f)
{
    void *list = f->nics;
    tpl_topo_nic *x = grow(&list, f->n_nics, sizeof *x);
    f->nics = list;
    if (x) f->n_nics++;
    return x;
}

static int by_id(const void *a, const void *b)
{
    const tpl_topo_node *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_bdf(const void *a, const void *b)
{
    return strcmp(((const tpl_topo_pci *)a)->bdf, ((const tpl_topo_pci *)b)->bdf);
}

/* mlx5_2 before mlx5_10: by the text before the final number, then by the number. */
static int by_name(const void *a, const void *b)
{
    const char *x = ((const tpl_topo_nic *)a)->name, *y = ((const tpl_topo_nic *)b)->name;
    size_t nx = strcspn(x, "0123456789"), ny = strcspn(y, "0123456789");
    if (nx == ny && !strncmp(x, y, nx)) {
        size_t lx = strlen(x), ly = strlen(y);
        if (lx != ly) return lx < ly ? -1 : 1;
    }
    return strcmp(x, y);
}

void tpl_topo_sort(tpl_topo_facts *f)
{
    if (f->n_nodes) qsort(f->nodes, (size_t)f->n_nodes, sizeof *f->nodes, by_id);
    if (f->n_pcis) qsort(f->pcis, (size_t)f->n_pcis, sizeof *f->pcis, by_bdf);
    if (f->n_nics) qsort(f->nics, (size_t)f->n_nics, sizeof *f->nics, by_name);
}
