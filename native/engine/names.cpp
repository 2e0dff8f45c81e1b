// Names of the enumerations that leave the engine, as logs, reports and exceptions show them.
#include "engine/event.hpp"

namespace dlcp {

const char* name(CommandError error) {
    switch (error) {
        case CommandError::none: return "none";
        case CommandError::unknown_peer: return "unknown_peer";
        case CommandError::unknown_message: return "unknown_message";
        case CommandError::message_not_over: return "message_not_over";
        case CommandError::message_over: return "message_over";
        case CommandError::bad_class: return "bad_class";
        case CommandError::bad_loss_ratio: return "bad_loss_ratio";
        case CommandError::bad_deadline: return "bad_deadline";
        case CommandError::bad_importance_count: return "bad_importance_count";
        case CommandError::bad_unit: return "bad_unit";
        case CommandError::duplicate_rank: return "duplicate_rank";
        case CommandError::own_rank: return "own_rank";
        case CommandError::too_many_peers: return "too_many_peers";
        case CommandError::too_many_messages: return "too_many_messages";
        case CommandError::bad_release: return "bad_release";
        case CommandError::no_key: return "no_key";
        case CommandError::closed: return "closed";
        case CommandError::peer_timeout: return "peer_timeout";
        case CommandError::peer_restarted: return "peer_restarted";
        case CommandError::peer_closed: return "peer_closed";
        case CommandError::cancelled: return "cancelled";
        case CommandError::peer_cancelled: return "peer_cancelled";
        case CommandError::receive_too_small: return "receive_too_small";
        case CommandError::refused: return "refused";
        case CommandError::wrong_size: return "wrong_size";
        case CommandError::peer_gone: return "peer_gone";
    }
    return "unknown";
}

const char* name(EventKind kind) {
    switch (kind) {
        case EventKind::peer_established: return "peer_established";
        case EventKind::peer_down: return "peer_down";
        case EventKind::send_finished: return "send_finished";
        case EventKind::send_failed: return "send_failed";
        case EventKind::receive_finished: return "receive_finished";
        case EventKind::receive_failed: return "receive_failed";
        case EventKind::path_down: return "path_down";
        case EventKind::path_up: return "path_up";
        case EventKind::bound_reached: return "bound_reached";
        case EventKind::message_unexpected: return "message_unexpected";
    }
    return "unknown";
}

}  // namespace dlcp
