/* Compiles one kernel for each instruction set; define DPLDA_KERNEL, its header, before.
 *
 * A kernel's header includes this file, which includes the header again for each set, with DPLDA_SET
 * defined. There NAME(f) is f with the name of the set, and _lanes.h has the vectors. After it,
 * DPLDA_CALL(f, set) calls the f of a set from 0 (portable) to dplda_best_set().
 */
#ifndef DPLDA_EACH_SET_H
#define DPLDA_EACH_SET_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "_sets.h"

#define DPLDA_JOIN(name, set) name##_##set
#define DPLDA_JOINED(name, set) DPLDA_JOIN(name, set)
#define NAME(name) DPLDA_JOINED(name, DPLDA_SET)

#ifdef DPLDA_X86
#define DPLDA_CALL(name, set)                                          \
    ((set) == DPLDA_AVX512 ? DPLDA_JOIN(name, avx512)                  \
                           : (set) == DPLDA_AVX2 ? DPLDA_JOIN(name, avx2) : DPLDA_JOIN(name, portable))
#else
#define DPLDA_CALL(name, set) ((void)(set), DPLDA_JOIN(name, portable))
#endif

#if defined(__clang__)
#define DPLDA_BEGIN_AVX2 \
    _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,bmi,bmi2,popcnt\"))), apply_to = function)")
#define DPLDA_BEGIN_AVX512                                                                        \
    _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni\"))), apply_to = function)")
#define DPLDA_END _Pragma("clang attribute pop")
#else
/* tune: else gcc 12 stores a vec in pieces of 16 bytes, which doubles the time of some kernels */
#define DPLDA_BEGIN_AVX2          \
    _Pragma("GCC push_options")   \
    _Pragma("GCC target(\"avx2,fma,bmi,bmi2,popcnt,tune=skylake-avx512\")")
#define DPLDA_BEGIN_AVX512        \
    _Pragma("GCC push_options")   \
    _Pragma("GCC target(\"avx2,fma,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni\")")
#define DPLDA_END _Pragma("GCC pop_options")
#endif
#endif

#define DPLDA_SET portable
#include "_lanes.h"
#include DPLDA_KERNEL
#undef DPLDA_SET

#ifdef DPLDA_X86
DPLDA_BEGIN_AVX2
#define DPLDA_SET avx2
#define DPLDA_USE_AVX2
#include "_lanes.h"
#include DPLDA_KERNEL
#undef DPLDA_SET
#undef DPLDA_USE_AVX2
DPLDA_END

DPLDA_BEGIN_AVX512
#define DPLDA_SET avx512
#define DPLDA_USE_AVX512
#include "_lanes.h"
#include DPLDA_KERNEL
#undef DPLDA_SET
#undef DPLDA_USE_AVX512
DPLDA_END
#endif
#undef DPLDA_KERNEL
