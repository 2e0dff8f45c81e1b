// Whether the path has stopped to carry large packets, and how large they may be (RFC 8899 section 4.3; RFC 4821
// section 7.7: black holes).
//
// Three steps. *Evidence*: packets larger than all that arrive are lost time after time, each sent after the loss of the
// one before was known. Packets that left alone count by themselves as well: some devices let runs of such packets pass.
// It may be chance, so it only starts the next step. *Comparison*: padded packets, two of the present size to one of the
// least, which loss by chance hits alike. A large one that arrives ends the search; when ten small ones have arrived and
// no large one, large ones do not pass: by chance that happens once in 3^10 searches at most, however many packets are
// lost (one to one and eight: once in 2^8, and a path that loses nine in ten starts thousands of searches).
// *Ladder*: one packet of each smaller size, three times; the largest that arrives is the size from now on.
//
// A value without clock or packets: the endpoint asks what to send and reports what became of it. Invariant: a search
// ends after a bounded number of rounds. It never finds a larger size.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/datagram_sizes.hpp"

namespace dlcp {

struct SizeSearch {
    // Evidence. A data packet was acknowledged, or declared lost while packet `next` was the next to be sent. `alone`: it
    // was no part of a run.
    void on_acked(std::uint64_t number, std::uint16_t bytes, bool alone) {
        all_.on_acked(number, bytes);
        if (alone) alone_.on_acked(number, bytes);
    }
    void on_lost(std::uint64_t number, std::uint16_t bytes, bool alone, std::uint64_t next) {
        all_.on_lost(number, bytes, next);
        if (alone) alone_.on_lost(number, bytes, next);
    }
    // An acknowledgement with news arrived. True: large packets seem to vanish.
    bool on_answer() {
        const bool all = all_.on_answer(), alone = alone_.on_answer();
        return (all || alone) && step_ == Step::idle;
    }
    // A round trip is over, and packet `next` is the oldest in flight. What passed before says little about now.
    void end_round(std::uint64_t next) {
        all_.end_round(next);
        alone_.end_round(next);
    }

    // Starts to test `size`, the present one, with packets from number `next` on.
    void start(std::uint16_t size, std::uint64_t next) {
        forget(next);
        if (size <= least_datagram) return;
        tests_from_ = next;
        size_ = size;
        begin(Step::comparison);
    }
    bool active() const { return step_ != Step::idle; }
    // The next packet of the round: its size; 0: the round has no more.
    std::uint16_t next_test() const {
        if (step_ == Step::comparison) return sent_ < 2 ? size_ : sent_ == 2 ? least_datagram : 0;
        if (step_ == Step::ladder)
            for (std::uint32_t i = 0, skip = sent_; i < std::size(datagram_ladder); ++i)
                if (datagram_ladder[i] < size_ && skip-- == 0) return datagram_ladder[i];
        return 0;
    }
    void on_test_sent() { ++sent_; }
    // A test of `bytes` arrived.
    void on_test_acked(std::uint64_t number, std::uint16_t bytes) {
        if (!active() || number < tests_from_) return;
        answered_ = true;
        if (bytes >= size_)
            forget(tests_from_);  // nothing is wrong
        else if (step_ == Step::comparison)
            ++small_acked_;
        else
            found_ = std::max(found_, bytes);
    }
    // The round's time is over. The size that the path carries, if the search has found it; else 0, and the next round
    // begins, or the search has ended without a result.
    std::uint16_t end_test_round() {
        silent_rounds_ = answered_ ? 0 : silent_rounds_ + 1;
        answered_ = false;
        ++rounds_;
        sent_ = 0;
        const std::uint16_t found = step_ == Step::ladder && rounds_ >= ladder_rounds ? found_ : std::uint16_t{0};
        if (found != 0 || silent_rounds_ >= most_silent_rounds)
            forget(tests_from_);
        else if (step_ == Step::comparison && small_acked_ >= decisive_answers)
            begin(Step::ladder);
        return found;
    }
    // Rounds in a row without an answer: each doubles the time of the next.
    std::uint32_t silent_rounds() const { return silent_rounds_; }

    enum class Step : std::uint8_t { idle, comparison, ladder };

    // Losses in a row, one after the other, that make a path suspicious: at 5 % loss, one packet in 10^5.
    static constexpr std::uint32_t suspicious_failures = 4;
    static constexpr std::uint32_t decisive_answers = 10;
    static constexpr std::uint32_t ladder_rounds = 3;
    static constexpr std::uint32_t most_silent_rounds = 6;

    struct Evidence {
        std::uint64_t epoch = 0;         // packets from this number on count
        std::uint64_t failure_end = 0;   // the next failure must be at or after it
        std::uint16_t passed_bytes = 0;  // the largest that arrived in this round
        std::uint16_t failed_bytes =
            UINT16_MAX;  // the least that failed; one as large that arrives ends the suspicion
        std::uint32_t failures = 0;
        bool failed = false;  // one more, that waits for an answer

        void on_acked(std::uint64_t number, std::uint16_t bytes) {
            if (number < epoch) return;
            passed_bytes = std::max(passed_bytes, bytes);
            if (bytes < failed_bytes) return;
            failures = 0;
            failed = false;
            failed_bytes = UINT16_MAX;
        }
        void on_lost(std::uint64_t number, std::uint16_t bytes, std::uint64_t next) {
            if (number < failure_end || number < epoch || bytes <= std::max(passed_bytes, least_datagram)) return;
            failure_end = next;
            failed = true;
            failed_bytes = std::min(failed_bytes, bytes);
        }
        bool on_answer() {
            failures += failed;
            failed = false;
            return failures >= suspicious_failures;
        }
        void end_round(std::uint64_t next) {
            epoch = next;
            passed_bytes = 0;
        }
    };
    // Of all packets; and of those that left alone, because runs may pass where these do not.
    Evidence all_, alone_;

    // The search.
    Step step_ = Step::idle;
    std::uint16_t size_ = 0;   // being tested
    std::uint16_t found_ = 0;  // largest of the ladder that arrived
    bool answered_ = false;    // in this round
    std::uint32_t sent_ = 0;   // of this round
    std::uint32_t rounds_ = 0;
    std::uint32_t silent_rounds_ = 0;
    std::uint32_t small_acked_ = 0;
    std::uint64_t tests_from_ = 0;

private:
    void forget(std::uint64_t before) {
        *this = SizeSearch{};
        all_.epoch = alone_.epoch = before;
    }
    void begin(Step step) {
        step_ = step;
        sent_ = rounds_ = 0;
    }
};

}  // namespace dlcp
