/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.sys: what a command line needs of the system that Lua 5.1 lacks: cores, memory, environment, clock,
 * terminal, paths and folders. World failures return nil, message, code (a name of tpl_status). Bytes and
 * microseconds are numbers. Owner thread of the state.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/time.h"
#include "bind/bind.h"

int tpl_open_sys(lua_State *L);

static int fail_sys(lua_State *L, const char *what, int sys)
{
    lua_pushnil(L);
    lua_pushfstring(L, "%s: %s", what, strerror(sys));
    lua_pushstring(L, tpl_status_name(sys == ENOMEM ? TPL_ERR_MEM : TPL_ERR_IO));
    return 3;
}

static int push_true(lua_State *L)
{
    lua_pushboolean(L, 1);
    return 1;
}

/* A byte count, nil when unknown (interface.md section 3: never 0 or a guess). */
static int push_bytes(lua_State *L, uint64_t bytes)
{
    if (bytes)
        lua_pushnumber(L, (lua_Number)bytes);
    else
        lua_pushnil(L);
    return 1;
}

/* -- Machine ---------------------------------------------------------------------------------------------- */

/* cpus() -> number of threads that can run at once */
static int sys_cpus(lua_State *L)
{
    lua_pushinteger(L, tpl_cpu_usable());
    return 1;
}

/* cpu_list() -> ids of the cores this process may use, from 0, ascending */
static int sys_cpu_list(lua_State *L)
{
    int n = tpl_cpu_list(NULL, 0);
    int *cpus = lua_newuserdata(L, (size_t)n * sizeof *cpus);
    int again = tpl_cpu_list(cpus, n);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n && i < again; i++) {
        lua_pushinteger(L, cpus[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* cpu_model() -> text or nil */
static int sys_cpu_model(lua_State *L)
{
    char model[256];
    tpl_cpu_model(model, sizeof model);
    if (model[0])
        lua_pushstring(L, model);
    else
        lua_pushnil(L);
    return 1;
}

/* mem_available() -> bytes that new memory may take, or nil */
static int sys_mem_available(lua_State *L) { return push_bytes(L, tpl_mem_available_bytes()); }
/* mem_total() -> bytes of memory, or nil */
static int sys_mem_total(lua_State *L) { return push_bytes(L, tpl_mem_total_bytes()); }
/* rss() -> bytes resident now, or nil */
static int sys_rss(lua_State *L) { return push_bytes(L, tpl_mem_rss_bytes()); }
/* rss_peak() -> most bytes resident since the start or rss_peak_reset, or nil */
static int sys_rss_peak(lua_State *L) { return push_bytes(L, tpl_mem_rss_peak_bytes()); }

/* rss_peak_reset() -> whether the system let us */
static int sys_rss_peak_reset(lua_State *L)
{
    lua_pushboolean(L, tpl_mem_rss_peak_reset());
    return 1;
}

/* hostname() -> text */
static int sys_hostname(lua_State *L)
{
    char name[256];
    if (gethostname(name, sizeof name)) return fail_sys(L, "hostname", errno);
    name[sizeof name - 1] = 0;
    lua_pushstring(L, name);
    return 1;
}

/* pid() -> id of this process */
static int sys_pid(lua_State *L)
{
    lua_pushinteger(L, getpid());
    return 1;
}

/* now_us() -> microseconds of a clock that never goes back */
static int sys_now_us(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)tpl_now_ns() / 1000);
    return 1;
}

/* time() -> seconds since 1970, with the fraction */
static int sys_time(lua_State *L)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    lua_pushnumber(L, (lua_Number)t.tv_sec + (lua_Number)t.tv_nsec / 1e9);
    return 1;
}

/* sleep_us(n) */
static int sys_sleep_us(lua_State *L)
{
    lua_Number us = luaL_checknumber(L, 1);
    luaL_argcheck(L, us >= 0 && us < 1e12, 1, "microseconds from 0 to 1e12");
    struct timespec t = { .tv_sec = (time_t)(us / 1e6) };
    t.tv_nsec = (long)((us - (lua_Number)t.tv_sec * 1e6) * 1000);
    nanosleep(&t, NULL);
    return 0;
}

/* -- Environment ------------------------------------------------------------------------------------------ */

