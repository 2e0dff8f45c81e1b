// What UDP on loopback can do at most: packets per second of CPU time, sender and receiver apart.
//
//   bare      UDP_SEGMENT and UDP_GRO with no driver and no protocol: the limit
//   driver    the same traffic through the UDP driver's table, header and payload apart, without an engine
//   …_open    the sender never waits; what the receiver cannot take is dropped and not counted as received
//   …_window  the receiver returns credit over a second socket pair, so that nothing is dropped
//
// CPU time is each thread's own (CLOCK_THREAD_CPUTIME_ID), so the figure holds on a busy machine; on loopback the
// sender's includes the kernel's way up to the receiving socket. One line of JSON per variant.
//
//   udp_limit [--seconds S] [--packet-bytes N] [--window-bytes N] [--run N] [--paths N] [--tos-changes]
//             [--only NAME] [--capacity]
//
// --run N: packets in a row of one path (driver variants). --capacity: instead, how much payload a receive buffer
// of a given size holds when nobody reads, the measurement behind payload_capacity_bytes() in udp_socket.cpp.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "io/udp_driver.hpp"

namespace {

struct Settings {
    double seconds = 2;
    std::uint32_t packet_bytes = 1472;
    std::uint64_t window_bytes = 1024 * 1024;
    std::uint32_t run_packets = 16;
    std::uint16_t paths = 1;
    bool tos_changes = false;  // every run of another TOS than the one before
    std::string only;
    bool capacity = false;
};

struct Result {
    std::uint64_t packets = 0;
    std::uint64_t calls = 0;
    double cpu_seconds = 0;
};

constexpr std::uint32_t header_bytes = 64;
constexpr std::uint32_t tail_bytes = 16;
constexpr std::uint32_t credit_packets = 128;  // packets per credit datagram
constexpr int socket_buffer_bytes = 16 * 1024 * 1024;

double clock_seconds(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

[[noreturn]] void die(const std::string& what) {
    fprintf(stderr, "udp_limit: %s\n", what.c_str());
    exit(1);
}

void report(const Settings& settings, const char* variant, const Result& sender, const Result& receiver,
            double seconds) {
    const auto per_second = [](std::uint64_t count, double time) {
        return time > 0 ? static_cast<double>(count) / time : 0.0;
    };
    printf("{\"variant\": \"%s\", \"packet_bytes\": %u, \"paths\": %u, \"run_packets\": %u, "
           "\"sent_packets\": %llu, \"received_packets\": %llu, "
           "\"sender_packets_per_cpu_second\": %.0f, \"receiver_packets_per_cpu_second\": %.0f, "
           "\"received_packets_per_second\": %.0f, \"packets_per_send_call\": %.1f, "
           "\"packets_per_receive_call\": %.1f}\n",
           variant, settings.packet_bytes, settings.paths, settings.run_packets,
           static_cast<unsigned long long>(sender.packets), static_cast<unsigned long long>(receiver.packets),
           per_second(sender.packets, sender.cpu_seconds), per_second(receiver.packets, receiver.cpu_seconds),
           per_second(receiver.packets, seconds),
           sender.calls ? static_cast<double>(sender.packets) / static_cast<double>(sender.calls) : 0.0,
           receiver.calls ? static_cast<double>(receiver.packets) / static_cast<double>(receiver.calls) : 0.0);
    fflush(stdout);
}

// --- sockets for the bare variants and for credit -----------------------------------------------------------

int loopback_socket(sockaddr_in& address) {
    const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (descriptor < 0 || bind(descriptor, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        die(std::string("cannot make a loopback socket: ") + strerror(errno));
    }
    return descriptor;
}

void set_option(int descriptor, int level, int name, int value) {
    setsockopt(descriptor, level, name, &value, sizeof value);
}

void set_receive_buffer(int descriptor, int bytes) {
    if (setsockopt(descriptor, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0) {
        set_option(descriptor, SOL_SOCKET, SO_RCVBUF, bytes);
    }
}

// A reverse connection that carries the number of packets received so far.
class CreditPair {
public:
    CreditPair() {
        sockaddr_in sender_address;
        sockaddr_in receiver_address;
        sender_ = loopback_socket(sender_address);
        receiver_ = loopback_socket(receiver_address);
        if (connect(receiver_, reinterpret_cast<sockaddr*>(&sender_address), sizeof sender_address) != 0) {
            die("cannot connect the credit socket");
        }
    }
    ~CreditPair() {
        close(sender_);
        close(receiver_);
    }

    void give(std::uint64_t received_packets) {
        if (received_packets < given_ + credit_packets) return;
        given_ = received_packets;
        [[maybe_unused]] const ssize_t sent = send(receiver_, &received_packets, sizeof received_packets, 0);
    }
    // Blocks up to 10 ms if there is nothing new.
    std::uint64_t take() {
        std::uint64_t received_packets = 0;
        while (recv(sender_, &received_packets, sizeof received_packets, MSG_DONTWAIT) == sizeof received_packets) {
            taken_ = received_packets;
            return taken_;
        }
        pollfd readable = {sender_, POLLIN, 0};
        poll(&readable, 1, 10);
        return taken_;
    }
    bool fresh() {
        std::uint64_t received_packets = 0;
        bool any = false;
        while (recv(sender_, &received_packets, sizeof received_packets, MSG_DONTWAIT) == sizeof received_packets) {
            taken_ = received_packets;
            any = true;
        }
        return any;
    }
    std::uint64_t taken() const { return taken_; }

private:
    int sender_ = -1;
    int receiver_ = -1;
    std::uint64_t given_ = 0;
    std::uint64_t taken_ = 0;
};

// Waits until another burst fits the window. False: nothing moved for a second (a packet was lost after all).
bool wait_for_credit(CreditPair& credit, std::uint64_t sent_packets, std::uint64_t burst_packets,
                     std::uint64_t window_packets) {
    for (int idle = 0; sent_packets + burst_packets > credit.taken() + window_packets;) {
        const std::uint64_t before = credit.taken();
        credit.take();
        idle = credit.taken() == before ? idle + 1 : 0;
        if (idle > 100) return false;
    }
    return true;
}

// --- the limit -----------------------------------------------------------------------------------------------

void run_bare(const Settings& settings, bool windowed) {
    const std::uint32_t segments = std::max(1u, std::min(64u, 65000u / settings.packet_bytes));
    const std::uint32_t super_bytes = segments * settings.packet_bytes;
    constexpr int messages = 4;
    sockaddr_in sender_address;
    sockaddr_in receiver_address;
    const int sender_socket = loopback_socket(sender_address);
    const int receiver_socket = loopback_socket(receiver_address);
    set_receive_buffer(receiver_socket, socket_buffer_bytes);
    set_option(receiver_socket, IPPROTO_UDP, UDP_GRO, 1);
    set_option(sender_socket, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(settings.packet_bytes));
    if (connect(sender_socket, reinterpret_cast<sockaddr*>(&receiver_address), sizeof receiver_address) != 0) {
        die("cannot connect");
    }

    CreditPair credit;
    std::atomic<bool> stop{false};
    Result sender;
    Result receiver;
    const double start = clock_seconds(CLOCK_MONOTONIC);

    std::thread receiving([&] {
        std::vector<std::uint8_t> memory(static_cast<std::size_t>(messages) * 65600);
        mmsghdr headers[messages];
        iovec vectors[messages];
        memset(headers, 0, sizeof headers);
        for (int i = 0; i < messages; ++i) {
            vectors[i] = {&memory[static_cast<std::size_t>(i) * 65600], 65536};
            headers[i].msg_hdr.msg_iov = &vectors[i];
            headers[i].msg_hdr.msg_iovlen = 1;
        }
        const double cpu_start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
        while (!stop.load(std::memory_order_relaxed)) {
            const int read = recvmmsg(receiver_socket, headers, messages, MSG_DONTWAIT, nullptr);
            if (read <= 0) {
                pollfd readable = {receiver_socket, POLLIN, 0};
                poll(&readable, 1, 10);
                continue;
            }
            ++receiver.calls;
            for (int i = 0; i < read; ++i) receiver.packets += headers[i].msg_len / settings.packet_bytes;
            if (windowed) credit.give(receiver.packets);
        }
        receiver.cpu_seconds = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
    });
    std::thread sending([&] {
        std::vector<std::uint8_t> memory(super_bytes, 1);
        mmsghdr headers[messages];
        iovec vector = {memory.data(), super_bytes};
        memset(headers, 0, sizeof headers);
        for (mmsghdr& header : headers) {
            header.msg_hdr.msg_iov = &vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        const std::uint64_t window_packets = settings.window_bytes / settings.packet_bytes;
        const double cpu_start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
        while (clock_seconds(CLOCK_MONOTONIC) - start < settings.seconds) {
            if (windowed) {
                credit.fresh();
                if (!wait_for_credit(credit, sender.packets, std::uint64_t{segments} * messages, window_packets)) break;
            }
            const int sent = sendmmsg(sender_socket, headers, messages, 0);
            if (sent <= 0) die(std::string("sendmmsg: ") + strerror(errno));
            ++sender.calls;
            sender.packets += static_cast<std::uint64_t>(sent) * segments;
        }
        sender.cpu_seconds = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
    });
    sending.join();
    const double seconds = clock_seconds(CLOCK_MONOTONIC) - start;
    stop = true;
    receiving.join();
    close(sender_socket);
    close(receiver_socket);
    report(settings, windowed ? "bare_window" : "bare_open", sender, receiver, seconds);
}

// --- the same through the driver -----------------------------------------------------------------------------

dlcp_io* open_driver(const Settings& settings) {
    dlcp_io_config config = {};
    config.paths = settings.paths;
    config.socket_buffer_bytes = socket_buffer_bytes;
    dlcp_io* io = nullptr;
    char error[512];
    if (dlcp_udp_driver()->open(&config, &io, error, sizeof error) != 0) die(error);
    return io;
}

void run_driver(const Settings& settings, bool windowed) {
    const dlcp_io_table& table = *dlcp_udp_driver();
    dlcp_io* sender_io = open_driver(settings);
    dlcp_io* receiver_io = open_driver(settings);
    dlcp_address destination;
    table.local_address(receiver_io, &destination);
    CreditPair credit;
    std::atomic<bool> stop{false};
    Result sender;
    Result receiver;
    constexpr int burst = 256;
    const double start = clock_seconds(CLOCK_MONOTONIC);

    std::thread receiving([&] {
        dlcp_packet packets[burst];
        const double cpu_start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
        while (!stop.load(std::memory_order_relaxed)) {
            const int count = table.rx(receiver_io, packets, burst);
            if (count == 0) {
                table.wait(receiver_io, 10'000'000);
                continue;
            }
            receiver.packets += static_cast<std::uint64_t>(count);
            table.rx_done(receiver_io, packets, count);
            if (windowed) credit.give(receiver.packets);
        }
        receiver.cpu_seconds = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
    });
    std::thread sending([&] {
        const std::uint32_t body_bytes = settings.packet_bytes - header_bytes - tail_bytes;
        std::vector<std::uint8_t> tensor(static_cast<std::size_t>(burst) * body_bytes, 1);
        dlcp_packet packets[burst];
        std::uint64_t run = 0;
        const std::uint64_t window_packets = settings.window_bytes / settings.packet_bytes;
        const double cpu_start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
        while (clock_seconds(CLOCK_MONOTONIC) - start < settings.seconds) {
            if (windowed) {
                credit.fresh();
                if (!wait_for_credit(credit, sender.packets, burst, window_packets)) break;
            }
            const int count = table.tx_get(sender_io, packets, burst);
            for (int i = 0; i < count; ++i) {
                if (i % static_cast<int>(settings.run_packets) == 0) ++run;
                dlcp_packet& packet = packets[i];
                memset(packet.head, i, header_bytes + tail_bytes);  // an engine writes header and tag here
                packet.head_bytes = header_bytes;
                packet.body = tensor.data() + static_cast<std::size_t>(i) * body_bytes;
                packet.body_bytes = body_bytes;
                packet.tail_bytes = tail_bytes;
                packet.address = &destination;
                packet.path = static_cast<std::uint16_t>(run % settings.paths);
                packet.tos = settings.tos_changes && run % 2 != 0 ? 0 : 2;
            }
            sender.packets += static_cast<std::uint64_t>(table.tx_put(sender_io, packets, count));
        }
        sender.cpu_seconds = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
    });
    sending.join();
    const double seconds = clock_seconds(CLOCK_MONOTONIC) - start;
    stop = true;
    table.wake(receiver_io);
    receiving.join();
    dlcp_io_counters counters;
    table.counters(sender_io, &counters);
    sender.calls = counters.tx_calls;
    table.counters(receiver_io, &counters);
    receiver.calls = counters.rx_calls;
    table.close(sender_io);
    table.close(receiver_io);
    report(settings, windowed ? "driver_window" : "driver_open", sender, receiver, seconds);
}

// --- what a receive buffer holds -----------------------------------------------------------------------------

void run_capacity(std::uint32_t packet_bytes, std::uint32_t segments, bool gro) {
    sockaddr_in sender_address;
    sockaddr_in receiver_address;
    const int sender = loopback_socket(sender_address);
    const int receiver = loopback_socket(receiver_address);
    set_receive_buffer(receiver, 1024 * 1024);
    set_option(receiver, IPPROTO_UDP, UDP_GRO, gro);
    int granted_bytes = 0;
    socklen_t length = sizeof granted_bytes;
    getsockopt(receiver, SOL_SOCKET, SO_RCVBUF, &granted_bytes, &length);
    if (segments > 1) set_option(sender, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(packet_bytes));
    const std::vector<std::uint8_t> memory(static_cast<std::size_t>(packet_bytes) * segments, 1);
    for (int total = 0; total < 4 * granted_bytes; total += static_cast<int>(memory.size())) {
        sendto(sender, memory.data(), memory.size(), 0, reinterpret_cast<sockaddr*>(&receiver_address),
               sizeof receiver_address);
    }
    std::vector<std::uint8_t> buffer(65536);
    std::uint64_t held_bytes = 0;
    for (ssize_t read; (read = recv(receiver, buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0;) {
        held_bytes += static_cast<std::uint64_t>(read);
    }
    close(sender);
    close(receiver);
    printf("{\"packet_bytes\": %u, \"segments\": %u, \"gro\": %s, \"granted_bytes\": %d, \"held_payload_bytes\": %llu, "
           "\"ratio\": %.3f}\n",
           packet_bytes, segments, gro ? "true" : "false", granted_bytes, static_cast<unsigned long long>(held_bytes),
           static_cast<double>(held_bytes) / granted_bytes);
}

Settings parse(int argc, char** argv) {
    Settings settings;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--tos-changes") {
            settings.tos_changes = true;
        } else if (name == "--capacity") {
            settings.capacity = true;
        } else if (i + 1 == argc) {
            die("unknown option or missing value: " + name);
        } else if (name == "--seconds") {
            settings.seconds = atof(argv[++i]);
        } else if (name == "--packet-bytes") {
            settings.packet_bytes = static_cast<std::uint32_t>(atoi(argv[++i]));
        } else if (name == "--window-bytes") {
            settings.window_bytes = static_cast<std::uint64_t>(atoll(argv[++i]));
        } else if (name == "--run") {
            settings.run_packets = static_cast<std::uint32_t>(atoi(argv[++i]));
        } else if (name == "--paths") {
            settings.paths = static_cast<std::uint16_t>(atoi(argv[++i]));
        } else if (name == "--only") {
            settings.only = argv[++i];
        } else {
            die("unknown option: " + name);
        }
    }
    if (settings.packet_bytes < 128 || settings.packet_bytes > 9152) die("--packet-bytes: choose 128 to 9152");
    if (settings.run_packets < 1 || settings.run_packets > 256) die("--run: choose 1 to 256");
    const std::uint64_t burst_bytes = 300ull * settings.packet_bytes;
    if (settings.window_bytes < 2 * burst_bytes) settings.window_bytes = 2 * burst_bytes;
    return settings;
}

}  // namespace

int main(int argc, char** argv) {
    const Settings settings = parse(argc, argv);
    if (settings.capacity) {
        for (const std::uint32_t packet_bytes : {64u, 576u, 1472u, 8972u}) {
            const std::uint32_t segments = std::max(1u, std::min(64u, 65000u / packet_bytes));
            run_capacity(packet_bytes, 1, true);
            run_capacity(packet_bytes, segments, true);
            run_capacity(packet_bytes, segments, false);
        }
        return 0;
    }
    const auto wanted = [&](const char* name) { return settings.only.empty() || settings.only == name; };
    if (wanted("bare_open")) run_bare(settings, false);
    if (wanted("bare_window")) run_bare(settings, true);
    if (wanted("driver_open")) run_driver(settings, false);
    if (wanted("driver_window")) run_driver(settings, true);
    return 0;
}
