/* SPDX-License-Identifier: Apache-2.0
 *
 * libhwloc 2.x. I/O objects are filtered out by default and have no sets of their own: the node and the cores of a PCI
 * device are those of the first ancestor that is no I/O object (facts/topology.md section 10).
 */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo_priv.h"

static bool set_list(char **to, hwloc_const_bitmap_t set)
{
    if (!set || hwloc_bitmap_iszero(set)) return true;
    char *text = NULL;
    bool ok = hwloc_bitmap_list_asprintf(&text, set) >= 0 && tpl_topo_set(to, text);
    free(text);
    return ok;
}

static int package_of(hwloc_topology_t t, hwloc_obj_t o)
{
    hwloc_obj_t p = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_PACKAGE, o);
    return p && p->os_index != HWLOC_UNKNOWN_INDEX ? (int)p->os_index : -1;
}

static bool add_nodes(hwloc_topology_t t, tpl_topo_facts *f)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, o));) {
        tpl_topo_node *n = tpl_topo_add_node(f);
        if (!n || !set_list(&n->cpus, o->cpuset)) return false;
        n->id = (int)o->os_index;
        n->mem_bytes = o->attr->numanode.local_memory;
        n->package = package_of(t, o);
        if (n->package < 0 && hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE) == 1) n->package = 0;
    }
    return true;
}

static void bdf_of(const struct hwloc_pcidev_attr_s *p, char out[TPL_BDF_CAP])
{
    snprintf(out, TPL_BDF_CAP, "%04x:%02x:%02x.%x", (unsigned)p->domain, p->bus, p->dev, p->func);
}

/* The way down to o, root complex first. Bridges without a name (a host bridge) are the bus below them. */
static bool set_path(char **to, hwloc_obj_t o)
{
    char text[1024], part[64];
    size_t at = sizeof text - 1;
    text[at] = 0;
    for (; o; o = o->parent) {
        if (o->type == HWLOC_OBJ_BRIDGE && o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST)
            snprintf(part, sizeof part, "pci%04x:%02x", (unsigned)o->attr->bridge.downstream.pci.domain,
                     o->attr->bridge.downstream.pci.secondary_bus);
        else if (o->type == HWLOC_OBJ_BRIDGE || o->type == HWLOC_OBJ_PCI_DEVICE)
            bdf_of(o->type == HWLOC_OBJ_BRIDGE ? &o->attr->bridge.upstream.pci : &o->attr->pcidev, part);
        else
            break;
        size_t n = strlen(part);
        if (n + 1 > at) return true; /* deeper than any machine: unknown */
        if (text[at]) text[--at] = '/';
        memcpy(text + (at -= n), part, n);
    }
    return tpl_topo_set(to, text + at);
}

static bool add_pcis(hwloc_topology_t t, tpl_topo_facts *f)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(t, o));) {
        tpl_topo_pci *p = tpl_topo_add_pci(f);
        hwloc_obj_t host = hwloc_get_non_io_ancestor_obj(t, o);
        if (!p || !set_path(&p->path, o) || (host && !set_list(&p->cpus, host->cpuset))) return false;
        bdf_of(&o->attr->pcidev, p->bdf);
        p->class_id = (uint32_t)o->attr->pcidev.class_id << 8;
        p->vendor = o->attr->pcidev.vendor_id;
        p->device = o->attr->pcidev.device_id;
        if (host && host->nodeset && hwloc_bitmap_weight(host->nodeset) == 1)
            p->numa = hwloc_bitmap_first(host->nodeset);
    }
    return true;
}

static bool add_nics(hwloc_topology_t t, tpl_topo_facts *f)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(t, o));) {
        hwloc_obj_osdev_type_t type = o->attr->osdev.type;
        if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) continue;
        if (!o->name || strlen(o->name) >= TPL_NIC_NAME_CAP) continue;
        tpl_topo_nic *n = tpl_topo_add_nic(f);
        if (!n) return false;
        snprintf(n->name, sizeof n->name, "%s", o->name);
        n->is_ib = type == HWLOC_OBJ_OSDEV_OPENFABRICS;
        if (o->parent && o->parent->type == HWLOC_OBJ_PCI_DEVICE) bdf_of(&o->parent->attr->pcidev, n->bdf);
    }
    return true;
}

static bool read_all(hwloc_topology_t t, tpl_topo_facts *f)
{
    return add_nodes(t, f) && add_pcis(t, f) && add_nics(t, f) &&
           set_list(&f->cpus_allowed, hwloc_topology_get_allowed_cpuset(t)) &&
           set_list(&f->mems_allowed, hwloc_topology_get_allowed_nodeset(t));
}

/* Plugins that would start a GPU's driver: what they know comes from NVML (nvml.h); and the one that reads PCI's
 * configuration space by libpciaccess, which leaks and shows a user less than sysfs does. An unknown name is no error. */
static void leave_out_plugins(hwloc_topology_t t)
{
    static const char *const names[] = { "cuda", "nvml", "opencl", "rsmi", "levelzero", "gl", "pci" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]);
}

tpl_status tpl_topo_hwloc(tpl_topo_facts **out, tpl_err *err)
{
    hwloc_topology_t t;
    *out = NULL;
    if (hwloc_topology_init(&t)) return tpl_topo_no_memory(err);
    hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    leave_out_plugins(t);
    tpl_status st = TPL_OK;
    tpl_topo_facts *f = tpl_topo_new();
    if (hwloc_topology_load(t))
        st = tpl_fail(err, TPL_ERR_IO, 0, "hwloc", "libhwloc cannot read this machine");
    else if (!f || !read_all(t, f))
        st = tpl_topo_no_memory(err);
    hwloc_topology_destroy(t);
    if (st) {
        tpl_topo_free(f);
        return st;
    }
    tpl_topo_sort(f);
    *out = f;
    return TPL_OK;
}

const char *tpl_topo_hwloc_version(void)
{
    return HWLOC_VERSION;
}
