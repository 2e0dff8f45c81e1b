// CE marks on a Tofino: at egress, by the depth that the packet found when it was queued, in cells of 80 bytes.
//
// The depth is the one that matters, only the writing comes later. As the ramp of native/switch/decision.hpp: ranges of
// depth, each with a ratio. What is of no class has no entries here and stays unmarked.
#ifndef TOFINO_MARK_P4
#define TOFINO_MARK_P4

#include "tofino_metadata.p4"

control TofinoMark(inout headers_t headers, inout egress_t meta, in egress_intrinsic_metadata_t intrinsic) {
    Random<bit<16>>() random;
    DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES) marked;
    bit<16> chance;
    bit<6> dscp;
    bit<2> ecn;

    action set_mark_ratio(bit<16> ratio) {
        meta.mark_ratio = ratio;
        marked.count();
    }

    // 65535 of 65536 is the largest ratio; "always" is an entry with mark_all.
    action mark_all() {
        meta.above = 1;
        marked.count();
    }

    table mark_ramp {
        key = {
            intrinsic.egress_port: ternary @name("port");
            dscp: exact @name("dscp");
            intrinsic.enq_qdepth: range @name("depth_cells");
        }
        actions = {
            set_mark_ratio;
            mark_all;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        counters = marked;
        size = 2048;
    }

    action draw() {
        chance = random.get();
    }

    // Saturating: above 0 if and only if the random number is below the ratio, without comparing two fields, which a
    // stage cannot.
    action compare() {
        meta.above = meta.mark_ratio |-| chance;
    }

    action mark_ipv4() {
        headers.ipv4.ecn = ECN_CE;
        meta.changed = 1;
    }

    action mark_ipv6() {
        headers.ipv6.ecn = ECN_CE;
    }

    apply {
        if (headers.ipv4.isValid()) {
            dscp = headers.ipv4.dscp;
            ecn = headers.ipv4.ecn;
        } else if (headers.ipv6.isValid()) {
            dscp = headers.ipv6.dscp;
            ecn = headers.ipv6.ecn;
        } else {
            dscp = 0;
            ecn = ECN_NOT_ECT;
        }
        if (ecn != ECN_NOT_ECT && ecn != ECN_CE) {
            draw();
            if (mark_ramp.apply().hit) {
                if (meta.mark_ratio != 0) {
                    compare();
                }
                if (meta.above != 0) {
                    if (headers.ipv4.isValid()) {
                        mark_ipv4();
                    } else {
                        mark_ipv6();
                    }
                }
            }
        }
    }
}

#endif
