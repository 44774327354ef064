/* The public side of a document-level round, 16 topics at a time: average, estimate, power.
 *
 * Every result is the same for each instruction set: all operations round as IEEE 754 says, and
 * sums have a fixed order.
 */
#ifndef DPLDA_SET
#ifndef DPLDA_DENOISE_H
#define DPLDA_DENOISE_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "_sets.h"

/* Nodes of the table of posterior means, at whole numbers of the leading bits of two floats: u, what
 * a cell is expected to be, from 2**-12 to 2**12, 4 an octave; and z, what is seen, as y = z + 8 from
 * 1 on, 32 an octave, for 10 octaves. Both are in units of the noise of the cell. This is the only
 * place that says so: Python reads the nodes from `dplda_node`. */
enum {
    DPLDA_EXPECTED_BITS = 2, /* of the fraction that stay: 4 nodes an octave */
    DPLDA_SEEN_BITS = 5,
    DPLDA_EXPECTED = (24 << DPLDA_EXPECTED_BITS) + 1, /* 97 */
    DPLDA_SEEN = 10 << DPLDA_SEEN_BITS,               /* 320 */
    DPLDA_EXPECTED_SHIFT = 23 - DPLDA_EXPECTED_BITS,
    DPLDA_SEEN_SHIFT = 23 - DPLDA_SEEN_BITS,
    DPLDA_FIRST_EXPECTED = (127 - 12) << DPLDA_EXPECTED_BITS,
    DPLDA_FIRST_SEEN = 127 << DPLDA_SEEN_BITS,
    /* Just before the last nodes, 4096 and 1008: a cell lies between its node and the next one. */
    DPLDA_MOST_EXPECTED = 4095,
    DPLDA_MOST_SEEN = 1007,
    DPLDA_SEEN_OFFSET = 8 /* y - z */
};

