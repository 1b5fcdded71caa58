/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NVML's binary interface that tpl uses, declared here so that nothing of NVIDIA's is needed to build.
 * Layouts and numbers: NVML header version 13 (github.com/NVIDIA/go-nvml, gen/nvml/nvml.h); names are ours. Shared with
 * the stand-in library of the specs (spec/topo/standin/). Versioned structs carry sizeof | version << 24.
 */
#ifndef TPL_TOPO_NVML_ABI_H
#define TPL_TOPO_NVML_ABI_H

typedef void *nv_device;

enum { /* nvmlReturn_t */
    NV_OK = 0,
    NV_UNINITIALIZED = 1,
    NV_INVALID_ARGUMENT = 2,
    NV_NOT_SUPPORTED = 3,
    NV_NO_PERMISSION = 4,
    NV_NOT_FOUND = 6,
    NV_INSUFFICIENT_SIZE = 7,
    NV_DRIVER_NOT_LOADED = 9,
    NV_LIBRARY_NOT_FOUND = 12,
    NV_FUNCTION_NOT_FOUND = 13,
    NV_GPU_IS_LOST = 15,
    NV_RESET_REQUIRED = 16,
    NV_OPERATING_SYSTEM = 17,
    NV_VERSION_MISMATCH = 18,
    NV_ARGUMENT_VERSION_MISMATCH = 25,
    NV_UNKNOWN = 999
};

enum { NV_MAX_LINKS = 36, NV_UUID_CAP = 96, NV_NAME_CAP = 96, NV_VBIOS_CAP = 32, NV_VERSION_CAP = 80 };
enum { NV_P2P_READ = 0, NV_P2P_WRITE = 1, NV_P2P_NVLINK = 2 };
enum { NV_LINK_CAN_P2P = 0 }; /* nvmlNvLinkCapability_t */
enum { NV_LINK_GPU = 0, NV_LINK_IBMNPU = 1, NV_LINK_SWITCH = 2, NV_LINK_UNKNOWN = 0xff };
enum { NV_FIELD_C2C_COUNT = 170, NV_FIELD_C2C_STATUS = 171, NV_FIELD_C2C_MB_S = 172, NV_FIELD_NVLINK_STATE = 165 };
enum { NV_UNCORRECTED = 1, NV_VOLATILE = 0 };

typedef struct nv_pci { /* nvmlPciInfo_t, v3 */
    char legacy[16];
    unsigned domain, bus, device, id, subsystem_id;
    char bus_id[32]; /* "%08X:%02X:%02X.0" */
} nv_pci;

typedef struct nv_memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
} nv_memory;

typedef struct nv_memory_v2 { /* nvmlMemory_v2_t */
    unsigned version;
    unsigned long long total, reserved, free, used;
} nv_memory_v2;

typedef struct nv_process { /* nvmlProcessInfo_v2_t, of the _v3 calls */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} nv_process;

typedef struct nv_fabric_v2 { /* nvmlGpuFabricInfo_v2_t */
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health_mask;
} nv_fabric_v2;

typedef struct nv_fabric_v3 { /* nvmlGpuFabricInfo_v3_t */
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health_mask;
    unsigned char health_summary;
} nv_fabric_v3;

typedef struct nv_attributes { /* nvmlDeviceAttributes_t */
    unsigned sm_count, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mb;
} nv_attributes;

typedef struct nv_field { /* nvmlFieldValue_t */
    unsigned id, scope;
    long long timestamp, latency_us;
    int value_type, status;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
} nv_field;

#define NV_STRUCT_VERSION(type, n) ((unsigned)(sizeof(type) | (unsigned)(n) << 24))

/* X(name without "nvml", arguments): every call, each resolved on its own; all return nvmlReturn_t. */
#define NV_CALLS(X)                                                                              \
    X(Init_v2, (void))                                                                           \
    X(Shutdown, (void))                                                                          \
    X(SystemGetDriverVersion, (char *text, unsigned cap))                                        \
    X(SystemGetCudaDriverVersion_v2, (int *version))                                             \
    X(SystemGetCudaDriverVersion, (int *version))                                                \
    X(DeviceGetCount_v2, (unsigned *n))                                                          \
    X(DeviceGetHandleByIndex_v2, (unsigned i, nv_device *d))                                     \
    X(DeviceGetUUID, (nv_device d, char *text, unsigned cap))                                    \
    X(DeviceGetPciInfo_v3, (nv_device d, nv_pci *pci))                                           \
    X(DeviceGetName, (nv_device d, char *text, unsigned cap))                                    \
    X(DeviceGetVbiosVersion, (nv_device d, char *text, unsigned cap))                            \
    X(DeviceGetCudaComputeCapability, (nv_device d, int *major, int *minor))                     \
    X(DeviceGetMemoryInfo, (nv_device d, nv_memory *m))                                          \
    X(DeviceGetMemoryInfo_v2, (nv_device d, nv_memory_v2 *m))                                    \
    X(DeviceGetMaxPcieLinkGeneration, (nv_device d, unsigned *gen))                              \
    X(DeviceGetMaxPcieLinkWidth, (nv_device d, unsigned *width))                                 \
    X(DeviceGetCurrPcieLinkWidth, (nv_device d, unsigned *width))                                \
    X(DeviceGetTopologyCommonAncestor, (nv_device a, nv_device b, int *level))                   \
    X(DeviceGetP2PStatus, (nv_device a, nv_device b, int index, int *status))                    \
    X(DeviceGetNvLinkState, (nv_device d, unsigned link, int *active))                           \
    X(DeviceGetNvLinkCapability, (nv_device d, unsigned link, int capability, unsigned *has))    \
    X(DeviceGetNvLinkVersion, (nv_device d, unsigned link, unsigned *version))                   \
    X(DeviceGetNvLinkRemotePciInfo_v2, (nv_device d, unsigned link, nv_pci *pci))                \
    X(DeviceGetNvLinkRemotePciInfo, (nv_device d, unsigned link, nv_pci *pci))                   \
    X(DeviceGetNvLinkRemoteDeviceType, (nv_device d, unsigned link, int *type))                  \
    X(DeviceGetFieldValues, (nv_device d, int n, nv_field *fields))                              \
    X(DeviceGetMigMode, (nv_device d, unsigned *current, unsigned *pending))                     \
    X(DeviceGetMaxMigDeviceCount, (nv_device d, unsigned *n))                                    \
    X(DeviceGetMigDeviceHandleByIndex, (nv_device d, unsigned i, nv_device *mig))                \
    X(DeviceGetAttributes_v2, (nv_device d, nv_attributes *a))                                   \
    X(DeviceGetGpuFabricInfoV, (nv_device d, void *info))                                        \
    X(DeviceGetCpuAffinityWithinScope, (nv_device d, unsigned words, unsigned long *set, int s)) \
    X(DeviceGetMemoryAffinity, (nv_device d, unsigned words, unsigned long *set, int s))         \
    X(DeviceGetNumaNodeId, (nv_device d, unsigned *node))                                        \
    X(DeviceGetComputeRunningProcesses_v3, (nv_device d, unsigned *n, nv_process *list))         \
    X(DeviceGetMPSComputeRunningProcesses_v3, (nv_device d, unsigned *n, nv_process *list))      \
    X(DeviceGetRemappedRows,                                                                     \
      (nv_device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)) \
    X(DeviceGetTotalEccErrors, (nv_device d, int type, int counter, unsigned long long *n))

#endif
