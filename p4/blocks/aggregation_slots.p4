// The slot's state machine: what a contribution, a flush and a release do to a slot, in one place.
//
//                first contribution                   last contribution, flush
//      FREE ─────────────────────────► COLLECTING ─────────────────────────────► DONE
//        ▲      of a newer key               │                                     │
//        └────────────────────────────────── ┴─────────── release ─────────────────┤
//                                            ▲                                     │
//                                            └── first contribution, newer key ────┘
//
// Invariants. (1) A slot's keys (message, block) only grow while one tenant (job, generation) has it, also over FREE;
// so a block is installed at most once, and has at most one result. (2) A worker's contribution is in the sums if and
// only if its bit is in the bitmap. (3) A block that is DONE does not change; it is sent again, as it was, to whoever
// contributes or flushes once more. (4) A packet that cannot be taken goes on to its destination, the hub, with its
// values as they came. A collecting slot is never taken away from its block, except by a new tenant.
#ifndef AGGREGATION_SLOTS_P4
#define AGGREGATION_SLOTS_P4

control AggregationSlots(inout headers_t hdr, inout metadata_t meta) {
    register<bit<48>>(AGGREGATION_SLOTS) slot_tenant;
    register<bit<64>>(AGGREGATION_SLOTS) slot_key;
    register<bit<8>>(AGGREGATION_SLOTS) slot_state;
    register<bit<32>>(AGGREGATION_SLOTS) slot_bitmap;
    register<bit<8>>(AGGREGATION_SLOTS) slot_count;
    register<bit<16>>(AGGREGATION_SLOTS) slot_shape;
    register<bit<32>>(AGGREGATION_SLOTS) slot_saturated;

    AggregationSums() sums;
    bit<48> tenant;

    action read_slot() {
        meta.slot.index = meta.participant.base + (bit<32>)hdr.aggregation.slot;
        meta.key = hdr.aggregation.message ++ hdr.aggregation.block;
        meta.shape = hdr.aggregation.operation ++ hdr.aggregation.exponent;
        tenant = hdr.aggregation.job ++ hdr.aggregation.generation;
        slot_tenant.read(meta.slot.tenant, meta.slot.index);
        slot_key.read(meta.slot.key, meta.slot.index);
        slot_state.read(meta.slot.state, meta.slot.index);
        slot_bitmap.read(meta.slot.bitmap, meta.slot.index);
        slot_count.read(meta.slot.count, meta.slot.index);
        slot_shape.read(meta.slot.shape, meta.slot.index);
        slot_saturated.read(meta.slot.saturated, meta.slot.index);
    }

    action write_slot() {
        slot_tenant.write(meta.slot.index, tenant);
        slot_key.write(meta.slot.index, meta.slot.key);
        slot_state.write(meta.slot.index, meta.slot.state);
        slot_bitmap.write(meta.slot.index, meta.slot.bitmap);
        slot_count.write(meta.slot.index, meta.slot.count);
        slot_shape.write(meta.slot.index, meta.slot.shape);
        slot_saturated.write(meta.slot.index, meta.slot.saturated);
    }

    // The slot was another job's, or of an earlier generation of this one: what it holds is nobody's any more.
    action vacate() {
        meta.slot.key = 0;
        meta.slot.state = STATE_FREE;
    }

    action install() {
        meta.outcome = OUTCOME_ADDED;
        meta.sums = SUMS_PUT;
        meta.slot.key = meta.key;
        meta.slot.state = STATE_COLLECTING;
        meta.slot.bitmap = meta.participant.bit_of_worker;
        meta.slot.count = 1;
        meta.slot.shape = meta.shape;
        meta.slot.saturated = 0;
    }

    action add() {
        meta.outcome = OUTCOME_ADDED;
        meta.sums = SUMS_ADD;
        meta.slot.bitmap = meta.slot.bitmap | meta.participant.bit_of_worker;
        meta.slot.count = meta.slot.count + 1;
    }

    action complete() {
        meta.outcome = OUTCOME_COMPLETED;
        meta.slot.state = STATE_DONE;
        meta.answer = ANSWER_EVERYONE;
    }

    action flush() {
        meta.outcome = OUTCOME_FLUSHED;
        meta.sums = SUMS_GET;
        meta.slot.state = STATE_DONE;
        meta.answer = ANSWER_EVERYONE;
    }

    action repeat() {
        meta.outcome = OUTCOME_REPEATED;
        meta.sums = SUMS_GET;
        meta.answer = ANSWER_SENDER;
    }

    // Lets the block go. Its key stays, so that a late packet of it does not start it again.
    action release() {
        meta.slot.key = meta.key;
        meta.slot.state = STATE_FREE;
    }

    action become_result() {
        hdr.aggregation.kind = KIND_RESULT;
        hdr.aggregation.flags = 0;
        hdr.aggregation.bitmap = meta.slot.bitmap;
        hdr.aggregation.count = meta.slot.count;
        hdr.aggregation.operation = meta.slot.shape[15:8];
        hdr.aggregation.exponent = meta.slot.shape[7:0];
        hdr.aggregation.saturated = meta.slot.saturated;
        hdr.aggregation.quorum = 0;
        meta.changed = 1;
    }

    apply {
        read_slot();
        if (meta.slot.tenant != tenant) {
            vacate();
        }
        meta.aggregated = 1;
        if (hdr.aggregation.kind == KIND_CONTRIBUTION) {
            if (meta.key == meta.slot.key && meta.slot.state == STATE_COLLECTING) {
                if (meta.shape != meta.slot.shape) {
                    meta.outcome = OUTCOME_MISMATCH;
                    meta.aggregated = 0;
                } else if (meta.slot.bitmap & meta.participant.bit_of_worker != 0) {
                    meta.outcome = OUTCOME_DUPLICATE;
                } else {
                    add();
                }
            } else if (meta.key == meta.slot.key && meta.slot.state == STATE_DONE) {
                repeat();
            } else if (meta.key <= meta.slot.key) {
                meta.outcome = OUTCOME_STALE;
                meta.aggregated = 0;
            } else if (meta.slot.state == STATE_COLLECTING) {
                meta.outcome = OUTCOME_COLLISION;
                meta.aggregated = 0;
            } else {
                install();
            }
            if (meta.outcome == OUTCOME_ADDED && meta.slot.bitmap == meta.participant.everyone) {
                complete();
            }
        } else if (hdr.aggregation.kind == KIND_FLUSH) {
            if (meta.key != meta.slot.key || meta.slot.state == STATE_FREE) {
                meta.outcome = OUTCOME_ABSENT;
                meta.aggregated = 0;
            } else if (meta.slot.state == STATE_DONE) {
                repeat();
            } else if (meta.slot.count < hdr.aggregation.quorum) {
                meta.outcome = OUTCOME_BELOW_QUORUM;
                meta.aggregated = 0;
            } else {
                flush();
            }
        } else {
            meta.outcome = OUTCOME_RELEASED;
            if (meta.key == meta.slot.key || (meta.key > meta.slot.key && meta.slot.state != STATE_COLLECTING)) {
                release();
            }
        }
        sums.apply(hdr, meta);
        if (meta.aggregated == 1) {
            write_slot();
        }
        if (meta.answer != ANSWER_NOBODY) {
            become_result();
        }
    }
}

#endif
