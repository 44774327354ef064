/* The public side of a document-level round, 16 topics at a time: average, estimate, power.
 *
 * Every result is the same for each instruction set: all operations round as IEEE 754 says, and
 * sums have a fixed order. The formulas are those of tests/reference.py (`TableEstimate`).
 */
#ifndef DPLDA_SET
#ifndef DPLDA_DENOISE_H
#define DPLDA_DENOISE_H
#include <stddef.h>
#include <stdint.h>

enum {
    DPLDA_FACTORS = 14,
    DPLDA_RUN = 64 /* vectors whose shares are added in float, before they are added in double */
};

/* A noisy table (n_words, n_topics), and what is known of its cells. */
typedef struct {
    const double *average; /* the noisy cells */
    ptrdiff_t n_topics;
    const float *rate;    /* (n_words,) a word's share of all tokens, over the noise of its cells */
    const float *scale;   /* (n_words,) standard deviation of that noise */
    const float *sizes;   /* (n_topics, rounded up to whole vectors), the rest 0 */
    const float *factors; /* (DPLDA_FACTORS,) */
} dplda_noisy_table;

/* The place of vector i of a class of words: the vectors of a word follow each other. */
typedef struct {
    ptrdiff_t word, topic;
} dplda_place;

static inline dplda_place dplda_place_of(const int64_t *words, ptrdiff_t i, ptrdiff_t n_topics) {
    const ptrdiff_t a_word = (n_topics + 15) / 16;
    dplda_place place;
    place.word = words[i / a_word];
    place.topic = i % a_word * 16;
    return place;
}
#endif
#define DPLDA_KERNEL "_denoise.h"
#include "_each_set.h"

static void dplda_likelihood(int set, const dplda_noisy_table *t, const int64_t *words,
                             ptrdiff_t n_vectors, ptrdiff_t stride, float *likelihood) {
    DPLDA_CALL(dplda_likelihood, set)(t, words, n_vectors, stride, likelihood);
}
static void dplda_expectation(int set, const float *likelihood, ptrdiff_t n_vectors,
                              const double *prior, double *sums) {
    DPLDA_CALL(dplda_expectation, set)(likelihood, n_vectors, prior, sums);
}
static void dplda_estimate(int set, const dplda_noisy_table *t, ptrdiff_t first, ptrdiff_t last,
                           const float *prior, const uint8_t *class_of, float least, float *table) {
    DPLDA_CALL(dplda_estimate, set)(t, first, last, prior, class_of, least, table);
}
static void dplda_learn(int set, const int64_t *noisy, ptrdiff_t stride, const float *table,
                        ptrdiff_t n_topics, ptrdiff_t first, ptrdiff_t last, double kept,
                        const double *added, const double *of_table, int centered,
                        double *average) {
    DPLDA_CALL(dplda_learn, set)(noisy, stride, table, n_topics, first, last, kept, added,
                                 of_table, centered, average);
}
static void dplda_temper(int set, float *x, ptrdiff_t n, float power) {
    DPLDA_CALL(dplda_temper, set)(x, n, power);
}
#else

#define load_cells NAME(load_cells)
#define store_some NAME(store_some)
#define inverse_root NAME(inverse_root)
#define power_of_2 NAME(power_of_2)
#define log_2 NAME(log_2)
#define likelihood_of NAME(likelihood_of)
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

/* 1 / sqrt(x) for x in [2**-120, 2**126], relative error below 3e-7: half of the exponent's bits,
 * a step of third order and one of Newton's. */
