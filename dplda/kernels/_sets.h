/* The instruction sets that kernels are compiled for. */
#ifndef DPLDA_SETS_H
#define DPLDA_SETS_H

/* On Windows gcc does not align vectors on the stack. */
#if defined(__GNUC__) && !defined(_WIN32) && !defined(DPLDA_PLAIN)
#define DPLDA_HAS_VECTORS 1
#if defined(__x86_64__)
#define DPLDA_X86 1
#include <immintrin.h>
#endif
#endif

/* For all that the code of a set calls. gcc inlines nothing else into it, because the sets are tuned
 * for other processors than the rest is; and a call to the float instructions of the rest, between
 * those of AVX, costs hundreds of cycles on some processors. */
#ifdef __GNUC__
#define DPLDA_INLINE static inline __attribute__((always_inline))
#define DPLDA_PREFETCH(address) __builtin_prefetch(address)
#define DPLDA_PREFETCH_SECOND(address) __builtin_prefetch(address, 0, 2) /* to the second level */
#else
#define DPLDA_INLINE static __inline
#define DPLDA_PREFETCH(address) ((void)(address))
#define DPLDA_PREFETCH_SECOND(address) ((void)(address))
#endif

enum { DPLDA_PORTABLE, DPLDA_AVX2, DPLDA_AVX512 };

/* The fastest set of this machine. */
static inline int dplda_best_set(void) {
#ifdef DPLDA_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni")) {
        return DPLDA_AVX512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2")) {
        return DPLDA_AVX2;
    }
#endif
    return DPLDA_PORTABLE;
}
#endif
