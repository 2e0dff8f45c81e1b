// The yardstick: messages over one TCP connection, timed like lab_peer's.
//
// A message's time runs from its first write until a one-byte answer is back, which the receiver writes when it
// has read all of it. `outstanding` messages may be without their answer: 1 measures times, more measure goodput.
// The receiver serves one connection per sender, and ends when told to (SIGTERM).

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include "arguments.hpp"
#include "clock.hpp"
#include "json.hpp"

namespace {

using namespace dlcp::bench;

sockaddr_in address_of(const Arguments& arguments, const char* which) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(arguments.integer("port")));
    if (inet_pton(AF_INET, arguments.text(which).c_str(), &address.sin_addr) != 1)
        die(std::string("--") + which + " is not an IPv4 address: " + arguments.text(which));
    return address;
}

void send_at_once(int socket) {
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string congestion_of(int socket) {
    char name[16] = "";
    socklen_t size = sizeof name;
    getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &size);
    return name;
}

// What arrived on one connection: the time after each message, in seconds of the monotonic clock.
struct Arrived {
    std::vector<double> at_s;
};

void serve(int socket, std::size_t message_bytes, Arrived& arrived) {
    std::vector<char> message(message_bytes);
    for (std::size_t have = 0;;) {
        const ssize_t got = read(socket, message.data() + have, message_bytes - have);
        if (got <= 0) break;
        have += static_cast<std::size_t>(got);
        if (have == message_bytes) {
            have = 0;
            arrived.at_s.push_back(wall_s());
            if (write(socket, "k", 1) != 1) break;
        }
    }
    close(socket);
}

volatile sig_atomic_t stopped = 0;

int receive(const Arguments& arguments) {
    struct sigaction stop {};
    stop.sa_handler = [](int) { stopped = 1; };  // without SA_RESTART, so that accept returns
    sigaction(SIGTERM, &stop, nullptr);

    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in address = address_of(arguments, "bind");
    if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) || listen(listener, 64))
        die(std::string("listen: ") + std::strerror(errno));
    Json().add("ready", 1).print();

    std::deque<Arrived> arrived;
    std::vector<std::thread> threads;
    while (!stopped) {
        pollfd waiting{listener, POLLIN, 0};
        if (poll(&waiting, 1, 100) <= 0) continue;
        const int socket = accept(listener, nullptr, nullptr);
        if (socket < 0) continue;
        send_at_once(socket);
        arrived.emplace_back();
        threads.emplace_back(serve, socket, arguments.integer("bytes"), std::ref(arrived.back()));
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<Json> senders;
    for (const Arrived& one : arrived) senders.push_back(Json().add("arrived_s", one.at_s));
    Json().add("cpu_s", process_cpu_s()).add("senders", senders).print();
    return 0;
}

int send(const Arguments& arguments) {
    const auto bytes = static_cast<std::size_t>(arguments.integer("bytes"));
    const auto messages = static_cast<std::size_t>(arguments.integer("messages"));
    const auto outstanding = static_cast<std::size_t>(arguments.integer("outstanding"));
    std::vector<char> payload(bytes, 'x');

    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = address_of(arguments, "host");
    if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address))
        die(std::string("connect: ") + std::strerror(errno));
    send_at_once(socket);
    fcntl(socket, F_SETFL, O_NONBLOCK);

    const double start_s = wall_s(), start_cpu_s = process_cpu_s(), end_s = start_s + arguments.real("seconds");
    std::vector<double> started_s, times_ms;
    std::size_t offset = 0;  // into the message being written; 0: none is
    for (;;) {
        const bool more = started_s.size() < messages && wall_s() < end_s;
        const bool writing = offset > 0 || (more && started_s.size() - times_ms.size() < outstanding);
        if (!writing && times_ms.size() == started_s.size()) break;
        pollfd waiting{socket, static_cast<short>(POLLIN | (writing ? POLLOUT : 0)), 0};
        poll(&waiting, 1, 1000);
        if (waiting.revents & POLLIN) {
            char answers[64];
            const ssize_t got = read(socket, answers, sizeof answers);
            if (got == 0) die("the receiver closed the connection");
            for (ssize_t i = 0; i < got; ++i) times_ms.push_back((wall_s() - started_s[times_ms.size()]) * 1e3);
        }
        if (waiting.revents & POLLOUT) {
            if (offset == 0) started_s.push_back(wall_s());
            const ssize_t put = write(socket, payload.data() + offset, bytes - offset);
            if (put < 0 && errno != EAGAIN) die(std::string("write: ") + std::strerror(errno));
            if (put > 0) {
                offset = (offset + static_cast<std::size_t>(put)) % bytes;
            } else if (offset == 0) {
                started_s.pop_back();  // its first write took nothing: it has not started
            }
        }
    }
    tcp_info info{};
    socklen_t size = sizeof info;
    getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size);
    Json()
        .add("elapsed_s", wall_s() - start_s)
        .add("cpu_s", process_cpu_s() - start_cpu_s)
        .add("message_bytes", bytes)
        .add("messages", times_ms.size())
        .add("times_ms", times_ms)
        .add("congestion", congestion_of(socket))
        .add("retransmitted_packets", info.tcpi_total_retrans)
        .print();
    close(socket);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(argc, argv,
                              {{"role", "receive"},
                               {"bind", "127.0.0.1"},  // receive: own address
                               {"host", "127.0.0.1"},  // send: the receiver's
                               {"port", "7400"},       // the receiver's
                               {"bytes", "4194304"},
                               {"messages", "1000000000"},
                               {"seconds", "5"},  // no message starts later
                               {"outstanding", "1"}});
    signal(SIGPIPE, SIG_IGN);
    return arguments.text("role") == "send" ? send(arguments) : receive(arguments);
}
