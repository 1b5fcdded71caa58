/* SPDX-License-Identifier: Apache-2.0
 *
 * The readers of machine facts: NVML through the stand-in of spec/topo/standin, hwloc and sysfs on whatever runs this.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "topo/cuda.h"
#include "topo/nvml.h"
#include "topo/topo.h"

#define STANDIN TPL_BINARY_DIR "/spec/topo/standin/nvml_standin.so"
#define OLD TPL_BINARY_DIR "/spec/topo/standin/nvml_standin_old.so"

/* -- NVML ------------------------------------------------------------------------------------------------- */

static tpl_nvml *read_record(const char *library, const char *yaml)
{
    char path[] = "/tmp/tpl-topo-test-XXXXXX";
    int fd = mkstemp(path);
    tpl_nvml *n;
    tpl_err err = { 0 };
    assert_true(fd >= 0 && write(fd, yaml, strlen(yaml)) == (ssize_t)strlen(yaml));
    close(fd);
    setenv("TPL_NVML_RECORD", path, 1);
    assert_int_equal(tpl_nvml_read(&n, library, &err), TPL_OK);
    unlink(path);
    return n;
}

static const char two_gpus[] = "hosts: [{driver: '570.1', cuda: '12.8'}]\n"
                               "devices:\n"
                               "  - {uid: a, kind: gpu, uuid: GPU-a, pci: '0000:01:00.0', name: One, sm: '8.6',\n"
                               "     mem_bytes: 1000000, free_bytes: 400000, busy: {pids: [7, 8], used_bytes: 500000}, cpus: '0-3,64'}\n"
                               "  - {uid: b, kind: gpu, uuid: GPU-b, pci: 'abcd:02:00.0', name: Two, mig: {mode: 'on'}}\n"
                               "  - {uid: s, kind: mig, uuid: MIG-s, mem_bytes: 5242880, mig: {parent: b, profile: 1g.5gb}, nvml: {slot: 6}}\n"
                               "links: [{a: a, b: b, kind: nvlink, nvlinks: 4, pcie: pxb, p2p: {read: ok, write: ns}}]\n";

static void facts_come_over(void **state)
{
    tpl_nvml *n = read_record(STANDIN, two_gpus);
    assert_true(n->is_loaded);
    assert_int_equal(n->init_code, NV_OK);
    assert_int_equal(n->n_gpus, 2);
    assert_int_equal(n->cuda, 12080);
    const tpl_nvml_gpu *g = &n->gpus[0];
    assert_string_equal(g->uuid, "GPU-a");
    assert_string_equal(g->bus_id, "00000000:01:00.0");
    assert_int_equal(g->sm_major * 10 + g->sm_minor, 86);
    assert_int_equal(g->total, 1000000);
    assert_int_equal(g->reserved, 100000);
    assert_int_equal(g->n_pids, 2);
    assert_int_equal(g->pids[1], 8);
    assert_int_equal(g->cpus[0], 15);
    assert_int_equal(g->cpus[1], 1);
    assert_int_equal(g->n_links, 4);
    assert_string_equal(g->links[3].bus_id, "0000ABCD:02:00.0");
    assert_int_equal(g->mig_now, -1);
    assert_int_equal(n->gpus[1].mig_now, 1);
    assert_int_equal(n->gpus[1].n_slices, 1);
    assert_string_equal(n->gpus[1].slices[0].name, "Two MIG 1g.5gb");
    assert_int_equal(n->pairs[1].level, 20);
    assert_int_equal(n->pairs[1].write, 5);
    assert_int_equal(n->pairs[0].level, -1);
    tpl_nvml_free(n);
}

