/* SPDX-License-Identifier: Apache-2.0
 *
 * Program texts that contradict themselves. What a sound text gives, and damage of single fields: spec/exec/program_spec.lua.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/program.h"

#define HEAD "tpl-program 1\nstage 0 decode\nranks 0 2\ncaps tok 8 seq 2 out 2 vocab 64\narena 4096\n"
#define BODY "index 0 0:8,16:8\nindex 1 -\nk 0 0 1\ngroup 0 tp 0,1\nvalue 0 x f32 tok/1 16 @0\n"
#define OP "op r all_reduce -1 x - out=0 in=0 group=0 cseq=0\n"

static void refuses(const char *text, const char *why)
{
    tpl_program *p;
    tpl_err err = { 0 };
    assert_int_equal(tpl_program_parse(&p, text, strlen(text), &err), TPL_ERR_FORMAT);
    assert_null(p);
    if (!strstr(err.msg, why)) fail_msg("'%s' lacks '%s'", err.msg, why);
}

static void sound_text_is_printed_again(void **state)
{
    tpl_program *p;
    tpl_err err = { 0 };
    if (tpl_program_parse(&p, HEAD BODY OP, strlen(HEAD BODY OP), &err)) fail_msg("%s: %s", err.where, err.msg);
    assert_int_equal(p->n_ranks, 2);
    assert_int_equal(p->indices[0].total, 16);
    assert_int_equal(p->indices[1].total, 0);
    assert_int_equal(tpl_num_get(p, (tpl_num){ .k = 0 }, 1), 1);
    char *text = tpl_program_print(p);
    assert_string_equal(text, HEAD BODY OP);
    free(text);
    tpl_program_free(p);
}

/* Rank constants are read for the ranks known then: a later line must not change their number. */
static void head_comes_first_and_once(void **state)
{
    refuses(HEAD BODY "ranks 0 2000\n" OP, "head");
    refuses(HEAD "arena 9\n" BODY OP, "head");
    refuses(BODY OP, "head");
    refuses("stage 0 decode\ntpl-program 1\nranks 0 2\ncaps tok 8 seq 2 out 2 vocab 64\narena 4096\n" BODY OP, "head");
    refuses("", "incomplete");
}

static void numbers_end_where_the_word_ends(void **state)
{
    refuses(HEAD "index 0 0:8x\n" OP, "bad range");
    refuses(HEAD "index 0 0:8,\n" OP, "bad range");
    refuses(HEAD "index 0 -5\n" OP, "bad range");
    refuses(HEAD "index 0 0:0\n" OP, "bad range");
    refuses(HEAD "index 0 9223372036854775807:1\n" OP, "bad range");
    refuses(HEAD BODY "op r all_reduce -1 x - out=0, in=0 group=0 cseq=0\n", "bad op field");
    refuses(HEAD "group 0 tp 0,1;\n" OP, "bad");
    refuses(HEAD "group 0 tp 0,,1\n" OP, "bad");
}

static void sizes_are_whole_numbers(void **state)
{
    refuses(HEAD BODY "value 1 y f32 tok/1 16.5 @1024\n" OP, "bad value");
    refuses(HEAD BODY "state 0 kv 0 1.5 4\n" OP, "bad state");
    refuses(HEAD BODY "op s slice 0 x - out=0 in=0 imm=1,2.5,1,0\n", "whole number");
    refuses(HEAD BODY "value 1 y f32 tok/1 -16 @1024\n" OP, "columns");
    refuses(HEAD BODY "value 1 y q8 tok/1 33 @1024\n" OP, "columns");
}

static void transfers_have_a_value(void **state)
{
    refuses(HEAD BODY "op s send -1 x - imm=0\n", "transfer");
    refuses(HEAD BODY "op s recv -1 x - imm=0\n", "transfer");
}

static void a_layer_is_a_small_number(void **state)
{
    refuses(HEAD BODY "op r all_reduce 4294967296 x - out=0 in=0 group=0 cseq=0\n", "bad op");
}

/* Every prefix, and every byte changed: no crash, and what is accepted prints. Sanitizer builds see what else goes wrong. */
static void damaged_bytes_do_no_harm(void **state)
{
    static const char text[] = HEAD BODY OP, put[] = "0 9$-,:;=@\n.a";
    char buf[sizeof text];
    for (size_t i = 0; i + 1 < sizeof text; i++)
        for (size_t k = 0; k < sizeof put; k++) { /* the last one, NUL, as well */
            tpl_program *p;
            memcpy(buf, text, sizeof text);
            buf[i] = put[k];
            if (tpl_program_parse(&p, buf, sizeof text - 1, NULL)) continue;
            char *again = tpl_program_print(p);
            assert_non_null(again);
            free(again);
            tpl_program_free(p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_text_is_printed_again),
        cmocka_unit_test(head_comes_first_and_once),
        cmocka_unit_test(numbers_end_where_the_word_ends),
        cmocka_unit_test(sizes_are_whole_numbers),
        cmocka_unit_test(transfers_have_a_value),
        cmocka_unit_test(a_layer_is_a_small_number),
        cmocka_unit_test(damaged_bytes_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
