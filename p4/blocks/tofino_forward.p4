// Where a frame goes on a Tofino: by destination MAC to a port or to a group of equal ways, of which an action selector
// takes one by a word: the flow's hash, flow and path id, a random number, or a number that counts up.
//
// Not those of the v1model program bit for bit: which member a word means is the selector's own. And no `adaptive`: a
// Tofino 1 does not know at ingress how much waits at egress.
#ifndef TOFINO_FORWARD_P4
#define TOFINO_FORWARD_P4

#include "tofino_metadata.p4"

control TofinoForward(in headers_t headers, inout ingress_t meta, in ingress_intrinsic_metadata_t intrinsic,
                      inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                      inout ingress_intrinsic_metadata_for_tm_t manager) {
    Hash<bit<32>>(HashAlgorithm_t.CRC32) hash_ipv4;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) hash_ipv6;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) hash_ethernet;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) hash_path;
    Random<bit<32>>() random;
    Register<bit<32>, group_t>(256) turn;
    RegisterAction<bit<32>, group_t, bit<32>>(turn) take_turn = {
        void apply(inout bit<32> value, out bit<32> taken) {
            taken = value;
            value = value + 1;
        }
    };
    ActionProfile(4096) members;
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) hash_word;
    ActionSelector(members, hash_word, SelectorMode_t.FAIR, 64, 256) selector_of_members;

    action to_port(PortId_t port) {
        manager.ucast_egress_port = port;
    }

    action to_group(group_t group) {
        meta.group = group;
    }

    action to_all() {
    }

    action drop() {
        for_deparser.drop_ctl = 1;
    }

    table bridge {
        key = {
            headers.ethernet.destination: exact @name("dst_mac");
        }
        actions = {
            to_port;
            to_group;
            @defaultonly to_all;
        }
        const default_action = to_all();
        size = 16384;
    }

    // One group per input port: with split horizon, as in the v1model program.
    action set_mcast(MulticastGroupId_t group) {
        manager.mcast_grp_a = group;
    }

    table flood {
        key = {
            intrinsic.ingress_port: exact @name("ingress_port");
        }
        actions = {
            set_mcast;
            @defaultonly drop;
        }
        const default_action = drop();
        size = 512;
    }

    action flow_of_ipv4() {
        meta.flow = hash_ipv4.get({ headers.ipv4.source, headers.ipv4.destination, headers.ipv4.protocol,
                                    headers.udp.source_port, headers.udp.destination_port });
    }

    action flow_of_ipv6() {
        meta.flow = hash_ipv6.get({ headers.ipv6.source, headers.ipv6.destination, headers.ipv6.next_header,
                                    headers.udp.source_port, headers.udp.destination_port });
    }

    action flow_of_ethernet() {
        meta.flow = hash_ethernet.get({ headers.ethernet.destination, headers.ethernet.source });
    }

    action by_flow() {
        meta.word = meta.flow;
    }

    action by_path_id() {
        meta.word = hash_path.get({ meta.flow, meta.path });
    }

    action by_random() {
        meta.word = random.get();
    }

    action by_turn() {
        meta.word = take_turn.execute(meta.group);
    }

    table path_group {
        key = {
            meta.group: exact @name("group");
        }
        actions = {
            by_flow;
            by_path_id;
            by_random;
            by_turn;
        }
        default_action = by_flow();
        size = 256;
    }

    table member {
        key = {
            meta.group: exact @name("group");
            meta.word: selector;
        }
        actions = {
            to_port;
            @defaultonly drop;
        }
        const default_action = drop();
        implementation = selector_of_members;
        size = 256;
    }

    apply {
        if (!bridge.apply().hit) {
            flood.apply();
        } else if (meta.group != 0) {
            if (headers.ipv4.isValid()) {
                flow_of_ipv4();
            } else if (headers.ipv6.isValid()) {
                flow_of_ipv6();
            } else {
                flow_of_ethernet();
            }
            path_group.apply();
            member.apply();
        }
    }
}

#endif
