// How the members of a group learn that it has failed.
//
// The first failure on this rank goes as a notice to every member that this rank has a session with, and each of these
// notifies its own: the sessions of a collective connect all of its ranks, so all learn of it, also those that exchange
// nothing with the rank to blame.
//
//    0       4       5       6          8         12         16         20
//   +-------+-------+-------+----------+----------+----------+----------+
//   | magic | error | cause | 0        | culprit  | sequence | reporter |   little endian, 20 bytes
//   +-------+-------+-------+----------+----------+----------+----------+
#include <algorithm>
#include <cstring>
#include <string_view>

#include "collective/executor.hpp"
#include "engine/bytes.hpp"

namespace dlcp {
namespace {

constexpr std::uint32_t magic = 0x4c494146;  // "FAIL"
constexpr std::uint32_t notice_bytes = 20;

}  // namespace

// Each member may send one notice. The first counts; the others are received so that no engine keeps them.
void CollectiveExecutor::listen_for_failure(Time now, Group& group) {
    ReceiveCommand command;
    command.tag = Tag::of_failure(group.number);
    command.buffer = group.failure_buffer.data();
    command.capacity_bytes = static_cast<std::uint32_t>(group.failure_buffer.size());
    const auto received = endpoint_.receive(now, command);
    if (!received) return;
    group.failure_receive = received.value;
    listening_.emplace(key_of(received.value), group.number);
}

// Collectives from number `from` on fail, and all members learn why, but for the one that told this rank. Members without
// a session are notified when it is up.
void CollectiveExecutor::notify_group(Time now, Group& group, const CollectiveResult& why, std::uint32_t from) {
    group.failure = why;
    group.failure.waiting_for.clear();
    group.failed_from = from;
    group.notified.assign(group.members.size(), false);
    const std::uint32_t except = why.error == CollectiveError::group_failed ? why.culprit : no_member;
    if (except < group.members.size()) group.notified[except] = true;
    for (std::uint32_t member = 0; member < group.members.size(); ++member) notify_member(now, group, member);
}

void CollectiveExecutor::notify_member(Time now, Group& group, std::uint32_t member) {
    if (member == group.own || group.notified[member]) return;
    const PeerId peer = peer_of(group, member);
    if (peer == any_peer || !endpoint_.established(peer)) return;
    group.notified[member] = true;
    const CollectiveResult& why = group.failure;
    Detached notice{pool_.take(notice_bytes), group.number, member, false};
    std::uint8_t* out = notice.memory.data.get();
    std::memset(out, 0, notice_bytes);
    const CollectiveError first = why.root_error();
    wire::store32(out, magic);
    out[4] = static_cast<std::uint8_t>(first);
    out[5] = static_cast<std::uint8_t>(why.engine_error);
    wire::store32(out + 8, why.culprit);
    wire::store32(out + 12, why.sequence);
    wire::store32(out + 16, why.error == CollectiveError::group_failed ? why.reporter : group.own);
    SendCommand command;
    command.peer = peer;
    command.tag = Tag::of_failure(group.number);
    command.payload = out;
    command.message_bytes = notice_bytes;
    command.traffic_class = highest_data_class;
    if (const auto sent = endpoint_.send(now, command))
        detached_.emplace(key_of(sent.value), std::move(notice));
    else
        pool_.give_back(std::move(notice.memory));
}

void CollectiveExecutor::handle_notice(Time now, Group& group, PeerId by, std::uint32_t bytes) {
    const std::uint8_t* in = group.failure_buffer.data();
    const bool known = bytes == notice_bytes && wire::load32(in) == magic &&
                       in[4] <= static_cast<std::uint8_t>(CollectiveError::aborted);
    const std::uint32_t from = member_of(group, by);
    CollectiveResult why;
    why.error = CollectiveError::group_failed;
    why.cause = static_cast<CollectiveError>(in[4]);
    // An error that this rank has no name for leaves the rest of the notice valid.
    why.engine_error = static_cast<CommandError>(in[5]);
    if (std::string_view(name(why.engine_error)) == "unknown") why.engine_error = CommandError::none;
    why.culprit = wire::load32(in + 8);
    if (why.culprit >= group.members.size()) why.culprit = no_member;
    why.sequence = wire::load32(in + 12);
    why.reporter = wire::load32(in + 16);
    if (why.reporter >= group.members.size()) why.reporter = from;
    if (!group.closing()) listen_for_failure(now, group);
    if (!known || from == no_member) return;  // not a notice, or not from a member
    if (!contest(now, group, why, from)) fail_group(now, group, why, no_slot);
}

// A notice that another rank's time was up may blame the wrong rank: this rank may know one that does not answer, or
// may be blamed while it waits for other ranks itself. True: the notice is handled; false: the group fails as the
// notice says.
bool CollectiveExecutor::contest(Time now, Group& group, const CollectiveResult& notice, std::uint32_t from) {
    const bool accuses = notice.culprit == group.own;
    if (!group.is_open() || notice.cause != CollectiveError::timeout) return false;
    // The culprit of the notice does not answer either.
    if (!accuses && notice.engine_error == CommandError::peer_timeout) return false;
    for (const std::uint32_t slot : group.operations) {
        const GroupOperation& operation = operations_[slot];
        if (operation.ended() || !operation.silent()) continue;
        CollectiveResult why;
        why.error = CollectiveError::timeout;
        why.engine_error = CommandError::peer_timeout;
        why.sequence = operation.sequence;
        why.culprit = operation.absent_rank;
        fail_group(now, group, why, slot);
        return true;
    }
    return accuses && accept_accusation(now, group, notice, from);
}

// This rank is blamed. If its oldest operation, up to the one of the notice, waits for other ranks, it asks these, and
// the notice counts only if their answers name no other rank. False: it waits for no rank.
bool CollectiveExecutor::accept_accusation(Time now, Group& group, const CollectiveResult& notice,
                                           std::uint32_t from) {
    const std::uint32_t slot = find_oldest(group, notice.sequence + 1);
    if (slot == no_slot) return false;
    GroupOperation& operation = operations_[slot];
    note_waiting(operation, group);
    if (operation.result.waiting_for.empty()) return false;
    if (group.accuser != no_member) return true;
    group.accuser = from;
    group.accusation = notice;
    // Ranks that were asked already are not asked again: that would take the time again.
    if (!operation.asking() && !is_asking(now, operation)) ask(now, group, operation);
    operation.state.apply(OperationStates::Event::accusation);
    operation.inquiry.apply(InquiryStates::Event::accusation);
    operation.deadline = std::max(now, operation.asked_at + answer_timeout);
    deadlines_.set(slot, operation.deadline);
    return true;
}

}  // namespace dlcp
