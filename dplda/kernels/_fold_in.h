/* Topic weights of a document under a fixed table; in _variational.h.
 *
 * By expectation-maximization, or by the steps of variational Bayes: there exp(E[log theta]) takes
 * the place of theta, the mean, in the shares of words. A step adds the row of each word to the
 * topics, times count / (theta . row): what multiplies a whole row does not matter.
 *
 * The table is one of floats, padded with zeros to a multiple of 16 topics, or one of bytes, relative
 * to the largest of each row. Of many topics, bytes are read in rows. Of fewer, a document copies the
 * bytes of its words once for all steps, in groups of at most 16 tiles of 16 words, so that a word is
 * a lane:
 *
 *     copy[group][8 topics][tile][pair of topics][16 words][2 topics]
 *
 * Sums of floats have a fixed order: words four at a time, a tile, or a group; the 16 lanes as v_sum
 * adds them. The definition is `fold_in` in tests/twins.py.
 */
#ifndef DPLDA_FOLD_IN_H
#define DPLDA_FOLD_IN_H
enum { DPLDA_GROUP = 256 };
#ifdef __GNUC__
#define DPLDA_CALLED static __attribute__((noinline)) /* for gcc 12 to find the registers */
#else
#define DPLDA_CALLED static
#endif

/* A table, and how to infer from it. */
typedef struct {
    const float *phi;    /* (n_words, padded) */
    const uint8_t *bytes; /* the same from `narrow`, (n_words, n_topics); NULL: phi is read */
    ptrdiff_t padded;
    ptrdiff_t n_components;
    ptrdiff_t n_blocks; /* of 8 topics */
    float prior;
    ptrdiff_t max_iter;
    float tol;
    int variational;
    const float *inverse_size; /* (padded,) 1 / topic sizes, and 0 on the padding; NULL: nothing is
                                * left out */
    float least;               /* count of a cell */
} dplda_inference;

/* A document under a table. */
typedef struct {
    const dplda_inference *all;
    ptrdiff_t n; /* different words */
    const int32_t *word;
    const float *count;
    const uint8_t *copy; /* NULL: rows are read */
    const float *prior;  /* (padded,) doc_topic_prior, and 0 on the padding */
    float total;         /* all counts and priors */
} dplda_document;

/* Copy topics k, ..., k + 15 of 16 rows, a word a lane: two blocks of four pairs. */
DPLDA_INLINE void dplda_turn(const uint8_t *const *row, ptrdiff_t topic, ptrdiff_t block,
                             uint8_t *to) {
#ifdef DPLDA_X86
    for (int i = 0; i < 16; i += 8, to += 16) {
        __m128i rows[8], pairs[8];
        for (int j = 0; j < 8; j++) {
            rows[j] = _mm_loadu_si128((const __m128i *)(row[i + j] + topic));
        }
        for (int j = 0; j < 4; j++) {
            pairs[j] = _mm_unpacklo_epi16(rows[2 * j], rows[2 * j + 1]);
            pairs[j + 4] = _mm_unpackhi_epi16(rows[2 * j], rows[2 * j + 1]);
        }
        for (int h = 0; h < 2; h++) {
            const __m128i *half = pairs + 4 * h;
            const __m128i low = _mm_unpacklo_epi32(half[0], half[1]);
            const __m128i low_next = _mm_unpacklo_epi32(half[2], half[3]);
            const __m128i high = _mm_unpackhi_epi32(half[0], half[1]);
            const __m128i high_next = _mm_unpackhi_epi32(half[2], half[3]);
            __m128i *pair = (__m128i *)(to + h * block);
            _mm_storeu_si128(pair, _mm_unpacklo_epi64(low, low_next));
            _mm_storeu_si128(pair + 2, _mm_unpackhi_epi64(low, low_next));
            _mm_storeu_si128(pair + 4, _mm_unpacklo_epi64(high, high_next));
            _mm_storeu_si128(pair + 6, _mm_unpackhi_epi64(high, high_next));
        }
    }
#else
    for (int i = 0; i < 16; i++, to += 2) {
        for (int h = 0; h < 8; h++) {
            memcpy(to + h / 4 * block + h % 4 * 32, row[i] + topic + 2 * h, 2);
        }
    }
#endif
}
#endif

