/* SPDX-License-Identifier: Apache-2.0
 *
 * base/xml.h from C: the tree of a text, what is left of a broken one, and the texts that are refused (entities, depth,
 * number of elements). Expected values: counted by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/xml.h"

static const char *str(const tpl_xml *x, uint32_t at)
{
    return x->bytes + at;
}

static tpl_xml *parse(const char *text, size_t len, tpl_status want, int want_line)
{
    tpl_xml *x;
    int line;
    tpl_err err = { 0 };
    assert_int_equal(tpl_xml_parse(&x, text, len, "t.xml", &line, &err), want);
    assert_non_null(x);
    if (want_line >= 0) assert_int_equal(line, want_line);
    if (want && want_line > 0) {
        char where[40];
        snprintf(where, sizeof where, "t.xml:%d", want_line);
        assert_string_equal(err.where, where);
    }
    return x;
}

static void gives_the_tree(void **state)
{
    static const char text[] = "<?xml version='1.0'?>\n<a x='1' y=\"&lt;2\"><b/>\n<c>one\ntwo<!-- no -->three<d/>four</c></a>\n";
    tpl_xml *x = parse(text, sizeof text - 1, TPL_OK, 0);
    const tpl_xml_node *a = &x->nodes[0], *b = &x->nodes[a->first];
    assert_string_equal(str(x, a->tag), "a");
    assert_int_equal(a->line, 2);
    assert_int_equal(a->n_attr, 2);
    assert_string_equal(str(x, x->attrs[a->attr + 1].name), "y");
    assert_string_equal(str(x, x->attrs[a->attr + 1].value), "<2");
    assert_string_equal(str(x, b->tag), "b");
    const tpl_xml_node *gap = &x->nodes[b->next], *c = &x->nodes[gap->next];
    assert_int_equal(gap->tag, 0);
    assert_string_equal(str(x, c->tag), "c");
    assert_int_equal(c->line, 3);
    assert_int_equal(c->next, 0);
    const tpl_xml_node *t = &x->nodes[c->first], *d = &x->nodes[t->next], *u = &x->nodes[d->next];
    assert_string_equal(str(x, t->text), "one\ntwothree"); /* pieces are joined over a comment */
    assert_int_equal(t->text_len, 12);
    assert_string_equal(str(x, d->tag), "d");
    assert_string_equal(str(x, u->text), "four");
    tpl_xml_free(x);
}

static void a_broken_text_gives_what_came_before(void **state)
{
    static const char text[] = "<system>\n <cpu>\n  <pci busid='1'/>\n  <pci busid='2'>\n";
    tpl_xml *x = parse(text, sizeof text - 1, TPL_ERR_FORMAT, 5);
    int n = 0;
    for (size_t i = 0; i < x->n_nodes; i++) n += x->nodes[i].tag != 0;
    assert_int_equal(n, 4);
    tpl_xml_free(x);
    x = parse("<a>\n<b></a>", 11, TPL_ERR_FORMAT, 2);
    assert_int_equal(x->n_nodes, 3); /* a, the line break, b */
    tpl_xml_free(x);
    x = parse("<a/><b/>", 8, TPL_ERR_FORMAT, 1);
    assert_int_equal(x->n_nodes, 1);
    tpl_xml_free(x);
    x = parse("", 0, TPL_ERR_FORMAT, 1);
    assert_int_equal(x->n_nodes, 0);
    tpl_xml_free(x);
    x = parse("GPU0 GPU1", 9, TPL_ERR_FORMAT, 1);
    assert_int_equal(x->n_nodes, 0);
    tpl_xml_free(x);
}

static void every_cut_is_survived(void **state)
{
    static const char text[] = "<!DOCTYPE t SYSTEM \"x.dtd\"><!-- c --><a x='&amp;'>\n<b>t\303\251<![CDATA[u<]]></b><c y=\"2\"/></a>";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        tpl_xml_free(parse(copy, n, TPL_ERR_FORMAT, -1));
        free(copy);
    }
    tpl_xml_free(parse(text, sizeof text - 1, TPL_OK, 0));
}

static void refuses_entities(void **state)
{
    static const char *const bad[] = {
        "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
        "<!DOCTYPE a [<!ENTITY l 'lol'><!ENTITY m '&l;&l;&l;'>]><a>&m;</a>",
        "<!DOCTYPE a [<!ENTITY f SYSTEM 'file:///etc/passwd'>]><a>&f;</a>",
        "<!DOCTYPE a [<!ENTITY % p SYSTEM 'http://127.0.0.1/x'> %p;]><a/>",
        "<!DOCTYPE a SYSTEM 'a.dtd'><a>&unknown;</a>",
        "<a>&unknown;</a>",
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) tpl_xml_free(parse(bad[i], strlen(bad[i]), TPL_ERR_FORMAT, 1));
    static const char doctype[] = "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology/>";
    tpl_xml_free(parse(doctype, sizeof doctype - 1, TPL_OK, 0)); /* names a DTD, as lstopo writes it; nothing opens it */
}

static void bounds_depth_and_elements(void **state)
{
    enum { N = TPL_XML_MAX_NODES + 10 };
    char *text = malloc(4 * (size_t)N + 20);
    for (int i = 0; i < N; i++) memcpy(text + 3 * i, "<a>", 3);
    tpl_xml *x = parse(text, 3 * (size_t)N, TPL_ERR_FORMAT, 1);
    assert_int_equal(x->n_nodes, TPL_XML_DEPTH);
    tpl_xml_free(x);
    memcpy(text, "<r>", 3);
    for (int i = 0; i < N; i++) memcpy(text + 3 + 4 * i, "<a/>", 4);
    x = parse(text, 3 + 4 * (size_t)N, TPL_ERR_FORMAT, 1);
    assert_int_equal(x->n_nodes, TPL_XML_MAX_NODES);
    tpl_xml_free(x);
    free(text);
    tpl_xml_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_tree),
        cmocka_unit_test(a_broken_text_gives_what_came_before),
        cmocka_unit_test(every_cut_is_survived),
        cmocka_unit_test(refuses_entities),
        cmocka_unit_test(bounds_depth_and_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
