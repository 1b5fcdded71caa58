# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one core each against one rank of two: decode speed of two cuts of one model, beside the balance bound of the uneven one."""
import models
import pairs
import sides

CONTEXT, NEW = 1024, 32


def run(o, title, name, bar):
    """The row of one model: decode with tp=2 over decode with tp=1, divided by the bound of the cut."""
    model = models.path(name)
    two = sides.Tpl(model, CONTEXT, ["tp=2", f"threads={max(1, o.threads // 2)}"], "tp=2")
    one = sides.Tpl(model, CONTEXT, ["tp=1", f"threads={o.threads}"], "tp=1")
    bound = two.plan()["stages"][0]["balance"]
    print(f"\n{title}: tp=2 with {max(1, o.threads // 2)} thread each, tp=1 with {o.threads}, on {name}; balance bound {bound:.3f}")
    done = pairs.interleave((two, one), o.pairs, lambda side, i: side.speed(16, NEW, 3, i))
    row = pairs.judge(title, bar, done, lambda got: got[0]["decode"] / got[1]["decode"] / bound)
    row["bound"], row["isa"] = bound, two.isa
    row["tp2_tok_s"] = pairs.middle(done, lambda p: p["got"][0]["decode"])
    row["tp1_tok_s"] = pairs.middle(done, lambda p: p["got"][1]["decode"])
    print(f"  {title}, of the bound {bound:.3f}: {pairs.figure(row)}")
    print(f"    tp=2 {row['tp2_tok_s']:.1f} tokens/s, tp=1 {row['tp1_tok_s']:.1f}, isa {two.isa}")
    return [row]
