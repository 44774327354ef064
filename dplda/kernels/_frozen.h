/* One sweep of topic draws under a table that does not change. Proofs: docs/proofs_word.md.
 *
 * The law. Topic k of a token of word w in document d has probability T[w, k] c[d, k] / sum, where
 * all of T and c are integers. T is a half of the table without its power of two. c is n U + A: n
 * counts the document's other tokens, and U and A are functions of its length and of the prior.
 * A uniform number u selects the topic in whose interval u * sum lies. The definition is
 * `frozen_sweep` in tests/twins.py.
 *
 * The float stage sums products in floats and proposes a topic. The proposal stands if u * sum is
 * further from both ends of its interval than all rounding errors together. Otherwise integers
 * decide. So the topics do not depend on the order of float sums, on the instruction set, or on
 * how many documents are in flight.
 */
#ifndef DPLDA_SET
#ifndef DPLDA_FROZEN_H
#define DPLDA_FROZEN_H
#define DPLDA_KERNEL "_frozen.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "_wide.h"

enum {
    /* Intervals lie in the order of topics modulo 16, then upwards. This order, and which bits of a
     * token's number are read first, are the format of seeded results: it never changes. */
    DPLDA_LANES = 16,
    DPLDA_SHORT = 12,     /* vectors of 16 topics of the longest short row */
    DPLDA_GROUP = 4,      /* vectors between two stored sums of a longer row */
    DPLDA_MOST_SUMS = 32, /* of a row */
    DPLDA_MOST_TOPICS = DPLDA_MOST_SUMS * DPLDA_GROUP * DPLDA_LANES,
    DPLDA_IN_FLIGHT = 16, /* documents that are swept side by side, or fewer with long rows */
    DPLDA_AHEAD = 32,     /* tokens between a prefetch and its use */
    DPLDA_COUNTERS = 4    /* counts of one topic, so that equal topics do not wait for each other */
};
/* Document weights are floats 2**64 c: no product or threshold comes near an underflow. */
#define DPLDA_SCALE 18446744073709551616.0f

typedef struct {
    const int32_t *word;        /* in: word of each token, grouped by document */
    const int64_t *doc_ptr;     /* in: where each document's tokens begin */
    const int64_t *order;       /* in: the documents, in the order in which they are begun */
    int64_t n_docs;
    int16_t *topics;            /* in/out: topic of each token, -1 for not yet assigned */
    const uint16_t *half;       /* in: (n_words, padded) normal halves, 0 on the padding */
    int64_t padded;             /* topics, rounded up to a multiple of 16 */
    double doc_topic_prior;
    const uint64_t *bits;       /* in: first 64 bits of each token's uniform number */
    const uint64_t *refinement; /* in: the next 64 bits, or NULL */
    float tolerance;            /* bound on the rounding errors, as a fraction of the sum */
    float *scratch;             /* dplda_scratch_floats(padded) */
    int64_t n_exact;            /* out: draws that integers decided */
    int unrefined;              /* out: whether a draw needed `refinement` and there was none */
} dplda_sweep;

/* Sums of a row's products that are stored: after each vector, or after each group of them. */
DPLDA_INLINE int64_t dplda_n_sums(int64_t padded) {
    const int64_t n_vectors = padded / DPLDA_LANES;
    return n_vectors <= DPLDA_SHORT ? n_vectors : (n_vectors + DPLDA_GROUP - 1) / DPLDA_GROUP;
}

/* A document's weights, zero from `padded` on. Rows of a multiple of 4 KB would share few lines of
 * the cache: hence 16 more. */
DPLDA_INLINE int64_t dplda_stride(int64_t padded) {
    const int64_t whole = DPLDA_LANES * DPLDA_GROUP;
    return (padded + whole - 1) / whole * whole + DPLDA_LANES;
}

DPLDA_INLINE int64_t dplda_scratch_floats(int64_t padded) {
    return DPLDA_LANES + (DPLDA_IN_FLIGHT + DPLDA_COUNTERS) * dplda_stride(padded) +
           DPLDA_IN_FLIGHT * DPLDA_LANES * dplda_n_sums(padded);
}

