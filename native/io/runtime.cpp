// The calls of a runtime: peers, messages, groups, statistics.
#include "io/runtime.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace dlcp {

// ---- peers ----

bool Runtime::connect(std::uint32_t rank, const std::string& text) {
    Lock lock = enter();
    const Inside inside(*this);
    const dlcp_address address = resolve(lock, text, rank);
    const auto known = peers_.find(rank);
    const bool is_new = known == peers_.end() || !known->second.here;
    const bool came_by_itself = !is_new && !known->second.named;
    const auto connected = engine_->connect(pump_.now(), rank, address);
    // A peer that came by itself may have sent from another of its ports; it stays where it answered.
    if (!connected && !(came_by_itself && connected.error == CommandError::duplicate_rank))
        throw refusal(connected.error, {.rank = rank}, options_.engine);
    if (is_new) note_peer(rank, connected.value);
    peers_[rank].named = true;
    kick(lock);
    return is_new;
}

// A name is looked up without the mutex.
dlcp_address Runtime::resolve(Lock& lock, const std::string& text, std::uint32_t rank) {
    role_.take(lock);
    lock.unlock();
    dlcp_address address{};
    std::optional<IoError> refused;
    try {
        address = driver_->resolve(text, rank);
    } catch (const IoError& error) {
        refused = error;
    }
    lock.lock();
    role_.leave();
    check_usable();
    if (refused) throw *refused;
    return address;
}

void Runtime::note_peer(std::uint32_t rank, PeerId id) {
    Peer& peer = peers_.try_emplace(rank, Peer{.id = id, .here = false}).first->second;
    if (!peer.here) ranks_.push_back(rank);
    peer.here = true;
}

void Runtime::disconnect(std::uint32_t rank) {
    Lock lock = enter();
    const Inside inside(*this);
    const PeerId peer = peer_of(rank);
    if (const auto error = engine_->disconnect(pump_.now(), peer); error != CommandError::none)
        throw refusal(error, {.rank = rank}, options_.engine);
    std::erase(ranks_, rank);
    peers_[rank] = {.id = peer, .here = false};
    kick(lock);
}

bool Runtime::wait_established(std::uint32_t rank, Duration timeout) {
    Lock lock = enter();
    const Inside inside(*this);
    const auto done = [&] { return is_established(rank); };
    wait_until(lock, done, real_deadline(timeout), nullptr);
    if (!done()) check_usable();
    return done();
}

bool Runtime::is_established(std::uint32_t rank) const {
    const auto found = peers_.find(rank);
    return found != peers_.end() && found->second.here && engine_->established(found->second.id);
}

PeerId Runtime::peer_of(std::uint32_t rank) const {
    if (const auto found = peers_.find(rank); found != peers_.end()) {
        if (found->second.here) return found->second.id;
    } else if (const auto peer = engine_->find_peer(rank)) {
        return *peer;  // it came by itself, and the handshake is not over
    }
    throw unknown_peer_refusal(rank, ranks_);
}

bool Runtime::established(std::uint32_t rank) const {
    const Lock lock = enter();
    return is_established(rank);
}

std::vector<std::uint32_t> Runtime::peers() const {
    const Lock lock = enter();
    return ranks_;
}

std::uint16_t Runtime::block_bytes(std::uint32_t rank, std::uint16_t unit_bytes) const {
    const Lock lock = enter();
    return engine_->block_bytes(peer_of(rank), unit_bytes);
}

std::string Runtime::peer_address(std::uint32_t rank) {
    Lock lock = enter();
    const Inside inside(*this);
    const dlcp_address address = *engine_->address_of(peer_of(rank));
    role_.take(lock);
    std::string text = driver_->format(address);
    role_.leave();
    return text;
}

// ---- messages ----

OperationPtr Runtime::send(std::uint32_t rank, SendCommand command, std::uint8_t importance_of_all,
                           bool wait_follows) {
    Lock lock = enter();
    const Inside inside(*this);
    command.peer = peer_of(rank);
    std::uint32_t blocks = 0;
    std::vector<std::uint8_t> filled;
    if (command.importance.data() != nullptr || importance_of_all != wire::importance_critical) {
        if (!engine_->established(command.peer)) throw not_established_refusal(rank);
        blocks = wire::block_count(command.message_bytes, engine_->block_bytes(command.peer));
        if (command.importance.data() == nullptr) {
            filled.assign(blocks, importance_of_all);
            command.importance = filled;
        }
    }
    const auto sent = engine_->send(pump_.now(), command);
    if (!sent)
        throw refusal(sent.error,
                      {.rank = rank,
                       .loss_ratio = command.loss_ratio,
                       .deadline = command.deadline,
                       .traffic_class = command.traffic_class,
                       .message_bytes = command.message_bytes,
                       .importance_entries = command.importance.size(),
                       .blocks = blocks},
                      options_.engine);
    return begin(lock, rank, command.peer, command.tag, sent.value, true, wait_follows);
}

