// Plays the search loop of a C program: searches, probes hosts over UDP, reserves, joins and leaves. It needs no gRPC library.
//
//   search URI [SET_ID [USER_ID [CA.pem]]]      token: FIRETEAM_TOKEN in the environment
//
// Prints a line for each outcome, and ends with `ok` and exit code 0. It is C11 and C++17, for systems with POSIX sockets.

#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "fireteam.h"

#include "datagrams.h"
#include "support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Time of the whole program, microseconds.
#define TIME_LIMIT_US (60u * 1000u * 1000u)

static uint8_t request[FT_ANSWER_BYTES];
static uint8_t body[FT_ANSWER_BYTES];

static ft_matching *new_matching(uint32_t set_id, const char *user_id) {
  uint8_t party[128], random[FT_MATCHING_RANDOM_BYTES];
  ft_matching_options options;
  ft_matching *matching = NULL;
  memset(&options, 0, sizeof options);
  options.party = party;
  options.party_length = put_party(party, user_id);
  options.game_data = (const uint8_t *)"build 7";
  options.game_data_length = 7;
  options.set_id = set_id;
  fill_random(random, sizeof random);
  check("ft_matching_new", ft_matching_new(&options, random, sizeof random, &matching));
  return matching;
}

// Makes all calls, and returns their number. A game makes them on another thread: here, a datagram waits until the call is answered.
static int make_calls(ft_matching *matching, ft_client *client) {
  ft_call call;
  int32_t length;
  int count = 0;
  while ((length = ft_matching_poll_call(matching, &call, request, sizeof request)) != FT_NONE) {
    ft_answer answer;
    if ((size_t)check("ft_matching_poll_call", length) > sizeof request) fail("request", FT_ERROR_LENGTH);
    check("ft_client_call", ft_client_call(client, &call, request, (size_t)length, body, sizeof body, &answer));
    printf("%s: %d\n", call.path, (int)answer.status);
    length = ft_matching_handle_answer(matching, &answer, now_us());
    if (length != FT_ERROR_MALFORMED) check("ft_matching_handle_answer", length);
    count++;
  }
  return count;
}

static void send_datagrams(ft_matching *matching, int udp) {
  uint8_t packet[FT_DATAGRAM_BYTES];
  ft_address to;
  int32_t length;
  while ((length = ft_matching_poll_transmit(matching, &to, packet, sizeof packet)) != FT_NONE) {
    send_datagram(udp, &to, packet, (size_t)check("ft_matching_poll_transmit", length));
  }
}

// Carries out what the loop asks of the game, and returns the number of outcomes.
static int play(ft_matching *matching, int *has_ended) {
  uint8_t data[4096];
  ft_outcome outcome;
  int32_t length;
  int count = 0;
  while ((length = ft_matching_poll_outcome(matching, &outcome, data, sizeof data)) != FT_NONE) {
    if ((size_t)check("ft_matching_poll_outcome", length) > sizeof data) fail("outcome", FT_ERROR_LENGTH);
    switch (outcome.kind) {
      case FT_OUTCOME_CONNECT:
        printf("connect %.*s, %u seats, %.1f ms\n", (int)length, (const char *)data, (unsigned)outcome.seats,
               (double)outcome.round_trip_ms);
        // A game connects here, and reports when it knows.
        check("ft_matching_connected", ft_matching_connected(matching, outcome.reservation_id, now_us()));
        break;
      case FT_OUTCOME_JOINED:
        printf("joined %s\n", outcome.advertisement_id);
        // A game plays here.
        check("ft_matching_cancel", ft_matching_cancel(matching, now_us()));
        break;
      case FT_OUTCOME_ENDED:
        printf("ended %u %s %.*s\n", (unsigned)outcome.end_reason, outcome.reason, (int)length, (const char *)data);
        *has_ended = 1;
        break;
      default:
        printf("outcome %u\n", (unsigned)outcome.kind);
        break;
    }
    count++;
  }
  return count;
}

// Waits for a datagram until the loop needs its timeout, and gives it what came.
static void wait_for_event(ft_matching *matching, int udp) {
  uint8_t packet[2048];
  ft_address from;
  uint64_t at_us;
  uint32_t pause_ms = 1000;
  int32_t length;
  if (ft_matching_poll_timeout(matching, &at_us) >= 0) pause_ms = pause_ms_until(at_us, pause_ms);
  length = receive_datagram(udp, (int)pause_ms, &from, packet, sizeof packet);
  if (length < 0) {
    check("ft_matching_handle_timeout", ft_matching_handle_timeout(matching, now_us()));
  } else {
    length = ft_matching_handle_datagram(matching, &from, packet, (size_t)length, now_us());
    if (length != FT_NONE) check("ft_matching_handle_datagram", length);
  }
}

int main(int count, char **arguments) {
  const char *user_id = count > 3 ? arguments[3] : "ada";
  uint32_t set_id = count > 2 ? (uint32_t)strtoul(arguments[2], NULL, 10) : 1u;
  ft_client *client;
  ft_matching *matching;
  uint64_t start_us = now_us();
  int udp, has_ended = 0;
  if (count < 2) {
    fprintf(stderr, "use: %s URI [SET_ID [USER_ID [CA.pem]]]\n", arguments[0]);
    return 2;
  }
  if (ft_interface_version() != FT_INTERFACE_VERSION) fail("version", FT_ERROR_VALUE);
  udp = socket(AF_INET, SOCK_DGRAM, 0);
  if (udp < 0) {
    perror("socket");
    return 1;
  }
  client = new_client(arguments[1], count > 4 ? arguments[4] : NULL);
  matching = new_matching(set_id, user_id);

  check("ft_matching_start", ft_matching_start(matching, now_us()));
  while (!has_ended) {
    if (now_us() - start_us > TIME_LIMIT_US) fail("the loop within its time", FT_ERROR_VALUE);
    // A call or an outcome may lead to others. Wait when there are none.
    int work = make_calls(matching, client);
    send_datagrams(matching, udp);
    work += play(matching, &has_ended);
    if (work > 0) continue;
    wait_for_event(matching, udp);
  }
  ft_matching_free(matching);
  ft_client_free(client);
  close(udp);
  printf("ok\n");
  return 0;
}