/* new_theta += the shares of all words in each topic, over their weights. */
DPLDA_INLINE void NAME(add_floats)(const dplda_document *doc, const float *weight,
                                   float *new_theta) {
    const ptrdiff_t padded = doc->all->padded;
    const float *phi = doc->all->phi;
    for (ptrdiff_t first = 0; first < doc->n; first += DPLDA_WIDTH) {
        const ptrdiff_t left = doc->n - first, n_words = left < DPLDA_WIDTH ? left : DPLDA_WIDTH;
        const float *row[DPLDA_WIDTH];
        float quotient[DPLDA_WIDTH] = {0};
        vec sum[DPLDA_WIDTH], share;
        for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i++) {
            row[i] = phi + doc->word[first + (i < n_words ? i : 0)] * padded;
            for (ptrdiff_t k = 0; k < padded && i + DPLDA_WIDTH < left; k += DPLDA_WIDTH) {
                DPLDA_PREFETCH(phi + doc->word[first + i + DPLDA_WIDTH] * padded + k);
            }
        }
        for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i += 4) {
            vec s0 = v_all(0), s1 = s0, s2 = s0, s3 = s0;
            for (ptrdiff_t k = 0; k < padded && i < n_words; k += DPLDA_WIDTH) {
                const vec t = v_load(weight + k);
                s0 = v_add(s0, v_mul(t, v_load(row[i] + k)));
                s1 = v_add(s1, v_mul(t, v_load(row[i + 1] + k)));
                s2 = v_add(s2, v_mul(t, v_load(row[i + 2] + k)));
                s3 = v_add(s3, v_mul(t, v_load(row[i + 3] + k)));
            }
            sum[i] = s0, sum[i + 1] = s1, sum[i + 2] = s2, sum[i + 3] = s3;
        }
        memcpy(quotient, doc->count + first, n_words * sizeof *quotient);
        share = v_sums(sum); /* 0 where it might overflow: all topics nearly exclude the word */
        sum[0] = v_above(share, v_all(1e-28f), v_load(quotient));
        v_store(quotient, v_div(sum[0], v_max(share, v_all(1e-28f))));
        for (ptrdiff_t i = 0; i < n_words; i += 4) {
            const vec q0 = v_all(quotient[i]), q1 = v_all(quotient[i + 1]);
            const vec q2 = v_all(quotient[i + 2]), q3 = v_all(quotient[i + 3]);
            for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
                const vec x = v_add(v_mul(q0, v_load(row[i] + k)), v_mul(q1, v_load(row[i + 1] + k)));
                const vec y = v_mul(q2, v_load(row[i + 2] + k));
                const vec z = v_add(x, v_add(y, v_mul(q3, v_load(row[i + 3] + k))));
                v_store(new_theta + k, v_add(v_load(new_theta + k), z));
            }
        }
    }
}

/* Weights in 16 bits, in pairs; returns their scale. */
static float NAME(narrow_weights)(const float *weight, ptrdiff_t padded, int32_t *pairs) {
    /* Rounded weights sum to less than 2^19, so that sums of their products with bytes are below 2^27:
     * weights sum to at most 1, and each gains at most 1/2. */
    float scale = (1 << 19) - padded, largest;
    vec most = v_all(0);
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        most = v_max(v_load(weight + k), most);
    }
    largest = NAME(most)(most);
    scale = largest * scale > 32767 ? 32767 / largest : scale;
    NAME(narrow)(weight, 0, padded, scale, (padded + 31) / 32 * 32, (int16_t *)pairs);
    return scale;
}

/* The probabilities of the words of a group, times the scale of the pairs: at least 2^-12 of the
 * largest of the row, for the quotients of other words to keep some bits. */
