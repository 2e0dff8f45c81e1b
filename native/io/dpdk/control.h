/* What Python is given of DPDK (dlcp.transport.dpdk): plain C, called with ctypes. Any thread. Functions that can fail
 * return a negative errno and write a sentence to `error`. */
#ifndef DLCP_IO_DPDK_CONTROL_H
#define DLCP_IO_DPDK_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "io/io_table.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DLCP_DPDK_CONTROL_VERSION 1u

typedef struct dlcp_dpdk_port {
    uint16_t id;
    uint8_t link_up;
    uint8_t full_duplex;
    uint8_t claimed; /* a driver of this process has it open */
    uint8_t mac[6];
    int32_t numa_node; /* -1: none */
    uint32_t mtu_bytes;
    uint32_t speed_mbps; /* 0: unknown; UINT32_MAX: not limited */
    uint16_t rx_queues_max, tx_queues_max;
    char name[64];   /* device: "0000:3b:00.0", "net_memif0" */
    char driver[32]; /* "mlx5_pci" */
} dlcp_dpdk_port;

DLCP_IO_EXPORT uint32_t dlcp_dpdk_control_version(void);
DLCP_IO_EXPORT const char* dlcp_dpdk_version(void); /* of the library that is loaded: "DPDK 22.11.11" */
DLCP_IO_EXPORT int dlcp_dpdk_start(const char* eal_arguments, char* error, size_t error_bytes);
DLCP_IO_EXPORT int dlcp_dpdk_started(void);
/* As started, with what was added. Returns its length without NUL; writes what fits. */
DLCP_IO_EXPORT size_t dlcp_dpdk_arguments(char* text, size_t text_bytes);
DLCP_IO_EXPORT size_t dlcp_dpdk_log(char* text, size_t text_bytes);
/* Fills up to n ports; returns how many there are. */
DLCP_IO_EXPORT int dlcp_dpdk_ports(dlcp_dpdk_port* out, int n, char* error, size_t error_bytes);
/* Fills up to n counters of a port; returns how many there are. */
DLCP_IO_EXPORT int dlcp_dpdk_statistics(uint16_t port, dlcp_io_statistic* out, int n, char* error,
                                        size_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif
