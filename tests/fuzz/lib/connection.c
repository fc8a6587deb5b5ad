#include "lib/connection.h"

#include "conn/conn.h"
#include "conn/deflate.h"
#include "lib/memory_stream.h"

tws_conn *fuzz_connect(const struct fuzz_connection *f)
{
    struct conn_env *env = conn_env_new(NULL, f->light);
    struct conn_setup setup = {.env = env, .server = f->server, .options = f->options};
    size_t area, fed = f->fed < memory.in_len ? f->fed : memory.in_len;
    tws_conn *c;
    void *block;

    FUZZ_CHECK(env != NULL && (!f->deflate || conn_env_deflate(env, f->deflate)));
    setup.stream = memory_open();
    block = base_pool_get(&env->blocks);
    FUZZ_CHECK(block != NULL);
    area = env->area_min > 0 ? env->blocks.block_size - sizeof(tws_conn) : 0;
    c = f->server ? conn_init(block, &setup, area) : conn_init_client(block, &setup);
    conn_env_unref(env);
    FUZZ_CHECK(conn_feed(c, memory.in, fed));
    memory.in_at = fed;
    FUZZ_CHECK(!f->deflate || conn_deflate_start(c, &f->agreed));
    return c;
}
