// Opening, accepting, choosing and ending channels; packets in and out of their rings.
#include "io/shm_channels.hpp"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace dlcp::shm {

namespace {

// Read at once from one ring, so that its room is given back while the rest is waiting.
constexpr std::uint32_t rx_share = 8;
// Shown to the reader while the rest of a burst is still being written, so that both work at once.
constexpr std::uint64_t publish_bytes = 64 * 1024;
// While the rings have packets, new channels are looked for every so many calls.
constexpr std::uint32_t rx_calls_between_accepts = 64;

constexpr const char* separator = "+shm:";  // in an address, before the host and the endpoint's name

// An address names a neighbour by its place and, against mistakes, by its name.
dlcp_address address_of(std::uint32_t index, const Name& name) {
    dlcp_address out{};
    memcpy(out.bytes, &index, sizeof index);
    memcpy(out.bytes + sizeof index, name.data(), name.size());
    out.length = sizeof index + name.size();
    out.flags = DLCP_ADDRESS_TRUSTED;
    return out;
}

}  // namespace

Channels::Channels(const DriverHandle& inner, std::uint32_t ring_bytes)
    : inner_(inner), ring_bytes_(ring_bytes), rendezvous_(ring_bytes, DLCP_CHANNEL_PACKET_BYTES_MAX) {}

Channels::~Channels() {
    for (const Slot& slot : slots_)
        if (slot.channel) forget(*slot.channel);
    if (listening_) inner_.unwatch(rendezvous_.descriptor());
}

std::string Channels::open(std::string address) {
    if (inner_.table().watch == nullptr)
        return std::string("the driver ") + inner_.table().name + " watches no descriptors";
    identity_ = host_identity();
    if (identity_.empty()) return "/proc does not say which host this is";
    if (const int result = rendezvous_.open(); result < 0) return strerror(-result);
    if (const int result = inner_.watch(rendezvous_.descriptor(), &listener_readable_); result < 0)
        return strerror(-result);
    listening_ = true;
    address_ = std::move(address) + separator + identity_ + "/" + to_text(rendezvous_.name());
    return "";
}

void Channels::forget(const Channel& channel) const {
    inner_.unwatch(channel.bell());
    inner_.unwatch(channel.socket.number());
}

// The smaller name's channel, if both are there: both sides choose alike.
void Channels::choose_sending(Neighbour& neighbour) const {
    const bool own = rendezvous_.name() < neighbour.name;
    neighbour.sending = own && neighbour.opened != UINT32_MAX ? neighbour.opened
                        : neighbour.taken != UINT32_MAX       ? neighbour.taken
                                                              : neighbour.opened;
}

Channels::Neighbour& Channels::neighbour_named(const Name& name) {
    const auto [found, is_new] = by_name_.try_emplace(name, static_cast<std::uint32_t>(neighbours_.size()));
    if (is_new) {
        auto neighbour = std::make_unique<Neighbour>();
        neighbour->name = name;
        neighbour->address = address_of(found->second, name);
        neighbour->text = "shm:" + identity_ + "/" + to_text(name);
        neighbours_.push_back(std::move(neighbour));
    }
    return *neighbours_[found->second];
}

bool Channels::add(std::unique_ptr<Channel> channel, std::uint32_t neighbour, std::uint32_t& place) {
    // Both first, so that there is nothing to undo but these.
    if (inner_.watch(channel->bell(), &channel->bell_readable) < 0 ||
        inner_.watch(channel->socket.number(), &channel->socket_readable) < 0) {
        forget(*channel);
        return false;
    }
    std::uint32_t slot = 0;
    while (slot < slots_.size() && slots_[slot].channel) ++slot;
    if (slot == slots_.size()) slots_.emplace_back();
    slots_[slot] = {std::move(channel), neighbour, false, false};
    open_slots_.push_back(slot);
    place = slot;
    neighbours_[neighbour]->reported_gone = false;
    ++counters_.channels;
    return true;
}

// Its packets that are lent out stay valid until they come back.
void Channels::retire(std::uint32_t slot) {
    forget(*slots_[slot].channel);
    slots_[slot].retired = true;
    std::erase(open_slots_, slot);
    std::erase(written_, slot);
    unheard_ -= slots_[slot].unheard;
    slots_[slot].unheard = false;
    Neighbour& neighbour = *neighbours_[slots_[slot].neighbour];
    if (neighbour.opened == slot) neighbour.opened = UINT32_MAX;
    if (neighbour.taken == slot) neighbour.taken = UINT32_MAX;
    choose_sending(neighbour);
    if (neighbour.sending == UINT32_MAX && !neighbour.reported_gone) {
        neighbour.reported_gone = true;
        gone_.push_back(slots_[slot].neighbour);
    }
    --counters_.channels;
    // The socket now, so that the other side hears of it; the memory when nothing of it is lent.
    slots_[slot].channel->socket = Descriptor();
    free_retired();
}

