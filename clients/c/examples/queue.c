// Plays the queue loop of a C program: enters, watches the ticket, accepts the ready check, and connects to the game server with the player's
// credential. examples/game_server.cpp is that game server, and examples/queue.cpp the same player with a saved ticket.
//
//   queue URI SET_ID USER_ID [LATITUDE LONGITUDE]      token: FIRETEAM_TOKEN in the environment
//
// It measures beacons before it enters and while the ticket waits, so that the ticket's round trips are proven. LATITUDE and LONGITUDE are the
// player's place in degrees, if the game knows it: the nearest beacons are measured, and a server with --allow-client-locality takes it. Prints a line for each outcome, and ends with `ok` and exit code 0. It is C11 and C++17, for systems with POSIX sockets.

#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "fireteam.h"

#include "datagrams.h"
#include "support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// Time of the whole program, microseconds.
#define TIME_LIMIT_US (180u * 1000u * 1000u)
// Longest wait for the watch, milliseconds.
#define WAIT_MS 1000u
// Longest time for the first latency token, microseconds.
#define FIRST_TOKEN_US (4u * 1000u * 1000u)

// Numbers of fields of QueueEnterRequest.
#define ENTER_PARTY 1
#define ENTER_SET_ID 2

static uint8_t request[FT_ANSWER_BYTES];
static uint8_t body[FT_QUEUE_ANSWER_BYTES];

// Measurement of beacons, and its socket.
static ft_beacons *beacons;
static int udp;

// Watch of the ticket, and its number. Null if none is open.
static ft_stream *watch;
static uint64_t watch_id;

// QueueEnterRequest { session_composition: party, matchmaking_set_id }. The place is null if the game does not know it.
static ft_queueing *new_queueing(uint32_t set_id, const char *user_id, const ft_place *place) {
  uint8_t party[160], enter[192], random[FT_QUEUEING_RANDOM_BYTES];
  ft_queueing *queueing = NULL;
  size_t length = put_party(party, user_id);
  if (place != NULL) length += put_place(party + length, place);
  if (length > 127) fail("user id", FT_ERROR_LENGTH);
  length = put_field(enter, ENTER_PARTY, party, length);
  if (set_id > 127) fail("set id", FT_ERROR_VALUE);
  enter[length++] = ENTER_SET_ID << 3;
  enter[length++] = (uint8_t)set_id;
  fill_random(random, sizeof random);
  check("ft_queueing_new", ft_queueing_new(enter, length, random, sizeof random, &queueing));
  return queueing;
}

// Makes all calls, and returns their number. A game makes them on another thread: here, the watch waits until the call is answered.
static int make_calls(ft_queueing *queueing, ft_client *client) {
  ft_call call;
  int32_t length;
  int count = 0;
  while ((length = ft_queueing_poll_call(queueing, &call, request, sizeof request)) != FT_NONE) {
    ft_answer answer;
    if ((size_t)check("ft_queueing_poll_call", length) > sizeof request) fail("request", FT_ERROR_LENGTH);
    check("ft_client_call", ft_client_call(client, &call, request, (size_t)length, body, sizeof body, &answer));
    printf("%s: %d\n", call.path, (int)answer.status);
    length = ft_queueing_handle_answer(queueing, &answer, now_us());
    if (length != FT_ERROR_MALFORMED) check("ft_queueing_handle_answer", length);
    count++;
  }
  return count;
}

// Makes the calls of the measurement, sends its packets, and passes on a new token. Returns the number of calls.
static int drive_beacons(ft_queueing *queueing, ft_client *client) {
  uint8_t packet[FT_DATAGRAM_BYTES], token[FT_TOKEN_BYTES];
  ft_address to;
  ft_call call;
  int32_t length;
  int count = 0;
  while ((length = ft_beacons_poll_call(beacons, &call, request, sizeof request)) != FT_NONE) {
    ft_answer answer;
    if ((size_t)check("ft_beacons_poll_call", length) > sizeof request) fail("request", FT_ERROR_LENGTH);
    check("ft_client_call", ft_client_call(client, &call, request, (size_t)length, body, sizeof body, &answer));
    printf("%s: %d\n", call.path, (int)answer.status);
    length = ft_beacons_handle_answer(beacons, &answer, now_us());
    if (length != FT_ERROR_MALFORMED) check("ft_beacons_handle_answer", length);
    count++;
  }
  while ((length = ft_beacons_poll_transmit(beacons, &to, packet, sizeof packet)) != FT_NONE) {
    send_datagram(udp, &to, packet, (size_t)check("ft_beacons_poll_transmit", length));
  }
  while ((length = ft_beacons_poll_token(beacons, token, sizeof token)) != FT_NONE) {
    if ((size_t)check("ft_beacons_poll_token", length) > sizeof token) fail("token", FT_ERROR_LENGTH);
    printf("latency token of %d bytes\n", (int)length);
    check("ft_queueing_set_latency_token", ft_queueing_set_latency_token(queueing, token, (size_t)length, now_us()));
  }
  return count;
}

