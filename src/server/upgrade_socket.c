/* Opening handshakes on sockets that somebody else accepted. */
#include "server/upgrade.h"

#include "base/fault.h"
#include "base/sized.h"

#include <string.h>
#include <unistd.h>

tws_err upgrade_refuse_input(int fd, tws_err err, const char *what, tws_error *error)
{
    if (fd >= 0)
        close(fd);
    return base_fault(error, err, TWS_PHASE_HANDSHAKE, 0, what, NULL);
}

void tws_parsed_request_init_sized(tws_parsed_request *r, size_t size)
{
    tws_parsed_request p;

    memset(&p, 0, sizeof p);
    p.size = size;
    p.method = "GET";
    p.target = "/";
    p.version = "HTTP/1.1";
    base_sized_give(r, size, &p, sizeof p);
}

bool upgrade_take_parsed(tws_parsed_request *out, const tws_parsed_request *in)
{
    tws_parsed_request_init(out);
    if (!in || in->size < sizeof in->size + sizeof in->method)
        return false;
    base_sized_take(out, sizeof *out, in, in->size);
    return out->headers || out->header_count == 0;
}

void upgrade_peer_of_parsed(union net_peer *peer, int fd, const tws_parsed_request *parsed)
{
    sa_family_t family = parsed && parsed->peer ? parsed->peer->sa_family : AF_UNSPEC;

    memset(peer, 0, sizeof *peer);
    if ((family == AF_INET && parsed->peer_len >= sizeof(struct sockaddr_in)) ||
        (family == AF_INET6 && parsed->peer_len >= sizeof(struct sockaddr_in6)) ||
        family == AF_UNIX)
        net_peer_save(peer, parsed->peer);
    else if (fd >= 0)
        net_peer_of(peer, fd);
}

bool tws_is_upgrade_request(const char *method, const tws_header *headers, size_t count)
{
    static const char *const wanted[][2] = {{"Upgrade", "websocket"}, {"Connection", "upgrade"}};
    bool found[2] = {false, false};

    if (!method || strcmp(method, "GET") != 0 || !headers)
        return false;
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < 2; k++) {
            struct token_list list;
            struct wire_text element;
            int more;

            if (!headers[i].value || !wire_text_is(wire_text_of(headers[i].name), wanted[k][0]))
                continue;
            token_list_of_text(&list, wire_text_of(headers[i].value));
            while ((more = token_list_next(&list, &element)) == 1)
                found[k] = found[k] || wire_text_is(element, wanted[k][1]);
            if (more < 0)
                return false;
        }
    }
    return found[0] && found[1];
}

tws_err upgrade_socket(tws_conn **out, struct upgrade_input *in, const tws_upgrade_options *opt,
                       tws_error *error)
{
    struct upgrade_config *cfg = NULL;
    const char *what = NULL;
    tws_error local;
    tws_err err;

    *out = NULL;
    if (in->fd < 0 || (!in->buffered && in->buffered_len > 0))
        return upgrade_refuse_input(in->fd, TWS_ERR_ARGUMENT, "descriptor or buffer", error);
    err = upgrade_config_new(&cfg, opt, false, &what);
    if (err)
        return upgrade_refuse_input(in->fd, err, what, error);
    if (cfg->opt.parsed) {
        in->parsed = cfg->opt.parsed;
        in->plain = true;
    }
    upgrade_peer_of_parsed(&in->peer, in->fd, in->parsed);
    in->block = base_pool_get(&cfg->env->blocks);
    if (!in->block) {
        upgrade_config_free(cfg);
        return upgrade_refuse_input(in->fd, TWS_ERR_MEMORY, NULL, error);
    }
    upgrade_run(cfg, in, out, error ? error : &local);
    err = error ? error->code : local.code;
    upgrade_config_free(cfg);
    return err;
}

tws_err tws_upgrade(tws_conn **out, int fd, const void *buffered, size_t buffered_len,
                    const tws_upgrade_options *opt, tws_error *error)
{
    struct upgrade_input in = {.fd = fd, .buffered = buffered, .buffered_len = buffered_len};

    return upgrade_socket(out, &in, opt, error);
}

tws_err tws_upgrade_parsed(tws_conn **out, int fd, const void *buffered, size_t buffered_len,
                           const tws_parsed_request *request, const tws_upgrade_options *opt,
                           tws_error *error)
{
    tws_parsed_request parsed;
    struct upgrade_input in = {.fd = fd,
                               .buffered = buffered,
                               .buffered_len = buffered_len,
                               .parsed = &parsed,
                               .plain = true};

    *out = NULL;
    if (!upgrade_take_parsed(&parsed, request))
        return upgrade_refuse_input(fd, TWS_ERR_ARGUMENT, "parsed request", error);
    return upgrade_socket(out, &in, opt, error);
}
