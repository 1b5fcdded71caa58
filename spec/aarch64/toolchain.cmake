# SPDX-License-Identifier: Apache-2.0
# Cross build for aarch64 with Debian's gcc-aarch64-linux-gnu: cmake -S . -B build-aarch64 -G Ninja -DCMAKE_TOOLCHAIN_FILE=spec/aarch64/toolchain.cmake
# The C library is the cross compiler's own; all other libraries come from build-aarch64/sysroot, which sysroot.sh fills.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

get_filename_component(sysroot ${CMAKE_CURRENT_LIST_DIR}/../../build-aarch64/sysroot ABSOLUTE)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${sysroot})
set(ENV{PKG_CONFIG_LIBDIR} ${sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig:${sysroot}/usr/share/pkgconfig)
# Libraries that those libraries need themselves (libc and libm, spelt as paths in no linker script here).
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${sysroot}/usr/lib/aarch64-linux-gnu)
# Headers that differ by architecture (hwloc's configuration).
set(CMAKE_C_FLAGS_INIT "-isystem ${sysroot}/usr/include/aarch64-linux-gnu")
set(CMAKE_FIND_ROOT_PATH ${sysroot})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