DPLDA_CALLED void NAME(shares)(const uint8_t *copy, ptrdiff_t n_tiles, ptrdiff_t n_blocks,
                               const int32_t *pairs, float scale, vec *share) {
    for (ptrdiff_t t = 0; t < n_tiles; t++, copy += 128) {
        const uint8_t *from = copy;
        veci s0 = vi_all(0), s1 = s0, s2 = s0, s3 = s0; /* which do not wait for each other */
        for (ptrdiff_t b = 0; b < n_blocks; b++, from += 128 * n_tiles) {
            s0 = vi_add_products(s0, vs_pairs(pairs[4 * b]), vs_bytes(from));
            s1 = vi_add_products(s1, vs_pairs(pairs[4 * b + 1]), vs_bytes(from + 32));
            s2 = vi_add_products(s2, vs_pairs(pairs[4 * b + 2]), vs_bytes(from + 64));
            s3 = vi_add_products(s3, vs_pairs(pairs[4 * b + 3]), vs_bytes(from + 96));
        }
        s0 = vi_add(vi_add(s0, s1), vi_add(s2, s3));
        share[t] = v_max(v_float(s0), v_all(scale / 16));
    }
}

#ifdef DPLDA_USE_AVX512
#define DPLDA_PAIRS 4
#else
#define DPLDA_PAIRS 2
#endif
/* Sums of a group for n pairs of topics: their integers times the quotients. */
DPLDA_INLINE void NAME(add_pairs)(const int n_pairs, const uint8_t *copy, ptrdiff_t n_tiles,
                                  const int16_t *first, const int16_t *second, vec *sum) {
    veci sums[8]; /* a lane adds the words of at most 16 tiles: 16 * 255 * 32767 < 2^27 */
    for (int h = 0; h < 2 * n_pairs; h++) {
        sums[h] = vi_all(0);
    }
    for (ptrdiff_t t = 0; t < n_tiles; t++, copy += 128, first += 32, second += 32) {
        const vs a = vs_load(first), b = vs_load(second);
        for (int h = 0; h < n_pairs; h++) {
            const vs x = vs_bytes(copy + 32 * h);
            sums[2 * h] = vi_add_products(sums[2 * h], x, a);
            sums[2 * h + 1] = vi_add_products(sums[2 * h + 1], x, b);
        }
    }
    for (int h = 0; h < 2 * n_pairs; h++) {
        sum[h] = v_float(sums[h]);
    }
}

/* new_theta += the shares of the words of a group, over the weights that `pairs` stand for. */
DPLDA_INLINE void NAME(add_group)(const uint8_t *copy, const float *count, ptrdiff_t n,
                                  ptrdiff_t n_blocks, const int32_t *pairs, float scale,
                                  float *new_theta) {
    const ptrdiff_t n_tiles = (n + 15) / 16;
    vec share[16], quotient[16], most = v_all(0);
    veci first[16], second[16];
    float largest;
    NAME(shares)(copy, n_tiles, n_blocks, pairs, scale, share);
    quotient[n_tiles - 1] = most;
    memcpy(quotient, count, n * sizeof *count);
    for (ptrdiff_t t = 0; t < n_tiles; t++) {
        quotient[t] = v_div(v_mul(quotient[t], v_all(scale)), share[t]);
        most = v_max(quotient[t], most);
    }
    largest = NAME(most)(most);
    if (!(largest > 0)) {
        return;
    }
    for (ptrdiff_t t = 0; t < n_tiles; t++) {
        first[t] = v_truncate(v_add(v_mul(quotient[t], v_all(32767 / largest)), v_all(0.5f)));
        second[t] = vi_shift_left(first[t], 16);
    }
    for (ptrdiff_t b = 0; b < n_blocks; b += 2, new_theta += 16) {
        vec sums[16];
        for (int i = 0; i < 16; i += 2 * DPLDA_PAIRS) {
            const ptrdiff_t block = b + i / 8;
            NAME(add_pairs)
            (DPLDA_PAIRS, copy + (block * n_tiles * 4 + i % 8 / 2) * 32,
             block < n_blocks ? n_tiles : 0, (int16_t *)first, (int16_t *)second, sums + i);
        }
        const vec x = v_mul(v_sums(sums), v_all(largest / 32767));
        v_store(new_theta, v_add(v_load(new_theta), x));
    }
}
#undef DPLDA_PAIRS

