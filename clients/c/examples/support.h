// Parts that the C examples share: checks, a clock, random numbers, a client, and protobuf fields by hand. A game has a protobuf generator.

#ifndef FIRETEAM_EXAMPLES_SUPPORT_H
#define FIRETEAM_EXAMPLES_SUPPORT_H

#include "fireteam.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Numbers of protobuf fields.
#define PLAYER_USER_ID 1
#define PARTY_LOCALITY 7
#define PARTY_PLAYERS 8
#define LOCALITY_LATITUDE 4
#define LOCALITY_LONGITUDE 5

static inline void fail(const char *step, int32_t code) {
  fprintf(stderr, "%s failed: %d, %s\n", step, (int)code, ft_result_text(code));
  exit(1);
}

// Result of a function that has to succeed.
static inline int32_t check(const char *step, int32_t result) {
  if (result < 0) fail(step, result);
  return result;
}

// Clock that never goes back, microseconds.
static inline uint64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static inline void fill_random(uint8_t *bytes, size_t length) {
  FILE *file = fopen("/dev/urandom", "rb");
  if (file == NULL || fread(bytes, 1, length, file) != length) fail("random bytes", FT_ERROR_VALUE);
  fclose(file);
}

// Protobuf field of bytes shorter than 128; returns the bytes written.
static inline size_t put_field(uint8_t *to, unsigned number, const void *bytes, size_t length) {
  to[0] = (uint8_t)(number << 3 | 2);
  to[1] = (uint8_t)length;
  memcpy(to + 2, bytes, length);
  return length + 2;
}

// Party of one player: SessionCompositionData { players: [PlayerData { user_id }] }.
static inline size_t put_party(uint8_t *to, const char *user_id) {
  uint8_t player[112];
  size_t length = strlen(user_id);
  if (100 < length) fail("user id", FT_ERROR_LENGTH);
  length = put_field(player, PLAYER_USER_ID, user_id, length);
  return put_field(to, PARTY_PLAYERS, player, length);
}

// Protobuf field of type double; returns the bytes written.
static inline size_t put_double(uint8_t *to, unsigned number, double value) {
  uint64_t bits;
  unsigned at;
  memcpy(&bits, &value, sizeof bits);
  to[0] = (uint8_t)(number << 3 | 1);
  for (at = 0; at < 8; at++) to[at + 1] = (uint8_t)(bits >> (8 * at));
  return 9;
}

// Place of a party: the field locality_info of SessionCompositionData. A server takes it with --allow-client-locality.
static inline size_t put_place(uint8_t *to, const ft_place *place) {
  uint8_t locality[18];
  size_t length = put_double(locality, LOCALITY_LATITUDE, place->latitude);
  length += put_double(locality + length, LOCALITY_LONGITUDE, place->longitude);
  return put_field(to, PARTY_LOCALITY, locality, length);
}

// Milliseconds until a time, rounded up, at most `most_ms`.
static inline uint32_t pause_ms_until(uint64_t at_us, uint32_t most_ms) {
  uint64_t now = now_us();
  uint64_t pause_us = now < at_us ? at_us - now : 0;
  return pause_us < most_ms * 1000u ? (uint32_t)((pause_us + 999u) / 1000u) : most_ms;
}

static inline ft_client *new_client(const char *uri, const char *ca_path) {
  static char certificates[65536];
  ft_client_options options;
  ft_client *client = NULL;
  memset(&options, 0, sizeof options);
  options.uri = uri;
  options.token = getenv("FIRETEAM_TOKEN");
  if (ca_path != NULL) {
    FILE *file = fopen(ca_path, "rb");
    if (file == NULL) fail("open the certificates", FT_ERROR_VALUE);
    options.ca_certificates_length = fread(certificates, 1, sizeof certificates, file);
    options.ca_certificates = (const uint8_t *)certificates;
    fclose(file);
  }
  check("ft_client_new", ft_client_new(&options, &client));
  return client;
}

#endif  // FIRETEAM_EXAMPLES_SUPPORT_H
