// Where a frame goes: to a port, to a group of equal ways, to all ports, or nowhere.
//
// A bridge by destination address, and for frames to the router's own address a router. Nothing is learnt: the control
// plane writes the entries. What came in by a port of a group goes out by no port of that group, and nothing goes back
// out of its own port (split horizon), so leaf and spine need no spanning tree. Flooding is a multicast group per port
// of arrival, which leaves those ports out.
#ifndef DLCP_FORWARD_P4
#define DLCP_FORWARD_P4

#include "metadata.p4"

control Forward(in headers_t headers, inout metadata_t meta, inout standard_metadata_t standard) {
    action to_router() {
        meta.routed = 1;
    }

    @name(".router_mac")
    table router_mac {
        key = { headers.ethernet.destination : exact @name("dst_mac"); }
        actions = { to_router; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 64;
    }

    action no_route() {
        meta.arrival = Arrival.no_route;
    }

    action next_hop(port_t port, mac_t dst_mac, mac_t src_mac) {
        meta.port = port;
        meta.new_macs = 1;
        meta.destination_mac = dst_mac;
        meta.source_mac = src_mac;
    }

    action next_hop_group(group_t group) {
        meta.group = group;
    }

    @name(".route_ipv4")
    table route_ipv4 {
        key = { headers.ipv4.destination : lpm @name("dst"); }
        actions = { next_hop; next_hop_group; @defaultonly no_route; }
        const default_action = no_route();
        size = 4096;
    }

    @name(".route_ipv6")
    table route_ipv6 {
        key = { headers.ipv6.destination : lpm @name("dst"); }
        actions = { next_hop; next_hop_group; @defaultonly no_route; }
        const default_action = no_route();
        size = 4096;
    }

    action in_group(group_t group) {
        meta.arrival_group = group;
    }

    @name(".arrival_group")
    table arrival_group {
        key = { standard.ingress_port : exact @name("ingress_port"); }
        actions = { in_group; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 64;
    }

    action to_port(port_t port) {
        meta.port = port;
    }

    action to_group(group_t group) {
        meta.group = group;
    }

    action to_all() {
        meta.arrival = Arrival.flooded;
    }

    @name(".bridge")
    table bridge {
        key = { headers.ethernet.destination : exact @name("dst_mac"); }
        actions = { to_port; to_group; @defaultonly to_all; }
        const default_action = to_all();
        size = 16384;
    }

    action set_mcast(bit<16> group) {
        standard.mcast_grp = group;
    }

    action no_way() {
        meta.arrival = Arrival.no_way;
    }

    @name(".flood")
    table flood {
        key = { standard.ingress_port : exact @name("ingress_port"); }
        actions = { set_mcast; @defaultonly no_way; }
        const default_action = no_way();
        size = 64;
    }

    apply {
        router_mac.apply();
        if (meta.routed == 1) {
            // A packet that would leave with a time to live of 0 is discarded: RFC 1812, 5.3.1; RFC 8200, 3.
            if (meta.kind == FrameKind.ipv4) {
                if (headers.ipv4.ttl <= 1) {
                    meta.arrival = Arrival.ttl_expired;
                } else {
                    route_ipv4.apply();
                }
            } else if (meta.kind == FrameKind.ipv6) {
                if (headers.ipv6.hop_limit <= 1) {
                    meta.arrival = Arrival.ttl_expired;
                } else {
                    route_ipv6.apply();
                }
            } else {
                no_route();
            }
        } else {
            arrival_group.apply();
            bridge.apply();
            if (meta.arrival == Arrival.flooded) {
                flood.apply();
            } else if (meta.group != 0) {
                if (meta.group == meta.arrival_group) {
                    meta.arrival = Arrival.filtered;
                }
            } else if (meta.port == standard.ingress_port) {
                meta.arrival = Arrival.filtered;
            }
        }
    }
}

// What a router changes: both Ethernet addresses, and the time to live.
control Route(inout headers_t headers, inout metadata_t meta) {
    apply {
        if (meta.new_macs == 1) {
            headers.ethernet.destination = meta.destination_mac;
            headers.ethernet.source = meta.source_mac;
        }
        if (meta.routed == 1) {
            if (meta.kind == FrameKind.ipv4) {
                headers.ipv4.ttl = headers.ipv4.ttl - 1;
                meta.ipv4_changed = 1;
            } else {
                headers.ipv6.hop_limit = headers.ipv6.hop_limit - 1;
            }
        }
    }
}

#endif
