/* SPDX-License-Identifier: Apache-2.0
 *
 * The page allocator against a shadow model (one owner per page), and the layout of a step slot against the list of its fields.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/step.h"
#include "serve/pages.h"

enum { N = 97, HOLDERS = 9, MOST = 20, TURNS = 4000 };

/* -- Pages ------------------------------------------------------------------------------------------------------------- */

/* Numerical Recipes' 32-bit generator: independent of the allocator's own. */
static uint32_t draw(uint32_t *s, uint32_t below)
{
    *s = *s * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*s * below) >> 32);
}

typedef struct holder {
    uint32_t n, pages[MOST];
} holder;

static void take_and_mark(tpl_pages *p, holder *h, uint32_t want, bool *owned)
{
    uint32_t left = tpl_pages_left(p);
    if (!tpl_pages_take(p, want, h->pages)) {
        assert_true(want > left);
        assert_int_equal(tpl_pages_left(p), left);
        return;
    }
    h->n = want;
    for (uint32_t i = 0; i < want; i++) {
        assert_true(h->pages[i] < N);
        assert_false(owned[h->pages[i]]);
        owned[h->pages[i]] = true;
    }
    assert_int_equal(tpl_pages_left(p), left - want);
}

static void give_and_clear(tpl_pages *p, holder *h, bool *owned)
{
    for (uint32_t i = 0; i < h->n; i++) owned[h->pages[i]] = false;
    tpl_pages_give(p, h->n, h->pages);
    h->n = 0;
}

static void no_page_has_two_owners(void **state)
{
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        tpl_pages *p = tpl_pages_new(N, shuffle, 7);
        holder holders[HOLDERS] = { 0 };
        bool owned[N] = { false };
        uint32_t seed = 1, held = 0;
        for (int turn = 0; turn < TURNS; turn++) {
            holder *h = &holders[draw(&seed, HOLDERS)];
            if (h->n) give_and_clear(p, h, owned);
            else take_and_mark(p, h, draw(&seed, MOST + 1), owned);
            held = 0;
            for (int i = 0; i < N; i++) held += owned[i];
            assert_int_equal(tpl_pages_left(p), N - held);
        }
        for (int i = 0; i < HOLDERS; i++) give_and_clear(p, &holders[i], owned);
        assert_int_equal(tpl_pages_left(p), N);
        assert_int_equal(tpl_pages_total(p), N);
        tpl_pages_free(p);
    }
}

static void take_all(uint32_t *out, bool shuffle, uint64_t seed)
{
    tpl_pages *p = tpl_pages_new(N, shuffle, seed);
    assert_true(tpl_pages_take(p, N, out));
    assert_false(tpl_pages_take(p, 1, out));
    assert_true(tpl_pages_take(p, 0, out));
    tpl_pages_free(p);
}

static void pages_come_in_order(void **state)
{
    uint32_t pages[N];
    take_all(pages, false, 3);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(pages[i], i);
}

static void shuffled_pages_are_a_permutation_that_the_seed_decides(void **state)
{
    uint32_t a[N], again[N], b[N], fixed = 0;
    bool seen[N] = { false };
    take_all(a, true, 3);
    take_all(again, true, 3);
    take_all(b, true, 4);
    for (int i = 0; i < N; i++) {
        assert_false(seen[a[i]]);
        seen[a[i]] = true;
        fixed += a[i] == (uint32_t)i;
    }
    assert_memory_equal(a, again, sizeof a);
    assert_memory_not_equal(a, b, sizeof a);
    assert_true(fixed < 10); /* one is expected; ten has a chance of 1e-7 */
}

/* -- Step slots -------------------------------------------------------------------------------------------------------- */

typedef struct field {
    size_t at, bytes;
} field;

static void check_layout(const tpl_step_caps *c)
{
    size_t bytes = tpl_step_bytes(c), used = sizeof(tpl_step);
    tpl_step *s = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(s, 0xee, bytes);
    tpl_step_init(s, c);
    size_t tops = (size_t)c->out * c->top * 4;
    const field fields[] = {
        { 0, sizeof(tpl_step) }, { s->off_tok, 4u * c->tok }, { s->off_pos, 4u * c->tok }, { s->off_tok_seq, 4u * c->tok },
        { s->off_seqs, sizeof(tpl_step_seq) * c->seq }, { s->off_sampling, sizeof(tpl_sampling) * c->seq },
        { s->off_pages, 4u * c->pages }, { s->off_pool, 4u * c->pool }, { s->off_out, 4u * c->out }, { s->off_out_seq, 4u * c->out },
        { s->off_res_tok, 4u * c->out }, { s->off_res_logprob, 4u * c->out }, { s->off_res_top_id, tops }, { s->off_res_top_logprob, tops },
        { s->off_logits, (size_t)c->logit_rows * c->vocab * 4 },
    };
    enum { N_FIELDS = sizeof fields / sizeof *fields };
    for (int i = 0; i < N_FIELDS; i++) {
        assert_int_equal(fields[i].at % 64, 0);
        assert_true(fields[i].at + fields[i].bytes <= bytes);
        for (int j = 0; j < i; j++)
            assert_true(fields[j].at + fields[j].bytes <= fields[i].at || fields[i].at + fields[i].bytes <= fields[j].at);
        used += i ? fields[i].bytes : 0;
    }
    assert_true(bytes - used < 64 * (N_FIELDS + 1)); /* nothing but alignment is lost */
    assert_memory_equal(&s->cap, c, sizeof *c);
    assert_ptr_equal(tpl_step_logits(s), (char *)s + s->off_logits);
    memset(tpl_step_logits(s), 0, fields[N_FIELDS - 1].bytes); /* the last byte is ours: sanitizers look */
    free(s);
}

static void fields_of_a_slot_do_not_overlap(void **state)
{
    check_layout(&(tpl_step_caps){ 1, 1, 1, 1, 1, 1, 1, 1 });
    check_layout(&(tpl_step_caps){ 512, 33, 33, 130, 4097, 33, 259, 20 });
    check_layout(&(tpl_step_caps){ .tok = 7, .seq = 3, .out = 5, .pages = 0, .pool = 0, .logit_rows = 0, .vocab = 11, .top = 0 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_page_has_two_owners),
        cmocka_unit_test(pages_come_in_order),
        cmocka_unit_test(shuffled_pages_are_a_permutation_that_the_seed_decides),
        cmocka_unit_test(fields_of_a_slot_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
