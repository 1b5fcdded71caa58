/* SPDX-License-Identifier: Apache-2.0
 *
 * base/json.h from C: members with types and ranges (reliability.md A5), order, depth; base/jscan.h on texts
 * cut at every byte. Expected values: the grammar of RFC 8259 and the tables of reliability.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/jscan.h"
#include "base/json.h"

static json_t *parse(const char *text)
{
    json_t *v;
    tpl_err err = { 0 };
    assert_int_equal(tpl_json_parse(&v, text, strlen(text), 0, "t.json", &err), TPL_OK);
    return v;
}

static void a5_refuses_every_bad_integer_naming_file_and_key(void **state)
{
    static const char *const bad[] = { "",      "0",    "-1",  "1e30", "2147483648", "9223372036854775808",
                                       "\"8\"", "null", "1.5", "true", "[1]",        "{}",
                                       "64.0" };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[80];
        int64_t v = 77;
        tpl_err err = { 0 };
        if (*bad[i])
            snprintf(text, sizeof text, "{\"num_hidden_layers\":%s}", bad[i]);
        else
            strcpy(text, "{}");
        json_t *o = parse(text);
        assert_int_equal(tpl_json_int(o, "num_hidden_layers", "config.json", 1, 1024, &v, &err),
                         TPL_ERR_FORMAT);
        assert_string_equal(err.where, "config.json:num_hidden_layers");
        assert_non_null(strstr(err.msg, "num_hidden_layers"));
        assert_int_equal(v, 77);
        json_decref(o);
    }
}

static void takes_members_of_the_right_type(void **state)
{
    json_t *o = parse("{\"i\":3,\"r\":2.5,\"b\":true,\"s\":\"a\\u0000b\",\"o\":{},\"a\":[1],\"n\":null}"), *v;
    int64_t i;
    double x;
    bool b;
    tpl_str s;
    assert_int_equal(tpl_json_int(o, "i", "f", 3, 3, &i, NULL), TPL_OK);
    assert_int_equal(i, 3);
    assert_int_equal(tpl_json_num(o, "i", "f", &x, NULL), TPL_OK);
    assert_true(x == 3);
    assert_int_equal(tpl_json_num(o, "r", "f", &x, NULL), TPL_OK);
    assert_true(x == 2.5);
    assert_int_equal(tpl_json_bool(o, "b", "f", &b, NULL), TPL_OK);
    assert_true(b);
    assert_int_equal(tpl_json_str(o, "s", "f", &s, NULL), TPL_OK);
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.s, "a\0b", 3);
    assert_int_equal(tpl_json_obj(o, "o", "f", &v, NULL), TPL_OK);
    assert_int_equal(tpl_json_arr(o, "a", "f", &v, NULL), TPL_OK);
    assert_false(tpl_json_has(o, "n"));
    assert_false(tpl_json_has(o, "none"));
    assert_true(tpl_json_has(o, "i"));
    assert_int_equal(tpl_json_bool(o, "i", "f", &b, NULL), TPL_ERR_FORMAT);
    assert_int_equal(tpl_json_str(o, "none", "f", &s, NULL), TPL_ERR_FORMAT);
    assert_int_equal(tpl_json_obj(o, "a", "f", &v, NULL), TPL_ERR_FORMAT);
    assert_int_equal(tpl_json_arr(o, "o", "f", &v, NULL), TPL_ERR_FORMAT);
    assert_int_equal(tpl_json_num(o, "s", "f", &x, NULL), TPL_ERR_FORMAT);
    json_decref(o);
}

static void iterates_objects_in_the_order_of_the_text(void **state)
{
    char text[20000] = "{", name[16];
    size_t at = 1;
    int i = 0;
    const char *key;
    json_t *v;
    for (int k = 0; k < 1000; k++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%d\":%d", k ? "," : "", k * 7919 % 1009, k);
    strcat(text, "}");
    json_t *o = parse(text);
    json_object_foreach(o, key, v)
    {
        snprintf(name, sizeof name, "%d", i * 7919 % 1009);
        assert_string_equal(key, name);
        assert_int_equal(json_integer_value(v), i++);
    }
    assert_int_equal(i, 1000);
    json_decref(o);
}

static void refuses_depth_before_recursing(void **state)
{
    enum { n = 1000000 };
    char *text = malloc(n);
    json_t *v;
    tpl_err err = { 0 };
    memset(text, '[', n);
    assert_int_equal(tpl_json_parse(&v, text, n, 0, "deep.json", &err), TPL_ERR_FORMAT);
    assert_string_equal(err.where, "deep.json:1");
    assert_int_equal(tpl_json_parse(&v, text, n, 1000, "deep.json", NULL), TPL_ERR_ARG);
    free(text);
}

/* An exact-size heap copy, so that a sanitizer sees any read behind the end. */
static char *exact(const char *text, size_t len)
{
    char *p = malloc(len ? len : 1);
    memcpy(p, text, len);
    return p;
}

