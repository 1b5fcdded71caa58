/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing the lists of tpl_topo_facts. Private to core/topo.
 */
#ifndef TPL_TOPO_TOPO_PRIV_H
#define TPL_TOPO_TOPO_PRIV_H

#include "topo/topo.h"

/* A new facts struct with empty texts; NULL without memory. */
tpl_topo_facts *tpl_topo_new(void);
/* A zeroed place at the end of a list; texts are "" and numbers that may be unknown -1. NULL without memory. */
tpl_topo_node *tpl_topo_add_node(tpl_topo_facts *f);
tpl_topo_pci *tpl_topo_add_pci(tpl_topo_facts *f);
tpl_topo_nic *tpl_topo_add_nic(tpl_topo_facts *f);
/* Puts a copy of text in place of *to; false without memory. */
bool tpl_topo_set(char **to, const char *text);
/* By number, address and name. */
void tpl_topo_sort(tpl_topo_facts *f);
tpl_status tpl_topo_no_memory(tpl_err *err);

#endif
