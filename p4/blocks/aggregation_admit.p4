// Which packets are aggregated: those of a job that the control plane has admitted, from the port where that worker is,
// into the slots that are the job's. Everything else is ordinary traffic, whatever it says of itself.
//
// This is all the protection that a job has from another: nothing in a packet is authenticated, because the switch
// changes the values and holds no key. Packets of jobs with a key are never aggregated: they are dlcp datagrams, which
// the parser does not take for these.
#ifndef AGGREGATION_ADMIT_P4
#define AGGREGATION_ADMIT_P4

control AggregationAdmit(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(AGGREGATION_JOBS * 16, CounterType.packets) outcomes;

    AggregationSlots() slots;

    action admit(bit<16> index, bit<32> bit_of_worker, bit<32> everyone, bit<32> base, bit<16> slots_of_job,
                 bit<16> group, bit<16> instance) {
        meta.participant.index = index;
        meta.participant.bit_of_worker = bit_of_worker;
        meta.participant.everyone = everyone;
        meta.participant.base = base;
        meta.participant.slots = slots_of_job;
        meta.participant.group = group;
        meta.participant.instance = instance;
    }

    action foreign() {
        meta.outcome = OUTCOME_FOREIGN;
    }

    table participant {
        key = {
            standard.ingress_port: exact @name("ingress_port");
            hdr.aggregation.job: exact @name("job");
            hdr.aggregation.generation: exact @name("generation");
            hdr.aggregation.worker: exact @name("worker");
        }
        actions = {
            admit;
            foreign;
        }
        const default_action = foreign();
        size = AGGREGATION_JOBS * 33;
    }

    apply {
        if (hdr.aggregation.kind == KIND_CONTRIBUTION || hdr.aggregation.kind == KIND_FLUSH ||
            hdr.aggregation.kind == KIND_RELEASE) {
            if (!participant.apply().hit) {
                // Counted as foreign, under no job.
            } else if (standard.checksum_error == 1) {
                meta.outcome = OUTCOME_DAMAGED;
            } else if (hdr.aggregation.flags & FLAG_TO_HUB != 0) {
                meta.outcome = OUTCOME_TO_HUB;
            } else if (hdr.aggregation.slot >= meta.participant.slots ||
                       (hdr.aggregation.kind == KIND_CONTRIBUTION && meta.participant.bit_of_worker == 0) ||
                       (hdr.aggregation.kind == KIND_RELEASE && meta.participant.bit_of_worker != 0)) {
                meta.outcome = OUTCOME_REFUSED;
            } else {
                slots.apply(hdr, meta);
            }
            if (meta.aggregated == 0 && meta.outcome >= OUTCOME_COLLISION && meta.outcome <= OUTCOME_REFUSED) {
                hdr.aggregation.flags = hdr.aggregation.flags | FLAG_TO_HUB;
                meta.changed = 1;
            }
            outcomes.count(((bit<32>)meta.participant.index << 4) + (bit<32>)meta.outcome);
        }
    }
}

// Addresses a result: to the sender of the packet that it is made of, or to each worker that a copy is for.
// Participants of a job at one port differ by instance, which copies of a multicast group have as well. A result comes
// from whom the packet was for, the hub, so that a worker hears everything from one address.
control AggregationAddress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    bit<16> instance;

    action address(bit<48> mac, bit<32> ip, bit<16> udp_port) {
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = mac;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = ip;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.dst_port = udp_port;
    }

    action drop() {
        mark_to_drop(standard);
    }

    table addressees {
        key = {
            hdr.aggregation.job: exact @name("job");
            standard.egress_port: exact @name("port");
            instance: exact @name("instance");
        }
        actions = {
            address;
            drop;
        }
        const default_action = drop();
        size = AGGREGATION_JOBS * 33;
    }

    apply {
        if (meta.answer == ANSWER_SENDER) {
            instance = meta.participant.instance;
            addressees.apply();
        } else if (meta.answer == ANSWER_EVERYONE) {
            instance = standard.egress_rid;
            addressees.apply();
        }
    }
}

#endif