/* ---------------------------------------------------------------- the law, in integers */

typedef struct {
    uint64_t high, low;
} dplda_wide;

DPLDA_INLINE dplda_wide dplda_product(uint64_t a, uint64_t b) {
    dplda_wide x;
    x.high = dplda_mul_wide(a, b, &x.low);
    return x;
}

DPLDA_INLINE dplda_wide dplda_plus(dplda_wide x, dplda_wide y) {
    x.low += y.low;
    x.high += y.high + (x.low < y.low);
    return x;
}

DPLDA_INLINE int dplda_is_above(dplda_wide x, dplda_wide y) {
    return x.high > y.high || (x.high == y.high && x.low > y.low);
}

/* floor(bits * total / 2**64); the remainder is another 64 bits. */
DPLDA_INLINE dplda_wide dplda_scaled(uint64_t bits, dplda_wide total, uint64_t *remainder) {
    dplda_wide low = dplda_product(bits, total.low), carry = {0, 0};
    *remainder = low.low;
    carry.low = low.high;
    return dplda_plus(dplda_product(bits, total.high), carry);
}

DPLDA_INLINE dplda_wide dplda_small(uint64_t a) {
    dplda_wide x = {0, 0};
    x.low = a;
    return x;
}

/* high 2**32 + low */
DPLDA_INLINE dplda_wide dplda_joined(uint64_t high, uint64_t low) {
    return dplda_plus(dplda_product(high, UINT64_C(1) << 32), dplda_small(low));
}

/* Whether all of [target + fraction / 2**64, that + total / 2**64) lies below the end. */
DPLDA_INLINE int dplda_stays_below(dplda_wide end, dplda_wide target, uint64_t fraction,
                                   dplda_wide total) {
    const dplda_wide reach = dplda_plus(total, dplda_small(fraction));
    const dplda_wide next = dplda_plus(target, dplda_small(reach.high));
    return dplda_is_above(end, next) ||
           (end.high == next.high && end.low == next.low && reach.low == 0);
}

/* U and A. As far as possible all of n U + A are at most 2**24, hence exact as floats. Returns
 * whether they are. */
DPLDA_INLINE int dplda_document_unit(int64_t n_tokens, double prior, double *unit, double *base) {
    int exponent;
    frexp((double)n_tokens + prior, &exponent);
    *unit = exponent < 24 ? ldexp(1.0, 24 - exponent) : 1.0;
    *base = rint(prior * *unit);
    *base = *base < 1.0 ? 1.0 : *base;
    return exponent <= 24; /* c <= 2^24 is exact in a float, and so is each step of unit U */
}

/* ---------------------------------------------------------------- documents in flight */

typedef struct {
    int64_t next;                         /* the place in `order` of the next document to begin */
    uint32_t active;                      /* bit mask of the slots that have a document */
    int64_t token[DPLDA_IN_FLIGHT];       /* the token whose topic is drawn next */
    int64_t end[DPLDA_IN_FLIGHT];
    const uint16_t *row[DPLDA_IN_FLIGHT]; /* the table's row of this token */
    const uint16_t *next_row[DPLDA_IN_FLIGHT]; /* that of the next token, or any */
    float *weight[DPLDA_IN_FLIGHT];       /* (stride,) c, without this token */
    float unit[DPLDA_IN_FLIGHT];          /* what a token adds to it */
    float *sums[DPLDA_IN_FLIGHT];         /* (n_sums, 16) products of all vectors so far */
    int32_t uniform[DPLDA_IN_FLIGHT];     /* 24 bits */
    int32_t pick[DPLDA_IN_FLIGHT];        /* the topic that the floats propose */
    int32_t *count[DPLDA_COUNTERS];       /* (stride,) of a document that begins, each */
} dplda_flight;

