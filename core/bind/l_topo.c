/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.topo: raw facts of this machine as tables, absent = unknown. lua/tpl/topo/probe.lua makes the record of them.
 * Bytes are numbers, NVML's codes are words or NVML's own numbers. Owner thread of the state.
 */
#include <stdio.h>
#include <string.h>

#include "bind/bind.h"
#include "topo/cuda.h"
#include "topo/nvml.h"
#include "topo/topo.h"

int tpl_open_topo(lua_State *L);

/* -- Fields: all set a key of the table on top, or leave it absent when the value is unknown ---- */

static void set_text(lua_State *L, const char *key, const char *s)
{
    if (!*s) return;
    lua_pushstring(L, s);
    lua_setfield(L, -2, key);
}

static void set_known(lua_State *L, const char *key, int v)
{
    if (v >= 0) tpl_set_number(L, key, v);
}

static void set_bytes(lua_State *L, const char *key, uint64_t v)
{
    if (v) tpl_set_number(L, key, (double)v);
}

static void set_flag(lua_State *L, const char *key, bool v)
{
    lua_pushboolean(L, v);
    lua_setfield(L, -2, key);
}

static void set_code(lua_State *L, const char *key, int code)
{
    char buf[24];
    lua_pushstring(L, tpl_nvml_code_name(code, buf));
    lua_setfield(L, -2, key);
}

/* -- Facts of the system ---- */

static void facts_close(void *obj) { tpl_topo_free(obj); }
static const tpl_class facts_class = { "tpl.topo.facts", facts_close, NULL };

static void push_node(lua_State *L, const tpl_topo_node *n)
{
    lua_createtable(L, 0, 5);
    tpl_set_number(L, "id", n->id);
    set_known(L, "package", n->package);
    lua_pushstring(L, n->cpus); /* "" is known: a node without cores */
    lua_setfield(L, -2, "cpus");
    set_bytes(L, "mem_bytes", n->mem_bytes);
    set_bytes(L, "free_bytes", n->free_bytes);
}

static void push_pci(lua_State *L, const tpl_topo_pci *p)
{
    lua_createtable(L, 0, 7);
    set_text(L, "pci", p->bdf);
    tpl_set_number(L, "class", p->class_id);
    tpl_set_number(L, "vendor", p->vendor);
    tpl_set_number(L, "device", p->device);
    set_known(L, "numa", p->numa);
    set_text(L, "cpus", p->cpus);
    set_text(L, "path", p->path);
}

static void push_nic(lua_State *L, const tpl_topo_nic *n)
{
    lua_createtable(L, 0, 3);
    set_text(L, "name", n->name);
    set_text(L, "pci", n->bdf);
    set_flag(L, "is_ib", n->is_ib);
}

