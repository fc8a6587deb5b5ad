// Echo with websocketpp on Asio: one endpoint, run by one thread per core.
#include <websocketpp/config/asio.hpp>
#include <websocketpp/extensions/permessage_deflate/enabled.hpp>
#include <websocketpp/server.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using websocketpp::connection_hdl;
namespace ssl = websocketpp::lib::asio::ssl;

// A configuration of the library with its permessage-deflate switched on.
template <class Base> struct with_deflate : Base {
    using type = with_deflate<Base>;
    struct permessage_deflate_config {};
    using permessage_deflate_type =
        websocketpp::extensions::permessage_deflate::enabled<permessage_deflate_config>;
};

template <class Endpoint> void enable_tls(Endpoint &server)
{
    server.set_tls_init_handler([](connection_hdl) {
        auto context = websocketpp::lib::make_shared<ssl::context>(ssl::context::tls_server);
        context->use_certificate_chain_file(std::getenv("TLS_CERT"));
        context->use_private_key_file(std::getenv("TLS_KEY"), ssl::context::pem);
        return context;
    });
}

template <class Config> void run(char **argv)
{
    using endpoint = websocketpp::server<Config>;
    endpoint server;
    server.clear_access_channels(websocketpp::log::alevel::all);
    server.clear_error_channels(websocketpp::log::elevel::all);
    server.init_asio();
    server.set_reuse_addr(true);
    server.set_message_handler(
        [&server](connection_hdl connection, typename endpoint::message_ptr message) {
            websocketpp::lib::error_code error;
            server.send(connection, message->get_payload(), message->get_opcode(), error);
        });
    if constexpr (std::is_base_of_v<websocketpp::config::asio_tls, Config>) {
        enable_tls(server);
    }
    server.listen(argv[1], argv[2]);
    server.start_accept();
    std::printf("listening on %s:%s\n", argv[1], argv[2]);
    std::fflush(stdout);
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); i++) {
        threads.emplace_back([&server] { server.run(); });
    }
    server.run();
    for (auto &thread : threads) {
        thread.join();
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s HOST PORT\n", argv[0]);
        return 2;
    }
    std::signal(SIGPIPE, SIG_IGN);
    const char *cert = std::getenv("TLS_CERT");
    const char *deflate = std::getenv("DEFLATE");
    const bool tls = cert != nullptr && *cert != '\0';
    const bool compress = deflate != nullptr && std::strcmp(deflate, "1") == 0;
    try {
        if (tls && compress) {
            run<with_deflate<websocketpp::config::asio_tls>>(argv);
        } else if (tls) {
            run<websocketpp::config::asio_tls>(argv);
        } else if (compress) {
            run<with_deflate<websocketpp::config::asio>>(argv);
        } else {
            run<websocketpp::config::asio>(argv);
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