DPLDA_INLINE void dplda_lay_out(dplda_flight *slots, float *scratch, int64_t padded) {
    const int64_t stride = dplda_stride(padded), n_sums = DPLDA_LANES * dplda_n_sums(padded);
    float *aligned = (float *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
    memset(scratch, 0, dplda_scratch_floats(padded) * sizeof *scratch);
    memset(slots, 0, sizeof *slots);
    for (int slot = 0; slot < DPLDA_IN_FLIGHT; slot++, aligned += stride) {
        slots->weight[slot] = aligned;
    }
    for (int slot = 0; slot < DPLDA_IN_FLIGHT; slot++, aligned += n_sums) {
        slots->sums[slot] = aligned;
    }
    for (int j = 0; j < DPLDA_COUNTERS; j++, aligned += stride) {
        slots->count[j] = (int32_t *)aligned + DPLDA_LANES;
    }
}

DPLDA_INLINE const uint16_t *dplda_row(const dplda_sweep *s, int64_t i) {
    return s->half + s->word[i] * s->padded;
}

/* Take token i out of its document's weights. */
DPLDA_INLINE void dplda_take_out(const dplda_sweep *s, dplda_flight *x, int slot, int64_t i) {
    const int64_t old = s->topics[i];
    x->uniform[slot] = (int32_t)(s->bits[i] >> 40); /* the first bits of what draw_exact reads */
    if (old >= 0) {
        x->weight[slot][old] -= x->unit[slot];
    }
}

/* How often each topic occurs in a document, into count[0]. */
DPLDA_INLINE void dplda_count(const dplda_sweep *s, int64_t begin, int64_t end,
                              int32_t *const *count) {
    for (int j = 0; j < DPLDA_COUNTERS; j++) {
        memset(count[j], 0, s->padded * sizeof **count);
    }
    for (int64_t i = begin; i < end; i++) {
        count[i % DPLDA_COUNTERS][s->topics[i]]++; /* [-1]: of no topic yet */
    }
    for (int64_t k = 0; k < s->padded; k++) {
        for (int j = 1; j < DPLDA_COUNTERS; j++) {
            count[0][k] += count[j][k];
        }
    }
}

#include "_each_set.h"

/* The proven tolerance: see docs/proofs_word.md. */
static inline float dplda_tolerance(int64_t padded) {
    return (float)(2 * dplda_n_sums(padded) + 23) / 16777216.0f;
}

static void dplda_sweep_documents(dplda_sweep *s, int set) { DPLDA_CALL(dplda_sweep, set)(s); }
#endif
#else

/* T c of 16 topics is high 2**32 + low, both added to. T is (1024 + mantissa) 2**(exponent - 1), or
 * 0 for the padding, and c is below 2**32. */
DPLDA_INLINE void NAME(add_weights)(const uint16_t *row, const float *c, uint64_t *high,
                                    uint64_t *low) {
    uint32_t whole[DPLDA_LANES];
    for (int j = 0; j < DPLDA_LANES; j++) {
        whole[j] = (uint32_t)(int64_t)(c[j] * (1 / DPLDA_SCALE));
    }
    for (int j = 0; j < DPLDA_LANES; j++) {
        const uint64_t mantissa = (row[j] ? 1024 : 0) | (row[j] & 1023);
        const uint64_t shift = ((row[j] >> 10) - 1) & 31, product = mantissa * whole[j];
        high[j] += product >> (32 - shift);
        low[j] += (uint32_t)(product << shift);
    }
}

/* The topic of token i by integers, from 64 bits of its uniform number or, where these leave two
 * topics possible, from 128. */
static int64_t NAME(draw_exact)(dplda_sweep *work, const uint16_t *row, const float *weights,
                                int64_t token) {
    uint64_t high[DPLDA_LANES] = {0}, low[DPLDA_LANES] = {0}, fraction, rest;
    dplda_wide total = {0, 0}, target;
    int64_t topic;
    work->n_exact++;
    for (topic = 0; topic < work->padded; topic += DPLDA_LANES) {
        NAME(add_weights)(row + topic, weights + topic, high, low);
    }
    for (int j = 0; j < DPLDA_LANES; j++) {
        total = dplda_plus(total, dplda_joined(high[j], low[j]));
    }
    target = dplda_scaled(work->bits[token], total, &fraction);
    for (int refined = 0;; refined = 1) {
        /* The first interval whose end is above the target: lane after lane, then upwards. */
        dplda_wide below = {0, 0}, end;
        int lane = 0;
        for (; lane < DPLDA_LANES - 1; lane++) {
            end = dplda_plus(below, dplda_joined(high[lane], low[lane]));
            if (dplda_is_above(end, target)) {
                break;
            }
            below = end;
        }
        for (topic = 0;; topic += DPLDA_LANES) {
            uint64_t own_high[DPLDA_LANES] = {0}, own_low[DPLDA_LANES] = {0};
            NAME(add_weights)(row + topic, weights + topic, own_high, own_low);
            end = dplda_plus(below, dplda_joined(own_high[lane], own_low[lane]));
            if (dplda_is_above(end, target) || topic + DPLDA_LANES >= work->padded) {
                break;
            }
            below = end;
        }
        topic += lane;
        if (refined || dplda_stays_below(end, target, fraction, total)) {
            return topic;
        }
        if (!work->refinement) {
            work->unrefined = 1;
            return topic;
        }
        const dplda_wide more = dplda_scaled(work->refinement[token], total, &rest);
        target = dplda_plus(target, dplda_small(dplda_plus(more, dplda_small(fraction)).high));
    }
}

/* One document, each draw by integers; c is (stride,). For documents whose weights have to be
 * rounded to floats, and for compilers without vectors. */
static void NAME(sweep_exactly)(dplda_sweep *work, int64_t doc, int32_t *const *counts,
                                float *weights) {
    const int64_t begin = work->doc_ptr[doc], end = work->doc_ptr[doc + 1];
    int32_t *count = counts[0];
    double unit, base;
    int64_t token, topic;
    dplda_document_unit(end - begin, work->doc_topic_prior, &unit, &base);
    dplda_count(work, begin, end, counts);
    for (topic = 0; topic < work->padded; topic++) {
        weights[topic] = (float)(count[topic] * unit + base) * DPLDA_SCALE;
    }
    for (token = begin; token < end; token++) {
        if ((topic = work->topics[token]) >= 0) {
            count[topic] -= 1;
            weights[topic] = (float)(count[topic] * unit + base) * DPLDA_SCALE;
        }
        topic = NAME(draw_exact)(work, dplda_row(work, token), weights, token);
        work->topics[token] = (int16_t)topic;
        count[topic] += 1;
        weights[topic] = (float)(count[topic] * unit + base) * DPLDA_SCALE;
    }
}

#ifndef DPLDA_HAS_VECTORS
static void NAME(dplda_sweep)(dplda_sweep *s) {
    dplda_flight x;
    dplda_lay_out(&x, s->scratch, s->padded);
    for (int64_t d = 0; d < s->n_docs; d++) {
        NAME(sweep_exactly)(s, d, x.count, x.weight[0]);
    }
}
#else
/* Products are those of a `vec`. Proposals are for WIDTH slots at a time: eight take turns with the
 * products better than 16 do. */
#define floats NAME(floats)
#define ints NAME(ints)
#define choose NAME(choose)
#define bits_of NAME(bits_of)
#define transposed NAME(transposed)
#if defined(DPLDA_USE_AVX512) || defined(DPLDA_USE_AVX2)
#define WIDTH 8
#else
#define WIDTH 4
#endif
typedef float floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));

