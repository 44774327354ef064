/* The public side of a document-level round, 16 topics at a time: average, estimate, power.
 *
 * Every result is the same for each instruction set: all operations round as IEEE 754 says, and
 * sums have a fixed order. Definitions of all functions are in tests/twins.py.
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
    DPLDA_OCTAVES = 12, /* of u, to both sides of 1 */
    DPLDA_EXPECTED = (2 * DPLDA_OCTAVES << DPLDA_EXPECTED_BITS) + 1, /* 97 */
    DPLDA_SEEN = 10 << DPLDA_SEEN_BITS,                              /* 320 */
    DPLDA_EXPECTED_SHIFT = 23 - DPLDA_EXPECTED_BITS,
    DPLDA_SEEN_SHIFT = 23 - DPLDA_SEEN_BITS,
    DPLDA_FIRST_EXPECTED = (127 - DPLDA_OCTAVES) << DPLDA_EXPECTED_BITS,
    DPLDA_FIRST_SEEN = 127 << DPLDA_SEEN_BITS,
    /* Just before the last nodes, 4096 and 1008: a cell lies between its node and the next one. */
    DPLDA_MOST_EXPECTED = (1 << DPLDA_OCTAVES) - 1,
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
#define dplda_products(set, ...) DPLDA_CALL(dplda_products, set)(__VA_ARGS__)
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
DPLDA_INLINE void nodes_of(const dplda_noisy_table *noisy, ptrdiff_t word, ptrdiff_t topic,
                           vec *seen, vec *expected, vec *shifted) {
    const double *cells = noisy->average + word * noisy->n_topics + topic;
    const vec share = v_load(noisy->center + word * noisy->stride + topic);
    *seen = v_mul(load_cells(cells, noisy->n_topics - topic), v_all(1 / noisy->scale[word]));
    *expected = v_min(v_mul(v_all(noisy->rate[word]), share), v_all(DPLDA_MOST_EXPECTED));
    *shifted = v_min(v_add(*seen, v_all(DPLDA_SEEN_OFFSET)), v_all(DPLDA_MOST_SEEN));
    *shifted = v_max(*shifted, v_all(1));
}

/* counts (DPLDA_EXPECTED, DPLDA_SEEN) += the cells at their nearest nodes. */
static void NAME(dplda_count)(const dplda_noisy_table *noisy, ptrdiff_t n_words, int64_t *counts) {
    const veci half_u = vi_all(1 << (DPLDA_EXPECTED_SHIFT - 1));
    const veci half_y = vi_all(1 << (DPLDA_SEEN_SHIFT - 1));
    for (ptrdiff_t word = 0; word < n_words; word++) {
        for (ptrdiff_t topic = 0; topic < noisy->n_topics; topic += 16) {
            vec seen, expected, shifted;
            int32_t row[16], column[16];
            nodes_of(noisy, word, topic, &seen, &expected, &shifted);
            expected = v_max(expected, v_all(1.0f / (1 << DPLDA_OCTAVES)));
            vi_store(row, vi_shift_right(vi_add(v_as_int(expected), half_u), DPLDA_EXPECTED_SHIFT));
            vi_store(column, vi_shift_right(vi_add(v_as_int(shifted), half_y), DPLDA_SEEN_SHIFT));
            for (int j = 0; j < 16 && topic + j < noisy->n_topics; j++) {
                /* bounded by `nodes_of`, so that row and column have nodes, and so have the next */
                counts[(row[j] - DPLDA_FIRST_EXPECTED) * DPLDA_SEEN + column[j] - DPLDA_FIRST_SEEN]++;
            }
        }
    }
}

/* Posterior means of the words first, ..., last - 1, cut at 0, plus `least`: between the `means`
 * (DPLDA_EXPECTED, DPLDA_SEEN) at the four nodes around a cell. Beyond the last node, noise is
 * nothing beside the cell, and the mean grows as the cell does. Below the first node, the mean is in
 * proportion to what is expected. */