static void what_is_not_told_is_unknown(void **state)
{
    tpl_nvml *n = read_record(OLD, two_gpus);
    assert_true(strstr(n->missing, " nvmlDeviceGetP2PStatus") != NULL);
    assert_int_equal(n->pairs[1].read, -1);
    assert_int_equal(n->gpus[0].remap_failed, -1);
    assert_int_equal(n->gpus[0].fabric_state, -1);
    assert_int_equal(n->gpus[0].total, 1000000);
    assert_int_equal(n->gpus[0].cpus[0], 0);
    tpl_nvml_free(n);
}

static void failures_are_facts(void **state)
{
    tpl_nvml *n = read_record(STANDIN, "nvml: {init: 9}\n");
    assert_int_equal(n->init_code, NV_DRIVER_NOT_LOADED);
    assert_int_equal(n->n_gpus, 0);
    tpl_nvml_free(n);
    n = read_record(STANDIN, "devices: [{uid: a, kind: gpu, nvml: {open: 4}}, {uid: b, kind: gpu, uuid: GPU-b, nvml: {lost: true}}]\n");
    assert_int_equal(n->gpus[0].open_code, NV_NO_PERMISSION);
    assert_int_equal(n->gpus[1].open_code, NV_OK);
    assert_int_equal(n->gpus[1].bad_code, NV_GPU_IS_LOST);
    assert_string_equal(n->gpus[1].uuid, "GPU-b");
    tpl_nvml_free(n);
    n = read_record("/nowhere.so", "");
    assert_false(n->is_loaded);
    assert_true(n->message[0]);
    tpl_nvml_free(n);
    tpl_nvml_free(NULL);
}

static void a_library_without_any_call_has_no_gpu(void **state)
{
    tpl_nvml *n = read_record("libm.so.6", "");
    assert_true(n->is_loaded);
    assert_int_equal(n->init_code, NV_FUNCTION_NOT_FOUND);
    assert_int_equal(n->n_gpus, 0);
    tpl_nvml_free(n);
}

static void codes_have_names(void **state)
{
    char buf[24];
    assert_string_equal(tpl_nvml_code_name(15, buf), "GPU_IS_LOST");
    assert_string_equal(tpl_nvml_code_name(77, buf), "error 77");
}

/* The sizes that the driver checks: nvml.h of CUDA 13 on 64 bits (version numbers of nvmlMemory_v2 and the fabric
 * structs hold them), and the layouts that others fill. */
static void structs_are_as_the_driver_has_them(void **state)
{
    assert_int_equal(NV_STRUCT_VERSION(nv_memory_v2, 2), 0x02000028);
    assert_int_equal(NV_STRUCT_VERSION(nv_fabric_v2, 2), 0x02000024);
    assert_int_equal(NV_STRUCT_VERSION(nv_fabric_v3, 3), 0x03000028);
    assert_int_equal(sizeof(nv_pci), 68);
    assert_int_equal(sizeof(nv_process), 24);
    assert_int_equal(sizeof(nv_attributes), 40);
    assert_int_equal(sizeof(nv_field), 40);
}

static void cuda_has_an_order_of_its_own(void **state)
{
    tpl_cuda_order order;
    const char *library = TPL_BINARY_DIR "/spec/topo/standin/cuda_standin.so";
    assert_true(tpl_cuda_order_read(&order, library));
    assert_int_equal(order.n, 2);
    assert_string_equal(order.bus_id[0], "0000:A0:00.0");
    assert_string_equal(order.bus_id[1], "0000:10:00.0");
    setenv("STANDIN_CUDA_INIT", "100", 1); /* CUDA_ERROR_NO_DEVICE: all are hidden */
    assert_true(tpl_cuda_order_read(&order, library));
    assert_int_equal(order.n, 0);
    setenv("STANDIN_CUDA_INIT", "999", 1);
    assert_false(tpl_cuda_order_read(&order, library));
    unsetenv("STANDIN_CUDA_INIT");
    assert_false(tpl_cuda_order_read(&order, "/nowhere.so"));
    assert_false(tpl_cuda_order_read(&order, "libm.so.6"));
}

/* -- The system ------------------------------------------------------------------------------------------- */

