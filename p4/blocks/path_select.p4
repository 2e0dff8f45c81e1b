// Which of equal ways a packet takes: choose_path() of native/switch/decision.hpp, held to it by
// tests/vectors/switch_paths.txt.
//
// A group's members are numbered from 0. The second table of members is for `adaptive` alone, which looks at two: a
// table is applied once per packet.
#ifndef DLCP_PATH_SELECT_P4
#define DLCP_PATH_SELECT_P4

#include "depths.p4"
#include "metadata.p4"

register<bit<32>>(GROUPS) turn;  // how many packets of a group chose in turn

control PathSelect(inout metadata_t meta) {
    bit<16> ways = 0;
    PathChoice path_choice = PathChoice.flow_hash;
    bit<32> own_salt = 0;
    bit<32> word = 0;
    bit<16> index = 0;
    bit<16> other_index = 0;

    // salt: the switch's, so that switches behind each other choose independently.
    action choose(bit<16> size, bit<8> choice, bit<32> salt) {
        ways = size;
        path_choice = (PathChoice)choice;
        own_salt = salt;
    }

    action no_group() {
        ways = 0;
    }

    @name(".path_group")
    table path_group {
        key = { meta.group : exact @name("group"); }
        actions = { choose; @defaultonly no_group; }
        const default_action = no_group();
        size = 256;
    }

    action no_member() {
        meta.arrival = Arrival.no_way;
    }

    action member_port(port_t port) {
        meta.port = port;
    }

    action routed_member(port_t port, mac_t dst_mac, mac_t src_mac) {
        meta.port = port;
        meta.new_macs = 1;
        meta.destination_mac = dst_mac;
        meta.source_mac = src_mac;
    }

    @name(".member")
    table member {
        key = {
            meta.group : exact @name("group");
            index : exact @name("index");
        }
        actions = { member_port; routed_member; @defaultonly no_member; }
        const default_action = no_member();
        size = 4096;
    }

    @name(".member_other")
    table member_other {
        key = {
            meta.group : exact @name("group");
            other_index : exact @name("index");
        }
        actions = { member_port; routed_member; @defaultonly no_member; }
        const default_action = no_member();
        size = 4096;
    }

    // The finaliser of MurmurHash3 (A. Appleby, public domain).
    @hidden
    action mix(inout bit<32> h, in bit<32> salt) {
        h = h ^ salt * 0x9e3779b9;
        h = h ^ (h >> 16);
        h = h * 0x85ebca6b;
        h = h ^ (h >> 13);
        h = h * 0xc2b2ae35;
        h = h ^ (h >> 16);
    }

    // One of `ways` from 32 bits that decide.
    @hidden
    action pick(in bit<32> from, out bit<16> picked) {
        picked = (bit<16>)(((bit<64>)from * (bit<64>)ways) >> 32);
    }

    @hidden
    action take_turn() {
        bit<32> before;
        turn.read(before, (bit<32>)meta.group);
        turn.write((bit<32>)meta.group, before + 1);
        // v1model divides only here.
        hash(index, HashAlgorithm.identity, 16w0, { before }, ways);
    }

    apply {
        path_group.apply();
        if (ways == 0) {
            no_member();
        } else {
            if (path_choice == PathChoice.flow_hash) {
                word = meta.flow;
                mix(word, own_salt);
                pick(word, index);
            } else if (path_choice == PathChoice.path_id) {
                // The id is spread (FNV's prime) before it meets the flow, so that neighbours in both do not cancel
                // out.
                word = meta.flow;
                mix(word, 0);
                word = word ^ (bit<32>)meta.path * 0x01000193;
                mix(word, own_salt);
                pick(word, index);
            } else if (path_choice == PathChoice.round_robin) {
                take_turn();
            } else {
                random(word, 0, 0xffffffff);
                pick(word, index);
            }
            member.apply();

            if (path_choice == PathChoice.adaptive && meta.arrival != Arrival.no_way) {
                port_t first = meta.port;
                mac_t first_destination = meta.destination_mac;
                mac_t first_source = meta.source_mac;
                random(word, 0, 0xffffffff);
                pick(word, other_index);
                member_other.apply();
                bit<32> behind_first = 0;
                bit<32> behind_other = 0;
                port_bytes.read(behind_first, (bit<32>)first[5:0]);
                port_bytes.read(behind_other, (bit<32>)meta.port[5:0]);
                if (behind_other >= behind_first) {
                    meta.port = first;
                    meta.destination_mac = first_destination;
                    meta.source_mac = first_source;
                }
            }
        }
    }
}

#endif
