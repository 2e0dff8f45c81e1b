// The packet keys of one session: seals with one epoch, opens with that epoch and its neighbours.
//
// The receiver follows the sender: a packet of the next epoch is tried with that epoch's key, which is kept once the
// packet proves authentic. The previous key stays for packets still in flight (as in QUIC, RFC 9001 section 6). The
// first epoch of a session is that of the peer's first authentic packet. Invariant: a key never seals a packet number
// twice, because numbers keep counting across epochs.
#pragma once

#include <cassert>
#include <memory>
#include <optional>

#include "engine/config.hpp"
#include "engine/protection.hpp"

namespace dlcp {

class SessionKeys {
public:
    struct Scope {
        std::uint32_t own_rank = 0;
        std::uint32_t peer_rank = 0;
        std::uint64_t own_session = 0;
        std::uint64_t peer_session = 0;
        CipherCosts peer_ciphers{};  // have one in common with this endpoint's: others' hellos are refused
    };

    SessionKeys() = default;
    SessionKeys(const EndpointConfig& config, const Scope& scope, std::uint8_t send_epoch)
        : scope_(scope), send_epoch_(send_epoch) {
        if (config.job_key) send_ = make(config, scope.own_rank, send_epoch);
    }

    bool present() const { return send_ != nullptr; }
    PacketKey& send() { return *send_; }
    std::uint8_t send_epoch() const { return send_epoch_; }

    void advance_send(const EndpointConfig& config, std::uint8_t epoch) {
        if (!present() || epoch == send_epoch_) return;
        send_epoch_ = epoch;
        send_ = make(config, scope_.own_rank, epoch);
    }

    // The key for a packet of this epoch; nullptr if the epoch is out of reach. A candidate is remembered, not
    // adopted: call `proven` once a packet opened with it.
    PacketKey* receive(const EndpointConfig& config, std::uint8_t epoch) {
        if (receive_ && epoch == receive_epoch_) return receive_.get();
        if (epoch == static_cast<std::uint8_t>(receive_epoch_ - 1) && previous_) return previous_.get();
        if (!reachable(epoch)) return nullptr;
        if (!candidate_ || candidate_epoch_ != epoch) {
            candidate_ = make(config, scope_.peer_rank, epoch);
            candidate_epoch_ = epoch;
        }
        return candidate_.get();
    }
    void proven(std::uint8_t epoch) {
        if (!candidate_ || epoch != candidate_epoch_) return;
        previous_ = std::move(receive_);
        receive_ = std::move(candidate_);
        // Only the immediate predecessor is still looked up; after a leap the old key ages out.
        if (epoch != static_cast<std::uint8_t>(receive_epoch_ + 1)) previous_.reset();
        receive_epoch_ = epoch;
    }

private:
    // How far ahead an epoch may be: a peer that was silent may have missed a few.
    static constexpr std::uint8_t reach = 8;

    bool reachable(std::uint8_t epoch) const {
        return !receive_ || static_cast<std::uint8_t>(epoch - receive_epoch_) <= reach;
    }
    std::unique_ptr<PacketKey> make(const EndpointConfig& config, std::uint32_t source, std::uint8_t epoch) const {
        const bool own_low = scope_.own_rank < scope_.peer_rank;
        KeyScope scope;
        scope.label = "packet";
        scope.job = config.job;
        scope.low_rank = own_low ? scope_.own_rank : scope_.peer_rank;
        scope.high_rank = own_low ? scope_.peer_rank : scope_.own_rank;
        scope.low_session = own_low ? scope_.own_session : scope_.peer_session;
        scope.high_session = own_low ? scope_.peer_session : scope_.own_session;
        scope.source_rank = source;
        scope.epoch = epoch;
        scope.incarnation = config.incarnation;
        const CipherCosts own_ciphers = offered_ciphers(config.cipher, config.crypto_library);
        scope.low_ciphers = own_low ? own_ciphers : scope_.peer_ciphers;
        scope.high_ciphers = own_low ? scope_.peer_ciphers : own_ciphers;
        const std::optional<Cipher> cipher = session_cipher(own_ciphers, scope_.peer_ciphers);
        assert(cipher);
        return make_packet_key(derive_packet_key(*config.job_key, scope), *cipher, config.crypto_library);
    }

    Scope scope_;
    std::uint8_t send_epoch_ = 0;
    std::uint8_t receive_epoch_ = 0;
    std::uint8_t candidate_epoch_ = 0;
    std::unique_ptr<PacketKey> send_;
    std::unique_ptr<PacketKey> receive_;
    std::unique_ptr<PacketKey> previous_;
    std::unique_ptr<PacketKey> candidate_;
};

}  // namespace dlcp
