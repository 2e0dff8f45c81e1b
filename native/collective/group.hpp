// What the executor keeps about one group of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/operation.hpp"
#include "collective/result.hpp"
#include "collective/states.hpp"
#include "collective/tag.hpp"
#include "engine/endpoint.hpp"

namespace dlcp {

struct Group {
    std::uint32_t number = 0;               // below Tag::groups, the same on all members
    std::uint32_t own = 0;                  // this rank's place in `members`
    std::vector<std::uint32_t> members;     // ranks of the endpoints, by rank in the group
    std::vector<PeerId> peers;              // of the members; any_peer: not looked up yet, or not connected
    std::vector<std::uint32_t> operations;  // slots of those that are not over
    StateMachine<GroupStates> state;
    CollectiveResult failure;  // not open: the first failure; of aborts, the one that ends most
    // Not open: collectives from this number on fail. After an abort by a member the earlier ones, which it has
    // finished, go on; of any other failure it is 0.
    std::uint32_t failed_from = UINT32_MAX;
    std::uint32_t started_end = 0;                  // the number after the last collective that has started here
    std::vector<bool> notified;                     // by member: a failure notice has been sent, or is not needed
    CollectiveResult accusation;                    // the notice that blames this rank, while it asks others
    std::uint32_t accuser = no_member;              // who sent `accusation`, and may have left since
    MessageId failure_receive;                      // takes the next failure notice
    std::array<std::uint8_t, 64> failure_buffer{};  // its memory
    // The last collectives, at sequence % size: they check messages for a collective that is over here.
    struct Past {
        std::uint32_t sequence = UINT32_MAX;       // as tags carry it
        std::uint32_t signature = 0;               // 28 bits (tag.hpp)
        std::shared_ptr<const Schedule> schedule;  // says which messages it waited for
    };
    std::array<Past, 256> past{};
    // A message for a collective that has not started here; in the order of arrival.
    struct Early {
        std::uint32_t peer;  // rank in the group
        Tag tag;
        std::uint32_t bytes;  // of the message
    };
    std::vector<Early> early;

    // Who has left, so that nothing more comes from there; error none: it may come.
    struct Departure {
        CommandError error = CommandError::none;  // peer_closed, peer_gone
        std::uint32_t member = no_member;
    };
    // Of one member; of no_member: of all others, and of these one that died, if any did.
    Departure departure(const Endpoint& endpoint, std::uint32_t member) const {
        const auto how = [&](std::uint32_t each) {
            const std::optional<PeerId> peer =
                peers[each] == any_peer ? endpoint.find_peer(members[each]) : peers[each];
            return peer ? endpoint.ended_by(*peer) : CommandError::none;
        };
        if (member != no_member) return {how(member), member};
        Departure found;
        for (std::uint32_t each = 0; each < members.size(); ++each) {
            if (each == own) continue;
            const CommandError error = how(each);
            if (error == CommandError::none) return {};
            if (found.error != CommandError::peer_gone) found = {error, each};
        }
        return found;
    }
    bool is_open() const { return state == GroupStates::State::open; }
    bool fails(std::uint32_t sequence) const {
        return !is_open() && (failed_from == 0 || !Tag::is_before(sequence, failed_from));
    }
    bool closing() const {
        return state == GroupStates::State::closing || state == GroupStates::State::closing_quietly;
    }
    // Members that have not been notified of the failure are notified as soon as their session is up.
    bool notifies() const { return state == GroupStates::State::failed || state == GroupStates::State::closing; }
};

}  // namespace dlcp
