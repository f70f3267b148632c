// Plays the search loop of a C++ program by fireteam/matching.hpp: searches, probes hosts over UDP, reserves, joins and leaves.
//
//   search URI SET_ID USER_ID [REGION MS]      token: FIRETEAM_TOKEN in the environment
//
// REGION and MS are the round trip to a region that the player states. Prints a line for each outcome, and ends with `ok` and exit
// code 0. It is C++17, for systems with POSIX sockets. A game has a protobuf library: here, messages are written by hand.

#include <fireteam/matching.hpp>

#include "support.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace {

using fireteam::Bytes;
using support::bytes_of, support::check, support::now_us, support::put_field, support::put_float;

// Time of the whole program, microseconds.
constexpr std::uint64_t kTimeLimitUs = 60'000'000;

// Numbers of protobuf fields: of SessionCompositionData, PlayerData and RegionLatency.
constexpr unsigned kPlayers = 8, kRegionLatencies = 10, kUserId = 1, kRegion = 1, kRoundTripMs = 2;

// SessionCompositionData { players: [PlayerData { user_id }], region_latencies: [RegionLatency { region, round_trip_ms }] }.
Bytes party(const std::string& user_id, const char* region, float round_trip_ms) {
  Bytes player, party, latency;
  put_field(player, kUserId, bytes_of(user_id));
  put_field(party, kPlayers, player);
  if (region != nullptr) {
    put_field(latency, kRegion, bytes_of(region));
    put_float(latency, kRoundTripMs, round_trip_ms);
    put_field(party, kRegionLatencies, latency);
  }
  return party;
}

void send_datagrams(fireteam::Matching& matching, int udp) {
  ft_address to{};
  Bytes packet;
  for (std::int32_t length = 0; (length = matching.poll_transmit(to, packet)) != FT_NONE;) {
    check("poll_transmit", length);
    if (to.family != FT_IPV4) continue;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    std::memcpy(&address.sin_addr, to.ip, 4);
    // A datagram that cannot be sent counts as lost.
    (void)!sendto(udp, packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
}

// Carries out what the loop asks of the game, and returns the number of outcomes.
int play(fireteam::Matching& matching, bool& has_ended) {
  ft_outcome outcome{};
  Bytes data;
  int count = 0;
  for (std::int32_t length = 0; (length = matching.poll_outcome(outcome, data)) != FT_NONE;) {
    check("poll_outcome", length);
    const std::string text(data.begin(), data.end());
    if (outcome.kind == FT_OUTCOME_CONNECT) {
      std::printf("connect %s, %u seats, %.1f ms\n", text.c_str(), static_cast<unsigned>(outcome.seats),
                  static_cast<double>(outcome.round_trip_ms));
      check("connected", matching.connected(outcome.reservation_id, now_us()));
    } else if (outcome.kind == FT_OUTCOME_JOINED) {
      std::printf("joined %s\n", outcome.advertisement_id);
      check("cancel", matching.cancel(now_us()));
    } else if (outcome.kind == FT_OUTCOME_ENDED) {
      std::printf("ended %u %s %s\n", static_cast<unsigned>(outcome.end_reason), outcome.reason, text.c_str());
      has_ended = true;
    } else {
      std::printf("outcome %u\n", static_cast<unsigned>(outcome.kind));
    }
    ++count;
  }
  return count;
}

// Waits for a datagram until the loop needs its timeout, and gives it what came.
void wait_for_event(fireteam::Matching& matching, int udp) {
  pollfd waited{udp, POLLIN, 0};
  if (poll(&waited, 1, support::pause_ms(matching, 1000)) > 0) {
    std::uint8_t packet[2048];
    sockaddr_in source{};
    socklen_t source_length = sizeof source;
    const ssize_t length = recvfrom(udp, packet, sizeof packet, 0, reinterpret_cast<sockaddr*>(&source), &source_length);
    const std::uint64_t arrived_us = now_us();
    if (length >= 0) {
      ft_address from{};
      from.family = FT_IPV4;
      from.port = ntohs(source.sin_port);
      std::memcpy(from.ip, &source.sin_addr, 4);
      const std::int32_t result = matching.handle_datagram(from, packet, static_cast<std::size_t>(length), arrived_us);
      if (result != FT_NONE) check("handle_datagram", result);
      return;
    }
  }
  check("handle_timeout", matching.handle_timeout(now_us()));
}

void run(int count, char** arguments) {
  const Bytes own = party(arguments[3], count > 5 ? arguments[4] : nullptr, count > 5 ? std::strtof(arguments[5], nullptr) : 0);
  const Bytes game_data = bytes_of("build 7");
  ft_matching_options options{};
  options.party = own.data();
  options.party_length = own.size();
  options.game_data = game_data.data();
  options.game_data_length = game_data.size();
  options.set_id = static_cast<std::uint32_t>(std::strtoul(arguments[2], nullptr, 10));
  std::uint8_t random[FT_MATCHING_RANDOM_BYTES];
  support::fill_random(random);
  fireteam::Matching matching;
  check("open the loop", matching.open(options, random));
  const fireteam::Client client = support::open_client(arguments[1]);
  Bytes body;

  const int udp = support::check_system("socket", socket(AF_INET, SOCK_DGRAM, 0));
  const std::uint64_t start_us = now_us();
  bool has_ended = false;
  check("start", matching.start(start_us));
  while (!has_ended) {
    if (now_us() - start_us > kTimeLimitUs) throw std::runtime_error("the loop did not end in time");
    // A call or an outcome may lead to others. Wait when there are none.
    int work = support::make_calls(matching, client, body);
    send_datagrams(matching, udp);
    work += play(matching, has_ended);
    if (work == 0) wait_for_event(matching, udp);
  }
  close(udp);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "use: %s URI SET_ID USER_ID [REGION MS]\n", arguments[0]);
    return 2;
  }
  return support::run([&] { run(count, arguments); });
}
