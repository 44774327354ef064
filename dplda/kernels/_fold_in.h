/* Topic weights of a document under a fixed table; in _variational.h.
 *
 * By expectation-maximization, or by the steps of variational Bayes: there exp(E[log theta]) takes
 * the place of theta, the mean, in the shares of words. 16 topics at a time; tables are padded with
 * zeros to a multiple of 16. Every sum has a fixed order: words four at a time, topics in 16 lanes
 * that v_sum adds.
 */
#ifndef DPLDA_FOLD_IN_H
#define DPLDA_FOLD_IN_H

/* A document under a table. */
typedef struct {
    ptrdiff_t n; /* different words */
    const int32_t *word;
    const float *count;
    const float *phi; /* (n_words, padded) */
    ptrdiff_t padded;
    const float *prior; /* (padded,) doc_topic_prior, and 0 on the padding */
    float total;        /* all counts and priors */
    int variational;
} dplda_document;
#endif

/* The dot products of `theta` and four rows, lane by lane. */
DPLDA_INLINE void NAME(dots)(const float *theta, const float *const *row, ptrdiff_t padded,
                             vec *sum) {
    const float *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
    vec s0 = v_all(0), s1 = s0, s2 = s0, s3 = s0;
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec t = v_load(theta + k);
        s0 = v_add(s0, v_mul(t, v_load(r0 + k)));
        s1 = v_add(s1, v_mul(t, v_load(r1 + k)));
        s2 = v_add(s2, v_mul(t, v_load(r2 + k)));
        s3 = v_add(s3, v_mul(t, v_load(r3 + k)));
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}

/* new += q0 r0 + q1 r1 + q2 r2 + q3 r3 */
DPLDA_INLINE void NAME(add_rows)(const float *const *row, const float *q, ptrdiff_t padded,
                                 float *new_theta) {
    const float *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
    const vec q0 = v_all(q[0]), q1 = v_all(q[1]), q2 = v_all(q[2]), q3 = v_all(q[3]);
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec first = v_add(v_mul(q0, v_load(r0 + k)), v_mul(q1, v_load(r1 + k)));
        const vec second = v_add(v_mul(q2, v_load(r2 + k)), v_mul(q3, v_load(r3 + k)));
        v_store(new_theta + k, v_add(v_load(new_theta + k), v_add(first, second)));
    }
}

/* new_theta += the shares of up to 16 words, from word j on, in each topic, over their weights. */
DPLDA_INLINE void NAME(add_words)(const dplda_document *doc, ptrdiff_t j, ptrdiff_t n,
                                  const float *weight, float *new_theta) {
    const float *row[DPLDA_WIDTH];
    vec sum[DPLDA_WIDTH];
    float share[DPLDA_WIDTH], quotient[DPLDA_WIDTH] = {0};
    for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i++) {
        row[i] = doc->phi + doc->word[j + (i < n ? i : 0)] * doc->padded;
    }
    for (ptrdiff_t i = 0; i < n; i += 4) {
        NAME(dots)(weight, row + i, doc->padded, sum + i);
    }
    for (ptrdiff_t i = (n + 3) / 4 * 4; i < DPLDA_WIDTH; i++) {
        sum[i] = v_all(0);
    }
    v_store(share, v_sums(sum));
    memcpy(quotient, doc->count + j, n * sizeof *quotient);
    for (int i = 0; i < DPLDA_WIDTH; i++) {
        /* 0 where it might overflow: all topics nearly exclude the word */
        const int known = share[i] > 1e-28f;
        quotient[i] = (known ? quotient[i] : 0) / (known ? share[i] : 1);
    }
    for (ptrdiff_t i = 0; i < n; i += 4) {
        NAME(add_rows)(row + i, quotient + i, doc->padded, new_theta);
    }
}

/* exp(E[log theta]) of the Dirichlet law with mean theta; gamma: (padded,), its parameters. */
static void NAME(expectations_of)(const dplda_document *doc, const float *theta, float *gamma,
                                  float *weight) {
    const vec total = v_all(doc->total);
    for (ptrdiff_t k = 0; k < doc->padded; k += DPLDA_WIDTH) {
        v_store(gamma + k, v_mul(v_load(theta + k), total));
    }
    NAME(weights_float)(gamma, doc->padded, doc->total, weight);
}

/* One step from theta to theta; its L1 change. new_theta, weight: (padded,). */
DPLDA_INLINE float NAME(update_topics)(const dplda_document *doc, float *theta, float *new_theta,
                                       float *weight) {
    const ptrdiff_t padded = doc->padded;
    const float *factor = doc->variational ? weight : theta;
    vec total = v_all(0), change = total;
    if (doc->variational) {
        NAME(expectations_of)(doc, theta, new_theta, weight);
    }
    memset(new_theta, 0, padded * sizeof *new_theta);
    for (ptrdiff_t j = 0; j < doc->n; j += DPLDA_WIDTH) {
        const ptrdiff_t left = doc->n - j < DPLDA_WIDTH ? doc->n - j : DPLDA_WIDTH;
        for (ptrdiff_t i = j + DPLDA_WIDTH; i < doc->n && i < j + 2 * DPLDA_WIDTH; i++) {
            for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
                DPLDA_PREFETCH(doc->phi + doc->word[i] * padded + k);
            }
        }
        NAME(add_words)(doc, j, left, factor, new_theta);
    }
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec x = v_add(v_mul(v_load(new_theta + k), v_load(factor + k)), v_load(doc->prior + k));
        v_store(new_theta + k, x);
        total = v_add(total, x);
    }
    total = v_all(1 / v_sum(total));
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec x = v_mul(v_load(new_theta + k), total), difference = v_sub(x, v_load(theta + k));
        change = v_add(change, v_max(difference, v_sub(v_all(0), difference)));
        v_store(theta + k, x);
    }
    return v_sum(change);
}

/* theta = first + 2 a r + a**2 v, where r = second - first, v = theta - second - r, a = |r| / |v|.
 *
 * The squared extrapolation of Varadhan and Roland (2008), from two steps first, second, theta. A
 * weight stays above an eighth of its last value and above `floor`; theta sums to 1. */
DPLDA_INLINE void NAME(extrapolate)(const float *first, const float *second, ptrdiff_t padded,
                                    const float *floor, float *theta) {
    vec rr = v_all(0), vv = rr, total = rr;
    float a;
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec r = v_sub(v_load(second + k), v_load(first + k));
        const vec v = v_sub(v_sub(v_load(theta + k), v_load(second + k)), r);
        rr = v_add(rr, v_mul(r, r));
        vv = v_add(vv, v_mul(v, v));
    }
    a = sqrtf(v_sum(rr) / v_sum(vv));
    if (!(a > 1 && a < 1e6f)) {
        return;
    }
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec t = v_load(theta + k), r = v_sub(v_load(second + k), v_load(first + k));
        const vec v = v_sub(v_sub(t, v_load(second + k)), r);
        const vec far = v_mul(v_all(a), v_add(v_add(r, r), v_mul(v_all(a), v)));
        const vec least = v_max(v_mul(v_all(0.125f), t), v_load(floor + k));
        const vec x = v_max(v_add(v_load(first + k), far), least);
        v_store(theta + k, x);
        total = v_add(total, x);
    }
    total = v_all(1 / v_sum(total));
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        v_store(theta + k, v_mul(v_load(theta + k), total));
    }
}

/* Steps from theta until one changes it by less than `tol`, at most max_iter.
 *
 * After every two steps follows an extrapolation. It is undone if the next step is longer than the
 * first of the two. scratch: (5 * padded,). */
static void NAME(converge)(const dplda_document *doc, ptrdiff_t max_iter, float tol, float *theta,
                           float *scratch) {
    const ptrdiff_t padded = doc->padded;
    const size_t size = padded * sizeof *theta;
    float *first = scratch, *second = first + padded, *third = second + padded;
    float *new_theta = third + padded, *weight = new_theta + padded, longest = INFINITY;
    int n_steps = 0; /* since the last extrapolation */
    for (ptrdiff_t i = 0; doc->n && i < max_iter; i++) {
        float change;
        memcpy(n_steps ? second : first, theta, size);
        change = NAME(update_topics)(doc, theta, new_theta, weight);
        if (n_steps == 0 && change > longest) {
            memcpy(theta, third, size);
            longest = INFINITY;
            continue;
        }
        if (change < tol) {
            break;
        }
        if (n_steps++ == 0) {
            longest = change;
            continue;
        }
        if (i + 1 == max_iter) {
            break; /* the last one is a step */
        }
        memcpy(third, theta, size);
        for (ptrdiff_t k = 0; k < padded; k++) {
            new_theta[k] = doc->prior[k] / doc->total; /* no fixed point has less */
        }
        NAME(extrapolate)(first, second, padded, new_theta, theta);
        n_steps = 0;
    }
}

/* At most max_iter steps from theta, until its L1 change is below tol.
 *
 * accelerated: whether to extrapolate; variational: theta becomes exp(E[log theta]) in the end.
 * scratch: (6 * padded,). */
static void NAME(fold_in)(const int32_t *word, const float *count, ptrdiff_t n, const float *phi,
                          ptrdiff_t padded, float prior, ptrdiff_t n_components,
                          ptrdiff_t max_iter, float tol, int accelerated, int variational,
                          float *theta, float *scratch) {
    float *priors = scratch, *new_theta = priors + padded, *weight = new_theta + padded;
    dplda_document doc = {n, word, count, phi, padded, priors, 0, variational};
    for (ptrdiff_t k = 0; k < padded; k++) {
        priors[k] = k < n_components ? prior : 0;
    }
    for (ptrdiff_t j = 0; j < n; j++) {
        doc.total += count[j];
    }
    doc.total += n_components * prior;
    if (accelerated) {
        NAME(converge)(&doc, max_iter, tol, theta, new_theta);
        max_iter = 0;
    }
    for (ptrdiff_t i = 0; n && i < max_iter; i++) {
        if (NAME(update_topics)(&doc, theta, new_theta, weight) < tol) {
            break;
        }
    }
    if (variational) {
        NAME(expectations_of)(&doc, theta, new_theta, weight);
        memcpy(theta, weight, padded * sizeof *theta);
    }
}
