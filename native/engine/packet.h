/* The packet that crosses between the engine and a driver, as plain C, so that a driver can be a plugin.
 *
 * Sending: the driver lends `head` (room for the largest datagram that it says it carries); the engine writes the
 * header there, points `body` into the caller's own tensor, and writes the authentication tag right behind the header
 * bytes in `head`. The driver reads both until tx_put returns, and no longer. On the wire the datagram is
 * head[0, head_bytes) + body[0, body_bytes) + the tail_bytes that follow head[head_bytes). Control and encrypted packets
 * carry everything in head, and so do those that the engine lays end to end: body_bytes is 0.
 *
 * Receiving: `head` is the whole UDP payload, head_bytes its length; body and tail are unused. A packet with
 * DLCP_PACKET_VIRTUAL carries body_bytes of payload that exist as a length only (a simulator's packet).
 *
 * The engine keeps no pointer into `head` or `address` after the call that passed them. */
#ifndef DLCP_ENGINE_PACKET_H
#define DLCP_ENGINE_PACKET_H

#include <stdint.h>

/* The most that a head can be: the largest datagram there is (jumbo frame, encrypted) + a tag. A driver whose
 * max_datagram_bytes are fewer may lend as many as those. */
#define DLCP_HEAD_CAPACITY 9216u

/* The largest packet in a private channel: head, body and tail together. No network carries it, and its length fits the
 * wire format's 16 bits. */
#define DLCP_CHANNEL_PACKET_BYTES_MAX 65535u

/* Set when `body` is NULL but body_bytes counts: virtual payload, lengths only. */
#define DLCP_PACKET_VIRTUAL 1u
/* Received: it came out of the private channel that `address` names, so nobody but the one process at its other end
 * can have written it. Only a driver sets it, and only on packets whose address has DLCP_ADDRESS_TRUSTED. */
#define DLCP_PACKET_TRUSTED 2u
/* Received: no packet (head_bytes is 0), but word that the process behind `address` has gone and nothing more will
 * come from there. After all that it had sent; with DLCP_PACKET_TRUSTED. */
#define DLCP_PACKET_GONE 4u
/* Sending: leaves as a datagram of its own, in no super-packet with others. Some devices let a super-packet through whose
 * packets are each too large for them, so only such a packet shows what size the path carries. */
#define DLCP_PACKET_ALONE 8u
/* Lent for sending: all memory from this head to the next one of the same tx_get is free as well. So the engine may move
 * `head` forward, and lay packets end to end. A driver that reads them in one piece sets it. */
#define DLCP_PACKET_ADJOINS 16u
/* Sending: the peer may answer to where this packet comes from. Other packets may leave from where nobody reads. */
#define DLCP_PACKET_ANSWERED 32u

/* A private channel to one process of the same user on this host (shared memory): what is sent there reaches that
 * process alone, in order and unchanged, or is counted as lost locally. It needs no packet protection, no pacing and
 * no congestion control, only a bound on what is in flight (EndpointConfig::channel_buffer). */
#define DLCP_ADDRESS_TRUSTED 1u

/* Where a packet goes to or came from. Opaque to the engine, which only stores and compares it, but for its flags: the
 * UDP driver keeps a sockaddr in it, the in-memory network a host number. Bytes past `length` are zero. */
typedef struct dlcp_address {
    uint8_t bytes[28];
    uint16_t length; /* 0: no address */
    uint16_t flags;  /* DLCP_ADDRESS_* */
} dlcp_address;

typedef struct dlcp_packet {
    uint8_t* head;               /* see above */
    const uint8_t* body;         /* sending: payload in the caller's memory; NULL if virtual or inline */
    const dlcp_address* address; /* sending: destination; receiving: source, valid during the call */
    uint32_t head_bytes;
    uint32_t body_bytes;
    uint32_t tail_bytes; /* 0 or the length of the authentication tag, stored behind head[head_bytes) */
    uint16_t path;       /* path id: UDP maps it to a source port; receiving: as the header says */
    uint8_t tos;         /* DSCP << 2 | ECN (RFC 2474, RFC 3168); written when sending, read when receiving */
    uint8_t flags;       /* DLCP_PACKET_*; a driver sets only those said to be received */
    int64_t arrival_ns; /* receiving: when it reached this host, on the driver's clock; 0: unknown, "now" is taken.
                            Earlier than the call by what it waited in the host: that is no network's queue */
    uint64_t cookie;    /* the driver's own: which buffer this is */
    uint64_t message_tag; /* sending: of the message of a data packet, for a driver that keeps accounts; 0 in other
                             packets. Not every header has it. */
} dlcp_packet;

#endif
