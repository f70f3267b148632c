// Game that uses an installed fireteam: starts a search loop, looks at its first call, and ends it. Prints `ok`.

#include <fireteam/matching.hpp>

#include <cstdio>
#include <cstring>
#include <utility>

// Prints a failed check, and ends with exit code 1.
#define CHECK(condition)                              \
  if (!(condition)) {                                 \
    std::fprintf(stderr, "failed: %s\n", #condition); \
    return 1;                                         \
  }

int main() {
  fireteam::Matching unopened;
  CHECK(!unopened && unopened.start(1) == FT_ERROR_NULL);

  // SessionCompositionData { players: [PlayerData { user_id: "ada" }] }.
  const fireteam::Bytes party = {0x42, 5, 0x0a, 3, 'a', 'd', 'a'};
  std::uint8_t random[FT_MATCHING_RANDOM_BYTES] = {1, 2, 3};
  ft_matching_options options{};
  options.party = party.data();
  options.party_length = party.size();
  options.set_id = 7;
  fireteam::Matching made;
  CHECK(made.open(options, random) == 0);
  fireteam::Matching matching = std::move(made);
  CHECK(matching && !made);
  CHECK(matching.start(1000) == 0 && matching.state() == FT_STATE_SEARCHING);

  ft_call call{};
  fireteam::Bytes request;
  CHECK(matching.poll_call(call, request) > 0);
  CHECK(std::strcmp(call.path, "/fireteam.v1.MatchmakingService/Search") == 0 && !request.empty());
  CHECK(matching.poll_call(call, request) == FT_NONE && request.empty());
  std::uint64_t at_us = 0;
  CHECK(matching.poll_timeout(at_us) == 0 && at_us > 1000);
  CHECK(matching.cancel(2000) == 0);
  ft_outcome outcome{};
  fireteam::Bytes data;
  CHECK(matching.poll_outcome(outcome, data) == 0 && outcome.kind == FT_OUTCOME_ENDED);

  std::uint8_t responder_random[FT_RESPONDER_RANDOM_BYTES] = {1};
  fireteam::Responder responder;
  CHECK(responder.open(responder_random) == 0 && responder.endpoint(4000, data) > 0);
  const ft_address from{{127, 0, 0, 1}, 9, FT_IPV4};
  CHECK(responder.handle_datagram(from, party.data(), party.size(), 1, 1, data) == FT_NONE);

  ft_client_options client_options{};
  client_options.uri = "https://localhost";
  fireteam::Client client;
  CHECK(client.open(client_options) == FT_ERROR_VALUE && !client);
  std::puts("ok");
  return 0;
}