// Milliseconds until the measurement needs its timeout, at most `most_ms`.
static uint32_t beacons_pause_ms(uint32_t most_ms) {
  uint64_t at_us;
  return ft_beacons_poll_timeout(beacons, &at_us) < 0 ? most_ms : pause_ms_until(at_us, most_ms);
}

// Waits for a datagram of a beacon, and gives it to the measurement.
static void wait_for_beacons(uint32_t pause_ms) {
  uint8_t packet[2048];
  ft_address from;
  int32_t length = receive_datagram(udp, (int)pause_ms, &from, packet, sizeof packet);
  if (length < 0) {
    check("ft_beacons_handle_timeout", ft_beacons_handle_timeout(beacons, now_us()));
  } else {
    length = ft_beacons_handle_datagram(beacons, &from, packet, (size_t)length, now_us());
    if (length != FT_NONE) check("ft_beacons_handle_datagram", length);
  }
}

// Measures beacons for the first token, within the time that a player may wait for it.
static void measure_beacons(ft_queueing *queueing, ft_client *client) {
  uint64_t latest_us = now_us() + FIRST_TOKEN_US;
  check("ft_beacons_start", ft_beacons_start(beacons, now_us()));
  for (;;) {
    drive_beacons(queueing, client);
    if (ft_beacons_state(beacons) == FT_BEACONS_RESTING || latest_us <= now_us()) break;
    wait_for_beacons(beacons_pause_ms(pause_ms_until(latest_us, WAIT_MS)));
  }
}

// Whether the queue loop needs a latency token: its ticket is to be entered, or waits. Later, the measurement leaves the network to the game.
static int needs_token(ft_queueing *queueing) {
  int32_t state = ft_queueing_state(queueing);
  return state == FT_QUEUEING_IDLE || state == FT_QUEUEING_ENTERING || state == FT_QUEUEING_WATCHING;
}

// Opens the watch that the loop wants, and closes the one before.
static void open_watch(ft_queueing *queueing, ft_client *client) {
  ft_call call;
  int32_t length = ft_queueing_poll_watch(queueing, &call, request, sizeof request);
  if (length == FT_NONE) return;
  if ((size_t)check("ft_queueing_poll_watch", length) > sizeof request) fail("watch", FT_ERROR_LENGTH);
  ft_stream_free(watch);
  watch = NULL;
  watch_id = call.id;
  check("ft_stream_new", ft_stream_new(client, &call, request, (size_t)length, &watch));
}

// Presents the player's credential at the address of the game server, such as 127.0.0.1:4000. Returns whether the player is in.
static int connect_to_match(ft_queueing *queueing) {
  char address[64], line[FT_CREDENTIAL_BYTES + 1], answer[256];
  struct sockaddr_in server;
  struct timeval limit = {5, 0};
  size_t used = 0;
  char *colon;
  int connection;
  int32_t length = ft_queueing_connect_data(queueing, (uint8_t *)address, sizeof address - 1);
  if (length < 0 || (size_t)length >= sizeof address) return 0;
  address[length] = 0;
  length = ft_queueing_credential(queueing, 0, (uint8_t *)line, sizeof line - 1);
  if (length < 0 || (size_t)length >= sizeof line) return 0;
  line[length++] = '\n';
  colon = strrchr(address, ':');
  if (colon == NULL) return 0;
  *colon = 0;
  memset(&server, 0, sizeof server);
  server.sin_family = AF_INET;
  server.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
  if (inet_pton(AF_INET, address, &server.sin_addr) != 1) return 0;
  connection = socket(AF_INET, SOCK_STREAM, 0);
  if (connection < 0) return 0;
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(connection, (const struct sockaddr *)&server, sizeof server) == 0 &&
      send(connection, line, (size_t)length, MSG_NOSIGNAL) == (ssize_t)length) {
    ssize_t received;
    while (used + 1 < sizeof answer && (received = recv(connection, answer + used, sizeof answer - 1 - used, 0)) > 0) {
      used += (size_t)received;
    }
  }
  close(connection);
  answer[used] = 0;
  answer[strcspn(answer, "\n")] = 0;
  printf("game server: %s\n", answer);
  return strncmp(answer, "admitted", 8) == 0;
}