DPLDA_INLINE floats NAME(load)(const float *from) {
    floats x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* Halves times 2**-112, exactly: the bits of a normal half, moved, are those of a normal float. */
DPLDA_INLINE vec NAME(halves)(const uint16_t *from) {
#if defined(DPLDA_USE_AVX512)
    const veci bits = (veci)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
#elif defined(DPLDA_USE_AVX2)
    const __m128i *two = (const __m128i *)from;
    const veci bits = {_mm256_cvtepu16_epi32(_mm_loadu_si128(two)),
                    _mm256_cvtepu16_epi32(_mm_loadu_si128(two + 1))};
#else
    typedef uint16_t halves __attribute__((vector_size(32)));
    halves narrow;
    memcpy(&narrow, from, sizeof narrow);
    const veci bits = __builtin_convertvector(narrow, veci);
#endif
    return v_as_float(vi_shift_left(bits, 13));
}

/* The products of vector number v. */
DPLDA_INLINE vec NAME(times)(const uint16_t *row, const float *c, int v) {
    return v_mul(v_load(c + DPLDA_LANES * v), NAME(halves)(row + DPLDA_LANES * v));
}
/* They are added to `sum`, and rounded once or twice: topics do not depend on it. */
DPLDA_INLINE vec NAME(plus_times)(vec sum, const uint16_t *row, const float *c, int v) {
#if defined(DPLDA_USE_AVX512) || defined(DPLDA_USE_AVX2)
    const vec a = v_load(c + DPLDA_LANES * v), b = NAME(halves)(row + DPLDA_LANES * v);
#endif
#if defined(DPLDA_USE_AVX512)
    sum = (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(DPLDA_USE_AVX2)
    sum.low = _mm256_fmadd_ps(a.low, b.low, sum.low);
    sum.high = _mm256_fmadd_ps(a.high, b.high, sum.high);
#else
    sum = v_add(sum, NAME(times)(row, c, v));
#endif
    return sum;
}

/* `choose` is a where the mask holds and b elsewhere; bits_of has a bit for each slot. */
DPLDA_INLINE floats choose(ints mask, floats a, floats b) {
#if WIDTH == 8
    return (floats)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
#else
    return (floats)((mask & (ints)a) | (~mask & (ints)b));
#endif
}
DPLDA_INLINE uint32_t bits_of(ints mask) {
#if WIDTH == 8
    return (uint32_t)_mm256_movemask_ps((__m256)mask);
#else
    uint32_t all = 0;
    for (int j = 0; j < WIDTH; j++) {
        all |= (uint32_t)(mask[j] & 1) << j;
    }
    return all;
#endif
}

/* x[j] = the floats from[0][j], from[1][j], ...: a vector for each j below 16. */
DPLDA_INLINE void transposed(float *const *from, floats *columns) {
#if WIDTH == 8
    for (int half = 0; half < 16; half += 8) {
        __m256 rows[8], pairs[8];
        for (int i = 0; i < 8; i++) {
            rows[i] = _mm256_load_ps(from[i] + half);
        }
        for (int i = 0; i < 8; i += 2) {
            pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
            pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
        }
        for (int i = 0; i < 8; i += 4) {
            for (int j = 0; j < 2; j++) {
                const __m256d low = (__m256d)pairs[i + j], high = (__m256d)pairs[i + j + 2];
                rows[i + 2 * j] = (__m256)_mm256_unpacklo_pd(low, high);
                rows[i + 2 * j + 1] = (__m256)_mm256_unpackhi_pd(low, high);
            }
        }
        for (int i = 0; i < 4; i++) {
            columns[half + i] = (floats)_mm256_permute2f128_ps(rows[i], rows[i + 4], 0x20);
            columns[half + i + 4] = (floats)_mm256_permute2f128_ps(rows[i], rows[i + 4], 0x31);
        }
    }
#else
    float column[DPLDA_LANES][WIDTH];
    for (int j = 0; j < DPLDA_LANES; j++) {
        for (int i = 0; i < WIDTH; i++) {
            column[j][i] = from[i][j];
        }
        columns[j] = NAME(load)(column[j]);
    }
#endif
}

/* The products of one token: running sums of each lane, after every vector of a short row, whose
 * number of vectors is known when this is compiled. The next token's row is prefetched. */
DPLDA_INLINE void NAME(add_short)(const uint16_t *row, const uint16_t *next, const float *weights,
                                  const int n_vectors, float *sums) {
    for (int v = 0; v < n_vectors; v += 2) {
        DPLDA_PREFETCH(next + DPLDA_LANES * v);
    }
    vec sum = NAME(times)(row, weights, 0);
    v_store(sums, sum);
    for (int v = 1; v < n_vectors; v++) {
        sum = NAME(plus_times)(sum, row, weights, v);
        v_store(sums + DPLDA_LANES * v, sum);
    }
}

/* The same of a longer row, after every group of vectors; the last group may be incomplete. In the
 * first-level cache the next row would take the place of the weights. */
DPLDA_INLINE void NAME(add_long)(const uint16_t *row, const uint16_t *next, const float *weights,
                                 int64_t n_vectors, float *sums) {
    vec sum = v_all(0);
    for (; n_vectors > 0; n_vectors -= DPLDA_GROUP) {
        DPLDA_PREFETCH_SECOND(next);
        DPLDA_PREFETCH_SECOND(next + 2 * DPLDA_LANES);
        vec group = NAME(times)(row, weights, 0);
        if (n_vectors >= DPLDA_GROUP) {
            const vec other = NAME(times)(row, weights, 2);
            group = NAME(plus_times)(group, row, weights, 1);
            group = v_add(group, NAME(plus_times)(other, row, weights, 3));
        } else {
            for (int v = 1; v < n_vectors; v++) {
                group = NAME(plus_times)(group, row, weights, v);
            }
        }
        sum = v_add(sum, group);
        v_store(sums, sum);
        row += DPLDA_LANES * DPLDA_GROUP;
        next += DPLDA_LANES * DPLDA_GROUP;
        weights += DPLDA_LANES * DPLDA_GROUP;
        sums += DPLDA_LANES;
    }
}

/* Products of the topics k, k + 16, ... of one group; those of a topic are WIDTH apart. */
DPLDA_INLINE void NAME(column)(const uint16_t *row, const float *c, int64_t n_left,
                               float *product) {
    for (int q = 0; q < DPLDA_GROUP; q++) {
        /* behind the row's end c is zero; the table is not read there */
        const uint32_t bits = (uint32_t)row[DPLDA_LANES * (q < n_left ? q : 0)] << 13;
        float half;
        memcpy(&half, &bits, sizeof half);
        product[WIDTH * q] = half * c[DPLDA_LANES * q];
    }
}

/* Sums over the lanes up to each, by fours: few roundings, and few that wait for each other. */
DPLDA_INLINE void NAME(accumulate)(floats *lane) {
    for (int j = 0; j < DPLDA_LANES; j++) {
        lane[j] += j % 4 ? lane[j - 1] : (floats){0};
    }
    for (int j = 4; j < DPLDA_LANES; j++) {
        lane[j] += lane[j / 4 * 4 - 1];
    }
}

/* The intervals in which WIDTH thresholds lie: how many intervals are before, and both ends. */
typedef struct {
    ints index;
    floats from, to;
} NAME(place);
#define place NAME(place)

/* Go past the interval that ends at `end` where that is at most the threshold. */
DPLDA_INLINE void NAME(pass)(place *x, floats threshold, floats end, floats next_end) {
    const ints mask = end <= threshold;
    x->index -= mask;
    x->from = choose(mask, end, x->from);
    x->to = choose(mask, next_end, x->to);
}

/* The lane of each threshold, from the sums of all lanes; becomes the sum `total`. */
DPLDA_INLINE place NAME(find_lane)(float *const *last, const int32_t *uniform, floats *threshold,
                                   floats *total) {
    floats end[DPLDA_LANES];
    ints bits;
    place x = {0};
    transposed(last, end);
    NAME(accumulate)(end);
    memcpy(&bits, uniform, sizeof bits);
    *total = end[DPLDA_LANES - 1];
    *threshold =
        (__builtin_convertvector(bits, floats) + 0.5f) * 5.9604644775390625e-08f * *total;
    for (int j = 0; j < DPLDA_LANES - 1; j++) {
        NAME(pass)(&x, *threshold, end[j], end[j + 1]);
    }
    return x;
}

/* Propose topics for up to WIDTH slots; the mask of those that are not certain. */
DPLDA_INLINE uint32_t NAME(propose)(const dplda_sweep *work, dplda_flight *slots, int first,
                                    const int n_slots, const int is_short,
                                    const int64_t n_sums) {
    float *const *sums = slots->sums + first, *last[WIDTH];
    float column[DPLDA_MOST_SUMS][WIDTH];
    int32_t lane[WIDTH], group[WIDTH];
    floats target, total;
    int slot;
    for (slot = 0; slot < WIDTH; slot++) {
        last[slot] = sums[slot] + DPLDA_LANES * (n_sums - 1);
    }
    const place lanes = NAME(find_lane)(last, slots->uniform + first, &target, &total);
    const floats rest = target - lanes.from; /* within the lane */
    memcpy(lane, &lanes.index, sizeof lane);

    /* a vector of floats that have just been stored waits for them: all are stored before */
    floats end, next;
    place found = {0};
    for (int64_t g = 0; g < n_sums; g++) {
        for (slot = 0; slot < n_slots; slot++) {
            column[g][slot] = sums[slot][DPLDA_LANES * g + lane[slot]];
        }
    }
    found.to = end = NAME(load)(column[0]);
    for (int64_t g = 1; g < n_sums; g++) {
        next = NAME(load)(column[g]);
        NAME(pass)(&found, rest, end, next);
        end = next;
    }
    if (!is_short) {
        memcpy(group, &found.index, sizeof group);
        for (slot = 0; slot < n_slots; slot++) {
            const int64_t k = DPLDA_LANES * DPLDA_GROUP * group[slot] + lane[slot];
            NAME(column)(slots->row[first + slot] + k, slots->weight[first + slot] + k,
                         work->padded / DPLDA_LANES - DPLDA_GROUP * group[slot], column[0] + slot);
        }
        found.index *= DPLDA_GROUP;
        found.to = end = found.from + NAME(load)(column[0]);
        for (int q = 1; q < DPLDA_GROUP; q++) {
            next = end + NAME(load)(column[q]);
            NAME(pass)(&found, rest, end, next);
            end = next;
        }
    }
    const ints topic = found.index * DPLDA_LANES + lanes.index;
    memcpy(slots->pick + first, &topic, sizeof topic);
    /* A topic stands only if no rounding can have moved u * sum past an end of its interval. */
    const floats error = total * work->tolerance;
    return bits_of((rest - found.from <= error) | (found.to - rest <= error));
}

/* Give a slot its next document, or none. */
static void NAME(begin)(dplda_sweep *work, dplda_flight *slots, int slot) {
    double unit, base;
    float *weights = slots->weight[slot];
    slots->active &= ~(UINT32_C(1) << slot);
    while (slots->next < work->n_docs) {
        const int64_t d = work->order[slots->next++];
        const int64_t begin = work->doc_ptr[d], end = work->doc_ptr[d + 1];
        if (begin == end) {
            continue;
        }
        if (!dplda_document_unit(end - begin, work->doc_topic_prior, &unit, &base)) {
            NAME(sweep_exactly)(work, d, slots->count, weights);
            continue;
        }
        dplda_count(work, begin, end, slots->count);
        for (int64_t k = 0; k < work->padded; k++) {
            weights[k] = ((float)slots->count[0][k] * (float)unit + (float)base) * DPLDA_SCALE;
        }
        slots->unit[slot] = (float)unit * DPLDA_SCALE;
        slots->token[slot] = begin;
        slots->end[slot] = end;
        slots->active |= UINT32_C(1) << slot;
        slots->row[slot] = dplda_row(work, begin);
        slots->next_row[slot] = dplda_row(work, begin + (end - begin > 1));
        dplda_take_out(work, slots, slot, begin);
        return;
    }
}

/* Go on to token i of the slot's document. */
DPLDA_INLINE void NAME(go_on)(const dplda_sweep *s, dplda_flight *x, int slot, int64_t i) {
    x->row[slot] = x->next_row[slot];
    dplda_take_out(s, x, slot, i);
    /* the tokens of 16 documents are more streams than processors follow by themselves */
    DPLDA_PREFETCH(s->bits + i + DPLDA_AHEAD);
    DPLDA_PREFETCH(s->word + i + DPLDA_AHEAD);
    DPLDA_PREFETCH(s->topics + i + DPLDA_AHEAD);
    if (i + 1 < x->end[slot]) {
        x->next_row[slot] = dplda_row(s, i + 1);
    }
}

/* n_short: vectors of a short row, or 0. */
DPLDA_INLINE void NAME(sweep)(dplda_sweep *work, const int n_short, const int n_slots) {
    const int64_t n_vectors = work->padded / DPLDA_LANES;
    const int64_t n_sums = n_short ? n_short : dplda_n_sums(work->padded);
    const dplda_sweep own = *work; /* which no store changes: it stays in registers */
    dplda_flight flight, *const slots = &flight;
    int slot;
    dplda_lay_out(slots, work->scratch, work->padded);
    for (slot = 0; slot < DPLDA_IN_FLIGHT; slot++) {
        slots->row[slot] = work->half; /* slots without a document are searched, too */
    }
    for (slot = 0; slot < n_slots; slot++) {
        NAME(begin)(work, slots, slot);
    }
    while (slots->active) {
        uint32_t uncertain = 0;
        for (slot = 0; slot < n_slots; slot++) {
            const uint16_t *row = slots->row[slot], *next = slots->next_row[slot];
            if (!(slots->active >> slot & 1)) {
                continue;
            }
            if (n_short) {
                NAME(add_short)(row, next, slots->weight[slot], n_short, slots->sums[slot]);
            } else {
                NAME(add_long)(row, next, slots->weight[slot], n_vectors, slots->sums[slot]);
            }
        }
        for (slot = 0; slot < n_slots; slot += WIDTH) {
            const int n = n_slots - slot < WIDTH ? n_slots - slot : WIDTH;
            uncertain |= NAME(propose)(&own, slots, slot, n, n_short != 0, n_sums) << slot;
        }
        for (slot = 0; slot < n_slots; slot++) {
            if (!(slots->active >> slot & 1)) {
                continue;
            }
            const int64_t i = slots->token[slot];
            int64_t k = slots->pick[slot];
            if (uncertain >> slot & 1) {
                k = NAME(draw_exact)(work, slots->row[slot], slots->weight[slot], i);
            }
            own.topics[i] = (int16_t)k;
            slots->weight[slot][k] += slots->unit[slot];
            if (++slots->token[slot] < slots->end[slot]) {
                NAME(go_on)(&own, slots, slot, i + 1);
            } else {
                NAME(begin)(work, slots, slot);
            }
        }
    }
}

/* Short rows are compiled for themselves. Weights, rows and sums of all documents in flight have
 * to stay in the first-level cache: the longer the rows, the fewer documents. */
static void NAME(dplda_sweep)(dplda_sweep *work) {
#define SHORT(n)                                                         \
    case n:                                                              \
        NAME(sweep)(work, n, n > 8 ? DPLDA_IN_FLIGHT / 2 : DPLDA_IN_FLIGHT); \
        break;
    switch (work->padded / DPLDA_LANES) {
        SHORT(1) SHORT(2) SHORT(3) SHORT(4) SHORT(5) SHORT(6)
        SHORT(7) SHORT(8) SHORT(9) SHORT(10) SHORT(11) SHORT(12)
    default:
        if (work->padded <= 640) {
            NAME(sweep)(work, 0, DPLDA_IN_FLIGHT / 2);
        } else {
            NAME(sweep)(work, 0, DPLDA_IN_FLIGHT / 4);
        }
    }
#undef SHORT
}
#undef place
#undef floats
#undef ints
#undef choose
#undef bits_of
#undef transposed
#undef WIDTH
#endif
#endif
