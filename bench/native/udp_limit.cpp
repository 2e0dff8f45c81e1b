// What UDP on loopback can do at most: packets per second of CPU time, sender and receiver apart.
//
//   bare             UDP_SEGMENT and UDP_GRO with no driver and no protocol: the limit
//   driver           the same traffic through the UDP driver's table, header, payload and tag apart, without an engine
//   driver_sends     driver to bare receiver: the sender's own cost, with a receiver that keeps up
//   driver_receives  bare sender to driver: the receiver's own cost, kept busy
//   …_open           the sender never waits; what the receiver cannot take is dropped and not counted as received
//   …_window         the receiver returns credit over a second socket pair, so that nothing is dropped
//
// CPU time is each thread's own (CLOCK_THREAD_CPUTIME_ID), so the figure holds on a busy machine; on loopback the
// sender's includes the kernel's way up to the receiving socket. All senders read the same amount of memory in turn.
// One line of JSON per variant.
//
//   udp_limit [--seconds S] [--packet-bytes N] [--window-bytes N] [--run N] [--paths N] [--tos-changes] [--touch]
//             [--only NAME] [--memory-bytes N] [--capacity]
//
// --run N: packets in a row of one path (driver sends). --touch: the receiver reads every byte, as an engine that
// copies it would. --memory-bytes N: bare senders read, and bare receivers fill, N bytes in turn, as an application that
// sends a gradient from its memory into another's does; 0 (the default): as little as fits the cache. --capacity: instead, how much payload a receive buffer of a given size holds when nobody reads,
// the measurement behind payload_capacity_bytes() in udp_socket.cpp.
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
#include <memory>
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
    bool touch = false;        // the receiver reads what it receives
    std::uint64_t memory_bytes = 0;
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
    printf(
        "{\"variant\": \"%s\", \"packet_bytes\": %u, \"paths\": %u, \"run_packets\": %u, "
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
    // Waits until `sent` packets may be on their way in all. False: nothing moved for a second.
    bool wait_for(std::uint64_t sent_packets, std::uint64_t window_packets) {
        for (int idle = 0; idle < 100;) {
            const std::uint64_t before = taken_;
            std::uint64_t received_packets;
            while (recv(sender_, &received_packets, sizeof received_packets, MSG_DONTWAIT) > 0) {
                taken_ = received_packets;
            }
            if (sent_packets <= taken_ + window_packets) return true;
            idle = taken_ == before ? idle + 1 : 0;
            pollfd readable = {sender_, POLLIN, 0};
            poll(&readable, 1, 10);
        }
        return false;
    }

private:
    int sender_ = -1;
    int receiver_ = -1;
    std::uint64_t given_ = 0;
    std::uint64_t taken_ = 0;
};

// --- the two ends, bare and through the driver ---------------------------------------------------------------

constexpr int burst_packets = 256;  // packets whose payload lies side by side and is sent in turn

void touch(const Settings& settings, const std::uint8_t* bytes, std::size_t count) {
    if (!settings.touch) return;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i + 8 <= count; i += 8) {
        std::uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        sum += word;
    }
    asm volatile("" : : "r"(sum));
}

class Sender {
public:
    virtual ~Sender() = default;
    virtual std::uint32_t burst() const = 0;  // packets per send_burst()
    virtual std::uint64_t send_burst() = 0;   // packets the kernel took
    virtual std::uint64_t calls() const = 0;
};

class Receiver {
public:
    virtual ~Receiver() = default;
    virtual dlcp_address address() const = 0;
    virtual std::uint64_t receive() = 0;  // packets; 0: none there
    virtual void wait() = 0;
    virtual std::uint64_t calls() const = 0;
};