static void this_machine_has_a_node(void **state)
{
    tpl_topo_facts *f;
    tpl_err err = { 0 };
    assert_int_equal(tpl_topo_hwloc(&f, &err), TPL_OK);
    assert_true(f->n_nodes >= 1);
    assert_true(f->cpus_allowed[0]);
    for (int i = 1; i < f->n_pcis; i++) assert_true(strcmp(f->pcis[i - 1].bdf, f->pcis[i].bdf) <= 0);
    tpl_topo_free(f);
    assert_int_equal(tpl_topo_sysfs(&f, NULL, &err), TPL_OK);
    assert_true(f->cpus_allowed[0]);
    tpl_topo_free(f);
}

static void an_empty_tree_has_nothing(void **state)
{
    tpl_topo_facts *f;
    tpl_err err = { 0 };
    assert_int_equal(tpl_topo_sysfs(&f, "/nowhere", &err), TPL_OK);
    assert_int_equal(f->n_nodes + f->n_pcis + f->n_nics, 0);
    assert_string_equal(f->cpus_allowed, "");
    tpl_topo_free(f);
    tpl_topo_free(NULL);
}

/* Names that are no addresses, numbers that are none, binary files, a folder where a file belongs. */
static void a_damaged_tree_is_read_as_far_as_it_goes(void **state)
{
    char root[] = "/tmp/tpl-topo-tree-XXXXXX", cmd[2048];
    assert_non_null(mkdtemp(root));
    snprintf(cmd, sizeof cmd,
             "cd %s && mkdir -p sys/bus/pci/devices sys/devices/system/node/node0 sys/devices/system/node/nodeX sys/class/net "
             "sys/devices/system/node/node1/meminfo proc/self && cd sys/bus/pci/devices && mkdir 0000:01:00.0 junk 1:2:3 && "
             "head -c 70000 /dev/urandom >0000:01:00.0/class && echo 99999999999 >0000:01:00.0/numa_node && "
             "head -c 9000 /dev/zero >0000:01:00.0/local_cpulist && ln -s ../../../devices/pci 0000:02:00.0 && "
             "ln -s ../../../../zz%%s/pcix/0000:09:00.0 0000:03:00.0 && cd %s && echo 0-1 >sys/devices/system/node/node0/cpulist && "
             "printf 'Node 0 MemTotal: x kB\\nNode 0\\n\\n' >sys/devices/system/node/node0/meminfo && "
             "mkdir sys/class/net/eth0123456789012345678901234567890123456789 && ln -s x sys/class/net/e && : >proc/self/status",
             root, root);
    assert_int_equal(system(cmd), 0);
    tpl_topo_facts *f;
    tpl_err err = { 0 };
    assert_int_equal(tpl_topo_sysfs(&f, root, &err), TPL_OK);
    assert_int_equal(f->n_pcis, 3);
    assert_int_equal(f->pcis[0].numa, -1);
    assert_string_equal(f->pcis[0].path, "");
    assert_int_equal(f->n_nodes, 2);
    assert_int_equal(f->nodes[0].mem_bytes, 0);
    assert_int_equal(f->n_nics, 0);
    tpl_topo_free(f);
    snprintf(cmd, sizeof cmd, "rm -r %s", root);
    assert_int_equal(system(cmd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_come_over),
        cmocka_unit_test(what_is_not_told_is_unknown),
        cmocka_unit_test(failures_are_facts),
        cmocka_unit_test(a_library_without_any_call_has_no_gpu),
        cmocka_unit_test(codes_have_names),
        cmocka_unit_test(structs_are_as_the_driver_has_them),
        cmocka_unit_test(cuda_has_an_order_of_its_own),
        cmocka_unit_test(this_machine_has_a_node),
        cmocka_unit_test(an_empty_tree_has_nothing),
        cmocka_unit_test(a_damaged_tree_is_read_as_far_as_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