// Carries out what the loop asks of the game, and returns the number of outcomes.
static int play(ft_queueing *queueing, int *has_ended) {
  static uint8_t data[FT_QUEUE_ANSWER_BYTES];
  ft_queue_outcome outcome;
  int32_t length;
  int count = 0;
  while ((length = ft_queueing_poll_outcome(queueing, &outcome, data, sizeof data)) != FT_NONE) {
    if ((size_t)check("ft_queueing_poll_outcome", length) > sizeof data) fail("outcome", FT_ERROR_LENGTH);
    switch (outcome.kind) {
      case FT_QUEUE_OUTCOME_STATUS:
        printf("ticket %s state %u\n", outcome.ticket_id, (unsigned)outcome.ticket_state);
        break;
      case FT_QUEUE_OUTCOME_READY_CHECK:
        printf("ready check %s, %u players\n", outcome.match_id, (unsigned)outcome.player_count);
        // A game asks its players here.
        check("ft_queueing_respond", ft_queueing_respond(queueing, outcome.match_id, 1, now_us()));
        break;
      case FT_QUEUE_OUTCOME_CONNECT:
        printf("connect %s team %u\n", outcome.match_id, (unsigned)outcome.team);
        if (connect_to_match(queueing)) {
          check("ft_queueing_connected", ft_queueing_connected(queueing, now_us()));
        } else {
          check("ft_queueing_connect_failed", ft_queueing_connect_failed(queueing, now_us()));
        }
        break;
      default:
        printf("ended %u ticket %u %s %.*s\n", (unsigned)outcome.end_reason, (unsigned)outcome.ticket_end_reason,
               outcome.reason, (int)length, (const char *)data);
        *has_ended = 1;
        if (outcome.end_reason != FT_QUEUE_END_TICKET) exit(1);
        break;
    }
    count++;
  }
  return count;
}

// Waits for a message of the watch until the loop needs its timeout, and gives it what came.
static void wait_for_event(ft_queueing *queueing) {
  uint64_t at_us;
  uint32_t pause_ms = WAIT_MS;
  int32_t length;
  if (ft_queueing_poll_timeout(queueing, &at_us) >= 0) pause_ms = pause_ms_until(at_us, pause_ms);
  if (needs_token(queueing)) {
    pause_ms = beacons_pause_ms(pause_ms);
    // A beacon measures until its packet is answered. So the socket is waited for, and the watch only looked at.
    int is_measuring = ft_beacons_state(beacons) == FT_BEACONS_MEASURING;
    wait_for_beacons(is_measuring ? pause_ms : 0);
    if (is_measuring) pause_ms = 0;
  }
  if (watch == NULL) {
    struct timespec pause;
    pause.tv_sec = 0;
    pause.tv_nsec = (long)(pause_ms > 999 ? 999 : pause_ms) * 1000000;
    nanosleep(&pause, NULL);
    check("ft_queueing_handle_timeout", ft_queueing_handle_timeout(queueing, now_us()));
    return;
  }
  length = ft_stream_next(watch, pause_ms, body, sizeof body);
  if (length == FT_NONE) {
    check("ft_queueing_handle_timeout", ft_queueing_handle_timeout(queueing, now_us()));
  } else if (length == FT_STREAM_ENDED) {
    ft_answer end;
    check("ft_stream_end", ft_stream_end(watch, body, sizeof body, &end));
    printf("watch ended: %d\n", (int)end.status);
    check("ft_queueing_handle_watch_end", ft_queueing_handle_watch_end(queueing, &end, now_us()));
    ft_stream_free(watch);
    watch = NULL;
  } else {
    if ((size_t)check("ft_stream_next", length) > sizeof body) fail("message", FT_ERROR_LENGTH);
    length = ft_queueing_handle_watch_message(queueing, watch_id, body, (size_t)length, now_us());
    if (length != FT_ERROR_MALFORMED) check("ft_queueing_handle_watch_message", length);
  }
}

int main(int count, char **arguments) {
  uint8_t random[FT_BEACONS_RANDOM_BYTES];
  const ft_place *place = NULL;
  ft_place given;
  ft_client *client;
  ft_queueing *queueing;
  uint64_t start_us = now_us();
  int has_ended = 0;
  if (count < 4) {
    fprintf(stderr, "use: %s URI SET_ID USER_ID [LATITUDE LONGITUDE]\n", arguments[0]);
    return 2;
  }
  if (count > 5) {
    given.latitude = strtod(arguments[4], NULL);
    given.longitude = strtod(arguments[5], NULL);
    place = &given;
  }
  // Lines are read by other programs while this one runs.
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  client = new_client(arguments[1], NULL);
  queueing = new_queueing((uint32_t)strtoul(arguments[2], NULL, 10), arguments[3], place);
  udp = socket(AF_INET, SOCK_DGRAM, 0);
  if (udp < 0) {
    perror("socket");
    return 1;
  }
  fill_random(random, sizeof random);
  check("ft_beacons_new", ft_beacons_new(place, random, sizeof random, &beacons));

  measure_beacons(queueing, client);
  check("ft_queueing_start", ft_queueing_start(queueing, now_us()));
  while (!has_ended) {
    int work;
    if (now_us() - start_us > TIME_LIMIT_US) fail("the loop within its time", FT_ERROR_VALUE);
    // A call or an outcome may lead to others. Wait when there are none.
    work = make_calls(queueing, client);
    if (needs_token(queueing)) work += drive_beacons(queueing, client);
    work += play(queueing, &has_ended);
    open_watch(queueing, client);
    if (work == 0) wait_for_event(queueing);
  }
  ft_stream_free(watch);
  ft_beacons_free(beacons);
  ft_queueing_free(queueing);
  close(udp);
  ft_client_free(client);
  printf("ok\n");
  return 0;
}
