/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <sys/random.h>

tpl_hash_key tpl_hash_key_new(void)
{
    tpl_hash_key key;
    /* not yet seeded, early after boot: two addresses are random enough to be no target */
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) != sizeof key)
        key = (tpl_hash_key){ { (uintptr_t)&key, (uintptr_t)&tpl_hash_key_new } };
    return key;
}
