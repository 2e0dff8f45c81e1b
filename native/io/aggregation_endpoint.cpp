#include "io/aggregation_endpoint.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "io/clock.hpp"

namespace dlcp {
namespace {

constexpr int buffer_bytes = 4 << 20;                 // results come in bursts of a window
constexpr std::int64_t longest_wait_ns = 20'000'000;  // after which a stop is noticed

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

sockaddr_in socket_address(AggregationAddress address) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_addr.s_addr = htonl(address.ip);
    out.sin_port = htons(address.port);
    return out;
}

}  // namespace

AggregationEndpoint::AggregationEndpoint(const aggregation::WorkerSettings& settings, AggregationAddress bind,
                                         AggregationAddress hub)
    : worker_(settings),
      socket_(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
      packet_bytes_(aggregation::packet_bytes(settings.lanes)),
      incoming_(batch * (packet_bytes_ + 1)),
      outgoing_(batch * packet_bytes_) {
    if (socket_.number() < 0) fail("aggregation: a UDP socket");
    const int fd = socket_.number();
    // Beyond net.core.rmem_max where that is allowed.
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    // A switch does not add fragments. What is too long for the way is lost, and given up.
    const int whole = IP_PMTUDISC_DO;
    setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof whole);
    const sockaddr_in own = socket_address(bind);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0)
        fail("aggregation: binding its UDP port");
    // Connected, so that the kernel looks the way up once and leaves out what comes from elsewhere.
    const sockaddr_in to = socket_address(hub);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
        fail("aggregation: no way to the hub");
}

std::uint16_t AggregationEndpoint::port() const {
    sockaddr_in own{};
    socklen_t bytes = sizeof own;
    getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&own), &bytes);
    return ntohs(own.sin_port);
}

AggregationEndpoint::End AggregationEndpoint::run(aggregation::Blocks& blocks, std::uint32_t run,
                                                  std::uint64_t position, std::int64_t give_up_ns,
                                                  std::int64_t limit_ns) {
    const std::int64_t begun = monotonic_ns();
    const std::int64_t end = begun + std::min(limit_ns, INT64_MAX - begun);
    worker_.begin(blocks, run, position, begun);
    waiting_ = first_ = 0;
    while (!worker_.done()) {
        if (stopped_.load(std::memory_order_relaxed)) return End::stopped;
        const std::size_t came = receive();
        if (worker_.failed()) return End::wrong;
        const std::size_t went = send();
        // Also while packets come and go: they may be of no use.
        const std::int64_t give_up_at = std::min(worker_.progress_ns() + give_up_ns, end);
        if (!worker_.done() && monotonic_ns() >= give_up_at) return End::gave_up;
        if (came != 0 || went != 0) continue;
        wait(std::min(worker_.next_time_ns(), give_up_at));
    }
    return End::done;
}

std::size_t AggregationEndpoint::receive() {
    mmsghdr messages[batch];
    iovec pieces[batch];
    for (std::size_t i = 0; i < batch; ++i) {
        pieces[i] = {incoming_.data() + i * (packet_bytes_ + 1), packet_bytes_ + 1};
        messages[i] = {};
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int got = recvmmsg(socket_.number(), messages, batch, MSG_DONTWAIT, nullptr);
    if (got <= 0) return 0;  // nothing, or an ICMP error of an earlier packet, which is passed over
    const std::int64_t now = monotonic_ns();
    for (int i = 0; i < got; ++i)
        worker_.handle_packet({static_cast<const std::uint8_t*>(pieces[i].iov_base), messages[i].msg_len}, now);
    return static_cast<std::size_t>(got);
}

std::size_t AggregationEndpoint::send() {
    if (waiting_ == 0) {
        first_ = 0;
        const std::int64_t now = monotonic_ns();
        while (waiting_ < batch && worker_.poll_packet(now, outgoing_.data() + waiting_ * packet_bytes_))
            ++waiting_;
        if (waiting_ == 0) return 0;
    }
    mmsghdr messages[batch];
    iovec pieces[batch];
    for (std::size_t i = 0; i < waiting_; ++i) {
        pieces[i] = {outgoing_.data() + (first_ + i) * packet_bytes_, packet_bytes_};
        messages[i] = {};
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int sent = sendmmsg(socket_.number(), messages, static_cast<unsigned>(waiting_), MSG_DONTWAIT);
    std::size_t gone = sent > 0 ? static_cast<std::size_t>(sent) : 0;
    // The first one cannot be sent, for an ICMP error or no route: it counts as lost, and is sent again in time.
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS && errno != EINTR) gone = 1;
    first_ += gone;
    waiting_ -= gone;
    return sent > 0 ? gone : 0;
}

void AggregationEndpoint::wait(std::int64_t until_ns) {
    const std::int64_t left = std::clamp<std::int64_t>(until_ns - monotonic_ns(), 0, longest_wait_ns);
    pollfd polled{socket_.number(), static_cast<short>(POLLIN | (waiting_ != 0 ? POLLOUT : 0)), 0};
    const timespec rest{0, left};
    ppoll(&polled, 1, &rest, nullptr);
}

}  // namespace dlcp
