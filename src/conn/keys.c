/* Masking keys of a client (RFC 6455 5.3): from the kernel, several at a time. */
#include "conn/conn.h"

#include "base/random.h"

#include <string.h>
#include <sys/mman.h>

/* Connections that send less do not pay for the page. */
#define SINGLE_KEYS 32

/*
 * What was drawn in advance must not be used twice, also not by a parent and its child. A page that
 * the kernel clears in a child tells: the word in it is another one there.
 */
static void make_fork_page(struct conn_env *env)
{
    _Atomic uint64_t *expected = NULL;
    void *page =
        mmap(NULL, CONN_FORK_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return;
    if (madvise(page, CONN_FORK_PAGE, MADV_WIPEONFORK) < 0 ||
        !atomic_compare_exchange_strong(&env->fork_word, &expected, page))
        munmap(page, CONN_FORK_PAGE);
}

/* The number of this process's life; 0 when there is no entropy. */
static uint64_t generation(_Atomic uint64_t *word)
{
    uint64_t now = atomic_load(word);
    uint64_t fresh;

    if (now)
        return now;
    if (!base_random(&fresh, sizeof fresh))
        return 0;
    fresh |= 1;
    return atomic_compare_exchange_strong(word, &now, fresh) ? fresh : now;
}

bool conn_mask_key(tws_conn *c, uint8_t key[4])
{
    struct conn_env *env = c->env;
    struct conn_keys *k = c->keys;
    _Atomic uint64_t *word = k ? atomic_load(&env->fork_word) : NULL;
    uint64_t now;

    if (!word) {
        if (k && k->single++ == SINGLE_KEYS)
            make_fork_page(env);
        return base_random(key, 4);
    }
    now = generation(word);
    if (!now)
        return false;
    if (k->left < 4 || k->generation != now) {
        k->left = 0;
        if (!base_random(k->bytes, sizeof k->bytes))
            return false;
        k->left = sizeof k->bytes;
        k->generation = now;
    }
    k->left -= 4;
    memcpy(key, k->bytes + k->left, 4);
    return true;
}
