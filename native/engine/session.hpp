// One incarnation of a pair of endpoints: the state that starts with the session and ends with it.
//
// Constructed when a session is established, destroyed when it ends; no field outlives it.
#pragma once

#include "engine/owed.hpp"
#include "engine/receiver_state.hpp"
#include "engine/sender_state.hpp"
#include "engine/session_keys.hpp"

namespace dlcp {

struct Session {
    SessionKeys keys;
    SenderState sender;
    ReceiverState receiver;
    Owed owed;
};

}  // namespace dlcp
