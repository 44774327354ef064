/* exp(digamma(x)): weights of topics from Dirichlet parameters, in float or double.
 *
 * A kernel includes this file once before its loops, and in each set after it has defined REAL.
 */
#ifndef DPLDA_DIGAMMA_H
#define DPLDA_DIGAMMA_H
#include <stdint.h>

/* A function of this type and set, and a constant of this type. */
#define TYPED(name) NAME(DPLDA_JOINED(name, REAL))
#define OF_TYPE(name) DPLDA_JOINED(name, REAL)

typedef uint32_t dplda_bits_float;
typedef uint64_t dplda_bits_double;
#define DPLDA_MANTISSA_float 23
#define DPLDA_MANTISSA_double 52
/* Weights and table cells below this count as 0. Through one of them a token adds less than
 * SMALLEST / EPSILON < 5e-4 to gamma; the product of two others is no denormal number. */
#define DPLDA_SMALLEST_float 0x1p-63f
#define DPLDA_SMALLEST_double 0x1p-126

/* Of the type that REAL is where they stand. */
#define MANTISSA OF_TYPE(DPLDA_MANTISSA)
#define BITS OF_TYPE(dplda_bits)
#define IS_DOUBLE (sizeof(REAL) == 8)
#define SMALLEST OF_TYPE(DPLDA_SMALLEST)
#endif

#ifdef REAL

/* exp(x) for -701 < x < 80 (float: -80 < x < 80): a power of 2 times a Taylor polynomial. */
DPLDA_INLINE REAL TYPED(exp)(REAL x) {
    const REAL magic = (REAL)1.5 * (REAL)((BITS)1 << MANTISSA); /* sums end with n's bits */
    const REAL shifted = x * (REAL)1.4426950408889634 + magic;
    const REAL n = shifted - magic;
    const REAL rest = IS_DOUBLE ? (x - n * (REAL)0x1.62e42feep-1) - n * (REAL)0x1.a39ef35793c76p-33
                                : (x - n * (REAL)0x1.62e4p-1) - n * (REAL)0x1.7f7d1cp-20;
    REAL sum = (REAL)(1. / 5040), power = 1;
    BITS bits, one;
    if (IS_DOUBLE) {
        sum = (REAL)(1. / 6227020800);
        sum = sum * rest + (REAL)(1. / 479001600);
        sum = sum * rest + (REAL)(1. / 39916800);
        sum = sum * rest + (REAL)(1. / 3628800);
        sum = sum * rest + (REAL)(1. / 362880);
        sum = sum * rest + (REAL)(1. / 40320);
        sum = sum * rest + (REAL)(1. / 5040);
    }
    sum = sum * rest + (REAL)(1. / 720);
    sum = sum * rest + (REAL)(1. / 120);
    sum = sum * rest + (REAL)(1. / 24);
    sum = sum * rest + (REAL)(1. / 6);
    sum = sum * rest + (REAL)0.5;
    sum = sum * rest + 1;
    sum = sum * rest + 1;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&one, &power, sizeof one);
    bits = (bits << MANTISSA) + one;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

/* digamma(x) - log(*base) for x > 0: its exponential needs no logarithm.
 *
 * Asymptotic series of digamma(h + 1/2) - log(h) in 1 / h**2 (h is `shifted`), from x + 8 if x < 8;
 * then minus the sum of 1 / (x + i), i < 8, which is (2 x + 7) p'(u) / p(u) with u = x (x + 7), the
 * `product`, and p(u) = u (u + 6) (u + 10) (u + 12). One division serves both. */
DPLDA_INLINE REAL TYPED(digamma)(REAL x, REAL *base) {
    const REAL least = (REAL)1e-30;
    const REAL positive = x > least ? x : least;
    const REAL low = positive < 8 ? positive : 8;
    const REAL product = low * (low + 7);
    const REAL polynomial = product * (product + 6) * ((product + 10) * (product + 12));
    const REAL slope = (2 * low + 7) * (((4 * product + 84) * product + 504) * product + 720);
    const REAL shifted = positive + (positive < 8 ? (REAL)7.5 : (REAL)-0.5);
    const REAL inverse = 1 / (polynomial * shifted);
    const REAL inverse_square = (polynomial * inverse) * (polynomial * inverse);
    REAL sum = (REAL)(31. / 8064);
    if (IS_DOUBLE) {
        sum = (REAL)(8191. / 98304);
        sum = (REAL)(1414477. / 67092480) - inverse_square * sum;
        sum = (REAL)(511. / 67584) - inverse_square * sum;
        sum = (REAL)(127. / 30720) - inverse_square * sum;
        sum = (REAL)(31. / 8064) - inverse_square * sum;
    }
    sum = (REAL)(7. / 960) - inverse_square * sum;
    sum = (REAL)(1. / 24) - inverse_square * sum;
    *base = shifted;
    return inverse_square * sum - (positive < 8 ? slope : 0) * (shifted * inverse);
}

/* exp(digamma(gamma) - digamma(total)), from total's digamma and 1 / base; 0 if below SMALLEST. */
DPLDA_INLINE REAL TYPED(weight)(REAL gamma, REAL digamma, REAL scale) {
    const REAL lowest = IS_DOUBLE ? -150 : -75; /* gives less than SMALLEST */
    REAL base;
    REAL x = TYPED(digamma)(gamma, &base) - digamma;
    x = base * scale * TYPED(exp)(x > lowest ? x : lowest);
    return x >= SMALLEST ? x : 0;
}

/* Weights of n topics, and of further ones up to a multiple of 16. */
DPLDA_INLINE void TYPED(weights)(const REAL *__restrict gamma, ptrdiff_t n, REAL total,
                                 REAL *__restrict weight) {
    const ptrdiff_t padded = (n + 15) / 16 * 16;
    REAL base;
    const REAL digamma = TYPED(digamma)(total, &base), scale = 1 / base;
    for (ptrdiff_t a = 0; a < padded; a++) {
        weight[a] = TYPED(weight)(gamma[a], digamma, scale);
    }
}
#endif