class BareSender : public Sender {
public:
    BareSender(const Settings& settings, const dlcp_address& to)
        : segments_(std::max(1u, std::min(64u, 65000u / settings.packet_bytes))),
          super_bytes_(segments_ * settings.packet_bytes),
          memory_(
              std::max<std::size_t>({messages, burst_packets / segments_, settings.memory_bytes / super_bytes_}) *
                  super_bytes_,
              1) {
        sockaddr_in own;
        socket_ = loopback_socket(own);
        set_option(socket_, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(settings.packet_bytes));
        if (connect(socket_, reinterpret_cast<const sockaddr*>(to.bytes), to.length) != 0) die("cannot connect");
        memset(headers_, 0, sizeof headers_);
        for (int i = 0; i < messages; ++i) {
            headers_[i].msg_hdr.msg_iov = &vectors_[i];
            headers_[i].msg_hdr.msg_iovlen = 1;
        }
    }
    ~BareSender() override { close(socket_); }
    std::uint32_t burst() const override { return segments_ * messages; }
    std::uint64_t send_burst() override {
        for (iovec& vector : vectors_) {
            vector = {&memory_[next_], super_bytes_};
            next_ = (next_ + super_bytes_) % memory_.size();
        }
        const int sent = sendmmsg(socket_, headers_, messages, 0);
        if (sent <= 0) die(std::string("sendmmsg: ") + strerror(errno));
        ++calls_;
        return static_cast<std::uint64_t>(sent) * segments_;
    }
    std::uint64_t calls() const override { return calls_; }

private:
    static constexpr int messages = 4;
    std::uint32_t segments_;
    std::uint32_t super_bytes_;
    std::vector<std::uint8_t> memory_;
    std::size_t next_ = 0;
    int socket_ = -1;
    mmsghdr headers_[messages];
    iovec vectors_[messages];
    std::uint64_t calls_ = 0;
};

class BareReceiver : public Receiver {
public:
    explicit BareReceiver(const Settings& settings)
        : settings_(settings),
          places_(std::max<std::size_t>(messages, settings.memory_bytes / stride_bytes)),
          memory_(places_ * stride_bytes) {
        socket_ = loopback_socket(address_);
        set_receive_buffer(socket_, socket_buffer_bytes);
        set_option(socket_, IPPROTO_UDP, UDP_GRO, 1);
        memset(headers_, 0, sizeof headers_);
        for (int i = 0; i < messages; ++i) {
            headers_[i].msg_hdr.msg_iov = &vectors_[i];
            headers_[i].msg_hdr.msg_iovlen = 1;
        }
    }
    ~BareReceiver() override { close(socket_); }
    dlcp_address address() const override {
        dlcp_address out = {};
        memcpy(out.bytes, &address_, sizeof address_);
        out.length = sizeof address_;
        return out;
    }
    std::uint64_t receive() override {
        for (int i = 0; i < messages; ++i)
            vectors_[i] = {&memory_[(next_ + static_cast<std::size_t>(i)) % places_ * stride_bytes], 65536};
        const int read = recvmmsg(socket_, headers_, messages, MSG_DONTWAIT, nullptr);
        ++calls_;
        std::uint64_t packets = 0;
        for (int i = 0; i < read; ++i) {
            ++next_;
            packets += headers_[i].msg_len / settings_.packet_bytes;
            touch(settings_, static_cast<const std::uint8_t*>(vectors_[i].iov_base), headers_[i].msg_len);
        }
        return packets;
    }
    void wait() override {
        pollfd readable = {socket_, POLLIN, 0};
        poll(&readable, 1, 10);
    }
    std::uint64_t calls() const override { return calls_; }

private:
    static constexpr int messages = 4;
    static constexpr std::size_t stride_bytes = 65536 + 64;
    const Settings& settings_;
    sockaddr_in address_;
    int socket_ = -1;
    std::size_t places_;
    std::size_t next_ = 0;
    std::vector<std::uint8_t> memory_;
    mmsghdr headers_[messages];
    iovec vectors_[messages];
    std::uint64_t calls_ = 0;
};

const dlcp_io_table& udp = *dlcp_udp_driver();

dlcp_io* open_driver(std::uint16_t paths) {
    dlcp_io_config config = {};
    config.paths = paths;
    config.socket_buffer_bytes = socket_buffer_bytes;
    dlcp_io* io = nullptr;
    char error[512];
    if (udp.open(&config, &io, error, sizeof error) != 0) die(error);
    return io;
}

class DriverSender : public Sender {
public:
    DriverSender(const Settings& settings, const dlcp_address& to)
        : settings_(settings),
          to_(to),
          io_(open_driver(settings.paths)),
          body_bytes_(settings.packet_bytes - header_bytes - tail_bytes),
          tensor_(static_cast<std::size_t>(burst_packets) * body_bytes_, 1) {}
    ~DriverSender() override { udp.close(io_); }
    std::uint32_t burst() const override { return burst_packets; }
    std::uint64_t send_burst() override {
        dlcp_packet packets[burst_packets];
        const int count = udp.tx_get(io_, packets, burst_packets);
        for (int i = 0; i < count; ++i) {
            if (i % static_cast<int>(settings_.run_packets) == 0) ++run_;
            dlcp_packet& packet = packets[i];
            memset(packet.head, i, header_bytes + tail_bytes);  // an engine writes header and tag here
            packet.head_bytes = header_bytes;
            packet.body = tensor_.data() + static_cast<std::size_t>(i) * body_bytes_;
            packet.body_bytes = body_bytes_;
            packet.tail_bytes = tail_bytes;
            packet.address = &to_;
            packet.path = static_cast<std::uint16_t>(run_ % settings_.paths);
            packet.tos = settings_.tos_changes && run_ % 2 != 0 ? 0 : 2;
        }
        return static_cast<std::uint64_t>(udp.tx_put(io_, packets, count));
    }
    std::uint64_t calls() const override {
        dlcp_io_counters counters;
        udp.counters(io_, &counters);
        return counters.tx_calls;
    }

private:
    const Settings& settings_;
    dlcp_address to_;
    dlcp_io* io_;
    std::uint32_t body_bytes_;
    std::vector<std::uint8_t> tensor_;
    std::uint64_t run_ = 0;
};

