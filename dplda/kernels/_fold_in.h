/* Topic weights of a document under a fixed table, by expectation-maximization; in _variational.h.
 *
 * 16 topics at a time; tables are padded with zeros to a multiple of 16. Every sum has a fixed
 * order: words four at a time, topics in 16 lanes that v_sum adds.
 */

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

/* new_theta += the shares of up to 16 words in each topic, over theta. */
DPLDA_INLINE void NAME(add_words)(const int32_t *word, const float *count, ptrdiff_t n,
                                  const float *phi, ptrdiff_t padded, const float *theta,
                                  float *new_theta) {
    const float *row[DPLDA_WIDTH];
    vec sum[DPLDA_WIDTH];
    float share[DPLDA_WIDTH], quotient[DPLDA_WIDTH] = {0};
    for (ptrdiff_t j = 0; j < DPLDA_WIDTH; j++) {
        row[j] = phi + (ptrdiff_t)word[j < n ? j : 0] * padded;
    }
    for (ptrdiff_t j = 0; j < n; j += 4) {
        NAME(dots)(theta, row + j, padded, sum + j);
    }
    for (ptrdiff_t j = (n + 3) / 4 * 4; j < DPLDA_WIDTH; j++) {
        sum[j] = v_all(0);
    }
    v_store(share, v_sums(sum));
    memcpy(quotient, count, n * sizeof *count);
    for (int j = 0; j < DPLDA_WIDTH; j++) {
        /* 0 where it might overflow: all topics nearly exclude the word */
        const int known = share[j] > 1e-28f;
        quotient[j] = (known ? quotient[j] : 0) / (known ? share[j] : 1);
    }
    for (ptrdiff_t j = 0; j < n; j += 4) {
        NAME(add_rows)(row + j, quotient + j, padded, new_theta);
    }
}

/* One step from theta to theta; its L1 change. prior: doc_topic_prior, and 0 on the padding. */
DPLDA_INLINE float NAME(update_topics)(const int32_t *word, const float *count, ptrdiff_t n,
                                       const float *phi, ptrdiff_t padded, const float *prior,
                                       float *theta, float *new_theta) {
    vec total = v_all(0), change = total;
    memset(new_theta, 0, padded * sizeof *new_theta);
    for (ptrdiff_t j = 0; j < n; j += DPLDA_WIDTH) {
        const ptrdiff_t left = n - j < DPLDA_WIDTH ? n - j : DPLDA_WIDTH;
        for (ptrdiff_t i = j + DPLDA_WIDTH; i < n && i < j + 2 * DPLDA_WIDTH; i++) {
            for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
                DPLDA_PREFETCH(phi + (ptrdiff_t)word[i] * padded + k);
            }
        }
        NAME(add_words)(word + j, count + j, left, phi, padded, theta, new_theta);
    }
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec x = v_add(v_mul(v_load(new_theta + k), v_load(theta + k)), v_load(prior + k));
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
static void NAME(converge)(const int32_t *word, const float *count, ptrdiff_t n, const float *phi,
                           ptrdiff_t padded, float prior, ptrdiff_t n_components,
                           ptrdiff_t max_iter, float tol, float *theta, float *scratch) {
    const size_t size = padded * sizeof *theta;
    float *first = scratch, *second = first + padded, *third = second + padded;
    float *priors = third + padded, *new_theta = priors + padded, longest = INFINITY, total = 0;
    int n_steps = 0; /* since the last extrapolation */
    for (ptrdiff_t j = 0; j < n; j++) {
        total += count[j];
    }
    total += n_components * prior;
    for (ptrdiff_t k = 0; k < padded; k++) {
        priors[k] = k < n_components ? prior : 0;
    }
    for (ptrdiff_t i = 0; n && i < max_iter; i++) {
        float change;
        memcpy(n_steps ? second : first, theta, size);
        change = NAME(update_topics)(word, count, n, phi, padded, priors, theta, new_theta);
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
            new_theta[k] = priors[k] / total; /* no fixed point has less */
        }
        NAME(extrapolate)(first, second, padded, new_theta, theta);
        n_steps = 0;
    }
}

/* At most max_iter steps from theta, until its L1 change is below tol. scratch: (5 * padded,). */
static void NAME(fold_in)(const int32_t *word, const float *count, ptrdiff_t n, const float *phi,
                          ptrdiff_t padded, float prior, ptrdiff_t n_components,
                          ptrdiff_t max_iter, float tol, int accelerated, float *theta,
                          float *scratch) {
    float *priors = scratch + padded;
    if (accelerated) {
        NAME(converge)(word, count, n, phi, padded, prior, n_components, max_iter, tol, theta,
                       scratch);
        return;
    }
    for (ptrdiff_t k = 0; k < padded; k++) {
        priors[k] = k < n_components ? prior : 0;
    }
    for (ptrdiff_t i = 0; n && i < max_iter; i++) {
        if (NAME(update_topics)(word, count, n, phi, padded, priors, theta, scratch) < tol) {
            break;
        }
    }
}
