/* Many callers and few threads: each piece of each loop runs once, and before its loop ends.
 *
 * For the thread sanitizer, which sees whether what a piece writes is ordered before what the
 * caller reads after the loop.
 */
#define DPLDA_TEAM_LOCKS
#include <semaphore.h>
#include <stdlib.h>
#define DPLDA_SLEEP(sleeper) while (sem_wait(sleeper))
#define DPLDA_WAKE(sleeper) sem_post(sleeper)
typedef sem_t *dplda_sleeper;
#include "_team.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 3, CALLERS = 4, LOOPS = 500, PIECES = 40 };

typedef struct {
    int runs[PIECES];
    int of_thread[THREADS + 1]; /* without a lock: threads of a loop have different numbers */
} counts;

static void count(void *arguments, ptrdiff_t piece, int thread) {
    counts *found = arguments;
    if (thread && piece % 8 == 0) {
        usleep(300); /* the caller is ready first */
    }
    found->runs[piece]++;
    found->of_thread[thread]++;
}

static void *serve(void *sleeper) {
    dplda_serve(sleeper);
    return NULL;
}

static void *call(void *seed) {
    unsigned state = (unsigned)(size_t)seed;
    for (int i = 0; i < LOOPS; i++) {
        counts found = {{0}, {0}};
        int n = 0;
        const int n_pieces = 1 + rand_r(&state) % PIECES;
        const int n_threads = 1 + rand_r(&state) % (THREADS + 1);
        dplda_run(count, &found, n_pieces, n_threads);
        for (int piece = 0; piece < PIECES; piece++) {
            if (found.runs[piece] != (piece < n_pieces)) {
                printf("piece %d of %d ran %d times\n", piece, n_pieces, found.runs[piece]);
                exit(1);
            }
        }
        for (int thread = 0; thread <= THREADS; thread++) {
            n += found.of_thread[thread];
        }
        if (n != n_pieces) {
            printf("%d of %d pieces are counted\n", n, n_pieces);
            exit(1);
        }
        if (i % 20 == 0) {
            usleep(1000); /* the team falls asleep */
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS], callers[CALLERS];
    static sem_t sleepers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        sem_init(&sleepers[i], 0, 1);
        pthread_create(&threads[i], NULL, serve, &sleepers[i]);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_create(&callers[i], NULL, call, (void *)(i + 1));
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i], NULL);
    }
    puts("every piece ran once");
    fflush(stdout);
    _exit(0); /* the team never ends */
}
