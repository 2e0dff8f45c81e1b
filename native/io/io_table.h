/* The table of functions that a driver offers: a C ABI, so that a driver can be a plugin opened with dlopen.
 *
 * A driver moves datagrams and reads the clock; it decides nothing. Packets of equal (address, path, tos,
 * length) arrive from the engine next to each other in runs, so that a driver can merge them (UDP_SEGMENT).
 * Calls on one dlcp_io come from one thread at a time, except `wake` and `now_ns`, which any thread may call at any time.
 *
 * Every function that can fail returns a negative errno value and, where it takes `error`, writes a sentence
 * for a person there: what failed and what to do about it. */
#ifndef DLCP_IO_IO_TABLE_H
#define DLCP_IO_IO_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/packet.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DLCP_IO_ABI_VERSION 3u

/* Before what a plugin exports. */
#define DLCP_IO_EXPORT __attribute__((visibility("default")))

typedef struct dlcp_io dlcp_io; /* one open driver; its layout is the driver's own */

typedef struct dlcp_io_config {
    const char* bind_host;        /* address or name to bind; NULL: loopback */
    const char* interface_name;   /* send and receive through this interface only; NULL: any */
    uint16_t port;                /* UDP port peers send to; 0: any free one */
    uint16_t paths;               /* source ports to spray over, 1..64 */
    uint32_t max_datagram_bytes;  /* cap on UDP payload; 0: what the interface's MTU allows */
    uint32_t socket_buffer_bytes; /* of the kernel or the card, receiving and sending alike; 0: driver's default */
    uint32_t flags;               /* DLCP_IO_NO_GSO, DLCP_IO_NO_GRO */
    const char* extra;            /* driver-specific words, by spaces; what follows a word "--" is for a library
                                     below it (EAL arguments). NULL: none */
} dlcp_io_config;

#define DLCP_IO_NO_GSO 1u
#define DLCP_IO_NO_GRO 2u

typedef struct dlcp_io_capabilities {
    uint32_t max_datagram_bytes;   /* largest UDP payload that leaves in one piece */
    uint32_t max_burst_packets;    /* most packets one tx_get, tx_put or rx handles */
    uint32_t receive_buffer_bytes; /* payload bytes that fit in the receive buffer when nobody reads */
    uint8_t wants_runs;            /* 1: equal neighbours are much cheaper (segmentation offload) */
    uint8_t reports_ecn;           /* 1: tos is read back on receive */
    uint8_t pollable;              /* 1: wait() sleeps; 0: it spins */
    uint8_t is_loopback;           /* 1: only this host can reach it */
    uint32_t channel_buffer_bytes; /* datagram bytes, in packets of any size, that a private channel
                                      (DLCP_ADDRESS_TRUSTED) holds when nobody reads; 0: it makes none */
} dlcp_io_capabilities;

typedef struct dlcp_io_counters {
    uint64_t tx_packets, tx_bytes, tx_calls; /* bytes: UDP payload */
    uint64_t rx_packets, rx_bytes, rx_calls;
    uint64_t tx_dropped_packets;   /* accepted by tx_put, refused by the kernel or NIC: lost locally */
    uint64_t rx_dropped_datagrams; /* dropped before we read them; a merged super-packet counts as one */
    uint64_t rx_truncated_packets; /* longer than our buffer: discarded */
    uint64_t ce_packets;           /* received with ECN congestion experienced */
    /* Of the above, through private channels; tx_dropped_packets counts those that a full channel refused. */
    uint64_t channel_tx_packets, channel_tx_bytes;
    uint64_t channel_rx_packets, channel_rx_bytes;
    uint64_t channels; /* open now */
} dlcp_io_counters;

/* What befell a driver while it was open. */
#define DLCP_IO_LINK_DOWN 1u       /* a port has no link: packets of its paths are lost meanwhile */
#define DLCP_IO_LINK_UP 2u         /* it has one again */
#define DLCP_IO_NO_BUFFERS 3u      /* no packet buffer could be had; told once until one could again */
#define DLCP_IO_NEIGHBOUR_LOST 4u  /* a next hop does not answer ARP or neighbour discovery */
#define DLCP_IO_NEIGHBOUR_FOUND 5u /* it answers again */
#define DLCP_IO_ADDRESS_TAKEN 6u   /* another station says that it has our address */
#define DLCP_IO_DEVICE_GONE 7u     /* taken away, reset or given up by its driver: not used any more */

