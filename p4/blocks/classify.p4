// Who goes into which class: by DSCP value, as the policy lists them. What it does not list is foreign, and has a queue
// of its own, or shares one.
#ifndef DLCP_CLASSIFY_P4
#define DLCP_CLASSIFY_P4

#include "metadata.p4"

control Classify(inout metadata_t meta) {
    action set_class(class_t traffic_class) {
        meta.traffic_class = traffic_class;
        meta.foreign = 0;
    }

    // Forwarded unchanged, dropped only where the buffer ends.
    action foreign(class_t traffic_class) {
        meta.traffic_class = traffic_class;
        meta.foreign = 1;
        meta.level = FOREIGN_LEVEL;
    }

    @name(".classify")
    table classify {
        key = { meta.dscp : exact @name("dscp"); }
        actions = { set_class; foreign; }
        default_action = foreign(0);
        size = 64;
    }

    apply {
        classify.apply();
    }
}

#endif