/* new_theta += the shares of all words, from the copy of a document; pairs: (n_topics / 2,). */
DPLDA_INLINE void NAME(add_integers)(const dplda_document *doc, const float *weight,
                                     float *new_theta, int32_t *pairs) {
    const float scale = NAME(narrow_weights)(weight, doc->all->padded, pairs);
    for (ptrdiff_t j = 0; j < doc->n; j += DPLDA_GROUP) {
        const ptrdiff_t n = doc->n - j < DPLDA_GROUP ? doc->n - j : DPLDA_GROUP;
        NAME(add_group)
        (doc->copy + j * 8 * doc->all->n_blocks, doc->count + j, n, doc->all->n_blocks, pairs, scale,
         new_theta);
    }
}

/* new_theta += the shares of all words, from the bytes of the table; pairs: (n_topics / 2,).
 *
 * The rows of a tile are in the first level of the cache when they are read for the second time. */
DPLDA_INLINE void NAME(add_bytes)(const dplda_document *doc, const float *weight,
                                  float *new_theta, int32_t *pairs) {
    const ptrdiff_t padded = doc->all->padded, n_topics = (padded + 31) / 32 * 32;
    const float scale = NAME(narrow_weights)(weight, padded, pairs);
    const int16_t *theta = (const int16_t *)pairs;
    for (ptrdiff_t begin = 0; begin < doc->n; begin += 16) {
        const ptrdiff_t left = doc->n - begin, n_words = left < 16 ? left : 16;
        const uint8_t *row[20];
        float quotient[16] = {0};
        int32_t found[16], both[16];
        for (ptrdiff_t word = 0; word < 20; word++) {
            row[word] = doc->all->bytes + doc->word[begin + (word < left ? word : 0)] * n_topics;
        }
        for (ptrdiff_t word = 0; word < 16; word += 4) {
            veci s[4] = {vi_all(0), vi_all(0), vi_all(0), vi_all(0)};
            for (ptrdiff_t topic = 0; topic < n_topics && word < n_words; topic += 32) {
                const vs t = vs_load(theta + topic);
                DPLDA_PREFETCH(row[word + 4 + topic / 32 % 2 * 2] + topic);
                DPLDA_PREFETCH(row[word + 5 + topic / 32 % 2 * 2] + topic);
                s[0] = vi_add_products(s[0], vs_bytes(row[word] + topic), t);
                s[1] = vi_add_products(s[1], vs_bytes(row[word + 1] + topic), t);
                s[2] = vi_add_products(s[2], vs_bytes(row[word + 2] + topic), t);
                s[3] = vi_add_products(s[3], vs_bytes(row[word + 3] + topic), t);
            }
            vi_sums4(s, found + word);
        }
        memcpy(quotient, doc->count + begin, n_words * sizeof *quotient);
        const vec share = v_max(v_float(vi_load(found)), v_all(scale / 16));
        const vec quotients = v_div(v_mul(v_load(quotient), v_all(scale)), share);
        const float largest = NAME(most)(quotients);
        if (!(largest > 0)) {
            continue;
        }
        vi_store(both, v_truncate(v_add(v_mul(quotients, v_all(32767 / largest)), v_all(0.5f))));
        for (ptrdiff_t word = 0; word < 8; word++) {
            both[word] = both[2 * word] | both[2 * word + 1] << 16;
        }
        for (ptrdiff_t topic = 0; topic < padded; topic += 32) {
            veci first = vi_all(0), last = first;
            for (ptrdiff_t word = 0; 2 * word < n_words; word++) {
                const vs two = vs_pairs(both[word]);
                vs low, high;
                vs_two_rows(row[2 * word] + topic, row[2 * word + 1] + topic, &low, &high);
                first = vi_add_products(first, low, two);
                last = vi_add_products(last, high, two);
            }
            vi_in_order(&first, &last);
            const vec unit = v_all(largest / 32767);
            const vec before = v_load(new_theta + topic);
            v_store(new_theta + topic, v_add(before, v_mul(v_float(first), unit)));
            if (topic + 16 < padded) {
                const vec x = v_load(new_theta + topic + 16);
                v_store(new_theta + topic + 16, v_add(x, v_mul(v_float(last), unit)));
            }
        }
    }
}

/* exp(E[log theta]) of the Dirichlet law with mean theta; gamma: (padded,), its parameters. */
static void NAME(expectations_of)(const dplda_document *doc, const float *theta, float *gamma,
                                  float *weight) {
    const vec total = v_all(doc->total);
    for (ptrdiff_t k = 0; k < doc->all->padded; k += DPLDA_WIDTH) {
        v_store(gamma + k, v_mul(v_load(theta + k), total));
    }
    NAME(weights_float)(gamma, doc->all->padded, doc->total, weight);
}

