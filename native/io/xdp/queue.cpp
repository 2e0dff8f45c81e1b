#include "io/xdp/queue.hpp"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "io/descriptor.hpp"
#include "io/xdp/retry.hpp"

#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#endif
#ifndef SO_BUSY_POLL_BUDGET
#define SO_BUSY_POLL_BUDGET 70
#endif

namespace dlcp::xdp {

namespace {

// Frames that one sendto may send where the kernel copies them; its own default is 32. Linux 6.17; else refused.
constexpr int option_send_budget = 9;  // XDP_MAX_TX_SKB_BUDGET
constexpr int send_budget = 256;
// Copies under way are charged to the socket. The default of 212,992 bytes is not a hundred of them.
constexpr int send_buffer_bytes = 16 * 1024 * 1024;

int refuse(int number, const QueueConfig& config, ErrorText error) {
    const char* const name = config.interface.c_str();
    switch (number) {
        case EAFNOSUPPORT:
            return error.fail(number, "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): use the udp driver");
        case EPERM:
        case EACCES:
            return error.fail(EPERM,
                              "not allowed to open an AF_XDP socket: the process needs CAP_NET_RAW, CAP_BPF and "
                              "CAP_NET_ADMIN; or use the udp driver");
        case ENOBUFS:
        case ENOMEM:
            return error.fail(
                number,
                "no memory for queue %u of %s, of which %u KiB are locked: raise the limit (ulimit -l, "
                "LimitMEMLOCK=) or grant CAP_IPC_LOCK, or ask for fewer queues (queues=) or smaller "
                "buffers (socket_buffer_bytes)",
                config.index, name, (config.receive_chunks + config.send_chunks) * (chunk_bytes / 1024));
        case EBUSY:
            return error.fail(
                number,
                "queue %u of %s belongs to another AF_XDP socket: end the process that has it, or give "
                "this one an interface of its own (ip link add NAME link %s type macvlan mode bridge)",
                config.index, name, name);
        case EOPNOTSUPP:
        case EINVAL:
            if (config.zero_copy == ZeroCopy::on)
                return error.fail(EOPNOTSUPP, "interface %s has no zero copy for queue %u: use zero_copy=auto",
                                  name, config.index);
            [[fallthrough]];
        default:
            return error.fail(number, "cannot open an AF_XDP socket on queue %u of %s: %s", config.index, name,
                              strerror(number));
    }
}

}  // namespace

int Queue::open(const QueueConfig& config, std::unique_ptr<Queue>& out, ErrorText error) {
    std::unique_ptr<Queue> queue(new Queue);
    if (const int result = queue->open_memory(config, error); result < 0) return result;
    if (const int result = queue->open_socket(config, error); result < 0) return result;
    for (std::uint32_t i = config.receive_chunks; i-- > 0;)
        queue->recycled_.push_back(std::uint64_t{i} * chunk_bytes);
    for (std::uint32_t i = 0; i < config.send_chunks; ++i)
        queue->free_.push_back(std::uint64_t{config.receive_chunks + i} * chunk_bytes);
    queue->refill();
    out = std::move(queue);
    return 0;
}

int Queue::open_memory(const QueueConfig& config, ErrorText error) {
    const std::uint32_t chunks = config.receive_chunks + config.send_chunks;
    recycled_.reserve(config.receive_chunks);
    free_.reserve(config.send_chunks);
    memory_bytes_ = std::size_t{chunks} * chunk_bytes;
    void* mapped = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return refuse(errno, config, error);
    memory_ = static_cast<std::uint8_t*>(mapped);
    madvise(memory_, memory_bytes_,
            MADV_DONTFORK);  // else a fork would leave us with copies of what the kernel writes
    const xsk_umem_config umem = {.fill_size = config.receive_chunks,
                                  .comp_size = std::max(config.send_chunks, 1u),
                                  .frame_size = chunk_bytes,
                                  .frame_headroom = 0,
                                  .flags = 0};
    const int result = xsk_umem__create(&umem_, memory_, memory_bytes_, &fill_, &completion_, &umem);
    if (result < 0) return refuse(-result, config, error);
    close_in_children(xsk_umem__fd(umem_));
    return 0;
}

int Queue::open_socket(const QueueConfig& config, ErrorText error) {
    xsk_socket_config socket = {};
    socket.rx_size = config.receive_chunks;
    socket.tx_size = config.send_chunks;
    socket.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;  // filter.hpp has ours
    socket.bind_flags = XDP_USE_NEED_WAKEUP;
    if (config.zero_copy == ZeroCopy::on) socket.bind_flags |= XDP_ZEROCOPY;
    if (config.zero_copy == ZeroCopy::off) socket.bind_flags |= XDP_COPY;
    const int result = retry_while_busy([&] {
        return xsk_socket__create(&socket_, config.interface.c_str(), config.index, umem_, &receive_,
                                  config.send_chunks > 0 ? &send_ : nullptr, &socket);
    });
    if (result < 0) return refuse(-result, config, error);
    descriptor_ = xsk_socket__fd(socket_);
    close_in_children(descriptor_);
    xdp_options options = {};
    socklen_t options_bytes = sizeof options;
    if (getsockopt(descriptor_, SOL_XDP, XDP_OPTIONS, &options, &options_bytes) == 0)
        zero_copy_ = (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
    setsockopt(descriptor_, SOL_XDP, option_send_budget, &send_budget, sizeof send_budget);
    if (setsockopt(descriptor_, SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer_bytes, sizeof send_buffer_bytes) != 0)
        setsockopt(descriptor_, SOL_SOCKET, SO_SNDBUF, &send_buffer_bytes, sizeof send_buffer_bytes);
    busy_poll_ = config.busy_poll;
    if (!busy_poll_) return 0;
    const int prefer = 1, poll_us = 20, budget = 64;  // Documentation/networking/napi.rst: busy polling
    if (setsockopt(descriptor_, SOL_SOCKET, SO_PREFER_BUSY_POLL, &prefer, sizeof prefer) != 0 ||
        setsockopt(descriptor_, SOL_SOCKET, SO_BUSY_POLL, &poll_us, sizeof poll_us) != 0 ||
        setsockopt(descriptor_, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof budget) != 0) {
        return error.fail(errno, "busy_poll is refused (%s): it needs Linux 5.11 and CAP_NET_ADMIN",
                          strerror(errno));
    }
    return 0;
}

Queue::~Queue() {
    if (socket_ != nullptr) {
        forget(descriptor_);
        xsk_socket__delete(socket_);
    }
    if (umem_ != nullptr) {
        forget(xsk_umem__fd(umem_));
        xsk_umem__delete(umem_);
    }
    if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

void Queue::refill() {
    const auto count = static_cast<std::uint32_t>(recycled_.size());
    std::uint32_t index = 0;
    if (count > 0 && xsk_ring_prod__reserve(&fill_, count, &index) == count) {
        for (const std::uint64_t chunk : recycled_) *xsk_ring_prod__fill_addr(&fill_, index++) = chunk;
        xsk_ring_prod__submit(&fill_, count);
        recycled_.clear();
    }
    // A card that ran out of chunks waits to be told of new ones.
    if (xsk_ring_prod__needs_wakeup(&fill_)) recvfrom(descriptor_, nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
}

void Queue::poll_card() {
    if (busy_poll_) recvfrom(descriptor_, nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
}

void Queue::append(std::uint64_t address, std::uint32_t bytes) {
    std::uint32_t index = 0;
    if (xsk_ring_prod__reserve(&send_, 1, &index) != 1) {  // never: the ring has room for all chunks
        give_back(chunk_of(address));
        return;
    }
    *xsk_ring_prod__tx_desc(&send_, index) = {.addr = address, .len = bytes, .options = 0};
    ++appended_;
    ++under_way_;
}

void Queue::submit() {
    if (appended_ > 0) xsk_ring_prod__submit(&send_, appended_);
    appended_ = 0;
}

void Queue::reap() {
    std::uint32_t index = 0;
    const std::uint32_t sent = xsk_ring_cons__peek(&completion_, completion_.size, &index);
    for (std::uint32_t i = 0; i < sent; ++i)
        free_.push_back(chunk_of(*xsk_ring_cons__comp_addr(&completion_, index + i)));
    if (sent > 0) xsk_ring_cons__release(&completion_, sent);
    under_way_ -= sent;
}

void Queue::kick(std::uint64_t& calls) {
    // A call takes up to send_budget frames, or 32. One that takes none says that the card has no room, or no link.
    while (unsent() && xsk_ring_prod__needs_wakeup(&send_)) {
        const std::uint32_t before = __atomic_load_n(send_.consumer, __ATOMIC_ACQUIRE);
        sendto(descriptor_, nullptr, 0, MSG_DONTWAIT, nullptr, 0);
        ++calls;
        if (__atomic_load_n(send_.consumer, __ATOMIC_ACQUIRE) == before) break;
    }
    reap();
}

xdp_statistics Queue::statistics() const {
    xdp_statistics out = {};
    socklen_t bytes = sizeof out;
    getsockopt(descriptor_, SOL_XDP, XDP_STATISTICS, &out, &bytes);
    return out;
}

}  // namespace dlcp::xdp
