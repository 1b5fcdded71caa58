/* SPDX-License-Identifier: Apache-2.0 */
#include "target.h"

tpl_status tpl_target_topology(const uint8_t *data, size_t n, tpl_err *err)
{
    return tpl_lua_target("topology", data, n, err);
}