typedef struct dlcp_io_event {
    int64_t time_ns; /* on the driver's clock */
    uint32_t kind;   /* DLCP_IO_LINK_DOWN, … */
    char text[116];  /* a sentence for a person, ended by NUL: which port, which neighbour */
} dlcp_io_event;

/* A counter that only this driver has: of its network card, of its address resolution. */
typedef struct dlcp_io_statistic {
    char name[56]; /* "port0_rx_missed_packets": lower-case letters, digits, _; unit last */
    uint64_t value;
} dlcp_io_statistic;

typedef struct dlcp_io_table {
    uint32_t abi_version; /* DLCP_IO_ABI_VERSION */
    const char* name;     /* "udp", "dpdk", … */
    int (*open)(const dlcp_io_config*, dlcp_io** out, char* error, size_t error_bytes);
    void (*capabilities)(dlcp_io*, dlcp_io_capabilities*);
    /* Text to address: "10.0.0.1:7000", "[::1]:7000", "host:7000". Blocking if a name is looked up. What follows a
     * "+" is another driver's way to the same endpoint: a driver that does not know it leaves it out. */
    int (*resolve)(dlcp_io*, const char* text, dlcp_address* out, char* error, size_t error_bytes);
    /* Address to text. Always ends with NUL. */
    void (*format)(dlcp_io*, const dlcp_address*, char* text, size_t text_bytes);
    /* The address that peers send to; format() gives the text to hand to them. */
    void (*local_address)(dlcp_io*, dlcp_address* out);
    /* Lends up to n buffers: fills head and cookie. Returns how many (0: try after wait). */
    int (*tx_get)(dlcp_io*, dlcp_packet*, int n);
    /* Sends. Takes back every buffer got with tx_get, in the same order; packets with head_bytes 0 are
     * returned unsent. What the kernel did not take counts as lost locally (tx_dropped_packets). Returns how
     * many it took. */
    int (*tx_put)(dlcp_io*, dlcp_packet*, int n);
    /* Receives without blocking. Returns how many; their buffers stay lent until rx_done. */
    int (*rx)(dlcp_io*, dlcp_packet*, int n);
    void (*rx_done)(dlcp_io*, dlcp_packet*, int n);
    /* Sleeps until a packet is readable, wake() is called, or timeout_ns has passed (<0: no limit). */
    void (*wait)(dlcp_io*, int64_t timeout_ns);
    void (*wake)(dlcp_io*);
    /* Monotonic clock of this driver in nanoseconds (virtual time in tests). */
    int64_t (*now_ns)(dlcp_io*);
    void (*counters)(dlcp_io*, dlcp_io_counters*);
    /* Warnings found when opening, a line each ("" if none): small socket buffers and which sysctl to
     * raise, missing offloads. Owned by the driver. */
    const char* (*warnings)(dlcp_io*);
    void (*close)(dlcp_io*);
    /* Has wait() return for `descriptor` as well and set *readable then, which the caller clears. Edge-triggered: told
     * once per arrival, also of one that is there already, so read until it would block. rx may set it too. Until
     * unwatch(), which comes before the descriptor is closed. For a driver that holds another one. NULL: cannot. */
    int (*watch)(dlcp_io*, int descriptor, uint8_t* readable);
    void (*unwatch)(dlcp_io*, int descriptor);
    /* Takes up to n of the events that nobody has taken yet, oldest first; returns how many. Cheap when there is none:
     * called once per round. NULL: this driver has none. */
    int (*events)(dlcp_io*, dlcp_io_event*, int n);
    /* Fills up to n of the driver's own counters and returns how many there are. NULL: none. May take a while. */
    int (*statistics)(dlcp_io*, dlcp_io_statistic*, int n);
} dlcp_io_table;

/* A plugin exports this symbol. */
DLCP_IO_EXPORT const dlcp_io_table* dlcp_io_driver(void);

#ifdef __cplusplus
}
#endif
#endif
