// What a data packet costs the engine and what it costs the driver, told apart in one thread.
//
// The sender's engine fills buffers that a driver lends and the driver sends them, to where nobody is (the dpdk driver on
// a net_null device: virtual, frees what it is given). What they held is then handed to the receiver's engine, whose
// acknowledgements go back through memory. Time is virtual. Each section is measured by itself with the time stamp
// counter, over batches of `batch` packets:
//
//   transmit   the sender's poll_transmit
//   put        the driver's tx_get and tx_put
//   arrive     the receiver's handle_packets, which places the payload
//   acks       the receiver's poll_transmit and the sender's handle_packets, timers and events of both
//   plain      as arrive without any engine: a copy of the payload to where it belongs, the least there is
//
// all per data packet. With --driver none buffers are our own and nothing is put. One line of JSON.

#include <cstring>
#include <memory>
#include <utility>

#include "cycles.hpp"
#include "driven_endpoint.hpp"
#include "engine/endpoint.hpp"
#include "json.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::bench;

constexpr Duration hop{5'000};

void require(CommandError error, const char* what) {
    if (error != CommandError::none) die(std::string(what) + ": " + name(error));
}

// Where the sender's packets are written and sent.
class Outlet {
public:
    explicit Outlet(const Arguments& arguments, std::size_t batch) : own_(batch * DLCP_HEAD_CAPACITY) {
        to_.bytes[0] = 2;
        to_.length = 1;
        if (arguments.text("driver") == "none") return;
        table_ = &find_driver(arguments.text("driver"));
        dlcp_io_config config{};
        config.bind_host = arguments.text("bind").c_str();
        config.paths = static_cast<std::uint16_t>(arguments.integer("paths"));
        if (!arguments.text("extra").empty()) config.extra = arguments.text("extra").c_str();
        char error[512] = "";
        if (table_->open(&config, &io_, error, sizeof error) < 0 ||
            table_->resolve(io_, arguments.text("to").c_str(), &to_, error, sizeof error) < 0)
            die(error);
        dlcp_io_capabilities capabilities{};
        table_->capabilities(io_, &capabilities);
        if (capabilities.max_datagram_bytes < static_cast<std::uint32_t>(arguments.integer("datagram-bytes")))
            die("datagrams have " + std::to_string(capabilities.max_datagram_bytes) + " bytes at most");
    }
    ~Outlet() {
        if (io_ != nullptr) table_->close(io_);
    }
    Outlet(const Outlet&) = delete;
    Outlet& operator=(const Outlet&) = delete;

    const dlcp_address& to() const { return to_; }
    int get(std::span<dlcp_packet> packets) {
        if (io_ != nullptr) return table_->tx_get(io_, packets.data(), static_cast<int>(packets.size()));
        for (std::size_t i = 0; i < packets.size(); ++i) packets[i].head = own_.data() + i * DLCP_HEAD_CAPACITY;
        return static_cast<int>(packets.size());
    }
    void put(std::span<dlcp_packet> packets) {
        if (io_ != nullptr) table_->tx_put(io_, packets.data(), static_cast<int>(packets.size()));
    }

private:
    const dlcp_io_table* table_ = nullptr;
    dlcp_io* io_ = nullptr;
    dlcp_address to_{};
    std::vector<std::uint8_t> own_;
};

class Exchange {
public:
    explicit Exchange(const Arguments& arguments)
        : batch_(static_cast<std::size_t>(arguments.integer("batch"))),
          messages_(static_cast<std::size_t>(arguments.integer("messages"))),
          outlet_(arguments, batch_),
          sender_(endpoint_config(arguments, 1), 1, Time{0}),
          receiver_(endpoint_config(arguments, 0), 2, Time{0}),
          heads_(batch_ * DLCP_HEAD_CAPACITY),
          wire_(batch_ * DLCP_HEAD_CAPACITY),
          leaving_(batch_),
          answering_(batch_),
          arriving_(batch_) {
        from_.bytes[0] = 1;
        from_.length = 1;
        for (std::size_t i = 0; i < batch_; ++i) answering_[i].head = heads_.data() + i * DLCP_HEAD_CAPACITY;
        const auto connected = sender_.connect(now_, 0, outlet_.to());
        require(connected.error, "connect");
        peer_ = connected.value;
        while (!sender_.established(peer_)) step();
        block_bytes_ = sender_.block_bytes(peer_);
        message_bytes_ =
            static_cast<std::uint32_t>(arguments.integer("message-bytes")) / block_bytes_ * block_bytes_;
        const std::size_t places = std::max<std::size_t>(
            messages_ + 1, static_cast<std::size_t>(arguments.integer("memory-bytes")) / message_bytes_);
        payload_.assign(places * message_bytes_, 1);
        buffer_.assign(places * message_bytes_, 0);
        for (std::size_t i = 0; i <= messages_; ++i) receive();
        for (std::size_t i = 0; i < messages_; ++i) send();
    }

    void run(std::uint64_t packets) {
        const std::uint64_t until = receiver_.counters().data_packets_received + packets;
        while (receiver_.counters().data_packets_received < until) step();
    }
    void forget() {
        for (Slices* section : {&transmit_, &put_, &arrive_, &acks_, &plain_}) section->clear();
        lost_ = sender_.counters().lost_packets;
    }
    Json answer() const {
        Json json;
        const double hertz = cycles_per_second();
        const auto add = [&](const std::string& section, double cycles) {
            json.add((section + "_cycles").c_str(), cycles).add((section + "_ns").c_str(), cycles / hertz * 1e9);
        };
        const double acks = acks_.cycles_per_packet();
        json.add("packets", arrive_.packets()).add("block_bytes", block_bytes_);
        json.add("lost_packets", sender_.counters().lost_packets - lost_);
        add("transmit", transmit_.cycles_per_packet());
        add("put", put_.cycles_per_packet());
        add("arrive", arrive_.cycles_per_packet());
        add("acks", acks);
        add("plain", plain_.cycles_per_packet());
        add("engine", transmit_.cycles_per_packet() + arrive_.cycles_per_packet() + acks);
        return json;
    }

private:
    void step() {
        const std::uint64_t moved = forward();
        const std::uint64_t before = read_cycles();
        const std::uint64_t back = answer_packets();
        drain();
        const Time due = std::min(sender_.next_deadline(), receiver_.next_deadline());
        if (moved + back == 0) {
            if (due == time_never) die("stuck: nothing moves and nothing is due");
            now_ = std::max(now_, due);
        }
        if (sender_.next_deadline() <= now_) sender_.handle_timer(now_);
        if (receiver_.next_deadline() <= now_) receiver_.handle_timer(now_);
        // Copies of acknowledgements between the two are not the engine's.
        ack_cycles_ += read_cycles() - before - copying_;
        if (moved > 0) acks_.add(std::exchange(ack_cycles_, 0), moved);
        copying_ = 0;
    }

    // One batch of the sender's to the receiver; how many packets.
    std::uint64_t forward() {
        const std::uint64_t asked = read_cycles();
        const int lent = outlet_.get(leaving_);
        if (lent <= 0) die("the driver lends no buffer");
        const std::span<dlcp_packet> slots(leaving_.data(), static_cast<std::size_t>(lent));
        const std::uint64_t began = read_cycles();
        const std::size_t n = sender_.poll_transmit(now_, slots);
        const std::uint64_t filled = read_cycles();
        for (dlcp_packet& unused : slots.subspan(n)) unused.head_bytes = 0;
        for (std::size_t i = 0; i < n; ++i) arriving_[i] = head_of(slots[i], i, &from_);
        const std::uint64_t copied = read_cycles();
        outlet_.put(slots);
        const std::uint64_t sent = read_cycles();
        if (n == 0) return 0;
        for (std::size_t i = 0; i < n; ++i) add_body(arriving_[i], slots[i]);
        transmit_.add(filled - began, n);
        put_.add(began - asked + sent - copied, n);
        now_ = now_ + hop;
        const std::uint64_t handed = read_cycles();
        receiver_.handle_packets(now_, {arriving_.data(), n});
        const std::uint64_t handled = read_cycles();
        arrive_.add(handled - handed, n);
        place_plainly(n);
        return n;
    }

    // The receiver's packets to the sender; how many.
    std::uint64_t answer_packets() {
        std::uint64_t packets = 0;
        while (const std::size_t n = receiver_.poll_transmit(now_, answering_)) {
            const std::uint64_t before = read_cycles();
            for (std::size_t i = 0; i < n; ++i) {
                arriving_[i] = head_of(answering_[i], i, &outlet_.to());
                add_body(arriving_[i], answering_[i]);
            }
            copying_ += read_cycles() - before;
            sender_.handle_packets(now_, {arriving_.data(), n});
            packets += n;
        }
        return packets;
    }

    // The packet as it arrives, with what `out` has in its head: to be taken before the buffer goes back. The tail waits
    // at the end of the slot.
    dlcp_packet head_of(const dlcp_packet& out, std::size_t slot, const dlcp_address* from) {
        dlcp_packet in{};
        in.head = wire_.data() + slot * DLCP_HEAD_CAPACITY;
        in.address = from;
        in.path = out.path;
        in.tos = out.tos;
        std::memcpy(in.head, out.head, out.head_bytes);
        in.head_bytes = out.head_bytes;
        std::memcpy(in.head + DLCP_HEAD_CAPACITY - tail_max, out.head + out.head_bytes, out.tail_bytes);
        return in;
    }
    void add_body(dlcp_packet& in, const dlcp_packet& out) {
        if (out.body_bytes > 0) std::memcpy(in.head + in.head_bytes, out.body, out.body_bytes);
        in.head_bytes += out.body_bytes;
        std::memmove(in.head + in.head_bytes, in.head + DLCP_HEAD_CAPACITY - tail_max, out.tail_bytes);
        in.head_bytes += out.tail_bytes;
    }
    // The same bytes once more to other memory of the same size, in the same order.
    void place_plainly(std::size_t n) {
        if (block_bytes_ == 0 || message_bytes_ == 0) return;
        if (plain_memory_.empty()) plain_memory_.resize(buffer_.size());
        const std::uint64_t before = read_cycles();
        for (std::size_t i = 0; i < n; ++i) {
            if (plain_at_ + block_bytes_ > plain_memory_.size()) plain_at_ = 0;
            std::memcpy(plain_memory_.data() + plain_at_, arriving_[i].head, block_bytes_);
            plain_at_ += block_bytes_;
        }
        plain_.add(read_cycles() - before, n);
    }

    void drain() {
        for (Endpoint* endpoint : {&receiver_, &sender_})
            for (Event event; endpoint->poll_event(event);) handle(*endpoint, event);
    }
    void handle(Endpoint& endpoint, const Event& event) {
        switch (event.kind) {
            case EventKind::send_finished:
                require(endpoint.release(event.message), "release");
                send();
                break;
            case EventKind::receive_finished:
                require(endpoint.release(event.message), "release");
                receive();
                break;
            case EventKind::send_failed:
            case EventKind::receive_failed:
            case EventKind::peer_down: die(std::string(name(event.kind)) + ": " + name(event.error));
            default: break;
        }
    }
    void send() {
        const std::uint8_t* payload = payload_.data() + sent_ * message_bytes_ % payload_.size();
        const SendCommand command{
            .peer = peer_, .tag = sent_++, .payload = payload, .message_bytes = message_bytes_, .importance = {}};
        require(sender_.send(now_, command).error, "send");
    }
    void receive() {
        std::uint8_t* buffer = buffer_.data() + posted_ * message_bytes_ % buffer_.size();
        require(receiver_.receive(now_, {any_peer, posted_++, buffer, message_bytes_}).error, "receive");
    }

    static constexpr std::size_t tail_max = 64;

    const std::size_t batch_, messages_;
    Time now_{1'000'000};
    Outlet outlet_;
    Endpoint sender_, receiver_;
    dlcp_address from_{};
    PeerId peer_;
    std::uint32_t block_bytes_ = 0, message_bytes_ = 0;
    std::vector<std::uint8_t> heads_, wire_, payload_, buffer_, plain_memory_;
    std::size_t plain_at_ = 0;
    std::vector<dlcp_packet> leaving_, answering_, arriving_;
    std::uint64_t sent_ = 0, posted_ = 0, copying_ = 0, ack_cycles_ = 0, lost_ = 0;
    Slices transmit_, put_, arrive_, acks_, plain_;
};

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(
        argc, argv,
        {{"driver", "none"},
         {"bind", ""},
         {"to", ""},
         {"extra", ""},
         {"batch", "64"},
         {"packets", "300000"},
         {"messages", "4"},
         {"message-bytes", "4194304"},
         {"memory-bytes", "67108864"},  // that messages are sent from and placed into in turn
         DLCP_BENCH_ENDPOINT_ARGUMENTS});
    Exchange exchange(arguments);
    const auto packets = static_cast<std::uint64_t>(arguments.integer("packets"));
    exchange.run(packets / 4);
    exchange.forget();
    exchange.run(packets);
    exchange.answer().add("crypto", std::string(fastest_crypto_library())).print();
}