DPLDA_INLINE vec inverse_root(vec x) {
    vec y = v_as_float(vi_sub(vi_all(0x5f3759df), vi_shift_right(v_as_int(x), 1)));
    vec h = v_mul(v_mul(x, y), y);
    h = v_sub(v_all(1.875f), v_mul(h, v_sub(v_all(1.25f), v_mul(v_all(0.375f), h))));
    y = v_mul(y, h);
    h = v_mul(v_mul(x, y), y);
    return v_mul(y, v_sub(v_all(1.5f), v_mul(v_all(0.5f), h)));
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

/* What each factor says of 16 cells in units of their noise: a cell is `seen`, its expectation
 * under factor 1 is `unit`.
 *
 * likelihood: normal densities, but for a constant a cell; relative to the nearest factor, so that
 * they do not all underflow. mean: posterior means. */
DPLDA_INLINE void likelihood_of(vec unit, vec seen, const float *factors, vec *likelihood,
                                vec *mean) {
    const vec largest = v_all(1e18f); /* squares stay finite */
    vec distance[DPLDA_FACTORS], root[DPLDA_FACTORS], least = v_all(INFINITY);
    unit = v_min(unit, largest);
    seen = v_max(v_min(seen, largest), v_all(-1e18f));
    for (int g = 0; g < DPLDA_FACTORS; g++) {
        const vec center = v_mul(unit, v_all(factors[g])), off = v_sub(seen, center);
        const vec spread = v_mul(center, v_all(0.25f)), variance = v_mul(spread, spread);
        vec share; /* of the noise in the cell's variance, times the distance */
        root[g] = inverse_root(v_add(variance, v_all(1)));
        share = v_mul(off, v_mul(root[g], root[g]));
        mean[g] = v_add(center, v_mul(variance, share));
        distance[g] = v_mul(off, share);
        least = v_min(least, distance[g]);
    }
    for (int g = 0; g < DPLDA_FACTORS; g++) {
        const vec x = v_mul(v_sub(least, distance[g]), v_all(0.72134752f)); /* 1 / (2 log 2) */
        likelihood[g] = v_mul(power_of_2(v_max(x, v_all(-125))), root[g]);
    }
}

/* Likelihoods of the vectors 0, stride, 2 * stride, ... of a class of words.
 *
 * likelihood: (n_vectors, DPLDA_FACTORS, 16); those of elements beyond the last topic are 0. */
static void NAME(dplda_likelihood)(const dplda_noisy_table *t, const int64_t *words,
                                   ptrdiff_t n_vectors, ptrdiff_t stride, float *likelihood) {
    for (ptrdiff_t i = 0; i < n_vectors; i++) {
        const dplda_place at = dplda_place_of(words, i * stride, t->n_topics);
        const ptrdiff_t n = t->n_topics - at.topic;
        const vec cells = load_cells(t->average + at.word * t->n_topics + at.topic, n);
        const vec unit = v_mul(v_load(t->sizes + at.topic), v_all(t->rate[at.word]));
        vec found[DPLDA_FACTORS], mean[DPLDA_FACTORS];
        float exists[16];
        for (int j = 0; j < 16; j++) {
            exists[j] = j < n;
        }
        likelihood_of(unit, v_mul(cells, v_all(1 / t->scale[at.word])), t->factors, found, mean);
        for (int g = 0; g < DPLDA_FACTORS; g++) {
            v_store(likelihood + (i * DPLDA_FACTORS + g) * 16, v_mul(found[g], v_load(exists)));
        }
    }
}

/* Sums over the cells of likelihood / evidence, for each factor; evidence: its mean under the
 * prior. */
static void NAME(dplda_expectation)(const float *likelihood, ptrdiff_t n_vectors,
                                    const double *prior, double *sums) {
    for (int g = 0; g < DPLDA_FACTORS; g++) {
        sums[g] = 0;
    }
    for (ptrdiff_t first = 0; first < n_vectors; first += DPLDA_RUN) {
        const ptrdiff_t last = first + DPLDA_RUN < n_vectors ? first + DPLDA_RUN : n_vectors;
        vec run[DPLDA_FACTORS];
        for (int g = 0; g < DPLDA_FACTORS; g++) {
            run[g] = v_all(0);
        }
        for (ptrdiff_t i = first; i < last; i++) {
            const float *row = likelihood + i * DPLDA_FACTORS * 16;
            vec evidence = v_all(0x1p-120f); /* where no cell is, 0 / 2**-120 */
            for (int g = 0; g < DPLDA_FACTORS; g++) {
                evidence = v_add(evidence, v_mul(v_load(row + g * 16), v_all((float)prior[g])));
            }
            evidence = v_div(v_all(1), evidence);
            for (int g = 0; g < DPLDA_FACTORS; g++) {
                run[g] = v_add(run[g], v_mul(v_load(row + g * 16), evidence));
            }
        }
        for (int g = 0; g < DPLDA_FACTORS; g++) {
            sums[g] += v_sum(run[g]);
        }
    }
}

/* Posterior means of the words first, ..., last - 1, cut at 0, plus `least`.
 *
 * prior: (n_classes, DPLDA_FACTORS); class_of: the class of each word. */
static void NAME(dplda_estimate)(const dplda_noisy_table *t, ptrdiff_t first, ptrdiff_t last,
                                 const float *prior, const uint8_t *class_of, float least,
                                 float *table) {
    const ptrdiff_t n_topics = t->n_topics;
    for (ptrdiff_t word = first; word < last; word++) {
        const float *weight = prior + class_of[word] * DPLDA_FACTORS;
        const double *cells = t->average + word * n_topics;
        const vec rate = v_all(t->rate[word]), scale = v_all(t->scale[word]);
        const vec inverse = v_all(1 / t->scale[word]);
        for (ptrdiff_t k = 0; k < n_topics; k += 16) {
            const vec noisy = load_cells(cells + k, n_topics - k);
            const vec unit = v_mul(v_load(t->sizes + k), rate);
            vec found[DPLDA_FACTORS], mean[DPLDA_FACTORS], evidence = v_all(0), sum = v_all(0);
            likelihood_of(unit, v_mul(noisy, inverse), t->factors, found, mean);
            for (int g = 0; g < DPLDA_FACTORS; g++) {
                const vec joint = v_mul(found[g], v_all(weight[g]));
                evidence = v_add(evidence, joint);
                sum = v_add(sum, v_mul(joint, mean[g]));
            }
            sum = v_max(v_mul(scale, v_div(sum, evidence)), v_all(0));
            sum = v_add(sum, v_all(least));
            store_some(table + word * n_topics + k, sum, n_topics - k);
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

/* One round's noisy sum becomes part of the average of the words first, ..., last - 1.
 *
 * A cell becomes kept * average + added * noisy. If `centered`, the mean of a row of `noisy` is
 * subtracted from it first, and of_table * share is added, where the shares are those of the table's
 * row. A row of `noisy` begins every `stride` integers. */
static void NAME(dplda_learn)(const int64_t *noisy, ptrdiff_t stride, const float *table,
                              ptrdiff_t n_topics, ptrdiff_t first, ptrdiff_t last, double kept,
                              const double *added, const double *of_table, int centered,
                              double *average) {
    for (ptrdiff_t word = first; word < last; word++) {
        const int64_t *cells = noisy + word * stride;
        const float *row = table + word * n_topics;
        double *mean = average + word * n_topics, middle = 0, share = 0;
        const double factor = added[word];
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
            mean[k] = kept * mean[k] + counts;
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
#undef inverse_root
#undef power_of_2
#undef log_2
#undef likelihood_of
#undef sum_row
#endif