void Channels::free_retired() {
    for (Slot& slot : slots_)
        if (slot.retired && slot.channel && slot.channel->reader.lent() == 0) slot = Slot();
}

void Channels::accept_all() {
    listener_readable_ = 0;
    rx_calls_to_accept_ = 0;
    Greeting greeting;
    while (auto channel = rendezvous_.accept(greeting)) {
        Neighbour& neighbour = neighbour_named(greeting.from);
        const std::uint32_t index = by_name_[greeting.from];
        if (!greeting.address.empty()) neighbour.text = greeting.address;
        const std::uint32_t old = neighbour.taken;
        if (!add(std::move(channel), index, neighbour.taken)) continue;
        choose_sending(neighbour);
        if (old != UINT32_MAX) retire(old);
        // Sent through by nobody from now on: the other side, whose name is smaller, has never sent through it.
        if (neighbour.opened != UINT32_MAX && neighbour.sending == neighbour.taken) retire(neighbour.opened);
    }
}

// Channels whose other side has closed its socket, once everything in their ring has been read.
void Channels::look_for_ends() {
    for (std::size_t i = 0; i < open_slots_.size(); ++i) {
        Channel& channel = *slots_[open_slots_[i]].channel;
        if (channel.socket_readable != 0) {
            channel.socket_readable = 0;
            std::uint8_t nothing;
            const ssize_t result = recv(channel.socket.number(), &nothing, 1, MSG_DONTWAIT);
            channel.ended = result == 0 || (result < 0 && errno != EAGAIN && errno != EINTR);
        }
        const bool over =
            (channel.ended && !channel.reader.readable()) || channel.reader.broken() || channel.writer.broken();
        if (!over) continue;
        retire(open_slots_[i]);
        --i;
    }
}

int Channels::connect(std::string_view address_text, dlcp_address& out) {
    const std::string prefix = separator + identity_ + "/";
    const std::size_t at = address_text.find(prefix);
    if (at == std::string_view::npos) return 0;
    std::string_view rest = address_text.substr(at + prefix.size());
    rest = rest.substr(0, rest.find('+'));
    Name name;
    if (!from_text(rest, name)) return -EINVAL;
    if (name == rendezvous_.name()) return 0;
    accept_all();  // it may have been faster
    Neighbour& neighbour = neighbour_named(name);
    if (neighbour.sending == UINT32_MAX) {
        int error = 0;
        auto channel = rendezvous_.connect(name, address_, error);
        const std::uint32_t index = by_name_[name];
        if (!channel || !add(std::move(channel), index, neighbour.opened)) return 0;
        slots_[neighbour.opened].unheard = true;
        ++unheard_;
        choose_sending(neighbour);
    }
    neighbour.text = address_text;
    out = neighbour.address;
    return 0;
}

const std::string* Channels::text_of(const dlcp_address& address) const {
    const Neighbour* const neighbour = neighbour_at(address);
    return neighbour != nullptr ? &neighbour->text : nullptr;
}

const Channels::Neighbour* Channels::neighbour_at(const dlcp_address& address) const {
    std::uint32_t index = 0;
    memcpy(&index, address.bytes, sizeof index);
    if (index >= neighbours_.size()) return nullptr;
    const Neighbour& neighbour = *neighbours_[index];
    return memcmp(address.bytes + sizeof index, neighbour.name.data(), neighbour.name.size()) == 0 ? &neighbour
                                                                                                   : nullptr;
}

bool Channels::put(const dlcp_packet& packet) {
    const bool taken = copy(packet);
    if (!taken) ++counters_.tx_dropped_packets;
    return taken;
}

bool Channels::copy(const dlcp_packet& packet) {
    const Neighbour* neighbour = neighbour_at(*packet.address);
    if (neighbour == nullptr || neighbour->sending == UINT32_MAX) return false;
    Channel& channel = *slots_[neighbour->sending].channel;
    if (packet.head_bytes > DLCP_HEAD_CAPACITY || packet.tail_bytes > DLCP_HEAD_CAPACITY - packet.head_bytes ||
        packet.body_bytes > DLCP_CHANNEL_PACKET_BYTES_MAX || (packet.body == nullptr && packet.body_bytes != 0)) {
        return false;
    }
    const std::uint32_t bytes = packet.head_bytes + packet.body_bytes + packet.tail_bytes;
    if (bytes > DLCP_CHANNEL_PACKET_BYTES_MAX) return false;
    std::uint8_t* to = channel.writer.reserve(bytes);
    if (to == nullptr) return false;
    memcpy(to, packet.head, packet.head_bytes);
    if (packet.body_bytes != 0) memcpy(to + packet.head_bytes, packet.body, packet.body_bytes);
    if (packet.tail_bytes != 0)
        memcpy(to + packet.head_bytes + packet.body_bytes, packet.head + packet.head_bytes, packet.tail_bytes);
    channel.writer.commit(bytes, packet.tos);
    if (written_.empty() || written_.back() != neighbour->sending) written_.push_back(neighbour->sending);
    if (channel.writer.unpublished_bytes() >= publish_bytes && channel.writer.publish()) channel.ring();
    ++counters_.tx_packets;
    counters_.tx_bytes += bytes;
    return true;
}

