// An interface of the kernel through packet sockets: packet(7), packet_mmap.
//
// In: a TPACKET_V2 ring that the kernel fills; reading it takes no system call. (V3 hands over whole blocks, after
// milliseconds when little comes.) What the kernel left for hardware is put right here, in the ring: VLAN tags go
// back into the frame, checksums are completed. Super-packets do not fit a switch's port: counted, and left in the
// ring. Out: sendmmsg. A ring and PACKET_QDISC_BYPASS bring nothing there: measured, see bench/software_switch.py.
//
// The ring's times are of the wall clock; they are told as monotonic.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <string>

#include "softswitch/descriptor.hpp"
#include "softswitch/port.hpp"

namespace dlcp::softswitch {

class PacketPort : public Port {
public:
    // PortError if the interface is not there, or may not be opened. `ring_frames`: what may wait to be read.
    PacketPort(const std::string& name, std::uint32_t ring_frames);
    ~PacketPort() override;
    PacketPort(const PacketPort&) = delete;
    PacketPort& operator=(const PacketPort&) = delete;

    std::span<const Arrival> receive(Time now) override;
    void release() override;
    std::size_t send(std::span<const Departure> frames) override;
    int descriptor() const override { return in_.get(); }
    bool link() const override;
    std::uint32_t frame_bytes() const override { return frame_bytes_; }
    PortStatistics statistics() override;
    void close() override;

private:
    void open_ring(std::uint32_t ring_frames);
    std::uint8_t* ring_frame(std::uint32_t index) const;
    bool read(std::uint8_t* slot, Time to_monotonic, Time now, Arrival& out);

    std::string name_;
    int index_ = 0;
    Descriptor claim_;  // that no other switch forwards by it
    Descriptor in_;
    Descriptor out_;
    std::uint32_t frame_bytes_ = 0;
    std::uint32_t slot_bytes_ = 0;
    std::uint32_t slots_per_block_ = 0;
    std::uint32_t slots_ = 0;
    std::uint32_t block_bytes_ = 0;
    std::uint32_t next_ = 0;   // slot that the kernel fills next
    std::uint32_t taken_ = 0;  // slots behind it that are not given back yet
    std::uint8_t* ring_ = nullptr;
    std::size_t ring_bytes_ = 0;
    PortStatistics statistics_;
    std::array<Arrival, batch_frames> arrivals_;
    std::array<iovec, batch_frames> pieces_{};
    std::array<mmsghdr, batch_frames> messages_{};
};

}  // namespace dlcp::softswitch
