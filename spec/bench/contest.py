# SPDX-License-Identifier: Apache-2.0
"""tpl beside one peer on one model: prefill and decode in the same pairs, with the shares of the probed peaks."""
import models
import pairs
import sides

CONTEXT = 4096
FLOP = 2 * models.PARAMS_PER_TOKEN
# metric -> its name, prompt tokens, new tokens, runs in a pair, and what of speed() it is
METRICS = {"prefill": ("prefill 512", 512, 1, 5, "prefill"), "decode": ("decode", 16, 96, 3, "decode"),
           "deep": ("decode at 2048", 2048, 64, 1, "decode")}


def ask(side, metric, seed):
    _, prompt, new, runs, what = METRICS[metric]
    return side.speed(prompt, new, runs, seed)[what]


def share(metric, tok_s, probe, weights, kv_per_token):
    """Which part of the probed limit a speed is: of the matrix peak for a prompt, of the read bandwidth for decoding."""
    _, prompt, new, _, what = METRICS[metric]
    if what == "prefill":
        return tok_s * FLOP / 1e9 / probe["matrix_gflop_s"]
    return tok_s * (weights + kv_per_token * (prompt + new / 2)) / 1e9 / probe["read_gb_s"]


def side_figures(metric, s, done, weights, kv_per_token):
    """Median tokens/s of one side, and the median of its shares."""
    return (pairs.middle(done, lambda p: p["got"][s][metric]),
            pairs.middle(done, lambda p: share(metric, p["got"][s][metric], p["probe"], weights, kv_per_token)))


def metric_row(title, metric, bar, done, weights, kv_per_token):
    row = pairs.judge(f"{title} {METRICS[metric][0]}", bar or None, done, lambda got: got[0][metric] / got[1][metric])
    row["tpl_tok_s"], row["tpl_share"] = side_figures(metric, 0, done, weights[0], kv_per_token)
    row["peer_tok_s"], row["peer_share"] = side_figures(metric, 1, done, weights[1], kv_per_token)
    row["share_of"] = done[0]["probe"]["matrix_kind"] + " peak" if metric == "prefill" else "read bandwidth"
    print(f"  {row['row']}: {pairs.figure(row)}")
    print(f"    tpl {row['tpl_tok_s']:.1f} tokens/s = {100 * row['tpl_share']:.0f} % of the {row['share_of']}, "
          f"peer {row['peer_tok_s']:.1f} = {100 * row['peer_share']:.0f} %")
    return row


def run(o, title, peer, ours, theirs, **bars):
    """Rows for the metrics that have a bar; a bar of 0 is shown without being judged."""
    model, rival = models.path(ours), models.path(theirs)
    us, them = sides.Tpl(model, CONTEXT, [f"threads={o.threads}"]), sides.Peer(peer, rival, CONTEXT, o.threads)
    print(f"\n{title}: tpl on {ours}, {them.version} on {theirs}")
    try:
        done = pairs.interleave((us, them), o.pairs, lambda side, i: {metric: ask(side, metric, i + 1) for metric in bars})
    finally:
        them.close()
    plan = us.plan()
    kv_per_token = sum(r["bytes"]["kv"] for r in plan["ranks"]) / plan["kv"]["tokens"]
    weights = [models.weight_bytes(model), models.weight_bytes(rival)]
    rows = [dict(metric_row(title, metric, bar, done, weights, kv_per_token), isa=us.isa, peer=them.version, peer_isa=them.isa)
            for metric, bar in bars.items()]
    print(f"  probed {pairs.middle(done, lambda p: p['probe']['read_gb_s']):.1f} GB/s, "
          f"{pairs.middle(done, lambda p: p['probe']['matrix_gflop_s']):.0f} GFLOP/s; isa: tpl {us.isa}; peer {them.isa}")
    return rows