static void NAME(dplda_estimate)(const dplda_noisy_table *noisy, ptrdiff_t first, ptrdiff_t last,
                                 const float *means, float least, float *table) {
    const veci fraction_u = vi_all((1 << DPLDA_EXPECTED_SHIFT) - 1);
    const veci fraction_y = vi_all((1 << DPLDA_SEEN_SHIFT) - 1);
    for (ptrdiff_t word = first; word < last; word++) {
        for (ptrdiff_t topic = 0; topic < noisy->n_topics; topic += 16) {
            vec seen, expected, shifted, to_right, to_high, low, high, below;
            int32_t row[16], column[16];
            float corner[4][16];
            nodes_of(noisy, word, topic, &seen, &expected, &shifted);
            below = v_min(v_mul(expected, v_all(1 << DPLDA_OCTAVES)), v_all(1));
            expected = v_max(expected, v_all(1.0f / (1 << DPLDA_OCTAVES)));
            vi_store(row, vi_shift_right(v_as_int(expected), DPLDA_EXPECTED_SHIFT));
            vi_store(column, vi_shift_right(v_as_int(shifted), DPLDA_SEEN_SHIFT));
            for (int j = 0; j < 16; j++) {
                const float *at = means + (row[j] - DPLDA_FIRST_EXPECTED) * DPLDA_SEEN + column[j] -
                                  DPLDA_FIRST_SEEN;
                corner[0][j] = at[0], corner[1][j] = at[1];
                corner[2][j] = at[DPLDA_SEEN], corner[3][j] = at[DPLDA_SEEN + 1];
            }
            to_right = v_float(vi_and(v_as_int(shifted), fraction_y));
            to_right = v_mul(to_right, v_all(1.0f / (1 << DPLDA_SEEN_SHIFT)));
            to_high = v_float(vi_and(v_as_int(expected), fraction_u));
            to_high = v_mul(to_high, v_all(1.0f / (1 << DPLDA_EXPECTED_SHIFT)));
            low = v_load(corner[0]), high = v_load(corner[2]);
            low = v_add(low, v_mul(to_right, v_sub(v_load(corner[1]), low)));
            high = v_add(high, v_mul(to_right, v_sub(v_load(corner[3]), high)));
            low = v_mul(v_add(low, v_mul(to_high, v_sub(high, low))), below);
            const vec beyond = v_sub(seen, v_all(DPLDA_MOST_SEEN - DPLDA_SEEN_OFFSET));
            low = v_add(low, v_max(beyond, v_all(0)));
            low = v_add(v_max(v_mul(v_all(noisy->scale[word]), low), v_all(0)), v_all(least));
            store_some(table + word * noisy->n_topics + topic, low, noisy->n_topics - topic);
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

/* m <= 4 rows of the product of two matrices, (m, n_inner) and (n_inner, n); a cell's sum runs from the
 * first inner element to the last. Elements of `left` are `row` and `column` doubles apart. */
DPLDA_INLINE void NAME(rows_of_product)(const int m, const double *left, ptrdiff_t row,
                                        ptrdiff_t column, const double *right, ptrdiff_t n_inner,
                                        ptrdiff_t n, double *out) {
    for (ptrdiff_t k = 0; k < n; k += 8) {
        if (n < 8) {
            for (int i = 0; i < m; i++) {
                for (ptrdiff_t j = 0; j < n; j++) {
                    double sum = 0;
                    for (ptrdiff_t p = 0; p < n_inner; p++) {
                        sum += left[i * row + p * column] * right[p * n + j];
                    }
                    out[i * n + j] = sum;
                }
            }
            return;
        }
        const ptrdiff_t first = k + 8 <= n ? k : n - 8; /* some of the last ones a second time */
        NAME(vd) sums[4];
        for (int i = 0; i < m; i++) {
            sums[i] = NAME(vd_all)(0);
        }
        for (ptrdiff_t p = 0; p < n_inner; p++) {
            const NAME(vd) x = NAME(vd_load)(right + p * n + first);
            for (int i = 0; i < m; i++) {
                const double y = left[i * row + p * column];
                sums[i] = NAME(vd_add)(sums[i], NAME(vd_mul)(NAME(vd_all)(y), x));
            }
        }
        for (int i = 0; i < m; i++) {
            NAME(vd_store)(out + i * n + first, sums[i]);
        }
    }
}

static void NAME(dplda_products)(const double *left, ptrdiff_t n_rows, ptrdiff_t row,
                                 ptrdiff_t column, const double *right, ptrdiff_t n_inner,
                                 ptrdiff_t n, double *out) {
    ptrdiff_t i = 0;
    for (; i + 4 <= n_rows; i += 4) {
        NAME(rows_of_product)(4, left + i * row, row, column, right, n_inner, n, out + i * n);
    }
    for (; i < n_rows; i++) {
        NAME(rows_of_product)(1, left + i * row, row, column, right, n_inner, n, out + i * n);
    }
}

/* x**power, in place, for x >= 0 and 0 < power <= 1; 0 stays 0. */
static void NAME(dplda_temper)(float *values, ptrdiff_t n, float power) {
    for (ptrdiff_t first = 0; first < n; first += 16) {
        const ptrdiff_t left = n - first;
        vec value, exists, log;
        if (left >= 16) {
            value = v_load(values + first);
        } else {
            float some[16] = {0};
            memcpy(some, values + first, (size_t)left * sizeof *some);
            value = v_load(some);
        }
        exists = v_min(v_mul(value, v_all(0x1p126f)), v_all(1)); /* 0 at 0 */
        log = v_mul(log_2(v_max(value, v_all(0x1p-126f))), v_all(power));
        value = power_of_2(v_max(log, v_all(-125)));
        store_some(values + first, v_mul(value, exists), left);
    }
}

#undef load_cells
#undef store_some
#undef power_of_2
#undef log_2
#undef nodes_of
#undef sum_row
#endif
