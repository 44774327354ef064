/* Included before a driver: kernels see what they see of MSVC, but for the headers of the system. */
#include <float.h>
#include <intrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* mingw-w64 declares it only. */
static inline uint64_t high_product(uint64_t a, uint64_t b) {
    return (uint64_t)((__extension__ (unsigned __int128)a * b) >> 64);
}
#define __umulh high_product
#undef __GNUC__
#define _MSC_VER 1940
