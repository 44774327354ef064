/* 64 x 64 -> 128 bit products: Cython has no type for them. */
#ifndef DPLDA_WIDE_H
#define DPLDA_WIDE_H
#include <stdint.h>

#include "_sets.h"
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
DPLDA_INLINE uint64_t dplda_mul_wide(uint64_t a, uint64_t b, uint64_t *low) {
    *low = a * b;
    return __umulh(a, b); /* which x86-64 and ARM have */
}
#else
DPLDA_INLINE uint64_t dplda_mul_wide(uint64_t a, uint64_t b, uint64_t *low) {
    unsigned __int128 product = (unsigned __int128)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
}
#endif
#endif
