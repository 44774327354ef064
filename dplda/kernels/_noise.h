/* Look-ups of _noise.pyx for 8 or 16 cells at a time, by AVX2 or AVX-512 where the machine has it.
 *
 * They process whole blocks up to the first block with a tie, and leave the rest to the loop of
 * _noise.pyx. Ties are resolved in one place only. The cells are the same with every set:
 * the definitions are `gaussian_draws` and `laplace_draws` in tests/twins.py.
 */
#ifndef DPLDA_SET
#ifndef DPLDA_NOISE_H
#define DPLDA_NOISE_H
#define DPLDA_KERNEL "_noise.h"
#include <stdint.h>

enum {
    DPLDA_FIELD_BITS = 21,
    DPLDA_FIELD = (1 << DPLDA_FIELD_BITS) - 1,
    DPLDA_COLUMN_BITS = 12,
    DPLDA_N_COLUMNS = 1 << DPLDA_COLUMN_BITS,
    DPLDA_COLUMN = DPLDA_N_COLUMNS - 1
};
#include "_each_set.h"

#define dplda_gaussian_blocks(set, ...) DPLDA_CALL(gaussian_blocks, set)(__VA_ARGS__)
#define dplda_laplace_blocks(set, ...) DPLDA_CALL(laplace_blocks, set)(__VA_ARGS__)
#endif
#else

/* Both functions add a draw to each cell, from the first one on, and return the number of cells
 * that they have processed. A cell has 64 bits if `wide`, and 32 otherwise. */

#if defined(DPLDA_USE_AVX2) || defined(DPLDA_USE_AVX512)
#define draws NAME(draws)
#define signs NAME(signs)
#define load_words NAME(load_words)
#define in_order NAME(in_order)
#define gather NAME(gather)
#define any NAME(any)
#define middle NAME(middle)
#define look_up NAME(look_up)
#define add_draws NAME(add_draws)
#undef LANES

#ifdef DPLDA_USE_AVX512
#define LANES 16
typedef uint32_t draws __attribute__((vector_size(64)));
typedef int32_t signs __attribute__((vector_size(64)));

/* Low and high halves of the words. */
DPLDA_INLINE void load_words(const uint64_t *words, draws *low, draws *high) {
    const __m512i first = _mm512_loadu_si512(words), second = _mm512_loadu_si512(words + 8);
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    *low = (draws)_mm512_permutex2var_epi32(first, even, second);
    *high = (draws)_mm512_permutex2var_epi32(first, odd, second);
}
DPLDA_INLINE signs in_order(draws x) { return (signs)x; }
DPLDA_INLINE draws gather(const uint32_t *from, draws index) {
    return (draws)_mm512_i32gather_epi32((__m512i)index, (const int *)from, 4);
}
DPLDA_INLINE int any(signs mask) {
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}
#else
#define LANES 8
typedef uint32_t draws __attribute__((vector_size(32)));
typedef int32_t signs __attribute__((vector_size(32)));

/* Low and high halves of the words, both in the order 0, 1, 4, 5, 2, 3, 6, 7. */
DPLDA_INLINE void load_words(const uint64_t *words, draws *low, draws *high) {
    const __m256 first = _mm256_loadu_ps((const float *)words);
    const __m256 second = _mm256_loadu_ps((const float *)(words + 4));
    *low = (draws)_mm256_shuffle_ps(first, second, 0x88);
    *high = (draws)_mm256_shuffle_ps(first, second, 0xdd);
}
DPLDA_INLINE signs in_order(draws x) { return (signs)_mm256_permute4x64_epi64((__m256i)x, 0xd8); }
DPLDA_INLINE draws gather(const uint32_t *from, draws index) {
    return (draws)_mm256_i32gather_epi32((const int *)from, (__m256i)index, 4);
}
DPLDA_INLINE int any(signs mask) { return !_mm256_testz_si256((__m256i)mask, (__m256i)mask); }
#endif

/* The middle field is the only one in both halves. */
DPLDA_INLINE draws middle(draws low, draws high) {
    return low >> DPLDA_FIELD_BITS | high << (32 - DPLDA_FIELD_BITS);
}

/* Columns or aliases; higher bits of the fields may be anything. Adds to the mask of ties. */
DPLDA_INLINE draws look_up(draws field, const uint32_t *fast, signs *ties) {
    const draws column = field & DPLDA_COLUMN, entry = gather(fast, column);
    const signs threshold = (signs)(entry >> DPLDA_COLUMN_BITS);
    const signs fraction = (signs)((field & DPLDA_FIELD) >> DPLDA_COLUMN_BITS);
    *ties |= threshold == fraction;
    const draws below = (draws)(threshold > fraction);
    return (column & below) | (entry & DPLDA_COLUMN & ~below);
}

DPLDA_INLINE void add_draws(draws x, void *cells, int wide, ptrdiff_t cell) {
    typedef int64_t longs __attribute__((vector_size(8 * LANES)));
    const signs ordered = in_order(x);
    if (wide) {
        longs sums;
        memcpy(&sums, (int64_t *)cells + cell, sizeof sums);
        sums += __builtin_convertvector(ordered, longs);
        memcpy((int64_t *)cells + cell, &sums, sizeof sums);
    } else {
        draws sums;
        memcpy(&sums, (int32_t *)cells + cell, sizeof sums);
        sums += (draws)ordered;
        memcpy((int32_t *)cells + cell, &sums, sizeof sums);
    }
}

static ptrdiff_t NAME(gaussian_blocks)(const uint64_t *words, const uint32_t *fast, void *cells,
                                       int wide, ptrdiff_t n) {
    ptrdiff_t cell;
    for (cell = 0; cell + LANES <= n; cell += LANES) {
        draws low, high;
        signs ties = {0};
        load_words(words + cell, &low, &high);
        const draws x0 = look_up(low, fast, &ties);
        const draws x1 = look_up(middle(low, high), fast, &ties);
        const draws x2 = look_up(high >> 10, fast, &ties);
        if (any(ties)) {
            break; /* before a cell of the block changes: ties take spare words in the cells' order */
        }
        add_draws(x0 + (x1 << 6) + (x2 << 12) - 2048 * (1 + 64 + 4096), cells, wide, cell);
    }
    return cell;
}

static ptrdiff_t NAME(laplace_blocks)(const uint64_t *words, const uint32_t *fast, void *cells,
                                      int wide, ptrdiff_t n) {
    ptrdiff_t cell;
    for (cell = 0; cell + LANES <= n; cell += LANES) {
        draws low, high;
        signs ties = {0};
        load_words(words + cell, &low, &high);
        const draws x0 = look_up(low, fast, &ties);
        const draws x1 = look_up(middle(low, high), fast + DPLDA_N_COLUMNS, &ties);
        if (any(ties)) {
            break;
        }
        add_draws((x0 | x1 << DPLDA_COLUMN_BITS) ^ (draws)((signs)high >> 31), cells, wide, cell);
    }
    return cell;
}
#undef draws
#undef signs
#undef load_words
#undef in_order
#undef gather
#undef any
#undef middle
#undef look_up
#undef add_draws

#else

static ptrdiff_t NAME(gaussian_blocks)(const uint64_t *words, const uint32_t *fast, void *cells,
                                       int wide, ptrdiff_t n) {
    (void)words, (void)fast, (void)cells, (void)wide, (void)n;
    return 0;
}

static ptrdiff_t NAME(laplace_blocks)(const uint64_t *words, const uint32_t *fast, void *cells,
                                      int wide, ptrdiff_t n) {
    (void)words, (void)fast, (void)cells, (void)wide, (void)n;
    return 0;
}
#endif
#endif
