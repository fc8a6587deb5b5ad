/*
 * dict.h: values by name, for any number of threads, that can be visited while they come and go.
 *
 * One lock of its own, never held while a function of the caller's runs. A value is let go of by
 * its `destroy`, exactly once: when it has been replaced or deleted and nobody visits it any more,
 * or with the dictionary.
 */
#ifndef BASE_DICT_H
#define BASE_DICT_H

#include "base/table.h"

#include <pthread.h>

struct base_dict;

/* NULL: no memory, or no entropy. */
struct base_dict *base_dict_new(const tws_allocator *a);
/* Nobody may use it any more. NULL is fine. */
void base_dict_free(struct base_dict *d);

enum base_dict_result {
    BASE_DICT_SET,
    BASE_DICT_SAME,     /* that value was there already; only `destroy` is another one now */
    BASE_DICT_NO_MEMORY /* nothing has changed */
};

/* Called with the lock held, so that a value outlives it: must be short. NULL: not. */
typedef void base_dict_hold(void *value);

/* In place of what had that name, which *old, if not NULL, is set to. */
enum base_dict_result base_dict_set(struct base_dict *d, const char *key, void *value,
                                    void (*destroy)(void *), base_dict_hold *hold, void **old);
/* NULL: there is none. */
void *base_dict_get(struct base_dict *d, const char *key, base_dict_hold *hold);
/* Only if it is `only`, unless that is NULL. Whether it was there. */
bool base_dict_delete(struct base_dict *d, const char *key, const void *only);
size_t base_dict_count(struct base_dict *d);
/* In the order in which they were set, without those that are set meanwhile; until fn returns false.
 * fn may call everything here but base_dict_free(). How many were visited. */
size_t base_dict_each(struct base_dict *d, bool (*fn)(const char *key, void *value, void *arg),
                      void *arg);

#endif
