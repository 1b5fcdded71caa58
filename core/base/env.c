/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[TPL_N_ENVS] = {
#define X(id, name) name,
    TPL_ENVS(X)
#undef X
};

const char *tpl_env(tpl_env_id id)
{
    const char *value = getenv(names[id]);
    return value && *value ? value : NULL;
}

bool tpl_env_is_set(tpl_env_id id)
{
    return getenv(names[id]) != NULL;
}

const char *tpl_env_name(tpl_env_id id)
{
    return names[id];
}

int tpl_env_find(const char *name)
{
    for (int i = 0; i < TPL_N_ENVS; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

/* -- Faults ---------------------------------------------------------------------------------------------- */

static const char *const kinds[TPL_N_FAULTS] = { [TPL_FAULT_NONE] = "none",
#define X(id, name) [TPL_FAULT_##id] = name,
                                                 TPL_FAULTS(X)
#undef X
};

#define X(id, name) " " name
static const char all_kinds[] = "one of" TPL_FAULTS(X);
#undef X

const char *tpl_fault_name(tpl_fault_kind kind)
{
    return kinds[kind];
}

/* Copies the text before the next ':' to out and returns what follows, NULL when nothing does. False in
 * *fits if it is too long. */
static const char *field(const char *text, char *out, size_t cap, bool *fits)
{
    size_t n = strcspn(text, ":");
    *fits = n < cap;
    size_t take = *fits ? n : cap - 1;
    memcpy(out, text, take);
    out[take] = 0;
    return text[n] ? text + n + 1 : NULL;
}

static bool whole_number(const char *s, int64_t most, int64_t *out)
{
    char *end;
    if (!strcmp(s, "*")) return *out = -1, true;
    if (*s < '0' || *s > '9') return false;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (*end || errno || v > most) return false;
    *out = v;
    return true;
}

static tpl_status bad_field(tpl_err *err, const char *what, const char *got, const char *expected)
{
    return tpl_fail(err, TPL_ERR_ARG, 0, "TPL_FAULT", "%s '%.40s' is not %s", what, got, expected);
}

static int find_kind(const char *name)
{
    for (int i = TPL_FAULT_STALL; i < TPL_N_FAULTS; i++)
        if (!strcmp(kinds[i], name)) return i;
    return -1;
}

tpl_status tpl_fault_parse(tpl_fault *out, const char *text, tpl_err *err)
{
    char part[sizeof out->op];
    int64_t rank;
    bool fits;
    *out = (tpl_fault){ .rank = -1, .step = -1 };
    if (!text || !*text) return TPL_OK;
    tpl_fault f = *out;
    text = field(text, part, sizeof part, &fits);
    int kind = fits ? find_kind(part) : -1;
    if (kind < 0) return bad_field(err, "kind", part, all_kinds);
    f.kind = (tpl_fault_kind)kind;
    if (text) {
        text = field(text, part, sizeof part, &fits);
        if (!whole_number(part, INT32_MAX, &rank)) return bad_field(err, "rank", part, "a rank from 0 or *");
        f.rank = (int32_t)rank;
    }
    if (text) {
        text = field(text, part, sizeof part, &fits);
        if (!*part || !fits) return bad_field(err, "op", part, "the name of an op (tpl plan --text) or *");
        if (strcmp(part, "*")) memcpy(f.op, part, sizeof part);
    }
    if (text) {
        text = field(text, part, sizeof part, &fits);
        if (!whole_number(part, INT64_MAX, &f.step)) return bad_field(err, "step", part, "a step from 0 or *");
    }
    if (text) return bad_field(err, "text", text, "expected after the fourth field (kind:rank:op:step)");
    *out = f;
    return TPL_OK;
}

bool tpl_fault_hits(const tpl_fault *fault, tpl_fault_kind kind, int32_t rank, const char *op, int64_t step)
{
    if (fault->kind != kind || kind == TPL_FAULT_NONE) return false;
    if (fault->rank >= 0 && rank >= 0 && fault->rank != rank) return false;
    if (fault->step >= 0 && step >= 0 && fault->step != step) return false;
    return !fault->op[0] || !op || !strcmp(fault->op, op);
}
