/* Threads that begin a while after they were started, as on a busy machine: to be preloaded. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct start {
    void *(*run)(void *);
    void *arg;
};

static void *late(void *given) {
    struct start start = *(struct start *)given;
    struct timespec pause = {0, 600 * 1000 * 1000};
    free(given);
    nanosleep(&pause, NULL);
    return start.run(start.arg);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg) {
    int (*own)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = malloc(sizeof *start);
    *start = (struct start){run, arg};
    return own(thread, attributes, late, start);
}
