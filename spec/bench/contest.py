# SPDX-License-Identifier: Apache-2.0
"""tpl beside one peer on one model: prefill and decode in the same pairs, with the shares of the probed peaks."""
import models
import pairs
import sides

PREFILL, DECODE, DEPTH = 512, (16, 96), (2048, 64)  # prompt of the prefill figure; prompt and tokens of the decode figures
CONTEXT = 4096
FLOP = 2 * models.PARAMS_PER_TOKEN


def run(o, title, peer, ours, theirs, prefill=None, decode=None, deep=None):
    """Rows for the bars given: prefill of 512, decode behind a prompt of 16, decode at depth 2048; a bar of 0 is shown without one."""
    model, rival = models.path(ours), models.path(theirs)
    us, them = sides.Tpl(model, CONTEXT, [f"threads={o.threads}"]), sides.Peer(peer, rival, CONTEXT, o.threads)
    print(f"\n{title}: tpl on {ours}, {them.version} on {theirs}")

    def measure(side, i):
        got = {}
        if prefill is not None:
            got["prefill"] = side.speed(PREFILL, 1, 5, i + 1)["prefill"]
        if decode is not None:
            got["decode"] = side.speed(*DECODE, 3, i + 1)["decode"]
        if deep is not None:
            got["deep"] = side.speed(*DEPTH, 1, i + 1)["decode"]
        return got

    try:
        done = pairs.interleave((us, them), o.pairs, measure)
    finally:
        them.close()
    report = us.plan()
    cached = sum(r["bytes"]["kv"] for r in report["ranks"]) / report["kv"]["tokens"]
    read = [models.weight_bytes(model), models.weight_bytes(rival)]
    rows = []
    for metric, bar, position in (("prefill", prefill, 0), ("decode", decode, sum(DECODE) - DECODE[1] / 2), ("deep", deep, sum(DEPTH) - DEPTH[1] / 2)):
        if bar is not None:
            row = pairs.judge(f"{title} {NAMES[metric]}", bar or None, done, lambda got: got[0][metric] / got[1][metric])
            for s, side in enumerate(("tpl", "peer")):
                row[side + "_tok_s"] = pairs.middle(done, lambda p: p["got"][s][metric])
                need = read[s] + cached * position
                row[side + "_share"] = pairs.middle(done, lambda p: p["got"][s][metric] * (
                    FLOP / 1e9 / p["probe"]["matrix_gflop_s"] if metric == "prefill" else need / 1e9 / p["probe"]["read_gb_s"]))
            row["share_of"] = done[0]["probe"]["matrix_kind"] + " peak" if metric == "prefill" else "read bandwidth"
            row["isa"], row["peer"], row["peer_isa"] = us.isa, them.version, them.isa
            rows.append(row)
            show(row)
    print(f"  probed {pairs.middle(done, lambda p: p['probe']['read_gb_s']):.1f} GB/s, {pairs.middle(done, lambda p: p['probe']['matrix_gflop_s']):.0f} "
          f"GFLOP/s; isa: tpl {us.isa}; peer {them.isa}")
    return rows


NAMES = {"prefill": "prefill 512", "decode": "decode", "deep": "decode at 2048"}


def show(row):
    print(f"  {row['row']}: {pairs.figure(row)}")
    print(f"    tpl {row['tpl_tok_s']:.1f} tokens/s = {100 * row['tpl_share']:.0f} % of the {row['share_of']}, "
          f"peer {row['peer_tok_s']:.1f} = {100 * row['peer_share']:.0f} %")
