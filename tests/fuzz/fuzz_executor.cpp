// A program of commands for two ranks of a group of three, and of anything that the third may say under the job's key:
// blocks, lengths, words of failure, questions and answers, under right and wrong tags, in any order, whole or lossy.
//
// Invariant: whatever a member says, nothing is written but the chunks of operations under way, every operation ends
// once and within a second after its time, and the engines keep their invariants (support/native/collective_world.hpp).
//
// Input: two bytes of settings, then commands of four bytes: what, and three operands.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "collective/tag.hpp"
#include "engine/bytes.hpp"
#include "engine/wire.hpp"
#include "support/native/collective_world.hpp"
#include "support/native/schedule_vectors.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::test;

constexpr std::uint32_t group_number = 9;
constexpr std::uint32_t stranger = 2;  // host and member
constexpr std::uint32_t elements[] = {0, 1, 4, 100, 352, 353, 2'000, 9'000};
constexpr Duration timeout = milliseconds(300);

const std::vector<const ScheduleSet*>& schedules_of_three() {
    static const std::vector<ScheduleSet> all = load_schedules();
    static const std::vector<const ScheduleSet*> three = [] {
        std::vector<const ScheduleSet*> out;
        for (const ScheduleSet& set : all)
            if (set.world_size() == 3) out.push_back(&set);
        return out;
    }();
    return three;
}

