// What waits: bytes in each queue, at each port, and in the whole switch.
//
// Ingress adds what it admits, egress takes it off when the packet leaves its queue, so a drop happens before the queue
// and a depth is exact, the packet in transmission not counted. BMv2 lets both pipelines have one register and runs an
// action that uses it undivided; other targets do neither.
//
// What ingress admitted has to arrive at egress, or its bytes stay counted for ever. The one thing in between that
// loses packets is BMv2's own limit of a queue, in packets: it must be higher than the policy's buffer can hold
// (p4/README.md). Copies of a multicast group, and clones if someone adds them, were not added and are not taken off:
// they carry waiting_bytes 0.
#ifndef DLCP_DEPTHS_P4
#define DLCP_DEPTHS_P4

#include "metadata.p4"

register<bit<32>>(QUEUES) queue_bytes;  // port ++ class
register<bit<32>>(PORTS) port_bytes;
register<bit<32>>(1) shared_used;

control JoinQueue(inout metadata_t meta, inout standard_metadata_t standard) {
    @hidden
    action join(bit<32> frame_bytes) {
        bit<32> queue = (bit<32>)(meta.port[5:0] ++ meta.queue_class);
        bit<32> waiting;
        queue_bytes.read(waiting, queue);
        queue_bytes.write(queue, waiting |+| frame_bytes);
        port_bytes.read(waiting, (bit<32>)meta.port);
        port_bytes.write((bit<32>)meta.port, waiting |+| frame_bytes);
        shared_used.read(waiting, 0);
        shared_used.write(0, waiting |+| frame_bytes);
        meta.waiting_bytes = frame_bytes;
        standard.priority = meta.queue_class;
        standard.egress_spec = meta.port;
    }

    apply {
        join(meta.frame_bytes);
    }
}

control LeaveQueue(inout metadata_t meta, in standard_metadata_t standard) {
    @hidden
    action leave() {
        bit<32> queue = (bit<32>)(standard.egress_port[5:0] ++ meta.queue_class);
        bit<32> waiting;
        queue_bytes.read(waiting, queue);
        queue_bytes.write(queue, waiting |-| meta.waiting_bytes);
        port_bytes.read(waiting, (bit<32>)standard.egress_port);
        port_bytes.write((bit<32>)standard.egress_port, waiting |-| meta.waiting_bytes);
        shared_used.read(waiting, 0);
        shared_used.write(0, waiting |-| meta.waiting_bytes);
    }

    apply {
        if (meta.waiting_bytes != 0) {
            leave();
        }
    }
}

#endif
