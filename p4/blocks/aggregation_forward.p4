// Where a packet goes: by destination MAC, as over a bridge; unknown and broadcast are flooded to the group of the
// input port, which is all others. One way each: an aggregating switch has no path groups.
#ifndef AGGREGATION_FORWARD_P4
#define AGGREGATION_FORWARD_P4

control AggregationForward(inout headers_t hdr, inout standard_metadata_t standard) {
    action to_port(bit<9> port) {
        standard.egress_spec = port;
    }

    action flooded() {
    }

    action set_mcast(bit<16> group) {
        standard.mcast_grp = group;
    }

    action drop() {
        mark_to_drop(standard);
    }

    table bridge {
        key = {
            hdr.ethernet.dst: exact @name("dst_mac");
        }
        actions = {
            to_port;
            flooded;
        }
        const default_action = flooded();
        size = 4096;
    }

    table flood {
        key = {
            standard.ingress_port: exact @name("ingress_port");
        }
        actions = {
            set_mcast;
            drop;
        }
        const default_action = drop();
        size = 512;
    }

    apply {
        if (!bridge.apply().hit) {
            flood.apply();
        } else if (standard.egress_spec == standard.ingress_port) {
            drop();  // a bridge does not send back
        }
    }
}

#endif
