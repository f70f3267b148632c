// UDP datagrams of the examples, in C and C++: POSIX sockets with the addresses of fireteam.h, IPv4 only.

#ifndef FIRETEAM_EXAMPLES_DATAGRAMS_H
#define FIRETEAM_EXAMPLES_DATAGRAMS_H

#include "fireteam.h"

#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

// Sends a datagram. One that cannot be sent counts as lost.
static inline void send_datagram(int udp, const ft_address *to, const uint8_t *packet, size_t length) {
  struct sockaddr_in address;
  if (to->family != FT_IPV4) return;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_port = htons(to->port);
  memcpy(&address.sin_addr, to->ip, 4);
  (void)!sendto(udp, packet, length, 0, (const struct sockaddr *)&address, sizeof address);
}

// Waits for a datagram at most for this time. Returns its length, or -1 if none came.
static inline int32_t receive_datagram(int udp, int wait_ms, ft_address *from, uint8_t *packet, size_t capacity) {
  struct sockaddr_in source;
  socklen_t source_length = sizeof source;
  struct pollfd waited;
  ssize_t length;
  waited.fd = udp;
  waited.events = POLLIN;
  if (poll(&waited, 1, wait_ms) <= 0) return -1;
  length = recvfrom(udp, packet, capacity, MSG_DONTWAIT, (struct sockaddr *)&source, &source_length);
  if (length < 0) return -1;
  memset(from, 0, sizeof *from);
  from->family = FT_IPV4;
  from->port = ntohs(source.sin_port);
  memcpy(from->ip, &source.sin_addr, 4);
  return (int32_t)length;
}

#endif  // FIRETEAM_EXAMPLES_DATAGRAMS_H
