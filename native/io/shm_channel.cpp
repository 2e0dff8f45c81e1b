#include "io/shm_channel.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>

namespace dlcp::shm {

namespace {

constexpr std::size_t page_bytes = 4096;
// The one process cannot cut off the memory that the other reads (SIGBUS).
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// One page for both controls, then for each ring a page whose last line holds the first packet's prefix, and the data.
constexpr std::size_t total_bytes(std::uint32_t ring_bytes) {
    return 3 * page_bytes + 2 * std::size_t{ring_bytes};
}
constexpr std::size_t data_start(std::uint32_t ring, std::uint32_t ring_bytes) {
    return page_bytes + (ring + 1) * page_bytes + ring * std::size_t{ring_bytes};
}

}  // namespace

Channel::~Channel() {
    if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
}

int Channel::make(std::uint32_t ring_bytes, std::uint32_t packet_bytes_max, ChannelParts& parts) {
    Descriptor memory(memfd_create("dlcp-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory) return -errno;
    if (ftruncate(memory.number(), static_cast<off_t>(total_bytes(ring_bytes))) != 0 ||
        fcntl(memory.number(), F_ADD_SEALS, seals) != 0) {
        return -errno;
    }
    for (Descriptor* bell : {&own_bell_, &other_bell_}) {
        *bell = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        if (!*bell) return -errno;
    }
    if (const int result = map(memory.number(), ring_bytes, packet_bytes_max, Side::opener); result < 0)
        return result;
    parts.memory = std::move(memory);
    parts.opener_bell = Descriptor(fcntl(own_bell_.number(), F_DUPFD_CLOEXEC, 0));
    parts.taker_bell = Descriptor(fcntl(other_bell_.number(), F_DUPFD_CLOEXEC, 0));
    return parts.opener_bell && parts.taker_bell ? 0 : -errno;
}

int Channel::take(ChannelParts parts, std::uint32_t ring_bytes, std::uint32_t packet_bytes_max) {
    if (ring_bytes < ring_bytes_min || ring_bytes > ring_bytes_max || (ring_bytes & (ring_bytes - 1)) != 0)
        return -EPROTO;
    struct stat status = {};
    if (fstat(parts.memory.number(), &status) != 0 ||
        static_cast<std::uint64_t>(status.st_size) != total_bytes(ring_bytes) ||
        (fcntl(parts.memory.number(), F_GET_SEALS) & seals) != seals) {
        return -EPROTO;
    }
    own_bell_ = std::move(parts.taker_bell);
    other_bell_ = std::move(parts.opener_bell);
    // Ringing must never block, whatever kind of descriptor came.
    if (fcntl(other_bell_.number(), F_SETFL, O_NONBLOCK) != 0) return -errno;
    return map(parts.memory.number(), ring_bytes, packet_bytes_max, Side::taker);
}

// Ring 0 leads from the opener to the taker, ring 1 back.
int Channel::map(int memory, std::uint32_t ring_bytes, std::uint32_t packet_bytes_max, Side side) {
    mapped_bytes_ = total_bytes(ring_bytes);
    void* mapped = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (mapped == MAP_FAILED) return -errno;
    mapped_ = mapped;
    madvise(mapped_, mapped_bytes_, MADV_DONTFORK);  // a child has no part in it
    auto* start = static_cast<std::uint8_t*>(mapped_);
    // A fresh file is zeros, which is what an empty ring is: neither side writes here before its first packet.
    const auto ring = [&](std::uint32_t index) {
        return RingMemory{.control = reinterpret_cast<RingControl*>(start + index * sizeof(RingControl)),
                          .data = start + data_start(index, ring_bytes),
                          .data_bytes = ring_bytes};
    };
    writer = RingWriter(ring(side == Side::opener ? 0 : 1));
    reader = RingReader(ring(side == Side::opener ? 1 : 0), packet_bytes_max);
    return 0;
}

void Channel::ring() const {
    const std::uint64_t one = 1;
    // Fails only when it has been rung 2^64 - 2 times, and then it is heard as well.
    [[maybe_unused]] const ssize_t written_bytes = write(other_bell_.number(), &one, sizeof one);
}

}  // namespace dlcp::shm