class Program {
public:
    explicit Program(const std::uint8_t* settings) : world_(settings[0]) {
        EndpointConfig config;
        config.peer_timeout = seconds(1);
        config.max_rto = milliseconds(5);
        config.initial_rtt = microseconds(200);
        config.max_unexpected = Bytes{(settings[1] & 1) != 0 ? 2'000u : 10'000'000u};
        config.max_unexpected_message = Bytes{(settings[1] & 2) != 0 ? 600u : 10'000'000u};
        config.max_messages_per_peer = (settings[1] & 4) != 0 ? 8 : 1'000;
        for (int i = 0; i < 3; ++i) world_.add_host(config);
        world_.add_group(group_number, {0, 1, 2});
        world_.errors_allowed = true;
        world_.contents_judged = false;
        set_loss(0);
        for (std::uint32_t host = 0; host < 2; ++host) {
            world_.open_group(0, host);
            world_.endpoint(stranger).connect(world_.now(), host, VirtualNetwork::address(host));
        }
        world_.serve(stranger);
    }

    void run(std::uint8_t what, std::uint8_t a, std::uint8_t b, std::uint8_t c) {
        if (world_.failed()) return;
        const std::uint32_t host = a & 1;
        switch (what % 16) {
            case 0:
            case 1: start(host, a >> 1, b, c); break;
            case 2: message(host, a >> 1, b, c); break;
            case 3:
            case 4:
            case 5:
            case 6: say(host, a >> 1, b, c); break;
            case 7:
            case 8:
            case 9: world_.run_until(world_.now() + microseconds(std::int64_t{1} << b % 16)); break;
            case 10: set_loss(b / 512.0); break;
            case 11: world_.close_group(0, host, (b & 1) != 0); break;
            case 12: world_.open_group(0, host); break;
            case 13: listen(host, a >> 1, b, c); break;
            case 14:
                if (!said_.empty()) {
                    world_.endpoint(stranger).cancel(world_.now(), said_[b % said_.size()]);
                    world_.serve(stranger);
                }
                break;
            case 15:
                if (b < 8)
                    world_.close(stranger);
                else if (b < 16)
                    world_.freeze(stranger);
                else
                    world_.thaw(stranger);
                break;
        }
    }

    void finish() {
        set_loss(0);
        world_.thaw(stranger);
        world_.run(world_.now() + seconds(3), [&] { return world_.all_over(); });
        for (const Operation& each : world_.operations()) {
            if (each.phase == Operation::Phase::running) world_.fail(world_.describe(each) + ": does not end");
            if (each.over - each.started > timeout + seconds(1))
                world_.fail(world_.describe(each) + ": ends late");
        }
        world_.finish();
        if (!world_.failed()) return;
        std::fprintf(stderr, "broken: %s\n", world_.failure().c_str());
        std::abort();
    }

private:
    void set_loss(double ratio) {
        LinkSettings way;
        way.delay = microseconds(20);
        way.loss_ratio = ratio;
        for (std::uint32_t from = 0; from < 3; ++from)
            for (std::uint32_t to = 0; to < 3; ++to)
                if (from != to) world_.network().set_between(from, to, way);
    }

    // Both ranks call the same under one number, unless the program has it otherwise.
    void start(std::uint32_t host, std::uint8_t which, std::uint8_t length, std::uint8_t how) {
        const std::uint32_t sequence = next_[host]++;
        while (plans_.size() <= sequence) {
            CollectivePlan plan;
            plan.set = schedules_of_three()[which % schedules_of_three().size()];
            plan.sequence = sequence;
            plan.signature = 0x77;
            plan.type = static_cast<DataType>(how % data_types);
            plan.part_elements.assign(plan.set->parts, elements[length % 8]);
            plan.traffic_class = static_cast<std::uint8_t>(how % 7);
            plan.timeout = timeout;
            if (plan.set->bounded() && how % 3 != 0) {
                plan.loss.emplace().rescale = how % 2 != 0 && plan.type == DataType::f32;
                plan.loss->ranks.assign(3, {(how % 8) / 8.0, 0.2, milliseconds(how % 16 == 1 ? 1 : 0), how == 5,
                                            milliseconds(how % 5 - 1)});
            }
            plans_.push_back(world_.add(plan));
        }
        Deviation deviation;
        if (how >= 250) deviation.signature_bits = 1;
        if (how >= 240 && how < 250) deviation.more_elements = how - 239u;
        deviation.reliable = how >= 230 && how < 240;
        world_.start_collective(plans_[sequence], host, deviation);
    }

    void message(std::uint32_t host, std::uint8_t tag, std::uint8_t length, std::uint8_t how) {
        MessagePlan plan;
        const bool sending = (how & 1) != 0;
        const std::uint32_t peer = (how & 2) != 0 ? stranger : 1 - host;
        plan.from = sending ? host : peer;
        plan.to = sending ? peer : host;
        plan.from_anyone = !sending && (how & 4) != 0;
        plan.tag = tag % 4;
        plan.bytes = elements[length % 8];
        plan.timeout = timeout;
        world_.start_message(world_.add(plan), sending);
    }

    std::uint64_t tag(std::uint8_t kind, std::uint8_t number, std::uint8_t value) const {
        const std::uint32_t group = number >= 240 ? number : group_number;
        const std::uint32_t sequence = number % 8;
        switch (kind % 4) {
            case 0: return Tag::of_collective(group, sequence, value % 4, value >= 200 ? value : 0x77);
            case 1: return Tag::of_message(group, value % 4);
            case 2: return Tag::of_failure(group);
            default:
                return Tag::of_inquiry(group, sequence,
                                       value < 100   ? Tag::question
                                       : value < 200 ? Tag::not_called
                                                     : value % 8u);
        }
    }

    void say(std::uint32_t host, std::uint8_t kind, std::uint8_t number, std::uint8_t value) {
        Endpoint& endpoint = world_.endpoint(stranger);
        const auto peer = endpoint.find_peer(host);
        if (!peer) return;
        std::vector<std::uint8_t>& payload = payloads_.emplace_back();
        if (kind % 4 == 2) {
            payload.assign(value % 5 == 0 ? value : 20, value);
            if (payload.size() >= 20 && value % 3 != 0) {
                wire::store32(payload.data(), 0x4c494146);
                payload[4] = value % 8;
                payload[5] = value % 32;
                wire::store32(payload.data() + 8, value % 5 == 4 ? UINT32_MAX : value % 4u);
            }
        } else if (kind % 4 < 2) {
            payload.assign(elements[number / 8 % 8] * (value % 8 + 1u), value);
        }
        SendCommand command;
        command.peer = *peer;
        command.tag = tag(kind, number, value);
        command.payload = payload.data();
        command.message_bytes = static_cast<std::uint32_t>(payload.size());
        // It may lose most of it, whatever the others agreed to.
        std::vector<std::uint8_t> importance;
        if (value % 4 == 3) {
            command.delivery = value % 8 == 3 ? Delivery::bounded : Delivery::deadline;
            command.loss_ratio = 0.9;
            command.deadline = milliseconds(1);
            importance.assign(wire::block_count(command.message_bytes, endpoint.block_bytes(*peer)), number);
            command.importance = importance;
        }
        if (const auto sent = endpoint.send(world_.now(), command)) said_.push_back(sent.value);
        world_.serve(stranger);
    }

    void listen(std::uint32_t host, std::uint8_t kind, std::uint8_t number, std::uint8_t value) {
        Endpoint& endpoint = world_.endpoint(stranger);
        const auto peer = endpoint.find_peer(host);
        if (!peer) return;
        ReceiveCommand command;
        command.peer = *peer;
        command.tag = tag(kind, number, value);
        command.capacity_bytes = value % 2 == 0 ? UINT32_MAX : value;
        if (const auto receiving = endpoint.receive(world_.now(), command)) said_.push_back(receiving.value);
        world_.serve(stranger);
    }

    CollectiveWorld world_;
    std::uint32_t next_[2] = {0, 0};
    std::vector<std::size_t> plans_;
    std::vector<MessageId> said_;
    std::deque<std::vector<std::uint8_t>> payloads_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2 || size > 2'000) return 0;
    Program program(data);
    for (std::size_t at = 2; at + 4 <= size; at += 4)
        program.run(data[at], data[at + 1], data[at + 2], data[at + 3]);
    program.finish();
    return 0;
}
