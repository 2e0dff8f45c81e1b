#include "aggregation/worker.hpp"

#include <algorithm>

namespace dlcp::aggregation {
namespace {

constexpr std::int64_t most_backoff = 16;  // times the first wait

}  // namespace

Worker::Worker(const WorkerSettings& settings)
    : settings_(settings),
      send_window_(std::max(settings.slots / 2U, 1U), settings.retransmit_ns),
      window_(std::max(settings.slots / 2U, 1U)) {}

void Worker::begin(Blocks& blocks, std::uint32_t run, std::uint64_t position, std::int64_t now_ns) {
    blocks_ = &blocks;
    run_ = run;
    position_ = position;
    oldest_ = next_ = in_flight_ = 0;
    failed_ = false;
    progress_ns_ = now_ns;
    next_due_ns_ = INT64_MAX;
    std::fill(window_.begin(), window_.end(), InFlight{});
}

bool Worker::poll_packet(std::int64_t now_ns, std::uint8_t* packet) {
    if (done() || failed_) return false;
    if (now_ns >= next_due_ns_ && repeat_one(now_ns, packet)) return true;
    if (next_ == blocks_->count() || next_ - oldest_ >= window_.size() || !send_window_.has_room(in_flight_))
        return false;
    const std::int64_t wait_ns = send_window_.wait_ns();
    at(next_) = {.sent_ns = now_ns, .due_ns = now_ns + wait_ns, .interval_ns = wait_ns, .done = false};
    next_due_ns_ = std::min(next_due_ns_, now_ns + wait_ns);
    write(next_, 0, packet);
    ++next_;
    ++in_flight_;
    ++counters_.sent_packets;
    return true;
}

// Sends the first block again whose time has come, and finds out when the next one's comes.
bool Worker::repeat_one(std::int64_t now_ns, std::uint8_t* packet) {
    next_due_ns_ = INT64_MAX;
    for (std::uint32_t block = oldest_; block < next_; ++block) {
        InFlight& sent = at(block);
        if (sent.done) continue;
        if (sent.due_ns > now_ns) {
            next_due_ns_ = std::min(next_due_ns_, sent.due_ns);
            continue;
        }
        send_window_.handle_wait_over(now_ns);
        // Never less than the usual time of a block, which may be longer.
        sent.interval_ns =
            std::max(sent.interval_ns, std::min(2 * sent.interval_ns, most_backoff * settings_.retransmit_ns));
        sent.due_ns = now_ns + sent.interval_ns;
        sent.repeated = true;
        write(block, flag_retransmission, packet);
        ++counters_.sent_packets;
        ++counters_.repeated_packets;
        next_due_ns_ = now_ns;  // others may be due
        return true;
    }
    return false;
}

void Worker::write(std::uint32_t block, std::uint8_t flags, std::uint8_t* packet) const {
    const std::uint64_t position = position_ + block;
    const std::uint64_t key = (std::uint64_t{run_} << 32) + position;
    std::fill_n(packet, header_bytes, std::uint8_t{0});
    write32(packet, magic);
    packet[at_version] = version;
    packet[at_kind] = static_cast<std::uint8_t>(Kind::contribution);
    packet[at_flags] = flags;
    packet[at_operation] = operation_sum;
    write32(packet + at_job, settings_.job);
    write32(packet + at_message, static_cast<std::uint32_t>(key >> 32));
    write32(packet + at_block, static_cast<std::uint32_t>(key));
    write16(packet + at_slot, static_cast<std::uint32_t>(position % settings_.slots));
    write16(packet + at_generation, settings_.generation);
    packet[at_worker] = static_cast<std::uint8_t>(settings_.worker);
    packet[at_exponent] = blocks_->exponent(block);
    blocks_->write(block, packet + header_bytes);
}

void Worker::handle_packet(std::span<const std::uint8_t> packet, std::int64_t now_ns) {
    const std::uint8_t* p = packet.data();
    const auto everyone = static_cast<std::uint32_t>((std::uint64_t{1} << settings_.workers) - 1);
    if (packet.size() != packet_bytes(settings_.lanes) || read32(p) != magic || p[at_version] != version ||
        p[at_kind] != static_cast<std::uint8_t>(Kind::result) || read32(p + at_job) != settings_.job ||
        read16(p + at_generation) != settings_.generation || read32(p + at_bitmap) != everyone ||
        p[at_count] != settings_.workers) {
        ++counters_.wrong_packets;
        return;
    }
    if (done()) {
        ++counters_.late_results;
        return;
    }
    const std::uint64_t first = (std::uint64_t{run_} << 32) + position_;
    const std::uint64_t key = key_at(p);
    if (key < first + oldest_ || key >= first + next_) {
        ++counters_.late_results;
        return;
    }
    const auto block = static_cast<std::uint32_t>(key - first);
    InFlight& sent = at(block);
    if (sent.done) {
        ++counters_.late_results;
        return;
    }
    if (p[at_operation] != operation_sum || p[at_exponent] != blocks_->exponent(block) ||
        read16(p + at_slot) != (position_ + block) % settings_.slots || read32(p + at_saturated) != 0) {
        ++counters_.wrong_packets;
        return;
    }
    if (!blocks_->take(block, p + header_bytes)) {
        failed_ = true;
        return;
    }
    ++counters_.results;
    sent.done = true;
    --in_flight_;
    progress_ns_ = now_ns;
    if (!sent.repeated) send_window_.handle_result(now_ns - sent.sent_ns);
    while (oldest_ < next_ && at(oldest_).done) ++oldest_;
}

}  // namespace dlcp::aggregation