static void push_facts(lua_State *L, const tpl_topo_facts *f)
{
    lua_createtable(L, 0, 5);
    lua_createtable(L, f->n_nodes, 0);
    for (int i = 0; i < f->n_nodes; i++) {
        push_node(L, &f->nodes[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "nodes");
    lua_createtable(L, f->n_pcis, 0);
    for (int i = 0; i < f->n_pcis; i++) {
        push_pci(L, &f->pcis[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "pcis");
    lua_createtable(L, f->n_nics, 0);
    for (int i = 0; i < f->n_nics; i++) {
        push_nic(L, &f->nics[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "nics");
    set_text(L, "cpus_allowed", f->cpus_allowed);
    set_text(L, "mems_allowed", f->mems_allowed);
}

/* sysfs([root]) -> {nodes, pcis, nics, cpus_allowed, mems_allowed} as the files below root/sys and root/proc say */
static int topo_sysfs(lua_State *L)
{
    const char *root = luaL_optstring(L, 1, NULL);
    void **box = tpl_box_new(L, &facts_class);
    tpl_topo_facts *f;
    tpl_err err = { 0 };
    if (tpl_topo_sysfs(&f, root, &err)) return tpl_push_err(L, &err);
    *box = f;
    push_facts(L, f);
    return 1;
}

/* hwloc() -> the same fields of this machine, as libhwloc sees it */
static int topo_hwloc(lua_State *L)
{
    void **box = tpl_box_new(L, &facts_class);
    tpl_topo_facts *f;
    tpl_err err = { 0 };
    if (tpl_topo_hwloc(&f, &err)) return tpl_push_err(L, &err);
    *box = f;
    push_facts(L, f);
    return 1;
}

/* -- NVML ---- */

static void nvml_close(void *obj) { tpl_nvml_free(obj); }
static const tpl_class nvml_class = { "tpl.topo.nvml", nvml_close, NULL };

static const char *level_word(int level)
{
    switch (level) { /* 0 is one board with two GPUs: a switch on it joins them */
    case 0:
    case 10: return "pix";
    case 20: return "pxb";
    case 30: return "phb";
    case 40: return "node";
    case 50: return "sys";
    default: return "";
    }
}

static const char *p2p_word(int status)
{
    static const char *const words[] = { "ok", "cns", "gns", "tns", "dr", "ns", "u" };
    return status >= 0 && status < 7 ? words[status] : "";
}

/* "0-23,48-71" */
static void set_list(lua_State *L, const char *key, const unsigned long *set)
{
    enum { BITS = 8 * sizeof *set };
    luaL_Buffer b;
    bool any = false;
    luaL_buffinit(L, &b);
    for (int i = 0, n = TPL_NVML_SET_WORDS * BITS; i < n; i++) {
        int first = i;
        char part[32];
        while (i < n && set[i / BITS] >> i % BITS & 1) i++;
        if (i == first) continue;
        snprintf(part, sizeof part, i - 1 > first ? "%s%d-%d" : "%s%d", any ? "," : "", first, i - 1);
        luaL_addstring(&b, part);
        any = true;
    }
    luaL_pushresult(&b);
    if (any)
        lua_setfield(L, -2, key);
    else
        lua_pop(L, 1);
}

static void set_fabric(lua_State *L, const tpl_nvml_gpu *g)
{
    char hex[33];
    if (g->fabric_state < 0) return;
    for (int i = 0; i < 16; i++) snprintf(hex + 2 * i, 3, "%02x", g->fabric_cluster[i]);
    lua_createtable(L, 0, 6);
    tpl_set_number(L, "state", g->fabric_state);
    set_code(L, "status", g->fabric_status);
    set_text(L, "cluster", hex);
    tpl_set_number(L, "clique", g->fabric_clique);
    set_known(L, "summary", g->fabric_summary);
    set_known(L, "mask", g->fabric_mask);
    lua_setfield(L, -2, "fabric");
}

static void set_slices(lua_State *L, const tpl_nvml_gpu *g)
{
    lua_createtable(L, g->n_slices, 0);
    for (int i = 0; i < g->n_slices; i++) {
        const tpl_nvml_slice *s = &g->slices[i];
        lua_createtable(L, 0, 6);
        set_text(L, "uuid", s->uuid);
        set_text(L, "name", s->name);
        set_bytes(L, "mem_bytes", s->total);
        if (s->free || s->used) tpl_set_number(L, "free_bytes", (double)s->free);
        if (s->free || s->used) tpl_set_number(L, "used_bytes", (double)s->used);
        set_known(L, "gpu_slices", s->gpu_slices);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "slices");
}

static void set_links(lua_State *L, const tpl_nvml_gpu *g)
{
    static const char *const types[] = { "gpu", "ibmnpu", "switch" };
    if (!g->knows_links) return;
    lua_createtable(L, g->n_links, 0);
    for (int i = 0; i < g->n_links; i++) {
        const tpl_nvml_link *k = &g->links[i];
        lua_createtable(L, 0, 4);
        tpl_set_number(L, "link", k->number);
        set_known(L, "version", k->version);
        set_text(L, "pci", k->bus_id);
        if (k->type >= 0 && k->type < 3) set_text(L, "type", types[k->type]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "nvlinks");
}

static void set_memory(lua_State *L, const tpl_nvml_gpu *g)
{
    if (!g->total) return;
    tpl_set_number(L, "mem_bytes", (double)g->total);
    tpl_set_number(L, "free_bytes", (double)g->free);
    tpl_set_number(L, "used_bytes", (double)g->used);
    tpl_set_number(L, "reserved_bytes", (double)g->reserved);
}

static void set_processes(lua_State *L, const tpl_nvml_gpu *g)
{
    if (!g->knows_processes) return;
    lua_createtable(L, g->n_pids, 0);
    for (int i = 0; i < g->n_pids; i++) {
        lua_pushinteger(L, g->pids[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "pids");
}

static void push_gpu(lua_State *L, const tpl_nvml_gpu *g)
{
    char sm[24];
    lua_createtable(L, 0, 32);
    tpl_set_number(L, "index", g->index);
    if (g->open_code) set_code(L, "open", g->open_code);
    if (g->bad_code) set_code(L, "bad", g->bad_code);
    if (g->open_code) return;
    snprintf(sm, sizeof sm, "%d.%d", g->sm_major, g->sm_minor);
    set_text(L, "uuid", g->uuid);
    set_text(L, "pci", g->bus_id);
    set_text(L, "name", g->name);
    set_text(L, "vbios", g->vbios);
    set_text(L, "sm", g->sm_major >= 0 ? sm : "");
    set_memory(L, g);
    set_known(L, "gen_max", g->gen_max);
    set_known(L, "width_max", g->width_max);
    set_known(L, "width_now", g->width_now);
    set_known(L, "mig_now", g->mig_now);
    set_known(L, "mig_pending", g->mig_pending);
    set_slices(L, g);
    set_fabric(L, g);
    set_list(L, "cpus", g->cpus);
    set_list(L, "nodes", g->nodes);
    set_known(L, "own_node", g->own_node);
    set_processes(L, g);
    set_known(L, "remapped", g->remapped_uncorrected);
    set_known(L, "remap_pending", g->remap_pending);
    set_known(L, "remap_failed", g->remap_failed);
    if (g->ecc_uncorrected >= 0) tpl_set_number(L, "ecc", (double)g->ecc_uncorrected);
    set_links(L, g);
    if (g->c2c_links) tpl_set_number(L, "c2c_links", g->c2c_links);
    if (g->c2c_gb_s > 0) tpl_set_number(L, "c2c_gb_s", g->c2c_gb_s);
}

/* A list of {a=, b=, level=, read=, write=, nvlink=}: a and b are places in gpus, from 1; both ways are listed. */
static void set_pairs(lua_State *L, const tpl_nvml *n)
{
    int at = 0;
    lua_newtable(L);
    for (int a = 0; a < n->n_gpus; a++)
        for (int b = 0; b < n->n_gpus; b++) {
            const tpl_nvml_pair *p = &n->pairs[a * n->n_gpus + b];
            if (a == b) continue;
            lua_createtable(L, 0, 6);
            tpl_set_number(L, "a", a + 1);
            tpl_set_number(L, "b", b + 1);
            set_text(L, "level", level_word(p->level));
            set_text(L, "read", p2p_word(p->read));
            set_text(L, "write", p2p_word(p->write));
            set_text(L, "nvlink", p2p_word(p->nvlink));
            lua_rawseti(L, -2, ++at);
        }
    lua_setfield(L, -2, "pairs");
}

/* nvml([library]) -> {loaded, message, init, driver, cuda, missing, gpus, pairs}; init is "SUCCESS" or why not */
static int topo_nvml(lua_State *L)
{
    const char *library = luaL_optstring(L, 1, NULL);
    void **box = tpl_box_new(L, &nvml_class);
    tpl_nvml *n;
    tpl_err err = { 0 };
    if (tpl_nvml_read(&n, library, &err)) return tpl_push_err(L, &err);
    *box = n;
    lua_createtable(L, 0, 8);
    set_flag(L, "loaded", n->is_loaded);
    set_text(L, "message", n->message);
    if (n->is_loaded) set_code(L, "init", n->init_code);
    set_text(L, "driver", n->driver);
    if (n->cuda > 0) tpl_set_number(L, "cuda", n->cuda);
    set_text(L, "missing", n->missing[0] ? n->missing + 1 : "");
    lua_createtable(L, n->n_gpus, 0);
    for (int i = 0; i < n->n_gpus; i++) {
        push_gpu(L, &n->gpus[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "gpus");
    set_pairs(L, n);
    return 1;
}

/* cuda_order([library]) -> addresses of the GPUs that CUDA shows this process, device 0 first; nil without its driver */
static int topo_cuda_order(lua_State *L)
{
    tpl_cuda_order order;
    if (!tpl_cuda_order_read(&order, luaL_optstring(L, 1, NULL))) return 0;
    lua_createtable(L, order.n, 0);
    for (int i = 0; i < order.n; i++) {
        lua_pushstring(L, order.bus_id[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* hwloc_version() -> "2.9.0" */
static int topo_hwloc_version(lua_State *L)
{
    lua_pushstring(L, tpl_topo_hwloc_version());
    return 1;
}

int tpl_open_topo(lua_State *L)
{
    static const luaL_Reg functions[] = { { "sysfs", topo_sysfs },
                                          { "hwloc", topo_hwloc },
                                          { "nvml", topo_nvml },
                                          { "cuda_order", topo_cuda_order },
                                          { "hwloc_version", topo_hwloc_version },
                                          { NULL, NULL } };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
