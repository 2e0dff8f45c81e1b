#include "softswitch/packet_port.hpp"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/mman.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "softswitch/checksum.hpp"
#include "softswitch/clock.hpp"
#include "softswitch/interface.hpp"

namespace dlcp::softswitch {
namespace {

constexpr std::uint32_t ethernet_bytes = 14;
constexpr std::uint32_t tag_bytes = 4;  // IEEE 802.1Q
constexpr std::uint32_t ring_header_bytes =
    128;  // tpacket2_hdr, sockaddr_ll, virtio_net_hdr, alignment: 92 at most
// Frames that an interface has not sent yet, with what the kernel adds to each: what waits there no policy touches.
constexpr int send_buffer_bytes = 256 << 10;

#ifndef PACKET_IGNORE_OUTGOING  // Linux 4.20
#define PACKET_IGNORE_OUTGOING 23
#endif

// The head of virtio's network packets, in the host's order (Virtio 1.2, 5.1.6). Linux's own header is not C++.
struct OffloadHeader {
    std::uint8_t flags;     // bit 0: the checksum is to be completed
    std::uint8_t gso_type;  // 0: not a super-packet
    std::uint16_t header_bytes;
    std::uint16_t gso_bytes;
    std::uint16_t csum_start;
    std::uint16_t csum_offset;
};
static_assert(sizeof(OffloadHeader) == 10);

template <class Value>
void set_option(int socket, int option, const Value& value, const std::string& name, const char* what) {
    if (setsockopt(socket, SOL_PACKET, option, &value, sizeof value) != 0) fail_port(name, what, errno);
}

Descriptor open_socket(const std::string& name) {
    // Protocol 0: nothing comes in before bind() says what.
    Descriptor out(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (out.get() < 0) fail_port(name, "a packet socket", errno);
    return out;
}

void bind_socket(const Descriptor& socket, int index, std::uint16_t protocol, const std::string& name) {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(protocol);
    address.sll_ifindex = index;
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        fail_port(name, "binding to it", errno);
}

// Two switches at one interface would each forward all its frames. The name is the network namespace's, so seen by
// those who could do that, and goes with the process: unix(7), abstract.
Descriptor claim(int index, const std::string& name) {
    const std::string text = "dlcp-switch-port-" + std::to_string(index);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    Descriptor out(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    if (out.get() < 0 || bind(out.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
        if (errno == EADDRINUSE) throw PortError(EBUSY, "port " + name + ": another switch forwards by it");
        fail_port(name, "claiming it", errno);
    }
    return out;
}

// What the kernel left for the interface's hardware: the sum over what follows `csum_start`.
void complete_checksum(std::span<std::uint8_t> frame, const OffloadHeader& left) {
    const std::size_t at = std::size_t{left.csum_start} + left.csum_offset;
    if (left.csum_start >= frame.size() || at + 2 > frame.size()) return;
    std::uint16_t sum = internet_checksum(frame.subspan(left.csum_start));
    if (sum == 0) sum = 0xffff;  // 0 would say that there is none: RFC 768
    std::memcpy(&frame[at], &sum, 2);
}

}  // namespace

PacketPort::PacketPort(const std::string& name, std::uint32_t ring_frames) : name_(name) {
    index_ = interface_index(name);
    if (!interface_is_ethernet(name))
        throw PortError(EINVAL, "port " + name + ": accepted: an interface of Ethernet frames");
    frame_bytes_ = interface_mtu(name) + ethernet_bytes + tag_bytes;
    in_ = open_socket(name);
    out_ = open_socket(name);
    claim_ = claim(index_, name);
    open_ring(ring_frames);

    packet_mreq all{};
    all.mr_ifindex = index_;
    all.mr_type = PACKET_MR_PROMISC;
    set_option(in_.get(), PACKET_ADD_MEMBERSHIP, all, name, "promiscuous mode");
    set_option(in_.get(), PACKET_IGNORE_OUTGOING, 1, name, "ignoring what leaves by it (Linux 4.20)");
    // Beyond net.core.wmem_max where that is allowed.
    if (setsockopt(out_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer_bytes, sizeof send_buffer_bytes) != 0)
        setsockopt(out_.get(), SOL_SOCKET, SO_SNDBUF, &send_buffer_bytes, sizeof send_buffer_bytes);
    bind_socket(out_, index_, 0, name);
    bind_socket(in_, index_, ETH_P_ALL, name);

    for (std::size_t i = 0; i < batch_frames; ++i) {
        messages_[i].msg_hdr.msg_iov = &pieces_[i];
        messages_[i].msg_hdr.msg_iovlen = 1;
    }
}

PacketPort::~PacketPort() {
    if (ring_ != nullptr) munmap(ring_, ring_bytes_);
}

void PacketPort::close() {
    statistics();  // what the kernel has counted goes with its socket
    if (ring_ != nullptr) munmap(ring_, ring_bytes_);
    ring_ = nullptr;
    for (Descriptor* each : {&in_, &out_, &claim_}) *each = Descriptor();
}

void PacketPort::open_ring(std::uint32_t ring_frames) {
    set_option(in_.get(), PACKET_VERSION, int{TPACKET_V2}, name_, "TPACKET_V2");
    set_option(in_.get(), PACKET_VNET_HDR, 1, name_, "the virtio-net header");
    slot_bytes_ = TPACKET_ALIGN(frame_bytes_ + ring_header_bytes);
    block_bytes_ = 64 * 1024;
    while (block_bytes_ < slot_bytes_) block_bytes_ *= 2;
    slots_per_block_ = block_bytes_ / slot_bytes_;
    tpacket_req request{};
    request.tp_block_size = block_bytes_;
    request.tp_block_nr = (ring_frames + slots_per_block_ - 1) / slots_per_block_;
    request.tp_frame_size = slot_bytes_;
    request.tp_frame_nr = request.tp_block_nr * slots_per_block_;
    set_option(in_.get(), PACKET_RX_RING, request, name_, "a receive ring");
    slots_ = request.tp_frame_nr;
    ring_bytes_ = std::size_t{block_bytes_} * request.tp_block_nr;
    void* memory = mmap(nullptr, ring_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, in_.get(), 0);
    if (memory == MAP_FAILED) fail_port(name_, "mapping its receive ring", errno);
    ring_ = static_cast<std::uint8_t*>(memory);
}

std::uint8_t* PacketPort::ring_frame(std::uint32_t index) const {
    return ring_ + std::size_t{index / slots_per_block_} * block_bytes_ +
           std::size_t{index % slots_per_block_} * slot_bytes_;
}

bool PacketPort::link() const { return interface_runs(index_); }

// ---- in ----

std::span<const Arrival> PacketPort::receive(Time now) {
    std::size_t count = 0;
    Time to_monotonic{};
    while (count < batch_frames && taken_ < slots_) {
        std::uint8_t* slot = ring_frame((next_ + taken_) % slots_);
        auto* header = reinterpret_cast<tpacket2_hdr*>(slot);
        if ((__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) == 0) break;
        if (taken_ == 0) to_monotonic = -wall_offset();
        ++taken_;
        if (read(slot, to_monotonic, now, arrivals_[count])) ++count;
    }
    return {arrivals_.data(), count};
}

// One frame of the ring, put right; false: it is none for a switch.
bool PacketPort::read(std::uint8_t* slot, Time to_monotonic, Time now, Arrival& out) {
    const auto* header = reinterpret_cast<const tpacket2_hdr*>(slot);
    std::uint8_t* bytes = slot + header->tp_mac;
    OffloadHeader left;
    std::memcpy(&left, bytes - sizeof left, sizeof left);
    if (header->tp_snaplen != header->tp_len || left.gso_type != 0) {
        ++statistics_.oversize_packets;
        return false;
    }
    std::size_t size = header->tp_snaplen;
    if ((left.flags & 1) != 0) complete_checksum({bytes, size}, left);
    if ((header->tp_status & TP_STATUS_VLAN_VALID) != 0 && size >= 12) {
        // Over the virtio-net header, which is read by now.
        std::memmove(bytes - tag_bytes, bytes, 12);
        bytes -= tag_bytes;
        size += tag_bytes;
        const bool told = (header->tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
        const std::uint16_t tag[2] = {htons(told ? header->tp_vlan_tpid : ETH_P_8021Q),
                                      htons(header->tp_vlan_tci)};
        std::memcpy(bytes + 12, tag, tag_bytes);
    }
    const Time at = std::chrono::seconds(header->tp_sec) + Time(header->tp_nsec) + to_monotonic;
    out = {{bytes, size}, std::min(at, now)};
    return true;
}

void PacketPort::release() {
    for (; taken_ > 0; --taken_) {
        auto* header = reinterpret_cast<tpacket2_hdr*>(ring_frame(next_));
        __atomic_store_n(&header->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        next_ = next_ + 1 == slots_ ? 0 : next_ + 1;
    }
}

// ---- out ----

std::size_t PacketPort::send(std::span<const Departure> frames) {
    std::size_t done = 0;
    while (done < frames.size()) {
        const std::size_t count = std::min(frames.size() - done, batch_frames);
        for (std::size_t i = 0; i < count; ++i) {
            const Departure& frame = frames[done + i];
            pieces_[i] = {const_cast<std::uint8_t*>(frame.data), frame.bytes};
        }
        const int sent = sendmmsg(out_.get(), messages_.data(), static_cast<unsigned>(count), MSG_DONTWAIT);
        if (sent > 0) {
            done += static_cast<std::size_t>(sent);
            continue;
        }
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) break;
        // The first of them: the interface is down or gone, its own queue is full (ENOBUFS), or the frame too long.
        ++statistics_.refused_packets;
        ++done;
    }
    return done;
}

PortStatistics PacketPort::statistics() {
    tpacket_stats counted{};
    socklen_t bytes = sizeof counted;
    // Reading sets the kernel's count to zero.
    if (getsockopt(in_.get(), SOL_PACKET, PACKET_STATISTICS, &counted, &bytes) == 0)
        statistics_.overrun_packets += counted.tp_drops;
    return statistics_;
}

}  // namespace dlcp::softswitch
