/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a command as a container without SYS_NICE does: set_mempolicy, mbind and their kin answer EPERM (the default
 * seccomp profile of Docker: docs.docker.com/engine/security/seccomp). no_mempolicy COMMAND [ARGUMENT...]
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DENY(name)                                                  \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1),          \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

int main(int argc, char **argv)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(set_mempolicy),
        DENY(mbind),
        DENY(get_mempolicy),
        DENY(move_pages),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof code / sizeof *code, code };
    if (argc < 2) return 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("no_mempolicy: seccomp");
        return 77; /* the place where this runs allows no filters: a test skips */
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
