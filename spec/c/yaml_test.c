/* SPDX-License-Identifier: Apache-2.0
 *
 * base/yaml.h from C: what scalars mean (the table of the core schema, YAML 1.2.2 section 10.3.2), what is refused and in
 * which line, texts cut at every byte, and lines of paths. Expected values: that document, and counting lines by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/yaml.h"

static json_t *parse(const char *text)
{
    json_t *v;
    tpl_err err = { 0 };
    if (tpl_yaml_parse(&v, text, strlen(text), 0, "t.yaml", &err)) fail_msg("%s: %s", text, err.msg);
    return v;
}

/* The text as compact JSON. */
static void reads_as(const char *text, const char *json)
{
    json_t *v = parse(text);
    char *got = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    assert_string_equal(got, json);
    free(got);
    json_decref(v);
}

static void refuses(const char *text, const char *where, const char *word)
{
    json_t *v;
    tpl_err err = { 0 };
    assert_int_equal(tpl_yaml_parse(&v, text, strlen(text), 0, "t.yaml", &err), TPL_ERR_FORMAT);
    assert_null(v);
    assert_string_equal(err.where, where);
    if (!strstr(err.msg, word)) fail_msg("'%s' lacks '%s'", err.msg, word);
}

static void scalars_mean_what_the_core_schema_says(void **state)
{
    reads_as("[~, null, Null, NULL, '', \"null\"]", "[null,null,null,null,\"\",\"null\"]");
    reads_as("a:", "{\"a\":null}");
    reads_as("[true, True, TRUE, false, False, FALSE, tRue, yes, No, on, off, y]",
             "[true,true,true,false,false,false,\"tRue\",\"yes\",\"No\",\"on\",\"off\",\"y\"]");
    reads_as("[0, -19, +12, 007, 0o14, 0x3A, 0xfF, 9007199254740991, -9007199254740991, 0o8, 0xg, 1_000, 0b1, 12:30]",
             "[0,-19,12,7,12,58,255,9007199254740991,-9007199254740991,\"0o8\",\"0xg\",\"1_000\",\"0b1\",\"12:30\"]");
    reads_as("[0.5, 12e3, -2E+5, 0., .5, 1.5e-1, '1.5', 1e, e5, ., +, -, 1.2.3]",
             "[0.5,12000.0,-200000.0,0.0,0.5,0.14999999999999999,\"1.5\",\"1e\",\"e5\",\".\",\"+\",\"-\",\"1.2.3\"]");
    reads_as("[!!str 5, !!int 5, !!float 5, !!null '', !!bool true, ! 7]", "[\"5\",5,5.0,null,true,\"7\"]");
}

static void texts_and_collections_nest(void **state)
{
    reads_as("a:\n  - b: 1\n    c: |\n      two\n       lines\n  - {d: [], e: {}}\nf: >-\n  folded\n  text\n",
             "{\"a\":[{\"b\":1,\"c\":\"two\\n lines\\n\"},{\"d\":[],\"e\":{}}],\"f\":\"folded text\"}");
    reads_as("{1: a, true: b, null: c}", "{\"1\":\"a\",\"true\":\"b\",\"null\":\"c\"}"); /* a key is its text */
    reads_as("%YAML 1.2\n---\nx\n...\n", "\"x\"");
    reads_as("\"a\\0b\"", "\"a\\u0000b\"");
    reads_as("{\"a\": [1, 2.5, null, \"x\"]}", "{\"a\":[1,2.5,null,\"x\"]}"); /* JSON is YAML */
}

static void refuses_what_is_more_than_data(void **state)
{
    refuses("a: 1\nb: &x 2", "t.yaml:2", "anchors");
    refuses("a: &x [1]", "t.yaml:1", "anchors");
    refuses("a: &x {b: 1}", "t.yaml:1", "anchors");
    refuses("a: 1\n\nb: *x", "t.yaml:3", "aliases");
    refuses("a: 1\nb: 2\na: 3", "t.yaml:3", "duplicate key 'a'");
    refuses("- {a: 1, \"a\": 2}", "t.yaml:1", "duplicate key 'a'");
    refuses("a: !mine 1", "t.yaml:1", "tag");
    refuses("a: !!python/object:os.system x", "t.yaml:1", "tag");
    refuses("a: !!set {b: }", "t.yaml:1", "tag");
    refuses("a: !!int x", "t.yaml:1", "tag");
    refuses("a: .nan", "t.yaml:1", ".nan");
    refuses("a: -.inf", "t.yaml:1", ".inf");
    refuses("a: 1e999", "t.yaml:1", "too large");
    refuses("a: 9007199254740992", "t.yaml:1", "2^53");
    refuses("a: 0x20000000000000", "t.yaml:1", "2^53");
    refuses("? [a]\n: 1", "t.yaml:1", "as a key");
    refuses("? {a: 1}\n: 1", "t.yaml:1", "as a key");
    refuses("\"a\\0b\": 1", "t.yaml:1", "NUL");
    refuses("a: 1\n---\nb: 2", "t.yaml:2", "second document");
    refuses("", "t.yaml", "empty");
    refuses("# nothing\n", "t.yaml", "empty");
}