static const char sample[] =
    "{\"a\\u00e9\\n\":[1,-2.5e3,\"x\\ud83d\\ude00\",{\"b\":99999999999999999999}],\"c\":null}";

static void survives_a_text_cut_anywhere(void **state)
{
    for (size_t n = 0; n < sizeof sample - 1; n++) {
        json_t *v;
        char *text = exact(sample, n);
        assert_int_equal(tpl_json_parse(&v, text, n, 0, "cut", NULL), TPL_ERR_FORMAT);
        free(text);
    }
}

/* Walks any value through the scanner's functions. */
static tpl_status walk(tpl_jscan *s, tpl_err *err)
{
    int c = tpl_jscan_peek(s);
    uint32_t n = 0;
    uint64_t u;
    bool more;
    tpl_str t;
    if (c == '"') return tpl_jscan_string(s, &t, err);
    if (c >= '0' && c <= '9') return tpl_jscan_uint(s, &u, err);
    if (c != '{' && c != '[') return tpl_jscan_skip(s, &t, err);
    TPL_TRY(tpl_jscan_eat(s, (char)c, err));
    for (;;) {
        TPL_TRY(tpl_jscan_next(s, c == '{' ? '}' : ']', &n, &more, err));
        if (!more) return TPL_OK;
        if (c == '{') TPL_TRY(tpl_jscan_key(s, &t, err));
        TPL_TRY(walk(s, err));
    }
}

static void scans_in_place_and_survives_cuts(void **state)
{
    static const char text[] = "{\"a\\u00e9\\n\":[1,\"x\\ud83d\\ude00\",{\"b\":9}],\"c\":[],\"d\":{}}";
    for (size_t n = 0; n < sizeof text; n++) {
        char *p = exact(text, n);
        tpl_jscan s = { p, p, p + n, 0, "cut" };
        tpl_err err = { 0 };
        tpl_status st = walk(&s, &err);
        assert_int_equal(st, n == sizeof text - 1 ? TPL_OK : TPL_ERR_FORMAT);
        if (st) assert_non_null(strstr(err.where, "cut:"));
        free(p);
    }
}

static void unescapes_strings(void **state)
{
    char text[] = "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00E9\\u20ac\\ud83d\\uDE00\\u0000z\"";
    static const char want[] = "\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\0z";
    tpl_jscan s = { text, text, text + sizeof text - 1, 0, "t" };
    tpl_str got;
    assert_int_equal(tpl_jscan_string(&s, &got, NULL), TPL_OK);
    assert_int_equal(got.len, sizeof want - 1);
    assert_memory_equal(got.s, want, sizeof want);
}

static void knows_valid_utf8(void **state)
{
    /* Unicode 15, table 3-7 */
    static const char *const good[] = { "a",
                                        "\xC2\x80",
                                        "\xDF\xBF",
                                        "\xE0\xA0\x80",
                                        "\xED\x9F\xBF",
                                        "\xEE\x80\x80",
                                        "\xEF\xBF\xBF",
                                        "\xF0\x90\x80\x80",
                                        "\xF4\x8F\xBF\xBF" };
    static const char *const bad[] = { "\x80",
                                       "\xC0\x80",
                                       "\xC1\xBF",
                                       "\xE0\x9F\xBF",
                                       "\xED\xA0\x80",
                                       "\xF0\x8F\xBF\xBF",
                                       "\xF4\x90\x80\x80",
                                       "\xF5\x80\x80\x80",
                                       "\xC3",
                                       "\xE2\x82",
                                       "\xFF" };
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(tpl_utf8_len(good[i], good[i] + strlen(good[i])), (int)strlen(good[i]));
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(tpl_utf8_len(bad[i], bad[i] + strlen(bad[i])), 0);
}

static void keeps_the_end_of_a_long_name(void **state)
{
    char name[300];
    memset(name, 'd', sizeof name);
    strcpy(name + 280, "/model.gguf");
    tpl_where w = tpl_where_offset(name, 12345);
    assert_int_equal(strlen(w.s), sizeof w.s - 1);
    assert_memory_equal(w.s, "...", 3);
    assert_string_equal(w.s + strlen(w.s) - 17, "/model.gguf:12345");
    assert_string_equal(tpl_where_key("a", "b").s, "a:b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a5_refuses_every_bad_integer_naming_file_and_key),
        cmocka_unit_test(takes_members_of_the_right_type),
        cmocka_unit_test(iterates_objects_in_the_order_of_the_text),
        cmocka_unit_test(refuses_depth_before_recursing),
        cmocka_unit_test(survives_a_text_cut_anywhere),
        cmocka_unit_test(scans_in_place_and_survives_cuts),
        cmocka_unit_test(unescapes_strings),
        cmocka_unit_test(knows_valid_utf8),
        cmocka_unit_test(keeps_the_end_of_a_long_name),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
