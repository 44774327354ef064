/* Look-ups of _noise.pyx for 8 cells at a time, by AVX2 where the machine has it.
 *
 * They process whole blocks up to the first block with a tie, and leave the rest to the scalar
 * loop. Ties are resolved in one place only. The cells are the same with and without AVX2.
 */
#ifndef DPLDA_NOISE_H
#define DPLDA_NOISE_H
#include <stddef.h>
#include <stdint.h>

enum {
    DPLDA_FIELD_BITS = 21,
    DPLDA_FIELD = (1 << DPLDA_FIELD_BITS) - 1,
    DPLDA_COLUMN_BITS = 12,
    DPLDA_N_COLUMNS = 1 << DPLDA_COLUMN_BITS,
    DPLDA_COLUMN = DPLDA_N_COLUMNS - 1,
    DPLDA_LANES = 8
};

/* On Windows gcc does not align vectors on the stack. */
#if defined(__GNUC__) && defined(__x86_64__) && !defined(_WIN32)
#include <immintrin.h>

#define DPLDA_AVX2 __attribute__((target("avx2")))
#define DPLDA_AVX2_INLINE static inline __attribute__((always_inline, target("avx2")))

static int dplda_has_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
}

/* Low and high halves of 8 words, both in the order 0, 1, 4, 5, 2, 3, 6, 7. */
DPLDA_AVX2_INLINE void dplda_load(const uint64_t *words, __m256i *low, __m256i *high) {
    const __m256 first = _mm256_loadu_ps((const float *)words);
    const __m256 second = _mm256_loadu_ps((const float *)(words + 4));
    *low = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0x88));
    *high = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
}

/* The middle field is the only one in both halves. */
DPLDA_AVX2_INLINE __m256i dplda_middle(__m256i low, __m256i high) {
    return _mm256_or_si256(_mm256_srli_epi32(low, DPLDA_FIELD_BITS),
                           _mm256_slli_epi32(high, 32 - DPLDA_FIELD_BITS));
}

/* Columns or aliases; higher bits of the fields may be anything. Adds to the mask of ties. */
DPLDA_AVX2_INLINE __m256i dplda_look_up(__m256i field, const uint32_t *fast, __m256i *ties) {
    const __m256i column_mask = _mm256_set1_epi32(DPLDA_COLUMN);
    const __m256i column = _mm256_and_si256(field, column_mask);
    const __m256i entry = _mm256_i32gather_epi32((const int *)fast, column, 4);
    const __m256i threshold = _mm256_srli_epi32(entry, DPLDA_COLUMN_BITS);
    const __m256i fraction = _mm256_srli_epi32(
        _mm256_and_si256(field, _mm256_set1_epi32(DPLDA_FIELD)), DPLDA_COLUMN_BITS);
    const __m256i below = _mm256_cmpgt_epi32(threshold, fraction);
    *ties = _mm256_or_si256(*ties, _mm256_cmpeq_epi32(threshold, fraction));
    return _mm256_blendv_epi8(_mm256_and_si256(entry, column_mask), column, below);
}

/* Add 8 draws in the order of dplda_load. */
DPLDA_AVX2_INLINE void dplda_add(__m256i draws, int64_t *cells) {
    __m256i *first = (__m256i *)cells, *second = (__m256i *)(cells + 4);
    const __m256i ordered = _mm256_permute4x64_epi64(draws, 0xd8);
    const __m256i x = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(ordered));
    const __m256i y = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(ordered, 1));
    _mm256_storeu_si256(first, _mm256_add_epi64(_mm256_loadu_si256(first), x));
    _mm256_storeu_si256(second, _mm256_add_epi64(_mm256_loadu_si256(second), y));
}

/* Both return the number of cells that they have processed. */

DPLDA_AVX2 static ptrdiff_t dplda_gaussian_blocks(const uint64_t *words, const uint32_t *fast,
                                                  int64_t *cells, ptrdiff_t n) {
    const __m256i center = _mm256_set1_epi32(2048 * (1 + 64 + 4096));
    ptrdiff_t j;
    for (j = 0; j + DPLDA_LANES <= n; j += DPLDA_LANES) {
        __m256i low, high, ties = _mm256_setzero_si256();
        dplda_load(words + j, &low, &high);
        const __m256i x0 = dplda_look_up(low, fast, &ties);
        const __m256i x1 = dplda_look_up(dplda_middle(low, high), fast, &ties);
        const __m256i x2 = dplda_look_up(_mm256_srli_epi32(high, 10), fast, &ties);
        if (!_mm256_testz_si256(ties, ties)) {
            break;
        }
        const __m256i larger = _mm256_add_epi32(x1, _mm256_slli_epi32(x2, 6));
        const __m256i sum = _mm256_add_epi32(x0, _mm256_slli_epi32(larger, 6));
        dplda_add(_mm256_sub_epi32(sum, center), cells + j);
    }
    return j;
}

DPLDA_AVX2 static ptrdiff_t dplda_laplace_blocks(const uint64_t *words, const uint32_t *fast,
                                                 int64_t *cells, ptrdiff_t n) {
    ptrdiff_t j;
    for (j = 0; j + DPLDA_LANES <= n; j += DPLDA_LANES) {
        __m256i low, high, ties = _mm256_setzero_si256();
        dplda_load(words + j, &low, &high);
        const __m256i x0 = dplda_look_up(low, fast, &ties);
        const __m256i x1 = dplda_look_up(dplda_middle(low, high), fast + DPLDA_N_COLUMNS, &ties);
        if (!_mm256_testz_si256(ties, ties)) {
            break;
        }
        const __m256i m = _mm256_or_si256(x0, _mm256_slli_epi32(x1, DPLDA_COLUMN_BITS));
        dplda_add(_mm256_xor_si256(m, _mm256_srai_epi32(high, 31)), cells + j);
    }
    return j;
}

#else

static int dplda_has_avx2(void) { return 0; }

static ptrdiff_t dplda_gaussian_blocks(const uint64_t *words, const uint32_t *fast, int64_t *cells,
                                       ptrdiff_t n) {
    (void)words, (void)fast, (void)cells, (void)n;
    return 0;
}

static ptrdiff_t dplda_laplace_blocks(const uint64_t *words, const uint32_t *fast, int64_t *cells,
                                      ptrdiff_t n) {
    (void)words, (void)fast, (void)cells, (void)n;
    return 0;
}

#endif
#endif