/* env(name) -> text, or nil when unset or empty. Only the names of base/env.h: any other raises. */
static int sys_env(lua_State *L)
{
    int id = tpl_env_find(luaL_checkstring(L, 1));
    luaL_argcheck(L, id >= 0, 1, "not a variable that tpl reads (core/base/env.h)");
    const char *value = tpl_env((tpl_env_id)id);
    if (value)
        lua_pushstring(L, value);
    else
        lua_pushnil(L);
    return 1;
}

/* env_is_set(name) -> boolean, true for the empty text too */
static int sys_env_is_set(lua_State *L)
{
    int id = tpl_env_find(luaL_checkstring(L, 1));
    luaL_argcheck(L, id >= 0, 1, "not a variable that tpl reads (core/base/env.h)");
    lua_pushboolean(L, tpl_env_is_set((tpl_env_id)id));
    return 1;
}

/* env_names() -> list of the variables that tpl reads */
static int sys_env_names(lua_State *L)
{
    lua_createtable(L, TPL_N_ENVS, 0);
    for (int i = 0; i < TPL_N_ENVS; i++) {
        lua_pushstring(L, tpl_env_name((tpl_env_id)i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* fault(text) -> {kind, rank, op, step}, absent fields = any; {kind="none"} for nil and "" */
static int sys_fault(lua_State *L)
{
    tpl_fault f;
    tpl_err err = { 0 };
    if (tpl_fault_parse(&f, luaL_optstring(L, 1, NULL), &err)) {
        lua_pushnil(L);
        lua_pushfstring(L, "%s: %s", err.where, err.msg);
        lua_pushstring(L, tpl_status_name(err.code));
        return 3;
    }
    lua_createtable(L, 0, 4);
    lua_pushstring(L, tpl_fault_name(f.kind));
    lua_setfield(L, -2, "kind");
    if (f.rank >= 0) {
        lua_pushinteger(L, f.rank);
        lua_setfield(L, -2, "rank");
    }
    if (f.op[0]) {
        lua_pushstring(L, f.op);
        lua_setfield(L, -2, "op");
    }
    if (f.step >= 0) {
        lua_pushnumber(L, (lua_Number)f.step);
        lua_setfield(L, -2, "step");
    }
    return 1;
}

/* -- Terminal --------------------------------------------------------------------------------------------- */

/* isatty(fd) -> boolean */
static int sys_isatty(lua_State *L)
{
    lua_pushboolean(L, isatty((int)luaL_checkinteger(L, 1)));
    return 1;
}

/* columns(fd) -> width of that terminal, nil when it is none or has no width */
static int sys_columns(lua_State *L)
{
    struct winsize size = { 0 };
    if (ioctl((int)luaL_optinteger(L, 1, STDERR_FILENO), TIOCGWINSZ, &size) == 0 && size.ws_col)
        lua_pushinteger(L, size.ws_col);
    else
        lua_pushnil(L);
    return 1;
}

/* -- Paths ------------------------------------------------------------------------------------------------ */

/* exe() -> path of the running program */
static int sys_exe(lua_State *L)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    if (n < 0) return fail_sys(L, "/proc/self/exe", errno);
    lua_pushlstring(L, path, (size_t)n);
    return 1;
}

/* cwd() -> path of the working folder */
static int sys_cwd(lua_State *L)
{
    char path[PATH_MAX];
    if (!getcwd(path, sizeof path)) return fail_sys(L, "the working folder", errno);
    lua_pushstring(L, path);
    return 1;
}

/* realpath(path) -> absolute path without links, `.` and `..` */
static int sys_realpath(lua_State *L)
{
    char out[PATH_MAX];
    const char *path = luaL_checkstring(L, 1);
    if (!realpath(path, out)) return fail_sys(L, path, errno);
    lua_pushstring(L, out);
    return 1;
}

static const char *kind_of(mode_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "dir" : "other";
}

/* stat(path) -> {kind = "file" | "dir" | "other", bytes, mtime (seconds since 1970)}, links followed */
static int sys_stat(lua_State *L)
{
    struct stat s;
    const char *path = luaL_checkstring(L, 1);
    if (stat(path, &s)) return fail_sys(L, path, errno);
    lua_createtable(L, 0, 3);
    lua_pushstring(L, kind_of(s.st_mode));
    lua_setfield(L, -2, "kind");
    lua_pushnumber(L, (lua_Number)s.st_size);
    lua_setfield(L, -2, "bytes");
    lua_pushnumber(L, (lua_Number)s.st_mtim.tv_sec + (lua_Number)s.st_mtim.tv_nsec / 1e9);
    lua_setfield(L, -2, "mtime");
    return 1;
}

static int push_is(lua_State *L, mode_t kind)
{
    struct stat s;
    int found = stat(luaL_checkstring(L, 1), &s) == 0;
    lua_pushboolean(L, found && (!kind || (s.st_mode & S_IFMT) == kind));
    return 1;
}

/* exists(path) -> whether there is such a file or folder */
static int sys_exists(lua_State *L) { return push_is(L, 0); }
/* is_dir(path) -> boolean */
static int sys_is_dir(lua_State *L) { return push_is(L, S_IFDIR); }
/* is_file(path) -> whether it is a regular file */
static int sys_is_file(lua_State *L) { return push_is(L, S_IFREG); }

#define DIR_CLASS "tpl.sys.dir"

static int dir_gc(lua_State *L)
{
    DIR **box = luaL_checkudata(L, 1, DIR_CLASS);
    if (*box) closedir(*box);
    *box = NULL;
    return 0;
}

/* Pushes a box that closes the folder even if a later push raises. */
static DIR **dir_box(lua_State *L)
{
    DIR **box = lua_newuserdata(L, sizeof *box);
    *box = NULL;
    if (luaL_newmetatable(L, DIR_CLASS)) {
        lua_pushcfunction(L, dir_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return box;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* list(dir) -> names in it but `.` and `..`, in byte order */
static int sys_list(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    DIR **box = dir_box(L);
    if (!(*box = opendir(path))) return fail_sys(L, path, errno);
    lua_newtable(L);
    int n = 0;
    for (struct dirent *d; (d = readdir(*box));) {
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
        lua_pushstring(L, d->d_name);
        lua_rawseti(L, -2, ++n);
    }
    closedir(*box);
    *box = NULL;
    const char **names = lua_newuserdata(L, ((size_t)n + 1) * sizeof *names);
    for (int i = 0; i < n; i++) { /* the strings stay alive in the first table */
        lua_rawgeti(L, -2, i + 1);
        names[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    qsort(names, (size_t)n, sizeof *names, by_name);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushstring(L, names[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* -- Files ------------------------------------------------------------------------------------------------ */

/* mkdir_p(path): the folder and those above it; true also when it is there already */
static int sys_mkdir_p(lua_State *L)
{
    struct stat s;
    char part[PATH_MAX];
    const char *path = luaL_checkstring(L, 1);
    size_t n = strlen(path);
    if (n >= sizeof part) return fail_sys(L, path, ENAMETOOLONG);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i]) continue;
        char was = part[i];
        part[i] = 0;
        if (mkdir(part, 0777) && errno != EEXIST) return fail_sys(L, part, errno);
        part[i] = was;
    }
    if (stat(path, &s)) return fail_sys(L, path, errno);
    return S_ISDIR(s.st_mode) ? push_true(L) : fail_sys(L, path, ENOTDIR);
}

/* rename(from, to) -> true */
static int sys_rename(lua_State *L)
{
    const char *from = luaL_checkstring(L, 1), *to = luaL_checkstring(L, 2);
    return rename(from, to) ? fail_sys(L, to, errno) : push_true(L);
}

/* remove(path): a file or an empty folder */
static int sys_remove(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    return remove(path) ? fail_sys(L, path, errno) : push_true(L);
}

static int write_all(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t put = write(fd, text, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        text += put;
        n -= (size_t)put;
    }
    return fsync(fd) ? errno : 0;
}

/* write_file(path, text): readers see the old content or all of the new one, never a part */
static int sys_write_file(lua_State *L)
{
    size_t n;
    char temp[PATH_MAX];
    const char *path = luaL_checkstring(L, 1), *text = luaL_checklstring(L, 2, &n);
    int len = snprintf(temp, sizeof temp, "%s.XXXXXX", path);
    if (len < 0 || (size_t)len >= sizeof temp) return fail_sys(L, path, ENAMETOOLONG);
    int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) return fail_sys(L, path, errno);
    mode_t mask = umask(0);
    umask(mask);
    int sys = fchmod(fd, 0666 & ~mask) ? errno : write_all(fd, text, n);
    if (close(fd) && !sys) sys = errno;
    if (!sys && rename(temp, path)) sys = errno;
    if (!sys) return push_true(L);
    unlink(temp);
    return fail_sys(L, path, sys);
}

/* read_file(path[, most]) -> text; fails when the file is larger than `most` bytes (64 MB unless given) */
static int sys_read_file(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    lua_Number most = luaL_optnumber(L, 2, 64 << 20);
    struct stat s;
    luaL_argcheck(L, most >= 0 && most < 2e9, 2, "bytes from 0 to 2e9");
    if (stat(path, &s)) return fail_sys(L, path, errno);
    if (S_ISDIR(s.st_mode)) return fail_sys(L, path, EISDIR);
    if ((lua_Number)s.st_size > most) return fail_sys(L, path, EFBIG);
    size_t cap = S_ISREG(s.st_mode) && s.st_size ? (size_t)s.st_size : (size_t)1 << 20; /* /proc says 0 */
    size_t n = 0;
    char *text = lua_newuserdata(L, cap);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_sys(L, path, errno);
    ssize_t got = 1;
    while (n < cap && ((got = read(fd, text + n, cap - n)) > 0 || (got < 0 && errno == EINTR)))
        if (got > 0) n += (size_t)got;
    int sys = got < 0 ? errno : 0;
    close(fd);
    if (sys) return fail_sys(L, path, sys);
    lua_pushlstring(L, text, n);
    return 1;
}

/* load_file(path, most) -> text of a file of a model; nil, message, code, where. Unlike read_file it takes regular files only, and neither
 * waits for a FIFO nor believes a device (reliability.md A8). */
static int sys_load_file(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    lua_Number most = luaL_checknumber(L, 2);
    tpl_err err = { 0 };
    luaL_argcheck(L, most >= 0 && most < 2e9, 2, "bytes from 0 to 2e9");
    tpl_text *t = tpl_text_new(L);
    if (tpl_file_load(path, (uint64_t)most, &t->s, &t->len, &err)) return tpl_push_err(L, &err);
    lua_pushlstring(L, t->s, t->len);
    free(t->s);
    t->s = NULL;
    return 1;
}

/* alloc_count() -> heap allocations of watched threads (base/alloc.h), or nil where they are not counted */
static int sys_alloc_count(lua_State *L)
{
    if (tpl_alloc_is_wrapped())
        lua_pushnumber(L, (lua_Number)tpl_alloc_count());
    else
        lua_pushnil(L);
    return 1;
}

int tpl_open_sys(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "cpus", sys_cpus },
        { "cpu_list", sys_cpu_list },
        { "cpu_model", sys_cpu_model },
        { "mem_available", sys_mem_available },
        { "mem_total", sys_mem_total },
        { "rss", sys_rss },
        { "rss_peak", sys_rss_peak },
        { "rss_peak_reset", sys_rss_peak_reset },
        { "alloc_count", sys_alloc_count },
        { "hostname", sys_hostname },
        { "pid", sys_pid },
        { "now_us", sys_now_us },
        { "time", sys_time },
        { "sleep_us", sys_sleep_us },
        { "env", sys_env },
        { "env_is_set", sys_env_is_set },
        { "env_names", sys_env_names },
        { "fault", sys_fault },
        { "isatty", sys_isatty },
        { "columns", sys_columns },
        { "exe", sys_exe },
        { "cwd", sys_cwd },
        { "realpath", sys_realpath },
        { "stat", sys_stat },
        { "exists", sys_exists },
        { "is_dir", sys_is_dir },
        { "is_file", sys_is_file },
        { "list", sys_list },
        { "mkdir_p", sys_mkdir_p },
        { "rename", sys_rename },
        { "remove", sys_remove },
        { "write_file", sys_write_file },
        { "read_file", sys_read_file },
        { "load_file", sys_load_file },
        { NULL, NULL },
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
