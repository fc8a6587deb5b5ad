// Echo with Boost.Beast: completion handlers, an io_context run by one thread per core, a strand
// per connection.
#include "beast/common.hpp"

#include <boost/asio/strand.hpp>

#include <memory>
#include <thread>
#include <vector>

namespace {

using namespace peer;

template <class Stream> class session : public std::enable_shared_from_this<session<Stream>> {
  public:
    template <class... Arguments>
    explicit session(Arguments &&...arguments) : ws_(std::forward<Arguments>(arguments)...)
    {
    }

    void run()
    {
        asio::dispatch(ws_.get_executor(), [self = this->shared_from_this()] { self->open(); });
    }

  private:
    void open()
    {
        ws_.set_option(websocket::stream_base::timeout::suggested(beast::role_type::server));
        configure(ws_);
        if constexpr (std::is_same_v<Stream, beast::tcp_stream>) {
            upgrade();
        } else {
            beast::get_lowest_layer(ws_).expires_after(std::chrono::seconds(30));
            ws_.next_layer().async_handshake(
                ssl::stream_base::server,
                [self = this->shared_from_this()](beast::error_code error) {
                    if (!error) {
                        self->upgrade();
                    }
                });
        }
    }

    void upgrade()
    {
        // The stream's own timer has done its part: from here the WebSocket layer keeps time.
        beast::get_lowest_layer(ws_).expires_never();
        ws_.async_accept([self = this->shared_from_this()](beast::error_code error) {
            if (!error) {
                self->read();
            }
        });
    }

    void read()
    {
        ws_.async_read(buffer_,
                       [self = this->shared_from_this()](beast::error_code error, std::size_t) {
                           if (!error) {
                               self->write();
                           }
                       });
    }

    void write()
    {
        ws_.text(ws_.got_text());
        ws_.async_write(buffer_.data(),
                        [self = this->shared_from_this()](beast::error_code error, std::size_t) {
                            if (!error) {
                                self->buffer_.consume(self->buffer_.size());
                                self->read();
                            }
                        });
    }

    websocket::stream<Stream> ws_;
    beast::flat_buffer buffer_;
};

class listener {
  public:
    listener(asio::io_context &io, const tcp::endpoint &endpoint, ssl::context *tls)
        : io_(io), acceptor_(io, endpoint), tls_(tls)
    {
    }

    void accept()
    {
        acceptor_.async_accept(asio::make_strand(io_),
                               [this](beast::error_code error, tcp::socket socket) {
                                   if (!error) {
                                       start(std::move(socket));
                                   } else {
                                       std::cerr << "accept: " << error.message() << '\n';
                                   }
                                   accept();
                               });
    }

  private:
    void start(tcp::socket socket)
    {
        if (tls_ != nullptr) {
            std::make_shared<session<beast::ssl_stream<beast::tcp_stream>>>(std::move(socket),
                                                                            *tls_)
                ->run();
        } else {
            std::make_shared<session<beast::tcp_stream>>(std::move(socket))->run();
        }
    }

    asio::io_context &io_;
    tcp::acceptor acceptor_;
    ssl::context *tls_;
};

void run(char **argv)
{
    const int count = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    asio::io_context io(count);
    auto tls = peer::tls();
    listener server(io, endpoint(argv), tls ? &*tls : nullptr);
    server.accept();
    ready(argv);
    std::vector<std::thread> threads;
    for (int i = 1; i < count; i++) {
        threads.emplace_back([&io] { io.run(); });
    }
    io.run();
    for (auto &thread : threads) {
        thread.join();
    }
}

} // namespace

int main(int argc, char **argv)
{
    return guarded(argc, argv, run);
}
