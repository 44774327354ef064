/* The variational E-step of one document; include it with REAL defined as float and as double.
 *
 * Every sum has a fixed order, in plain loops over a fixed number of lanes: the compiler may use
 * any vectors without changing a bit (the build forbids to contract a * b + c).
 */
#ifndef DPLDA_E_STEP_H
#define DPLDA_E_STEP_H
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Also compiled for AVX2, and chosen when the module is loaded, where glibc can do so. */
#if !defined(DPLDA_CLONES) && defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute)
#if __has_attribute(target_clones)
#define DPLDA_CLONES __attribute__((target_clones("avx2", "default")))
#endif
#endif
#ifndef DPLDA_CLONES
#define DPLDA_CLONES
#endif

/* A helper becomes part of each clone only if it is inlined. */
#ifdef __GNUC__
#define DPLDA_INLINE static inline __attribute__((always_inline))
#else
#define DPLDA_INLINE static __inline
#endif

/* The compiler unrolls a loop of 8 first, and then does not vectorize it. */
#if defined(__clang__)
#define DPLDA_KEEP_LOOP _Pragma("clang loop unroll(disable)")
#elif defined(__GNUC__)
#define DPLDA_KEEP_LOOP _Pragma("GCC unroll 1")
#else
#define DPLDA_KEEP_LOOP
#endif

#define DPLDA_PASTE(name, type) name##_##type
#define DPLDA_EXPAND(name, type) DPLDA_PASTE(name, type)
#define NAME(name) DPLDA_EXPAND(name, REAL)

enum { DPLDA_WORDS = 32, DPLDA_LANES = 8 }; /* words of a tile; partial sums of a topic */

typedef uint32_t dplda_bits_float;
typedef uint64_t dplda_bits_double;
/* Added to a word's norm, as in scikit-learn: words that no topic explains count less. Both types
 * use the value of double: with its own, float would lose the rare words of a large vocabulary. */
#define EPSILON ((REAL)DBL_EPSILON)
#define DPLDA_MANTISSA_float 23
#define DPLDA_MANTISSA_double 52
/* Weights and table cells below this count as 0. Through one of them a token adds less than
 * SMALLEST / EPSILON < 5e-4 to gamma; the product of two others is no denormal number. */
#define DPLDA_SMALLEST_float 0x1p-63f
#define DPLDA_SMALLEST_double 0x1p-126

