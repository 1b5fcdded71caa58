/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend: one bind function per op kind. Any thread; read-only.
 */
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simple.h"
#include "kernels/pack.h"

typedef tpl_status (*bind_fn)(tpl_isa isa, tpl_bound *op, tpl_err *err);

static const bind_fn binds[TPL_N_OPS] = {
#define X(id, name) [TPL_OP_ID_##id] = tpl_cpu_bind_##name,
    TPL_CPU_OPS(X)
#undef X
};

/* Every op with TPL_OP_KERNEL has a bind function: the two lists, as sets of bits. */
#define HAVE(id, name) | (1ull << TPL_OP_ID_##id)
#define WANT(id, name, o, i, w, imm, flags) | ((uint64_t)(((flags)&TPL_OP_KERNEL) != 0) << TPL_OP_ID_##id)
_Static_assert((0ull TPL_CPU_OPS(HAVE)) == (0ull TPL_OPS(WANT)), "cpu_ops.h and ops.h list different ops");

static tpl_status cpu_bind(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    if (!tpl_isa_usable(isa))
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "", "kernels: %s is not usable on this machine",
                        tpl_isa_name(isa));
    if ((unsigned)op->kind >= TPL_N_OPS || !binds[op->kind])
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "", "kernels: %s: the CPU backend has no op '%s'",
                        op->name, (unsigned)op->kind < TPL_N_OPS ? tpl_op_infos[op->kind].name : "?");
    return binds[op->kind](isa, op, err);
}

static tpl_act cpu_wants(tpl_dtype weight)
{
    switch (weight) {
    case TPL_DTYPE_F16:
    case TPL_DTYPE_BF16: return TPL_ACT_BF16;
    default: return tpl_dtypes[weight].n_elem > 1 ? TPL_ACT_Q8_BF16 : TPL_ACT_F32;
    }
}

/* One area per thread serves every op. */
enum {
    SCRATCH_BYTES = (int)TPL_SIMPLE_SCRATCH_BYTES > (int)TPL_CPU_SCRATCH_BYTES ? TPL_SIMPLE_SCRATCH_BYTES
                                                                               : TPL_CPU_SCRATCH_BYTES
};

const tpl_backend *tpl_backend_cpu(void)
{
    static const tpl_backend cpu = { "cpu", SCRATCH_BYTES, cpu_bind, cpu_wants };
    return &cpu;
}