/* The value of node number `node` of an axis: the float whose leading bits it counts. */
static inline float dplda_node(int32_t node, int32_t first, int shift) {
    const int32_t bits = (first + node) << shift;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A noisy table (n_words, n_topics), and what is known of its cells. */
typedef struct {
    const double *average; /* the noisy cells */
    ptrdiff_t n_topics;
    const float *rate;   /* (n_words,) a word's total, over the noise of its cells */
    const float *scale;  /* (n_words,) standard deviation of that noise */
    const float *center; /* rows of expected shares of topics, to whole vectors */
    ptrdiff_t stride;    /* floats from one row of `center` to the next; 0: one row for all words */
} dplda_noisy_table;
#endif
#define DPLDA_KERNEL "_denoise.h"
#include "_each_set.h"

#define dplda_count(set, ...) DPLDA_CALL(dplda_count, set)(__VA_ARGS__)
#define dplda_estimate(set, ...) DPLDA_CALL(dplda_estimate, set)(__VA_ARGS__)
#define dplda_learn(set, ...) DPLDA_CALL(dplda_learn, set)(__VA_ARGS__)
#define dplda_shares(set, ...) DPLDA_CALL(dplda_shares, set)(__VA_ARGS__)
#define dplda_temper(set, ...) DPLDA_CALL(dplda_temper, set)(__VA_ARGS__)
#else

#define load_cells NAME(load_cells)
#define store_some NAME(store_some)
#define power_of_2 NAME(power_of_2)
#define log_2 NAME(log_2)
#define nodes_of NAME(nodes_of)
#define sum_row NAME(sum_row)

/* The first n of 16 elements, the others 0. */
DPLDA_INLINE vec load_cells(const double *from, ptrdiff_t n) {
    float x[16] = {0};
    if (n >= 16) {
        for (int j = 0; j < 16; j++) {
            x[j] = (float)from[j];
        }
    } else {
        for (int j = 0; j < n; j++) {
            x[j] = (float)from[j];
        }
    }
    return v_load(x);
}

DPLDA_INLINE void store_some(float *to, vec a, ptrdiff_t n) {
    float x[16];
    if (n >= 16) {
        v_store(to, a);
        return;
    }
    v_store(x, a);
    for (int j = 0; j < n; j++) {
        to[j] = x[j];
    }
}

/* 2**x for x in [-125, 125], relative error below 2e-7: sums with `magic` end with round(x). */
DPLDA_INLINE vec power_of_2(vec x) {
    const vec magic = v_all(0x1.8p23f), shifted = v_add(x, magic);
    const vec f = v_sub(x, v_sub(shifted, magic));
    vec sum = v_all(1.5403530e-4f);
    sum = v_add(v_mul(sum, f), v_all(1.3333558e-3f));
    sum = v_add(v_mul(sum, f), v_all(9.6181291e-3f));
    sum = v_add(v_mul(sum, f), v_all(5.5504109e-2f));
    sum = v_add(v_mul(sum, f), v_all(2.4022651e-1f));
    sum = v_add(v_mul(sum, f), v_all(6.9314718e-1f));
    sum = v_add(v_mul(sum, f), v_all(1));
    return v_as_float(vi_add(v_as_int(sum), vi_shift_left(v_as_int(shifted), 23)));
}

/* log2(x) for positive normal x, by the series of artanh(z) at z = (m - 1) / (m + 1). */
DPLDA_INLINE vec log_2(vec x) {
    const veci bits = v_as_int(x);
    const veci exponent = vi_shift_right(vi_sub(bits, vi_all(0x3f3504f3)), 23);
    const vec m = v_as_float(vi_sub(bits, vi_shift_left(exponent, 23)));
    const vec z = v_div(v_sub(m, v_all(1)), v_add(m, v_all(1))), w = v_mul(z, z);
    vec sum = v_all(3.2059889e-1f); /* 2 / (9 log 2) */
    sum = v_add(v_mul(sum, w), v_all(4.1219858e-1f));
    sum = v_add(v_mul(sum, w), v_all(5.7707802e-1f));
    sum = v_add(v_mul(sum, w), v_all(9.6179669e-1f));
    sum = v_add(v_mul(sum, w), v_all(2.8853901f));
    return v_add(v_float(exponent), v_mul(sum, z));
}

/* What 16 cells of a word are expected to be, and what is seen, at most the last nodes. */
DPLDA_INLINE void nodes_of(const dplda_noisy_table *t, ptrdiff_t word, ptrdiff_t topic, vec *seen,
                           vec *u, vec *y) {
    const double *cells = t->average + word * t->n_topics + topic;
    const vec share = v_load(t->center + word * t->stride + topic);
    *seen = v_mul(load_cells(cells, t->n_topics - topic), v_all(1 / t->scale[word]));
    *u = v_min(v_mul(v_all(t->rate[word]), share), v_all(DPLDA_MOST_EXPECTED));
    *y = v_max(v_min(v_add(*seen, v_all(DPLDA_SEEN_OFFSET)), v_all(DPLDA_MOST_SEEN)), v_all(1));
}

/* counts (DPLDA_EXPECTED, DPLDA_SEEN) += the cells of every `stride`-th word at their nearest nodes.
 */
static void NAME(dplda_count)(const dplda_noisy_table *t, ptrdiff_t n_words, ptrdiff_t stride,
                              int64_t *counts) {
    const veci half_u = vi_all(1 << (DPLDA_EXPECTED_SHIFT - 1));
    const veci half_y = vi_all(1 << (DPLDA_SEEN_SHIFT - 1));
    for (ptrdiff_t word = 0; word < n_words; word += stride) {
        for (ptrdiff_t k = 0; k < t->n_topics; k += 16) {
            vec seen, u, y;
            int32_t row[16], column[16];
            nodes_of(t, word, k, &seen, &u, &y);
            u = v_max(u, v_all(0x1p-12f));
            vi_store(row, vi_shift_right(vi_add(v_as_int(u), half_u), DPLDA_EXPECTED_SHIFT));
            vi_store(column, vi_shift_right(vi_add(v_as_int(y), half_y), DPLDA_SEEN_SHIFT));
            for (int j = 0; j < 16 && k + j < t->n_topics; j++) {
                counts[(row[j] - DPLDA_FIRST_EXPECTED) * DPLDA_SEEN + column[j] - DPLDA_FIRST_SEEN]++;
            }
        }
    }
}

/* Posterior means of the words first, ..., last - 1, cut at 0, plus `least`: between the `means`
 * (DPLDA_EXPECTED, DPLDA_SEEN) at the four nodes around a cell. Beyond the last node, noise is
 * nothing beside the cell, and the mean grows as the cell does. Below the first node, the mean is in
 * proportion to what is expected. */
static void NAME(dplda_estimate)(const dplda_noisy_table *t, ptrdiff_t first, ptrdiff_t last,
                                 const float *means, float least, float *table) {
    const veci fraction_u = vi_all((1 << DPLDA_EXPECTED_SHIFT) - 1);
    const veci fraction_y = vi_all((1 << DPLDA_SEEN_SHIFT) - 1);
    for (ptrdiff_t word = first; word < last; word++) {
        for (ptrdiff_t k = 0; k < t->n_topics; k += 16) {
            vec seen, u, y, p, q, low, high, below;
            int32_t row[16], column[16];
            float corner[4][16];
            nodes_of(t, word, k, &seen, &u, &y);
            below = v_min(v_mul(u, v_all(0x1p12f)), v_all(1));
            u = v_max(u, v_all(0x1p-12f));
            vi_store(row, vi_shift_right(v_as_int(u), DPLDA_EXPECTED_SHIFT));
            vi_store(column, vi_shift_right(v_as_int(y), DPLDA_SEEN_SHIFT));
            for (int j = 0; j < 16; j++) {
                const float *at = means + (row[j] - DPLDA_FIRST_EXPECTED) * DPLDA_SEEN + column[j] -
                                  DPLDA_FIRST_SEEN;
                corner[0][j] = at[0], corner[1][j] = at[1];
                corner[2][j] = at[DPLDA_SEEN], corner[3][j] = at[DPLDA_SEEN + 1];
            }
            p = v_mul(v_float(vi_and(v_as_int(y), fraction_y)), v_all(0x1p-18f));
            q = v_mul(v_float(vi_and(v_as_int(u), fraction_u)), v_all(0x1p-21f));
            low = v_load(corner[0]), high = v_load(corner[2]);
            low = v_add(low, v_mul(p, v_sub(v_load(corner[1]), low)));
            high = v_add(high, v_mul(p, v_sub(v_load(corner[3]), high)));
            low = v_mul(v_add(low, v_mul(q, v_sub(high, low))), below);
            low = v_add(low, v_max(v_sub(seen, v_all(DPLDA_MOST_SEEN - DPLDA_SEEN_OFFSET)), v_all(0)));
            low = v_add(v_max(v_mul(v_all(t->scale[word]), low), v_all(0)), v_all(least));
            store_some(table + word * t->n_topics + k, low, t->n_topics - k);
        }
    }
}

DPLDA_INLINE double sum_row(const float *row, ptrdiff_t n) {
    double lane[16] = {0}, sum = 0;
    ptrdiff_t k = 0;
    for (; k + 16 <= n; k += 16) {
        for (int j = 0; j < 16; j++) {
            lane[j] += row[k + j];
        }
    }
    for (; k < n; k++) {
        lane[k % 16] += row[k];
    }
    for (int j = 0; j < 16; j++) {
        sum += lane[j];
    }
    return sum;
}

/* The rows of the words first, ..., last - 1 of a round's noisy sum become those of the new average.
 * A cell is kept * average + added * noisy. If `centered`, the mean of a row of `noisy` is subtracted
 * from it first, and of_table * share is added, where the shares are those of the table's row. The
 * bits of the new average take the place of the integers: a cell is read before it is written, and
 * its row has been summed before. */
static void NAME(dplda_learn)(int64_t *noisy, const float *table, ptrdiff_t n_topics,
                              ptrdiff_t first, ptrdiff_t last, double kept, const double *added,
                              const double *of_table, int centered, const double *average) {
    for (ptrdiff_t word = first; word < last; word++) {
        int64_t *cells = noisy + word * n_topics;
        const float *row = table + word * n_topics;
        const double *mean = average + word * n_topics, factor = added[word];
        double middle = 0, share = 0;
        if (centered) {
            int64_t sum = 0;
            for (ptrdiff_t k = 0; k < n_topics; k++) {
                sum += cells[k];
            }
            middle = (double)sum / (double)n_topics;
            share = of_table[word] / sum_row(row, n_topics);
        }
        for (ptrdiff_t k = 0; k < n_topics; k++) {
            const double counts = share * row[k] + factor * ((double)cells[k] - middle);
            const double learned = kept * mean[k] + counts;
            memcpy(&cells[k], &learned, sizeof learned);
        }
    }
}

/* The rows of the words first, ..., last - 1, times `factor` (n_topics,), or over their sums if that
 * is NULL; a row of `shares` begins every `padded` floats. */
static void NAME(dplda_shares)(const float *table, ptrdiff_t n_topics, ptrdiff_t first,
                               ptrdiff_t last, const float *factor, ptrdiff_t padded,
                               float *shares) {
    for (ptrdiff_t word = first; word < last; word++) {
        const float *row = table + word * n_topics;
        float *share = shares + word * padded;
        if (factor) {
            for (ptrdiff_t k = 0; k < n_topics; k++) {
                share[k] = row[k] * factor[k];
            }
        } else {
            const float inverse = (float)(1 / sum_row(row, n_topics));
            for (ptrdiff_t k = 0; k < n_topics; k++) {
                share[k] = row[k] * inverse;
            }
        }
    }
}

/* x**power, in place, for x >= 0 and 0 < power <= 1; 0 stays 0. */
static void NAME(dplda_temper)(float *x, ptrdiff_t n, float power) {
    for (ptrdiff_t i = 0; i < n; i += 16) {
        const ptrdiff_t left = n - i;
        vec a, exists;
        if (left >= 16) {
            a = v_load(x + i);
        } else {
            float some[16] = {0};
            memcpy(some, x + i, (size_t)left * sizeof *x);
            a = v_load(some);
        }
        exists = v_min(v_mul(a, v_all(0x1p126f)), v_all(1)); /* 0 at 0 */
        a = v_max(a, v_all(0x1p-126f));
        a = power_of_2(v_max(v_mul(log_2(a), v_all(power)), v_all(-125)));
        store_some(x + i, v_mul(a, exists), left);
    }
}

#undef load_cells
#undef store_some
#undef power_of_2
#undef log_2
#undef nodes_of
#undef sum_row
#endif