/* The first address on a cache line of its own. */
DPLDA_INLINE void *dplda_align(void *scratch) {
    return (void *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
}
#endif

#define MANTISSA DPLDA_EXPAND(DPLDA_MANTISSA, REAL)
#define SMALLEST DPLDA_EXPAND(DPLDA_SMALLEST, REAL)
#define BITS NAME(dplda_bits)
#define IS_DOUBLE (sizeof(REAL) == 8)

/* exp(x) for -200 < x < 80 (float: -80 < x < 80): a power of 2 times a Taylor polynomial. */
DPLDA_INLINE REAL NAME(dplda_exp)(REAL x) {
    const REAL magic = (REAL)1.5 * (REAL)((BITS)1 << MANTISSA); /* sums end with n's bits */
    const REAL shifted = x * (REAL)1.4426950408889634 + magic;
    const REAL n = shifted - magic;
    const REAL r = IS_DOUBLE ? (x - n * (REAL)0x1.62e42feep-1) - n * (REAL)0x1.a39ef35793c76p-33
                             : (x - n * (REAL)0x1.62e4p-1) - n * (REAL)0x1.7f7d1cp-20;
    REAL sum = (REAL)(1. / 5040), power = 1;
    BITS bits, one;
    if (IS_DOUBLE) {
        sum = (REAL)(1. / 6227020800);
        sum = sum * r + (REAL)(1. / 479001600);
        sum = sum * r + (REAL)(1. / 39916800);
        sum = sum * r + (REAL)(1. / 3628800);
        sum = sum * r + (REAL)(1. / 362880);
        sum = sum * r + (REAL)(1. / 40320);
        sum = sum * r + (REAL)(1. / 5040);
    }
    sum = sum * r + (REAL)(1. / 720);
    sum = sum * r + (REAL)(1. / 120);
    sum = sum * r + (REAL)(1. / 24);
    sum = sum * r + (REAL)(1. / 6);
    sum = sum * r + (REAL)0.5;
    sum = sum * r + 1;
    sum = sum * r + 1;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&one, &power, sizeof one);
    bits = (bits << MANTISSA) + one;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

/* digamma(x) - log(*base) for x > 0: its exponential needs no logarithm.
 *
 * Asymptotic series of digamma(h + 1/2) - log(h) in w = 1 / h**2, from x + 8 if x < 8; then minus
 * the sum of 1 / (x + i), i < 8, which is (2 x + 7) p'(u) / p(u) with u = x (x + 7) and
 * p(u) = u (u + 6) (u + 10) (u + 12). One division serves both. */
DPLDA_INLINE REAL NAME(dplda_digamma)(REAL x, REAL *base) {
    const REAL least = (REAL)1e-30;
    const REAL z = x > least ? x : least;
    const REAL low = z < 8 ? z : 8;
    const REAL u = low * (low + 7);
    const REAL p = u * (u + 6) * ((u + 10) * (u + 12));
    const REAL slope = (2 * low + 7) * (((4 * u + 84) * u + 504) * u + 720);
    const REAL h = z + (z < 8 ? (REAL)7.5 : (REAL)-0.5);
    const REAL inverse = 1 / (p * h);
    const REAL w = (p * inverse) * (p * inverse);
    REAL sum = (REAL)(31. / 8064);
    if (IS_DOUBLE) {
        sum = (REAL)(8191. / 98304);
        sum = (REAL)(1414477. / 67092480) - w * sum;
        sum = (REAL)(511. / 67584) - w * sum;
        sum = (REAL)(127. / 30720) - w * sum;
        sum = (REAL)(31. / 8064) - w * sum;
    }
    sum = (REAL)(7. / 960) - w * sum;
    sum = (REAL)(1. / 24) - w * sum;
    *base = h;
    return w * sum - (z < 8 ? slope : 0) * (h * inverse);
}

/* exp(digamma(gamma) - digamma(total)), from total's digamma and 1 / base; 0 if below SMALLEST. */
DPLDA_INLINE REAL NAME(dplda_weight)(REAL gamma, REAL digamma, REAL scale) {
    const REAL lowest = IS_DOUBLE ? -150 : -75; /* gives less than SMALLEST */
    REAL base;
    REAL x = NAME(dplda_digamma)(gamma, &base) - digamma;
    x = base * scale * NAME(dplda_exp)(x > lowest ? x : lowest);
    return x >= SMALLEST ? x : 0;
}

/* Weights of n topics, and of further ones up to a multiple of 8. */
DPLDA_INLINE void NAME(dplda_weights)(const REAL *__restrict gamma, ptrdiff_t n, REAL total,
                                      REAL *__restrict weight) {
    const ptrdiff_t padded = (n + 7) / 8 * 8;
    REAL base;
    const REAL digamma = NAME(dplda_digamma)(total, &base), scale = 1 / base;
    for (ptrdiff_t a = 0; a < padded; a++) {
        weight[a] = NAME(dplda_weight)(gamma[a], digamma, scale);
    }
}

/* tile[k][j] = table[word[j]][k] and the counts; the rest of a partial tile has count 0. */
DPLDA_INLINE void NAME(dplda_fill_tile)(const REAL *table, ptrdiff_t stride, const int32_t *word,
                                        const REAL *count, ptrdiff_t n, ptrdiff_t n_components,
                                        REAL *__restrict tile, REAL *__restrict tile_count) {
    for (ptrdiff_t j = 0; j < DPLDA_WORDS; j++) {
        tile_count[j] = j < n ? count[j] : 0;
    }
    for (ptrdiff_t j = 0; j < DPLDA_WORDS; j += 4) {
        const REAL *row[4];
        for (int i = 0; i < 4; i++) {
            row[i] = table + stride * word[j + i < n ? j + i : 0];
        }
        for (ptrdiff_t k = 0; k < n_components; k++) {
            for (int i = 0; i < 4; i++) {
                tile[k * DPLDA_WORDS + j + i] = row[i][k] >= SMALLEST ? row[i][k] : 0;
            }
        }
    }
}

/* Add the words of a tile to the sums of the topics, in LANES partial sums per topic.
 *
 * The words of a topic are contiguous, so that a word's norm needs no sum across a vector. */
DPLDA_INLINE void NAME(dplda_add_tile)(const REAL *__restrict tile, const REAL *__restrict count,
                                       const int32_t *topic, const REAL *weight, ptrdiff_t n_topics,
                                       REAL *__restrict sum) {
    REAL share[DPLDA_WORDS] = {0};
    for (ptrdiff_t a = 0; a < n_topics; a += 4) {
        const REAL *r0 = tile + topic[a] * DPLDA_WORDS, *r1 = tile + topic[a + 1] * DPLDA_WORDS;
        const REAL *r2 = tile + topic[a + 2] * DPLDA_WORDS, *r3 = tile + topic[a + 3] * DPLDA_WORDS;
        const REAL w0 = weight[a], w1 = weight[a + 1], w2 = weight[a + 2], w3 = weight[a + 3];
        for (int j = 0; j < DPLDA_WORDS; j++) {
            share[j] += (w0 * r0[j] + w1 * r1[j]) + (w2 * r2[j] + w3 * r3[j]);
        }
    }
    for (int j = 0; j < DPLDA_WORDS; j++) {
        share[j] = count[j] / (share[j] + EPSILON);
    }
    for (ptrdiff_t a = 0; a < n_topics; a++, sum += DPLDA_LANES) {
        const REAL *row = tile + topic[a] * DPLDA_WORDS;
        DPLDA_KEEP_LOOP
        for (int j = 0; j < DPLDA_LANES; j++) {
            sum[j] += (share[j] * row[j] + share[j + 8] * row[j + 8]) +
                      (share[j + 16] * row[j + 16] + share[j + 24] * row[j + 24]);
        }
    }
}

/* gamma (in: the start) and its exp(E[log theta]); see e_step for the arguments.
 *
 * The arrays of the iteration hold the active topics. A topic leaves when it is at the prior with
 * weight 0, and its weight would be 0 even with the smallest sum that gamma can have, K * prior. */
DPLDA_CLONES
static void NAME(dplda_e_step)(const int32_t *word, const REAL *count, ptrdiff_t n_words,
                               const REAL *table, ptrdiff_t stride, REAL prior,
                               ptrdiff_t n_components, ptrdiff_t max_iter, double tol, REAL *gamma,
                               REAL *exp_doc_topic, REAL *scratch) {
    const ptrdiff_t n_tiles = (n_words + DPLDA_WORDS - 1) / DPLDA_WORDS;
    const ptrdiff_t tile_size = n_components * DPLDA_WORDS;
    REAL *tiles = (REAL *)dplda_align(scratch);
    REAL *counts = tiles + n_tiles * tile_size;
    REAL *sums = counts + n_tiles * DPLDA_WORDS;
    REAL *current = sums + stride * DPLDA_LANES;
    REAL *weight = current + stride;
    int32_t *topic = (int32_t *)(weight + stride);
    ptrdiff_t n_topics = n_components;
    REAL base, total = 0;
    const REAL least = NAME(dplda_digamma)(n_components * prior, &base);
    const int may_leave = NAME(dplda_weight)(prior, least, 1 / base) == 0;

    for (ptrdiff_t t = 0, j = 0; t < n_tiles; t++, j += DPLDA_WORDS) {
        NAME(dplda_fill_tile)(table, stride, word + j, count + j, n_words - j, n_components,
                              tiles + t * tile_size, counts + j);
    }
    for (ptrdiff_t k = 0; k < stride; k++) {
        current[k] = k < n_components ? gamma[k] : 1;
        topic[k] = k < n_components ? (int32_t)k : 0;
        total += k < n_components ? gamma[k] : 0;
    }
    NAME(dplda_weights)(current, n_topics, total, weight);

    for (ptrdiff_t step = 0; step < max_iter; step++) {
        double change = 0;
        ptrdiff_t n_left = 0;
        memset(sums, 0, n_topics * DPLDA_LANES * sizeof *sums);
        for (ptrdiff_t a = n_topics; a % 4; a++) { /* a tile takes 4 at a time */
            weight[a] = 0;
        }
        for (ptrdiff_t t = 0; t < n_tiles; t++) {
            NAME(dplda_add_tile)(tiles + t * tile_size, counts + t * DPLDA_WORDS, topic, weight,
                                 n_topics, sums);
        }
        total = (n_components - n_topics) * prior;
        for (ptrdiff_t a = 0; a < n_topics; a++) {
            const REAL *s = sums + a * DPLDA_LANES;
            const REAL sum = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
            const REAL next = prior + weight[a] * sum;
            change += fabs((double)(next - current[a]));
            total += next;
            current[a] = next;
        }
        NAME(dplda_weights)(current, n_topics, total, weight);
        for (ptrdiff_t a = 0; a < n_topics; a++) {
            const int stays = !may_leave || current[a] != prior || weight[a] != 0;
            current[n_left] = current[a];
            weight[n_left] = weight[a];
            topic[n_left] = topic[a];
            n_left += stays;
        }
        n_topics = n_left;
        if (change / n_components < tol) {
            break;
        }
    }

    for (ptrdiff_t k = 0; k < stride; k++) {
        gamma[k] = k < n_components ? prior : 0;
        exp_doc_topic[k] = 0;
    }
    for (ptrdiff_t a = 0; a < n_topics; a++) {
        gamma[topic[a]] = current[a];
        exp_doc_topic[topic[a]] = weight[a];
    }
}

#undef MANTISSA
#undef SMALLEST
#undef BITS
#undef IS_DOUBLE