void Channels::show_written() {
    for (const std::uint32_t slot : written_)
        if (slots_[slot].channel->writer.publish()) slots_[slot].channel->ring();
    written_.clear();
}

// The other side of a channel opened here may have opened one itself and written into that first. It may be waiting to
// be taken: taken it is before anything is read out of this one, so that packets stay in order.
void Channels::hear_of_others_first() {
    bool heard = false;
    for (const std::uint32_t slot : open_slots_) {
        if (!slots_[slot].unheard || !slots_[slot].channel->reader.readable()) continue;
        slots_[slot].unheard = false;
        --unheard_;
        heard = true;
    }
    if (heard) accept_all();
}

// For the same reason its own channel is read to the end first. Looked at in this order: once something is in this one,
// nothing more is written into the other.
bool Channels::comes_later(std::uint32_t slot) const {
    const Neighbour& neighbour = *neighbours_[slots_[slot].neighbour];
    if (slot != neighbour.opened) return false;
    if (slots_[slot].unheard) return true;
    return neighbour.taken != UINT32_MAX &&
           (!slots_[slot].channel->reader.readable() || slots_[neighbour.taken].channel->reader.readable());
}

int Channels::read_rings(dlcp_packet* packets, int count) {
    int filled = 0;
    if (unheard_ > 0) hear_of_others_first();
    const std::size_t channels = open_slots_.size();
    if (channels == 0) return 0;
    first_read_ = (first_read_ + 1) % channels;
    for (std::size_t i = 0; i < channels && filled < count; ++i) {
        const std::uint32_t slot = open_slots_[(first_read_ + i) % channels];
        if (comes_later(slot)) continue;
        RingReader& reader = slots_[slot].channel->reader;
        const dlcp_address& source = neighbours_[slots_[slot].neighbour]->address;
        RingReader::Packet packet;
        std::uint32_t bytes = 0;
        while (filled < count && bytes < ring_bytes_ / rx_share && reader.next(packet)) {
            bytes += packet.length;
            packets[filled++] = {.head = packet.bytes,
                                 .body = nullptr,
                                 .address = &source,
                                 .head_bytes = packet.length,
                                 .body_bytes = 0,
                                 .tail_bytes = 0,
                                 .path = 0,
                                 .tos = packet.tos,
                                 .flags = DLCP_PACKET_TRUSTED,
                                 .arrival_ns = 0,
                                 .cookie = ring_cookie | slot};
            ++counters_.rx_packets;
            counters_.rx_bytes += packet.length;
        }
    }
    return filled;
}

bool Channels::anything_to_read() const {
    if (listener_readable_ != 0 || !gone_.empty()) return true;
    return std::any_of(open_slots_.begin(), open_slots_.end(), [&](std::uint32_t slot) {
        const Channel& channel = *slots_[slot].channel;
        return channel.socket_readable != 0 || channel.reader.readable() || channel.ended;
    });
}

int Channels::receive(dlcp_packet* packets, int count) {
    if (listener_readable_ != 0 || expecting() || ++rx_calls_to_accept_ >= rx_calls_between_accepts) accept_all();
    int received = read_rings(packets, count);
    if (received == 0) look_for_ends();
    while (!gone_.empty() && received < count) {
        packets[received] = {};
        packets[received].address = &neighbours_[gone_.back()]->address;
        packets[received].flags = DLCP_PACKET_TRUSTED | DLCP_PACKET_GONE;
        packets[received++].cookie = gone_cookie;
        gone_.pop_back();
    }
    return received;
}

void Channels::give_back(std::uint64_t cookie, std::uint32_t count) {
    const std::uint64_t slot = cookie & ~ring_cookie;
    if (slot < slots_.size() && slots_[slot].channel) slots_[slot].channel->reader.give_back(count);
}

// It stays announced after waking (shm_ring.hpp): a writer that finds it so rings once in vain, which costs less than
// touching every ring at every sleep.
bool Channels::arm() {
    for (const std::uint32_t slot : open_slots_)
        if (!slots_[slot].channel->reader.arm()) return false;
    return true;
}

}  // namespace dlcp::shm
