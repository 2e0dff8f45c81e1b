// Keep, mark, trim or drop: decide() and admit() of native/switch/decision.hpp, held to them by
// tests/vectors/switch_decisions.txt and switch_verdicts.txt.
//
// Decides only: mark.p4, trim.p4 and depths.p4 carry it out. Depths are those before the packet.
#ifndef DLCP_ADMIT_P4
#define DLCP_ADMIT_P4

#include "depths.p4"
#include "metadata.p4"

// What the policy says of the buffer, and what is taken of it.
struct buffer_t {
    bit<32> port_limit;
    bit<32> shared_limit;  // 0: a buffer per port
    bit<8> alpha_left;     // a queue may grow to what is free, shifted so far to the left …
    bit<8> alpha_right;    // … or to the right; one of them is 0
    bit<32> port_waiting;
    bit<32> shared_free;
}

// Room for `more` bytes, where `waiting` are in the queue?
control Fits(in buffer_t buffer, in bit<32> waiting, in bit<32> more, out bool fits) {
    apply {
        bit<64> limit = ((bit<64>)buffer.shared_free << buffer.alpha_left) >> buffer.alpha_right;
        if (buffer.shared_limit != 0) {
            fits = more <= buffer.shared_free && (bit<64>)waiting + (bit<64>)more <= limit;
        } else {
            fits = (bit<64>)buffer.port_waiting + (bit<64>)more <= (bit<64>)buffer.port_limit;
        }
    }
}

control Admit(inout metadata_t meta) {
    Fits() whole_fits;
    Fits() trimmed_fits;

    bit<32> waiting = 0;  // in the packet's queue
    buffer_t buffer_state = { 0, 0, 0, 0, 0, 0 };

    // ---- the buffer ----

    action set_buffer(bit<32> port_bytes_limit, bit<32> shared_bytes, bit<8> alpha_left, bit<8> alpha_right) {
        buffer_state.port_limit = port_bytes_limit;
        buffer_state.shared_limit = shared_bytes;
        buffer_state.alpha_left = alpha_left;
        buffer_state.alpha_right = alpha_right;
    }

    @name(".buffer")
    table buffer {
        actions = { set_buffer; }
        default_action = set_buffer(NEVER, 0, 0, 0);
        size = 1;
    }

    @hidden
    action read_depths() {
        bit<32> used;
        queue_bytes.read(waiting, (bit<32>)(meta.port[5:0] ++ meta.traffic_class));
        port_bytes.read(buffer_state.port_waiting, (bit<32>)meta.port);
        shared_used.read(used, 0);
        buffer_state.shared_free = buffer_state.shared_limit |-| used;
    }

    // ---- thresholds of class and level ----

    bit<32> mark_from = NEVER;
    bit<32> mark_full = NEVER;
    bit<32> trim_above = NEVER;
    bit<32> drop_above = NEVER;

    action set_thresholds(bit<32> mark_from_bytes, bit<32> mark_full_bytes, bit<32> trim_above_bytes,
                          bit<32> drop_above_bytes) {
        mark_from = mark_from_bytes;
        mark_full = mark_full_bytes;
        trim_above = trim_above_bytes;
        drop_above = drop_above_bytes;
    }

    @name(".thresholds")
    table thresholds {
        key = {
            meta.port : ternary @name("port");
            meta.traffic_class : exact @name("traffic_class");
            meta.level : exact @name("level");
        }
        actions = { set_thresholds; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 5120;
    }

    // ---- marks between mark_from and mark_full, in steps: P4 does not divide ----

    bit<16> mark_ratio = 0;

    action set_mark_ratio(bit<16> ratio) {
        mark_ratio = ratio;
    }

    @name(".mark_ramp")
    table mark_ramp {
        key = {
            meta.port : ternary @name("port");
            meta.traffic_class : exact @name("traffic_class");
            waiting : range @name("depth");
        }
        actions = { set_mark_ratio; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 9216;
    }

    // ---- the queue that trimmed packets go on in ----

    class_t trimmed_class = 0;
    bit<32> trimmed_drop_above = NEVER;

    action set_trimmed(class_t traffic_class, bit<8> dscp) {
        trimmed_class = traffic_class;
        meta.trimmed_dscp = dscp;
    }

    @name(".trimmed")
    table trimmed {
        actions = { set_trimmed; }
        default_action = set_trimmed(7, NO_DSCP);
        size = 1;
    }

    action set_trimmed_drop(bit<32> drop_above_bytes) {
        trimmed_drop_above = drop_above_bytes;
    }

    // `thresholds` once more, of the class that `trimmed` names: a table is applied once per packet.
    @name(".trimmed_thresholds")
    table trimmed_thresholds {
        key = {
            meta.port : ternary @name("port");
            meta.level : exact @name("level");
        }
        actions = { set_trimmed_drop; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 640;
    }

    bit<32> trimmed_bytes = 0;
    bit<32> trimmed_waiting = 0;

    @hidden
    action read_trimmed_depth() {
        queue_bytes.read(trimmed_waiting, (bit<32>)(meta.port[5:0] ++ trimmed_class));
    }

    apply {
        bool fits = false;
        buffer.apply();
        read_depths();
        whole_fits.apply(buffer_state, waiting, meta.frame_bytes, fits);
        meta.decision = Decision.kept;
        meta.queue_class = meta.traffic_class;

        if (meta.foreign == 1) {
            if (!fits) {
                meta.decision = Decision.dropped_buffer;
            }
        } else {
            thresholds.apply();
            if (waiting > drop_above) {
                meta.decision = Decision.dropped_threshold;
            } else if (meta.trimmable == 1 && trim_above != NEVER && (waiting > trim_above || !fits)) {
                meta.decision = Decision.trimmed;
            } else if (!fits) {
                meta.decision = Decision.dropped_buffer;
            } else if (meta.level == CRITICAL_LEVEL && waiting > mark_from) {
                bit<16> draw;
                random(draw, 0, 0xffff);
                mark_ramp.apply();
                if (waiting >= mark_full || draw < mark_ratio) {
                    meta.decision = Decision.marked;
                }
            }
        }

        // Cut, it has to find room once more, in the queue of trimmed packets.
        if (meta.decision == Decision.trimmed) {
            trimmed.apply();
            trimmed_thresholds.apply();
            read_trimmed_depth();
            trimmed_bytes = ETHERNET_BYTES + UDP_BYTES + DLCP_BYTES +
                (meta.kind == FrameKind.ipv4 ? IPV4_BYTES : IPV6_BYTES);
            trimmed_fits.apply(buffer_state, trimmed_waiting, trimmed_bytes, fits);
            if (trimmed_waiting > trimmed_drop_above || !fits) {
                meta.decision = Decision.dropped_trimmed;
            } else {
                meta.queue_class = trimmed_class;
                meta.frame_bytes = trimmed_bytes;
            }
        }
    }
}

#endif