/* Copy topic weights; zeros if there are none. Calls of the C library take longer. */
DPLDA_INLINE void NAME(set_topics)(float *to, const float *from, ptrdiff_t padded) {
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        v_store(to + k, from == NULL ? v_all(0) : v_load(from + k));
    }
}

/* One step from theta to theta; its L1 change. new_theta, weight, spare: (padded,). */
DPLDA_INLINE float NAME(update_topics)(const dplda_document *doc, float *theta, float *new_theta,
                                       float *weight, float *spare) {
    const ptrdiff_t padded = doc->all->padded;
    const float *factor = doc->all->variational ? weight : theta;
    vec total = v_all(0), change = total;
    if (doc->all->variational) {
        NAME(expectations_of)(doc, theta, new_theta, weight);
    }
    NAME(set_topics)(new_theta, NULL, padded);
    if (doc->copy != NULL) {
        NAME(add_integers)(doc, factor, new_theta, (int32_t *)spare);
    } else if (doc->all->bytes != NULL) {
        NAME(add_bytes)(doc, factor, new_theta, (int32_t *)spare);
    } else {
        NAME(add_floats)(doc, factor, new_theta);
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

/* theta = first + 2 a r + a**2 v, where r = second - first, v = theta - second - r, and `length` is
 * a = |r| / |v|.
 *
 * The squared extrapolation of Varadhan and Roland (2008), from two steps first, second, theta. A
 * weight stays above an eighth of its last value and above `floor`; theta sums to 1. */
DPLDA_INLINE void NAME(extrapolate)(const float *first, const float *second, ptrdiff_t padded,
                                    const float *floor, float *theta) {
    vec rr = v_all(0), vv = rr, total = rr;
    float length; /* of the extrapolation */
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec r = v_sub(v_load(second + k), v_load(first + k));
        const vec v = v_sub(v_sub(v_load(theta + k), v_load(second + k)), r);
        rr = v_add(rr, v_mul(r, r));
        vv = v_add(vv, v_mul(v, v));
    }
    length = sqrtf(v_sum(rr) / v_sum(vv));
    if (!(length > 1 && length < 1e6f)) {
        return;
    }
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec t = v_load(theta + k), r = v_sub(v_load(second + k), v_load(first + k));
        const vec v = v_sub(v_sub(t, v_load(second + k)), r);
        const vec far = v_mul(v_all(length), v_add(v_add(r, r), v_mul(v_all(length), v)));
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
 * first of the two. scratch: (6 * padded,). */
static void NAME(converge)(const dplda_document *doc, ptrdiff_t max_iter, float tol, float *theta,
                           float *scratch) {
    const ptrdiff_t padded = doc->all->padded;
    /* no fixed point has less */
    const vec least = v_all(doc->all->prior / doc->total);
    float *first = scratch, *second = first + padded, *third = second + padded;
    float *new_theta = third + padded, *weight = new_theta + padded, *spare = weight + padded;
    float longest = INFINITY;
    int n_steps = 0; /* since the last extrapolation */
    for (ptrdiff_t iteration = 0; doc->n && iteration < max_iter; iteration++) {
        float change;
        NAME(set_topics)(n_steps ? second : first, theta, padded);
        change = NAME(update_topics)(doc, theta, new_theta, weight, spare);
        if (n_steps == 0 && change > longest) {
            NAME(set_topics)(theta, third, padded);
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
        if (iteration + 1 == max_iter) {
            break; /* the last one is a step */
        }
        NAME(set_topics)(third, theta, padded);
        for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
            v_store(new_theta + k, v_above(v_load(doc->prior + k), v_all(0), least));
        }
        NAME(extrapolate)(first, second, padded, new_theta, theta);
        n_steps = 0;
    }
}

/* The row of a word in bytes, without what the document has added to it; row: (padded,) scratch.
 *
 * x counts of word v have added about x theta_k phi_vk / (theta phi_v) to N_k phi_vk. At least
 * `least` counts of each topic are left. */
static void NAME(leave_out)(const dplda_inference *all, ptrdiff_t word, float count,
                            const float *theta, float *row, uint8_t *to) {
    const float *phi = all->phi + word * all->padded;
    vec share = v_all(0);
    for (ptrdiff_t k = 0; k < all->padded; k += DPLDA_WIDTH) {
        share = v_add(share, v_mul(v_load(theta + k), v_load(phi + k)));
    }
    const float sum = v_sum(share), quotient = count / (sum > 1e-25f ? sum : 1e-25f);
    for (ptrdiff_t k = 0; k < all->padded; k += DPLDA_WIDTH) {
        const vec size = v_load(all->inverse_size + k), own = v_mul(v_load(theta + k), size);
        const vec left = v_mul(v_load(phi + k), v_sub(v_all(1), v_mul(v_all(quotient), own)));
        v_store(row + k, v_max(left, v_mul(v_all(all->least), size)));
    }
    NAME(narrow_bytes)(row, all->padded, to);
}

/* Copy the bytes of n <= 256 words, with `left` in the document from the first one on. Without what
 * the document has added if theta is given; row: (padded,), rows: (16, n_topics), scratch. */
static void NAME(copy_group)(const dplda_inference *all, const int32_t *word, const float *count,
                             ptrdiff_t n, ptrdiff_t left, const float *theta, float *row,
                             uint8_t *rows, uint8_t *copy) {
    const ptrdiff_t n_topics = (all->padded + 31) / 32 * 32, n_lanes = (n + 15) / 16 * 16;
    for (ptrdiff_t j = 0; j < n; j += 16, copy += 128) {
        const uint8_t *of[16];
        for (ptrdiff_t i = j; i < j + 16; i++) {
            of[i - j] = all->bytes + word[i < n ? i : 0] * n_topics;
            for (ptrdiff_t k = 0; k < n_topics && i + 16 < left; k += 64) {
                DPLDA_PREFETCH(all->bytes + word[i + 16] * n_topics + k);
            }
            if (theta != NULL && i < n) {
                NAME(leave_out)(all, word[i], count[i], theta, row, rows + (i - j) * n_topics);
                of[i - j] = rows + (i - j) * n_topics;
            }
        }
        for (ptrdiff_t k = 0; k < 8 * all->n_blocks; k += 16) {
            dplda_turn(of, k, 8 * n_lanes, copy + k * n_lanes);
        }
    }
}

/* Steps from theta, accelerated, of a document of n words; theta becomes exp(E[log theta]) in the
 * end if variational. scratch: (7 * padded,); copy: (n + 15, n_topics), and 16 more
 * rows if something is left out; NULL: rows are read. */
static void NAME(fold_in)(const dplda_inference *all, const int32_t *word, const float *count,
                          ptrdiff_t n_words, float *theta, float *scratch, uint8_t *copy) {
    const ptrdiff_t padded = all->padded, n_topics = (padded + 31) / 32 * 32;
    float *priors = scratch, *rest = priors + padded;
    dplda_document doc = {all, n_words, word, count, copy, priors, 0};
    int leaves_out = 0; /* equal weights are those of a document without an inference yet */
    for (ptrdiff_t k = 0; k < padded; k++) {
        priors[k] = k < all->n_components ? all->prior : 0;
        leaves_out |= all->inverse_size != NULL && k < all->n_components && theta[k] != theta[0];
    }
    for (ptrdiff_t j = 0; j < n_words; j++) {
        doc.total += count[j];
    }
    doc.total += all->n_components * all->prior;
    for (ptrdiff_t j = 0; copy != NULL && j < n_words; j += DPLDA_GROUP) {
        const ptrdiff_t m = n_words - j < DPLDA_GROUP ? n_words - j : DPLDA_GROUP;
        NAME(copy_group)
        (all, word + j, count + j, m, n_words - j, leaves_out ? theta : NULL, rest,
         copy + (n_words + 15) * n_topics, copy + j * 8 * all->n_blocks);
    }
    NAME(converge)(&doc, all->max_iter, all->tol, theta, rest);
    if (all->variational) {
        NAME(expectations_of)(&doc, theta, rest, rest + padded);
        memcpy(theta, rest + padded, padded * sizeof *theta);
    }
}
