/* SPDX-License-Identifier: Apache-2.0
 *
 * Which instruction sets this machine, its operating system and this build have. CPUID leaf 7 and XCR0 as
 * in the Intel SDM, volume 1, chapters 13 to 15: a set is usable only where the system saves its
 * registers. NEON is in the base line of aarch64; Linux says what else there is in AT_HWCAP
 * (Documentation/arch/arm64/elf_hwcaps.rst). Any thread; computed anew at each call (load time).
 */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"

#if TPL_CPU_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* SSE | AVX state; with opmask and both halves of the upper ZMM state; tile configuration and data. */
enum { XCR0_YMM = 0x06, XCR0_ZMM = 0xe6, XCR0_TILES = 0x60000 };

static uint64_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* Linux gives the 8 KB of tile data only to processes that ask (Documentation/arch/x86/xstate.rst). The
 * answer holds for every thread and every later fork, and asking again changes nothing, so nothing is kept
 * here. The backend's bind asks; whoever calls a bind function of cpu_ops.h for AMX himself must have
 * asked. */
static bool tiles_permitted(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

static bool x86_has_bf16(void)
{
    enum { AVX512_BF16 = 1 << 5 }; /* leaf 7, subleaf 1, EAX */
    uint32_t a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX512_BF16);
}

static bool x86_is_amd(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
}

static bool x86_usable(tpl_isa isa)
{
    uint32_t a, b, c, d, b7, c7, d7;
    const uint32_t c1 = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & c1) != c1) return false;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return false;
    const uint64_t saved = xcr0();
    const uint32_t avx2 = bit_AVX2 | bit_BMI2;
    const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ | bit_AVX512CD;
    if ((b7 & avx2) != avx2 || (saved & XCR0_YMM) != XCR0_YMM) return false;
    if (isa == TPL_ISA_AVX2) return true;
    if ((b7 & avx512) != avx512 || !(c7 & bit_AVX512VNNI) || (saved & XCR0_ZMM) != XCR0_ZMM) return false;
    if (isa == TPL_ISA_AVX512) return true;
    const uint32_t amx = bit_AMX_TILE | bit_AMX_INT8 | bit_AMX_BF16;
    /* the AMX sources use vector conversions to bf16 too */
    return isa == TPL_ISA_AMX && (d7 & amx) == amx && x86_has_bf16() && (saved & XCR0_TILES) == XCR0_TILES && tiles_permitted();
}
#else
static bool x86_has_bf16(void)
{
    return false;
}

static bool x86_is_amd(void)
{
    return false;
}

static bool x86_usable(tpl_isa isa)
{
    (void)isa;
    return false;
}
#endif

#if TPL_CPU_ARM
#if defined(__linux__)
#include <sys/auxv.h>

bool tpl_cpu_has_dotprod(void)
{
    enum { ASIMDDP = 1 << 20 };
    return (getauxval(AT_HWCAP) & ASIMDDP) != 0;
}
#else
bool tpl_cpu_has_dotprod(void)
{
    return false;
}
#endif
#endif

static const char *const names[TPL_N_ISAS] = { "portable", "avx2", "avx512", "amx", "neon" };

bool tpl_isa_usable(tpl_isa isa)
{
    return isa == TPL_ISA_PORTABLE || (TPL_CPU_ARM && isa == TPL_ISA_NEON) || x86_usable(isa);
}

bool tpl_isa_has_bf16(tpl_isa isa)
{
    if (!tpl_isa_usable(isa)) return false;
    return isa == TPL_ISA_AMX || (isa == TPL_ISA_AVX512 && x86_has_bf16() && x86_is_amd());
}

tpl_isa tpl_isa_best(void)
{
    tpl_isa best = TPL_ISA_PORTABLE;
    for (int i = 0; i < TPL_N_ISAS; i++)
        if (tpl_isa_usable((tpl_isa)i)) best = (tpl_isa)i;
    return best;
}

const char *tpl_isa_name(tpl_isa isa)
{
    return (unsigned)isa < TPL_N_ISAS ? names[isa] : "?";
}

int tpl_isa_find(const char *name)
{
    for (int i = 0; i < TPL_N_ISAS; i++)
        if (!strcmp(name, names[i])) return i;
    return -1;
}