static void refuses_what_is_no_yaml(void **state)
{
    refuses("a: [1, 2", "t.yaml:1", "no valid YAML");
    refuses("a: 'x", "t.yaml:1", "no valid YAML");
    refuses("a:\n  b: 1\n c: 2", "t.yaml:3", "no valid YAML");
    refuses("a: b: c", "t.yaml:1", "no valid YAML");
    refuses("\"\\xzz\"", "t.yaml:1", "no valid YAML");
    refuses("a: \377", "t.yaml:1", "no valid YAML");
    refuses("a: \355\240\200", "t.yaml:1", "no valid YAML"); /* a surrogate */
    refuses("a: \001", "t.yaml:1", "no valid YAML");
    refuses("@a", "t.yaml:1", "no valid YAML");
}

static void bounds_depth_before_memory(void **state)
{
    enum { DEEP = 200000 };
    char *text = malloc(2 * DEEP + 1);
    json_t *v;
    tpl_err err = { 0 };
    memset(text, '[', DEEP);
    assert_int_equal(tpl_yaml_parse(&v, text, DEEP, 0, "", &err), TPL_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "deep"));
    assert_string_equal(err.where, "");
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_int_equal(tpl_yaml_parse(&v, text, 128, 0, "", NULL), TPL_OK);
    json_decref(v);
    assert_int_equal(tpl_yaml_parse(&v, text, 128, 63, "", NULL), TPL_ERR_FORMAT);
    assert_int_equal(tpl_yaml_parse(&v, text, 128, 513, "", NULL), TPL_ERR_ARG);
    for (int i = 0; i < DEEP; i++) memcpy(text + 2 * i, "- ", 2);
    assert_int_equal(tpl_yaml_parse(&v, text, 2 * DEEP, 0, "", NULL), TPL_ERR_FORMAT);
    for (int i = 0; i < DEEP; i++) memcpy(text + 2 * i, "? ", 2);
    assert_int_equal(tpl_yaml_parse(&v, text, 2 * DEEP, 0, "", NULL), TPL_ERR_FORMAT);
    free(text);
}

static void bounds_values_for_the_length(void **state)
{
    enum { N = 1000000 };
    char *text = malloc(2 * N);
    json_t *v;
    tpl_err err = { 0 };
    for (int i = 0; i < N; i++) memcpy(text + 2 * i, "-\n", 2);
    assert_int_equal(tpl_yaml_parse(&v, text, 2 * N, 0, "", &err), TPL_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "too many values"));
    free(text);
}

static void a_cut_text_gives_a_value_or_a_failure(void **state)
{
    static const char text[] = "a:\n  - {b: 1, \"c\": [x, 'y']}\n  - |\n    text\n\"k\\u00e9\": !!str 5\nd: 0x1F # end\n---\nz: \303\251\n";
    for (size_t n = 0; n < sizeof text; n++) {
        char *copy = malloc(n ? n : 1); /* so that a byte too far is seen */
        json_t *v;
        tpl_err err = { 0 };
        memcpy(copy, text, n);
        tpl_status st = tpl_yaml_parse_all(&v, copy, n, 0, "t", &err);
        assert_true(st == TPL_OK ? v != NULL : (v == NULL && st == TPL_ERR_FORMAT && err.msg[0]));
        json_decref(v);
        free(copy);
    }
}

static void reads_streams_of_documents(void **state)
{
    json_t *v;
    static const char text[] = "kind: A\n---\nkind: B\n...\n---\n- 1\n";
    assert_int_equal(tpl_yaml_parse_all(&v, text, sizeof text - 1, 0, "", NULL), TPL_OK);
    assert_int_equal(json_array_size(v), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(v, 1), "kind")), "B");
    json_decref(v);
    assert_int_equal(tpl_yaml_parse_all(&v, "", 0, 0, "", NULL), TPL_OK);
    assert_int_equal(json_array_size(v), 0);
    json_decref(v);
}

static int line_of(const char *text, const char *path)
{
    return tpl_yaml_line(text, strlen(text), path);
}

static void finds_the_line_of_a_path(void **state)
{
    static const char text[] = "a: 1\ndevices:\n  - name: x\n  - name: y\n    mig:\n      mode: on\n    ids: [1,\n      2]\ndev: {ices: 3}\n";
    assert_int_equal(line_of(text, "a"), 1);
    assert_int_equal(line_of(text, "devices"), 2);
    assert_int_equal(line_of(text, "devices[1]"), 3);
    assert_int_equal(line_of(text, "devices[2].mig.mode"), 6);
    assert_int_equal(line_of(text, "devices[2].ids[2]"), 8);
    assert_int_equal(line_of(text, "dev.ices"), 9);
    assert_int_equal(line_of(text, "devices[3]"), 0);
    assert_int_equal(line_of(text, "devices[2].mi"), 0);
    assert_int_equal(line_of(text, "x"), 0);
    assert_int_equal(line_of("{\"a\": 1,\n \"b\": [2,\n{\"c\": 3}]}", "b[2].c"), 3);
    assert_int_equal(line_of("a: 1\nb: [", "a"), 1); /* a text that is broken further down */
    assert_int_equal(line_of("a: 1\na: 2", "b"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_mean_what_the_core_schema_says),
        cmocka_unit_test(texts_and_collections_nest),
        cmocka_unit_test(refuses_what_is_more_than_data),
        cmocka_unit_test(refuses_what_is_no_yaml),
        cmocka_unit_test(bounds_depth_before_memory),
        cmocka_unit_test(bounds_values_for_the_length),
        cmocka_unit_test(a_cut_text_gives_a_value_or_a_failure),
        cmocka_unit_test(reads_streams_of_documents),
        cmocka_unit_test(finds_the_line_of_a_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