OperationPtr Runtime::receive(std::optional<std::uint32_t> rank, ReceiveCommand command, bool wait_follows) {
    Lock lock = enter();
    const Inside inside(*this);
    const std::uint32_t source = rank.value_or(UINT32_MAX);
    if (rank) command.peer = peer_of(*rank);
    const auto received = engine_->receive(pump_.now(), command);
    if (!received) throw refusal(received.error, {.rank = source}, options_.engine);
    return begin(lock, source, command.peer, command.tag, received.value, false, wait_follows);
}

bool Runtime::cancel(const OperationPtr& operation) {
    if (operation->over.load(std::memory_order_acquire)) return false;
    Lock lock = enter();
    if (closing_) return false;
    const Inside inside(*this);
    if (operation->over.load(std::memory_order_relaxed)) return false;
    const auto error = engine_->cancel(pump_.now(), operation->message);
    kick(lock);
    return error == CommandError::none;
}

bool Runtime::progress(Duration timeout) {
    Lock lock = enter();
    const Inside inside(*this);
    const std::uint64_t before = finished_count_;
    const auto done = [&] { return finished_count_ != before; };
    if (timeout.value != 0)
        wait_until(lock, done, real_deadline(timeout), nullptr);
    else if (!role_.taken())
        drive_once(lock);
    return done();
}

std::vector<std::uint64_t> Runtime::next_finished(Duration timeout) {
    Lock lock = enter();
    if (closed_) return std::exchange(finished_, {});
    const Inside inside(*this, Inside::also_closing);
    const RealTime until = real_deadline(timeout);
    while (finished_.empty() && !stop_ && !has_passed(until)) sleep_until(finished_condition_, lock, until);
    return std::exchange(finished_, {});
}

// ---- groups ----

bool Runtime::open_group(std::uint32_t group, const std::vector<std::uint32_t>& members, std::uint32_t own) {
    const Lock lock = enter();
    const Inside inside(*this);
    return collectives_->executor().open_group(pump_.now(), group, members, own);
}

void Runtime::close_group(std::uint32_t group, bool tell) {
    Lock lock = enter();
    if (closing_) return;
    const Inside inside(*this);
    collectives_->executor().close_group(pump_.now(), group, tell);
    kick(lock);
}

bool Runtime::wait_delivered(Duration timeout) {
    Lock lock = enter();
    const Inside inside(*this);
    const auto done = [&] { return collectives_->executor().copied().empty(); };
    wait_until(lock, done, real_deadline(timeout), nullptr);
    return done();
}

std::unordered_map<std::uint32_t, std::uint64_t> Runtime::undelivered() const {
    const Lock lock = enter();
    std::unordered_map<std::uint32_t, std::uint64_t> out;
    const CollectiveExecutor& executor = collectives_->executor();
    for (const auto* bytes : {&executor.copied(), &executor.lost()})
        for (const auto& [peer, count] : *bytes) out[engine_->rank_of({peer})] += count;
    return out;
}

// ---- what is known ----

std::vector<RuntimeLogEntry> Runtime::drain_log() {
    const Lock lock = enter();
    return log_.drain();
}

RuntimeStatistics Runtime::statistics() {
    RuntimeStatistics out;
    Lock lock = enter();
    if (closing_) {
        changed_.wait(lock, [&] { return closed_; });
        out.io = final_io_;
        out.injected_lost_packets = final_injected_lost_packets_;
    } else {
        const Inside inside(*this);
        role_.take(lock);
        out.io = driver_->counters();
        role_.leave();
        out.injected_lost_packets = driver_->injected_lost_packets();
    }
    out.engine = engine_->counters();
    out.outstanding_operations = operations_.size();
    out.log_entries_dropped = log_.dropped();
    out.driver_waits = pump_.sleeps();
    out.role_changes = role_.changes();
    return out;
}

std::vector<std::pair<std::string, std::uint64_t>> Runtime::driver_statistics() {
    Lock lock = enter();
    if (closing_) return {};
    const Inside inside(*this);
    role_.take(lock);
    auto out = driver_->statistics();
    role_.leave();
    return out;
}

PeerStatistics Runtime::peer_statistics(std::uint32_t rank) {
    const Lock lock = enter();
    PeerStatistics out = engine_->peer_statistics(peer_of(rank));
    if (!closing_ && out.last_heard > Time{0}) out.silent = pump_.now() - out.last_heard;
    return out;
}

std::vector<PathStatistics> Runtime::path_statistics(std::uint32_t rank) const {
    const Lock lock = enter();
    std::vector<PathStatistics> out(64);  // EndpointConfig::paths is at most this
    out.resize(std::min(out.size(), engine_->path_statistics(peer_of(rank), out)));
    return out;
}

void Runtime::advance_key_epoch() {
    const Lock lock = enter();
    const Inside inside(*this);
    if (const auto error = engine_->advance_key_epoch(); error != CommandError::none)
        throw refusal(error, {}, options_.engine);
}

}  // namespace dlcp
