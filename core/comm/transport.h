/* SPDX-License-Identifier: Apache-2.0
 *
 * What a transport provides. comm.c finds it by name in its table and checks the description before open. A
 * transport puts tpl_comm and tpl_group first in its own structs. Included by core/comm and by transports
 * that come as plugins.
 */
#ifndef TPL_COMM_TRANSPORT_H
#define TPL_COMM_TRANSPORT_H

#include "comm/comm.h"

typedef struct tpl_transport {
    const char *name;
    /* desc is valid: sizes >= 1, ranks distinct and in range. It is borrowed for the call only. */
    tpl_status (*open)(tpl_comm **out, const tpl_comm_desc *desc, tpl_err *err);
    void (*close)(tpl_comm *c);
    tpl_group *(*group)(tpl_comm *c, int g, int rank); /* NULL when rank is no member */
    bool (*run)(tpl_group *g, const tpl_coll *c, tpl_team *team, int ith);
    uint64_t (*absent)(const tpl_group *g, size_t *bytes, const char **name, uint32_t *cseq);
    void (*reset)(tpl_comm *c);
} tpl_transport;

struct tpl_comm {
    const tpl_transport *transport;
};

struct tpl_group {
    const tpl_transport *transport;
    int size, index;
    const int *ranks; /* [size] */
};

extern const tpl_transport tpl_transport_shm;

#endif
