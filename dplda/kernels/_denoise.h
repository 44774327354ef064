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

#include "_sets.h"

enum {
    DPLDA_FACTORS = 14,
    DPLDA_MOST = 2 * DPLDA_FACTORS, /* components of the prior of a cell: the factors of each center */
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
    const float *shares;  /* (n_words, topics to whole vectors), public p(topic | word), or NULL */
    const float *gains;   /* (topics to whole vectors), of the public shares, or NULL */
} dplda_noisy_table;

/* The place of vector i of a class of words: the vectors of a word follow each other. */
typedef struct {
    ptrdiff_t word, topic;
} dplda_place;

DPLDA_INLINE dplda_place dplda_place_of(const int64_t *words, ptrdiff_t i, ptrdiff_t n_topics) {
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
                              int n_centers, const double *prior, double *sums) {
    DPLDA_CALL(dplda_expectation, set)(likelihood, n_vectors, n_centers, prior, sums);
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
static void dplda_shares(int set, const float *table, ptrdiff_t n_topics, ptrdiff_t first,
                         ptrdiff_t last, const float *factor, ptrdiff_t padded, float *shares) {
    DPLDA_CALL(dplda_shares, set)(table, n_topics, first, last, factor, padded, shares);
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
#define centers_of NAME(centers_of)
#define likelihoods NAME(likelihoods)
#define expectations NAME(expectations)
#define estimates NAME(estimates)
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

/* What 16 cells of a word are expected to be under factor 1, in units of their noise: from the
 * word's and the topic's sizes, and from the public shares. */
DPLDA_INLINE void centers_of(const dplda_noisy_table *t, int n_centers, dplda_place at, vec *unit) {
    const vec rate = v_all(t->rate[at.word]);
    unit[0] = v_mul(v_load(t->sizes + at.topic), rate);
    if (n_centers == 2) {
        const ptrdiff_t row = (t->n_topics + 15) / 16 * 16;
        const vec share = v_load(t->shares + at.word * row + at.topic);
        unit[1] = v_mul(v_mul(share, v_load(t->gains + at.topic)), rate);
    }
}

/* What each component of the prior says of 16 cells in units of their noise: a cell is `seen`. The
 * components are the factors of the first center, and then those of the second.
 *
 * likelihood: normal densities, but for a constant a cell; relative to the nearest component, so
 * that they do not all underflow. mean: posterior means. */
DPLDA_INLINE void likelihood_of(const vec *unit, int n_centers, vec seen, const float *factors,
                                vec *likelihood, vec *mean) {
    const vec largest = v_all(1e18f); /* squares stay finite */
    vec distance[DPLDA_MOST], root[DPLDA_MOST], least = v_all(INFINITY);
    seen = v_max(v_min(seen, largest), v_all(-1e18f));
    for (int c = 0; c < n_centers; c++) {
        const vec one = v_min(unit[c], largest);
        for (int g = 0; g < DPLDA_FACTORS; g++) {
            const int i = c * DPLDA_FACTORS + g;
            const vec center = v_mul(one, v_all(factors[g])), off = v_sub(seen, center);
            const vec spread = v_mul(center, v_all(0.25f)), variance = v_mul(spread, spread);
            vec share; /* of the noise in the cell's variance, times the distance */
            root[i] = inverse_root(v_add(variance, v_all(1)));
            share = v_mul(off, v_mul(root[i], root[i]));
            mean[i] = v_add(center, v_mul(variance, share));
            distance[i] = v_mul(off, share);
            least = v_min(least, distance[i]);
        }
    }
    for (int i = 0; i < n_centers * DPLDA_FACTORS; i++) {
        const vec x = v_mul(v_sub(least, distance[i]), v_all(0.72134752f)); /* 1 / (2 log 2) */
        likelihood[i] = v_mul(power_of_2(v_max(x, v_all(-125))), root[i]);
    }
}

/* The loops below are compiled for one and for two centers. */

DPLDA_INLINE void likelihoods(const dplda_noisy_table *t, const int64_t *words,
                              ptrdiff_t n_vectors, ptrdiff_t stride, float *likelihood,
                              int n_centers) {
    const int n_found = n_centers * DPLDA_FACTORS;
    for (ptrdiff_t i = 0; i < n_vectors; i++) {
        const dplda_place at = dplda_place_of(words, i * stride, t->n_topics);
        const ptrdiff_t n = t->n_topics - at.topic;
        const vec cells = load_cells(t->average + at.word * t->n_topics + at.topic, n);
        vec unit[2], found[DPLDA_MOST], mean[DPLDA_MOST];
        float exists[16];
        for (int j = 0; j < 16; j++) {
            exists[j] = j < n;
        }
        centers_of(t, n_centers, at, unit);
        likelihood_of(unit, n_centers, v_mul(cells, v_all(1 / t->scale[at.word])), t->factors,
                      found, mean);
        for (int g = 0; g < n_found; g++) {
            v_store(likelihood + (i * n_found + g) * 16, v_mul(found[g], v_load(exists)));
        }
    }
}

/* Likelihoods of the vectors 0, stride, 2 * stride, ... of a class of words.
 *
 * likelihood: (n_vectors, components, 16); those of elements beyond the last topic are 0. */
static void NAME(dplda_likelihood)(const dplda_noisy_table *t, const int64_t *words,
                                   ptrdiff_t n_vectors, ptrdiff_t stride, float *likelihood) {
    if (t->shares) {
        likelihoods(t, words, n_vectors, stride, likelihood, 2);
    } else {
        likelihoods(t, words, n_vectors, stride, likelihood, 1);
    }
}

DPLDA_INLINE void expectations(const float *likelihood, ptrdiff_t n_vectors, const double *prior,
                               double *sums, int n_centers) {
    const int n_found = n_centers * DPLDA_FACTORS;
    for (int g = 0; g < n_found; g++) {
        sums[g] = 0;
    }
    for (ptrdiff_t first = 0; first < n_vectors; first += DPLDA_RUN) {
        const ptrdiff_t last = first + DPLDA_RUN < n_vectors ? first + DPLDA_RUN : n_vectors;
        vec run[DPLDA_MOST];
        for (int g = 0; g < n_found; g++) {
            run[g] = v_all(0);
        }
        for (ptrdiff_t i = first; i < last; i++) {
            const float *row = likelihood + i * n_found * 16;
            vec evidence = v_all(0x1p-120f); /* where no cell is, 0 / 2**-120 */
            for (int g = 0; g < n_found; g++) {
                evidence = v_add(evidence, v_mul(v_load(row + g * 16), v_all((float)prior[g])));
            }
            evidence = v_div(v_all(1), evidence);
            for (int g = 0; g < n_found; g++) {
                run[g] = v_add(run[g], v_mul(v_load(row + g * 16), evidence));
            }
        }
        for (int g = 0; g < n_found; g++) {
            sums[g] += v_sum(run[g]);
        }
    }
}

/* Sums over the cells of likelihood / evidence, for each component; evidence: its mean under the
 * prior. */
static void NAME(dplda_expectation)(const float *likelihood, ptrdiff_t n_vectors, int n_centers,
                                    const double *prior, double *sums) {
    if (n_centers == 2) {
        expectations(likelihood, n_vectors, prior, sums, 2);
    } else {
        expectations(likelihood, n_vectors, prior, sums, 1);
    }
}

DPLDA_INLINE void estimates(const dplda_noisy_table *t, ptrdiff_t first, ptrdiff_t last,
                            const float *prior, const uint8_t *class_of, float least, float *table,
                            int n_centers) {
    const ptrdiff_t n_topics = t->n_topics;
    const int n_found = n_centers * DPLDA_FACTORS;
    for (ptrdiff_t word = first; word < last; word++) {
        const float *weight = prior + class_of[word] * n_found;
        const double *cells = t->average + word * n_topics;
        const vec scale = v_all(t->scale[word]), inverse = v_all(1 / t->scale[word]);
        for (ptrdiff_t k = 0; k < n_topics; k += 16) {
            const dplda_place at = {word, k};
            const vec noisy = load_cells(cells + k, n_topics - k);
            vec unit[2], found[DPLDA_MOST], mean[DPLDA_MOST], evidence = v_all(0), sum = v_all(0);
            centers_of(t, n_centers, at, unit);
            likelihood_of(unit, n_centers, v_mul(noisy, inverse), t->factors, found, mean);
            for (int g = 0; g < n_found; g++) {
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

/* Posterior means of the words first, ..., last - 1, cut at 0, plus `least`.
 *
 * prior: (n_classes, components); class_of: the class of each word. */
static void NAME(dplda_estimate)(const dplda_noisy_table *t, ptrdiff_t first, ptrdiff_t last,
                                 const float *prior, const uint8_t *class_of, float least,
                                 float *table) {
    if (t->shares) {
        estimates(t, first, last, prior, class_of, least, table, 2);
    } else {
        estimates(t, first, last, prior, class_of, least, table, 1);
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
#undef inverse_root
#undef power_of_2
#undef log_2
#undef likelihood_of
#undef centers_of
#undef likelihoods
#undef expectations
#undef estimates
#undef sum_row
#endif
