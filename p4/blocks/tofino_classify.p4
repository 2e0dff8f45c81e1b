// Class and colour on a Tofino: the queue by DSCP, and by ECN field and importance one of three colours, for which the
// traffic manager drops at different depths before a packet is queued.
//
//   green   critical, and foreign traffic: dropped only where the queue ends
//   yellow  droppable, more important      dropped above drop_limit_yellow
//   red     droppable, less important      dropped above drop_limit_red
//
// So eight droppable levels become two; which of them are red, the control plane says (dlcp/switch/tofino.py).
#ifndef TOFINO_CLASSIFY_P4
#define TOFINO_CLASSIFY_P4

#include "tofino_metadata.p4"

control TofinoClassify(in headers_t headers, inout ingress_t meta) {
    DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES) classified;

    action ipv4() {
        meta.is_ip = 1;
        meta.dscp = headers.ipv4.dscp;
        meta.ecn = headers.ipv4.ecn;
    }

    action ipv6() {
        meta.is_ip = 1;
        meta.dscp = headers.ipv6.dscp;
        meta.ecn = headers.ipv6.ecn;
    }

    action measure() {
        meta.excess_bytes = headers.udp.udp_bytes - headers.dlcp.payload_bytes;
    }

    action data() {
        meta.importance = headers.dlcp.importance;
        meta.path = headers.dlcp.path;
    }

    action control_packet() {
        meta.path = headers.dlcp.path;
    }

    // Whether dlcp sent it: native/switch/frame.hpp, except that the length of a trimmed packet is not looked at.
    table recognise {
        key = {
            headers.dlcp.version: exact;
            headers.dlcp.type: exact;
            headers.dlcp.flags: ternary;
            meta.excess_bytes: ternary;
        }
        actions = {
            data;
            control_packet;
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (DLCP_VERSION, DLCP_DATA, DLCP_TRIMMED &&& DLCP_TRIMMED, _): data();
            (DLCP_VERSION, DLCP_DATA, 0 &&& DLCP_AUTHENTICATED, 72): data();
            (DLCP_VERSION, DLCP_DATA, DLCP_AUTHENTICATED &&& DLCP_AUTHENTICATED, 88): data();
            (DLCP_VERSION, DLCP_SHORT_DATA, _, _): data();
            (DLCP_VERSION, 2, 0 &&& DLCP_AUTHENTICATED, 72): control_packet();
            (DLCP_VERSION, 2, DLCP_AUTHENTICATED &&& DLCP_AUTHENTICATED, 88): control_packet();
            (DLCP_VERSION, DLCP_HELLO, 0 &&& DLCP_AUTHENTICATED, 72): control_packet();
            (DLCP_VERSION, DLCP_HELLO, DLCP_AUTHENTICATED &&& DLCP_AUTHENTICATED, 88): control_packet();
        }
        size = 8;
    }

    action set_class(class_t traffic_class) {
        meta.traffic_class = traffic_class;
        meta.foreign = 0;
        classified.count();
    }

    action foreign(class_t traffic_class) {
        meta.traffic_class = traffic_class;
        meta.foreign = 1;
        classified.count();
    }

    table classify {
        key = {
            meta.is_ip: exact @name("is_ip");
            meta.dscp: exact @name("dscp");
        }
        actions = {
            set_class;
            foreign;
        }
        default_action = foreign(0);
        counters = classified;
        size = 128;
    }

    action critical() {
        meta.level = CRITICAL_LEVEL;
    }

    action droppable() {
        meta.level = 1w0 ++ meta.importance[7:5];
    }

    apply {
        if (headers.ipv4.isValid()) {
            ipv4();
        } else if (headers.ipv6.isValid()) {
            ipv6();
        }
        if (headers.dlcp.isValid()) {
            measure();
            recognise.apply();
        }
        if (meta.ecn != ECN_NOT_ECT) {
            critical();
        } else {
            droppable();
        }
        classify.apply();
    }
}

control TofinoColour(in ingress_t meta, inout ingress_intrinsic_metadata_for_tm_t manager) {
    DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES) coloured;

    action set_colour(bit<2> colour) {
        manager.packet_color = colour;
        coloured.count();
    }

    action green() {
        manager.packet_color = 0;
        coloured.count();
    }

    table colour {
        key = {
            meta.foreign: exact @name("foreign");
            meta.traffic_class: exact @name("traffic_class");
            meta.level: exact @name("level");
        }
        actions = {
            set_colour;
            @defaultonly green;
        }
        const default_action = green();
        counters = coloured;
        size = 128;
    }

    // Queue 0 to 7 of the port: by default a port of TNA has eight, and the control plane gives them their priority.
    action set_queue() {
        manager.qid = (QueueId_t)meta.traffic_class;
        manager.ingress_cos = meta.traffic_class;
    }

    apply {
        set_queue();
        colour.apply();
    }
}

#endif
