// What a byte costs the kernel alone: two processes that send to each other at once and add what comes to memory, as an
// all-reduce of two ranks does, with no protocol over their sockets.
//
// Each is one thread that drives one socket in its own network namespace. UDP sends super-packets of `run` packets, as
// many as `window` allows to be on their way, and receives merged ones; TCP is one connection. A page that both share
// says how far each is. Who has nothing to do sleeps until something comes, for 0.2 ms at most.
//
// One line of JSON: seconds, and of each side the bytes that it received and its processor time, the kernel's included.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <vector>

#include "arguments.hpp"
#include "clock.hpp"
#include "json.hpp"

using namespace dlcp::bench;

namespace {

enum class Phase : int { warm_up, measured, over };

struct Side {
    std::atomic<std::uint16_t> port{0};  // 0: not listening yet
    std::atomic<std::uint64_t> received_bytes{0};
    std::uint64_t measured_bytes = 0;
    double cpu_s = 0;
};
struct Shared {
    std::array<Side, 2> sides;
    std::atomic<Phase> phase{Phase::warm_up};
};

constexpr std::size_t memory_bytes = 64 << 20, received_bytes_max = 256 << 10;
constexpr std::size_t messages_max = 32, message_bytes_max = 65'536;
constexpr int socket_bytes = 8 << 20;

void check(bool good, const char* what) {
    if (!good) die(std::string(what) + ": " + strerror(errno));
}

void set(int socket, int level, int name, int value) { setsockopt(socket, level, name, &value, sizeof value); }

void enter(const std::string& space) {
    if (space.empty()) return;
    const int file = open(("/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC);
    check(file >= 0 && setns(file, CLONE_NEWNET) == 0, space.c_str());
    close(file);
}

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    if (inet_pton(AF_INET, host.c_str(), &out.sin_addr) != 1) die("no address: " + host);
    return out;
}

std::uint16_t wait_for_port(const Side& side) {
    while (side.port == 0) usleep(200);
    return side.port;
}

class Traffic {
public:
    Traffic(const Arguments& arguments, Shared& shared, int own)
        : shared_(shared),
          own_(shared.sides[static_cast<std::size_t>(own)]),
          other_(shared.sides[static_cast<std::size_t>(1 - own)]),
          tcp_(arguments.text("transport") == "tcp"),
          packet_bytes_(static_cast<std::size_t>(arguments.integer("packet-bytes"))),
          run_bytes_(packet_bytes_ * static_cast<std::size_t>(arguments.integer("run"))),
          window_bytes_(static_cast<std::uint64_t>(arguments.integer("window"))),
          source_(memory_bytes, 1),
          sum_(memory_bytes / sizeof(float)),
          buffers_(messages_max * message_bytes_max) {
        enter(arguments.text(own == 0 ? "namespace-a" : "namespace-b"));
        open(arguments.text(own == 0 ? "address-a" : "address-b"),
             arguments.text(own == 0 ? "address-b" : "address-a"), own == 1);
    }

    void run() {
        Phase phase = Phase::warm_up;
        double cpu_s = 0;
        std::uint64_t bytes = 0;
        while (phase != Phase::over) {
            const bool moved = tcp_ ? send_tcp() | receive_tcp() : send_udp() | receive_udp();
            if (!moved) {
                pollfd socket{socket_, POLLIN, 0};
                const timespec step{0, 200'000};
                ppoll(&socket, 1, &step, nullptr);
            }
            const Phase now = shared_.phase;
            if (now == phase) continue;
            if (now == Phase::measured) {
                cpu_s = process_cpu_s();
                bytes = own_.received_bytes;
            } else {
                own_.cpu_s = process_cpu_s() - cpu_s;
                own_.measured_bytes = own_.received_bytes - bytes;
            }
            phase = now;
        }
    }

private:
    void open(const std::string& host, const std::string& other, bool listens) {
        socket_ = socket(AF_INET, (tcp_ ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
        set(socket_, SOL_SOCKET, SO_REUSEADDR, 1);
        if (!tcp_) {
            set(socket_, SOL_SOCKET, SO_RCVBUFFORCE, socket_bytes);
            set(socket_, SOL_SOCKET, SO_SNDBUFFORCE, socket_bytes);
            set(socket_, SOL_UDP, UDP_GRO, 1);
            set(socket_, SOL_UDP, UDP_SEGMENT, static_cast<int>(packet_bytes_));
        }
        sockaddr_in own = address_of(host, 0);
        socklen_t length = sizeof own;
        check(bind(socket_, reinterpret_cast<sockaddr*>(&own), length) == 0, "bind");
        if (tcp_ && listens) check(listen(socket_, 1) == 0, "listen");
        getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &length);
        own_.port = ntohs(own.sin_port);
        const sockaddr_in peer = address_of(other, wait_for_port(other_));
        if (tcp_ && listens) {
            const int accepted = accept(socket_, nullptr, nullptr);
            check(accepted >= 0, "accept");
            close(socket_);
            socket_ = accepted;
        } else {
            check(connect(socket_, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0, "connect");
        }
        fcntl(socket_, F_SETFL, O_NONBLOCK);
    }

    const std::uint8_t* next_source(std::size_t bytes) {
        if (at_ + bytes > source_.size()) at_ = 0;
        const std::uint8_t* const from = source_.data() + at_;
        at_ += bytes;
        return from;
    }
    void add(const std::uint8_t* from, std::size_t bytes) {
        const std::size_t count = bytes / sizeof(float);
        if (sum_at_ + count > sum_.size()) sum_at_ = 0;
        float* const sum = sum_.data() + sum_at_;
        const float* const values = reinterpret_cast<const float*>(from);
        for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
        sum_at_ += count;
        own_.received_bytes += bytes;
    }

    bool send_tcp() {
        const ssize_t sent = send(socket_, next_source(received_bytes_max), received_bytes_max, MSG_NOSIGNAL);
        return sent > 0;
    }
    bool receive_tcp() {
        const ssize_t got = recv(socket_, buffers_.data(), received_bytes_max, 0);
        if (got > 0) add(buffers_.data(), static_cast<std::size_t>(got));
        return got > 0;
    }
    bool send_udp() {
        constexpr int messages = 4;
        std::array<mmsghdr, messages> headers{};
        std::array<iovec, messages> pieces;
        const std::uint64_t arrived = other_.received_bytes;
        if (arrived != arrived_) {
            arrived_ = arrived;
            progress_s_ = wall_s();
            sent_ = std::max(sent_, arrived);  // some of what was given up came late
        } else if (sent_ > arrived && wall_s() - progress_s_ > 0.05) {
            sent_ = arrived;  // the rest is lost
        }
        unsigned count = 0;
        while (count < messages && sent_ - arrived + (count + 1) * run_bytes_ <= window_bytes_) {
            pieces[count] = {const_cast<std::uint8_t*>(next_source(run_bytes_)), run_bytes_};
            headers[count].msg_hdr.msg_iov = &pieces[count];
            headers[count].msg_hdr.msg_iovlen = 1;
            ++count;
        }
        const int sent = count == 0 ? 0 : sendmmsg(socket_, headers.data(), count, MSG_DONTWAIT);
        if (sent > 0) sent_ += static_cast<std::uint64_t>(sent) * run_bytes_;
        return sent > 0;
    }
    bool receive_udp() {
        std::array<mmsghdr, messages_max> headers{};
        std::array<iovec, messages_max> pieces;
        for (std::size_t i = 0; i < messages_max; ++i) {
            pieces[i] = {buffers_.data() + i * message_bytes_max, message_bytes_max};
            headers[i].msg_hdr.msg_iov = &pieces[i];
            headers[i].msg_hdr.msg_iovlen = 1;
        }
        const int read = recvmmsg(socket_, headers.data(), messages_max, MSG_DONTWAIT, nullptr);
        for (int i = 0; i < read; ++i)
            add(static_cast<const std::uint8_t*>(pieces[static_cast<std::size_t>(i)].iov_base),
                headers[static_cast<std::size_t>(i)].msg_len);
        return read > 0;
    }

    Shared& shared_;
    Side& own_;
    const Side& other_;
    bool tcp_;
    std::size_t packet_bytes_, run_bytes_;
    std::uint64_t window_bytes_;
    std::vector<std::uint8_t> source_;
    std::vector<float> sum_;
    std::vector<std::uint8_t> buffers_;
    std::size_t at_ = 0, sum_at_ = 0;
    std::uint64_t sent_ = 0, arrived_ = 0;
    double progress_s_ = wall_s();
    int socket_ = -1;
};

void sleep_s(double seconds) { usleep(static_cast<useconds_t>(seconds * 1e6)); }

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(argc, argv,
                              {{"transport", "udp"},
                               {"run", "44"},
                               {"packet-bytes", "1472"},
                               {"window", "1000000"},
                               {"seconds", "1"},
                               {"namespace-a", ""},
                               {"namespace-b", ""},
                               {"address-a", "127.0.0.1"},
                               {"address-b", "127.0.0.1"}});
    void* const page = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(page != MAP_FAILED, "mmap");
    Shared& shared = *new (page) Shared;
    std::array<pid_t, 2> children;
    for (int side = 0; side < 2; ++side) {
        children[static_cast<std::size_t>(side)] = fork();
        if (children[static_cast<std::size_t>(side)] != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        Traffic(arguments, shared, side).run();
        _exit(0);
    }
    for (const Side& side : shared.sides)
        while (side.received_bytes == 0)
            if (waitpid(-1, nullptr, WNOHANG) != 0)
                die("a side ended before anything moved");
            else
                sleep_s(0.001);
    sleep_s(0.2);
    const double start_s = wall_s();
    shared.phase = Phase::measured;
    sleep_s(arguments.real("seconds"));
    shared.phase = Phase::over;
    const double seconds = wall_s() - start_s;
    for (const pid_t child : children) waitpid(child, nullptr, 0);
    std::vector<Json> sides;
    for (const Side& side : shared.sides)
        sides.push_back(Json().add("bytes", side.measured_bytes).add("cpu_s", side.cpu_s));
    Json().add("seconds", seconds).add("sides", sides).print();
    return 0;
}
