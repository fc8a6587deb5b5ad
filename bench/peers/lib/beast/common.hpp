// What the two Boost.Beast peers share: options from the environment, and the TLS context.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/beast/websocket.hpp>
#include <boost/beast/websocket/ssl.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>

namespace peer {

namespace beast = boost::beast;
namespace websocket = beast::websocket;
namespace asio = boost::asio;
namespace ssl = asio::ssl;
using tcp = asio::ip::tcp;

inline bool set(const char *name)
{
    const char *value = std::getenv(name);
    return value != nullptr && *value != '\0';
}

inline bool deflate()
{
    const char *value = std::getenv("DEFLATE");
    return value != nullptr && std::strcmp(value, "1") == 0;
}

// The TLS context when TLS was asked for.
inline std::optional<ssl::context> tls()
{
    if (!set("TLS_CERT")) {
        return std::nullopt;
    }
    ssl::context context(ssl::context::tls_server);
    context.use_certificate_chain_file(std::getenv("TLS_CERT"));
    context.use_private_key_file(std::getenv("TLS_KEY"), ssl::context::pem);
    return context;
}

template <class Stream> void configure(websocket::stream<Stream> &ws)
{
    if (deflate()) {
        websocket::permessage_deflate option;
        option.server_enable = true;
        ws.set_option(option);
    }
}

inline tcp::endpoint endpoint(char **argv)
{
    return {asio::ip::make_address(argv[1]), static_cast<unsigned short>(std::atoi(argv[2]))};
}

inline void ready(char **argv)
{
    std::printf("listening on %s:%s\n", argv[1], argv[2]);
    std::fflush(stdout);
}

// Runs a server's main: usage, and one line for an error that ends it.
template <class Run> int guarded(int argc, char **argv, Run run)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s HOST PORT\n", argv[0]);
        return 2;
    }
    std::signal(SIGPIPE, SIG_IGN);
    try {
        run(argv);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

} // namespace peer
