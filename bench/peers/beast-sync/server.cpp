// Echo with Boost.Beast: one thread per connection, every call blocks.
#include "beast/common.hpp"

#include <thread>

namespace {

using namespace peer;

template <class Stream> void echo(websocket::stream<Stream> &ws)
{
    configure(ws);
    ws.accept();
    beast::flat_buffer buffer;
    for (;;) {
        ws.read(buffer);
        ws.text(ws.got_text());
        ws.write(buffer.data());
        buffer.consume(buffer.size());
    }
}

void session(tcp::socket socket, ssl::context *tls)
{
    try {
        if (tls != nullptr) {
            websocket::stream<beast::ssl_stream<tcp::socket>> ws(std::move(socket), *tls);
            ws.next_layer().handshake(ssl::stream_base::server);
            echo(ws);
        } else {
            websocket::stream<tcp::socket> ws(std::move(socket));
            echo(ws);
        }
    } catch (const beast::system_error &) {
        // The end of every connection: a read fails.
    }
}

void run(char **argv)
{
    asio::io_context io;
    auto tls = peer::tls();
    tcp::acceptor acceptor(io, endpoint(argv));
    ready(argv);
    for (;;) {
        tcp::socket socket(io);
        acceptor.accept(socket);
        std::thread(session, std::move(socket), tls ? &*tls : nullptr).detach();
    }
}

} // namespace

int main(int argc, char **argv)
{
    return guarded(argc, argv, run);
}