class DriverReceiver : public Receiver {
public:
    explicit DriverReceiver(const Settings& settings) : settings_(settings), io_(open_driver(settings.paths)) {}
    ~DriverReceiver() override { udp.close(io_); }
    dlcp_address address() const override {
        dlcp_address out;
        udp.local_address(io_, &out);
        return out;
    }
    std::uint64_t receive() override {
        dlcp_packet packets[burst_packets];
        const int count = udp.rx(io_, packets, burst_packets);
        for (int i = 0; i < count; ++i) touch(settings_, packets[i].head, packets[i].head_bytes);
        udp.rx_done(io_, packets, count);
        return static_cast<std::uint64_t>(count);
    }
    void wait() override { udp.wait(io_, 10'000'000); }
    std::uint64_t calls() const override {
        dlcp_io_counters counters;
        udp.counters(io_, &counters);
        return counters.rx_calls;
    }

private:
    const Settings& settings_;
    dlcp_io* io_;
};

void run(const Settings& settings, const char* variant, bool driver_sends, bool driver_receives, bool windowed) {
    std::unique_ptr<Receiver> to;
    if (driver_receives)
        to = std::make_unique<DriverReceiver>(settings);
    else
        to = std::make_unique<BareReceiver>(settings);
    std::unique_ptr<Sender> from;
    if (driver_sends)
        from = std::make_unique<DriverSender>(settings, to->address());
    else
        from = std::make_unique<BareSender>(settings, to->address());

    CreditPair credit;
    std::atomic<bool> stop{false};
    Result sender;
    Result receiver;
    const double start = clock_seconds(CLOCK_MONOTONIC);

    std::thread receiving([&] {
        const double cpu_start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
        while (!stop.load(std::memory_order_relaxed)) {
            const std::uint64_t packets = to->receive();
            if (packets == 0) {
                to->wait();
                continue;
            }
            receiver.packets += packets;
            if (windowed) credit.give(receiver.packets);
        }
        receiver.cpu_seconds = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
    });
    std::thread sending([&] {
        const std::uint64_t window_packets = settings.window_bytes / settings.packet_bytes;
        const double cpu_start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
        while (clock_seconds(CLOCK_MONOTONIC) - start < settings.seconds) {
            if (windowed && !credit.wait_for(sender.packets + from->burst(), window_packets)) {
                fprintf(stderr, "udp_limit: no credit for a second: a packet was lost\n");
                break;
            }
            sender.packets += from->send_burst();
        }
        sender.cpu_seconds = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
    });
    sending.join();
    const double seconds = clock_seconds(CLOCK_MONOTONIC) - start;
    stop = true;
    receiving.join();
    sender.calls = from->calls();
    receiver.calls = to->calls();
    report(settings, variant, sender, receiver, seconds);
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
    printf(
        "{\"packet_bytes\": %u, \"segments\": %u, \"gro\": %s, \"granted_bytes\": %d, \"held_payload_bytes\": "
        "%llu, "
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
        } else if (name == "--touch") {
            settings.touch = true;
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
        } else if (name == "--memory-bytes") {
            settings.memory_bytes = static_cast<std::uint64_t>(atoll(argv[++i]));
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
    struct Variant {
        const char* name;
        bool driver_sends, driver_receives, windowed;
    };
    const Variant variants[] = {
        {"bare_open", false, false, false},         {"bare_window", false, false, true},
        {"driver_open", true, true, false},         {"driver_window", true, true, true},
        {"driver_sends_window", true, false, true}, {"driver_receives_window", false, true, true},
    };
    for (const Variant& variant : variants) {
        if (!settings.only.empty() && settings.only != variant.name) continue;
        run(settings, variant.name, variant.driver_sends, variant.driver_receives, variant.windowed);
    }
    return 0;
}
