// Game server in C++ by fireteam/matching.hpp and fireteam/match_host.hpp: advertises itself with two seats, hosts a match, admits its players
// by their credentials, and reports the result. examples/queue.cpp is a player.
//
//   game_server URI SET_ID KEY_SET      token: FIRETEAM_TOKEN in the environment
//
// KEY_SET is a file with the page /.well-known/jwks.json of the server's operator port. Players connect over TCP, and send their credential as
// one line. When both are in, press Enter: the first team has won. Prints a line for each outcome, and ends with `ok` and exit code 0. It is
// C++17, for systems with POSIX sockets.

#include <fireteam/match_host.hpp>
#include <fireteam/matching.hpp>

#include "support.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using fireteam::Bytes;
using support::bytes_of, support::check, support::check_system, support::now_us, support::put_field, support::put_number;

// Time of the whole program, microseconds.
constexpr std::uint64_t kTimeLimitUs = 180'000'000;
// Players of the match.
constexpr std::uint32_t kSeats = 2;
// Most connections at the same time. A game also closes those that send nothing for long.
constexpr std::size_t kConnectionsMax = 64;

// Numbers of protobuf fields: of MatchmakingUpdateAdvertisementRequest and SessionCompositionData.
constexpr unsigned kSession = 3, kConnectData = 7, kKind = 9, kPartySizes = 3, kOpenSeats = 6;
// ADVERTISEMENT_KIND_GAME_SERVER.
constexpr std::uint32_t kGameServer = 2;

// Connection of a player, and what it has sent.
struct Connection {
  int socket;
  Bytes line;
};

struct GameServer {
  fireteam::Client client;
  fireteam::Matching advertisement;
  fireteam::MatchHost host;
  fireteam::Verifier verifier;
  // Advertisement of the host and the verifier.
  std::string advertisement_id;
  Bytes key_set;
  Bytes body;
  int listener = -1;
  std::vector<Connection> connections;
  // Matches that this server hosts, with the keys of the players who are in.
  std::map<std::string, std::set<std::string>> matches;
  bool is_playing = false;
  bool has_host_ended = false;
  bool has_ended = false;
};

// MatchmakingUpdateAdvertisementRequest { session_composition: { party_size_composition: [1], max_allowed_join_reservation_count },
// connect_data, kind }.
Bytes advertisement(const std::string& connect_data) {
  Bytes session, update;
  put_number(session, kPartySizes, 1);
  put_number(session, kOpenSeats, kSeats);
  put_field(update, kSession, session);
  put_field(update, kConnectData, bytes_of(connect_data));
  put_number(update, kKind, kGameServer);
  return update;
}

// Opens the TCP port of the players. Returns its address as text.
std::string listen_for_players(GameServer& server) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  server.listener = check_system("socket", socket(AF_INET, SOCK_STREAM, 0));
  check_system("bind", bind(server.listener, reinterpret_cast<const sockaddr*>(&address), length));
  check_system("listen", listen(server.listener, 16));
  check_system("getsockname", getsockname(server.listener, reinterpret_cast<sockaddr*>(&address), &length));
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

// Answer to a credential. Admits its player.
std::string admit(GameServer& server, const Bytes& credential) {
  ft_admitted_player player{};
  const std::int32_t result = server.verifier.verify(credential, static_cast<std::uint64_t>(std::time(nullptr)), player);
  if (result < 0) return std::string("refused: ") + ft_result_text(result);
  const auto hosted = server.matches.find(player.match_id);
  if (hosted == server.matches.end()) return "refused: this server does not host the match";
  hosted->second.insert(player.player_key);
  if (!server.is_playing && hosted->second.size() == kSeats) {
    server.is_playing = true;
    std::puts("both players are in; press Enter to end the match");
  }
  return "admitted to team " + std::to_string(player.team);
}

// Reads what a player sends. Returns whether the connection stays open.
bool read_player(GameServer& server, Connection& connection) {
  std::uint8_t part[1024];
  const ssize_t length = recv(connection.socket, part, sizeof part, 0);
  if (length <= 0) return false;
  connection.line.insert(connection.line.end(), part, part + length);
  if (connection.line.back() != '\n') return connection.line.size() <= FT_CREDENTIAL_BYTES;
  connection.line.pop_back();
  const std::string answer = admit(server, connection.line) + "\n";
  std::printf("player %s", answer.c_str());
  (void)!send(connection.socket, answer.data(), answer.size(), MSG_NOSIGNAL);
  return false;
}

// The first team has won.
void end_match(GameServer& server) {
  const std::vector<ft_team_rank> ranks = {{0, 1}, {1, 2}};
  for (const auto& hosted : server.matches) check("report", server.host.report(hosted.first.c_str(), ranks, now_us()));
}

// Opens the host and the verifier for an advertisement. Once: the loop may tell the same one again, and another one while a match is hosted takes
// the place of one that was lost. A game keeps a host and a verifier for each of them; this one plays one match.
void open_host(GameServer& server, const std::string& advertisement_id, const Bytes& token) {
  std::printf("advertised %s\n", advertisement_id.c_str());
  if (server.advertisement_id == advertisement_id || !server.matches.empty()) return;
  server.advertisement_id = advertisement_id;
  std::uint8_t random[FT_MATCH_HOST_RANDOM_BYTES];
  support::fill_random(random);
  check("open the verifier", server.verifier.open(server.key_set, advertisement_id.c_str()));
  check("open the host", server.host.open(token, random));
  check("start the host", server.host.start(now_us()));
}

// Carries out what the advertisement's loop asks for, and returns the number of outcomes.
int handle_advertisement(GameServer& server) {
  ft_outcome outcome{};
  Bytes data;
  int count = 0;
  for (std::int32_t length = 0; (length = server.advertisement.poll_outcome(outcome, data)) != FT_NONE; ++count) {
    check("poll_outcome", length);
    if (outcome.kind == FT_OUTCOME_ADVERTISED) {
      open_host(server, outcome.advertisement_id, data);
    } else if (outcome.kind == FT_OUTCOME_PARTY_COMING) {
      std::printf("seats taken: %u\n", static_cast<unsigned>(outcome.seats));
      check("matches_changed", server.host.matches_changed(now_us()));
    } else if (outcome.kind == FT_OUTCOME_ENDED) {
      server.has_ended = true;
      if (outcome.end_reason != FT_END_CANCELLED) throw std::runtime_error(std::string("not advertised: ") + outcome.reason);
    }
  }
  return count;
}

// Carries out what the host of matches asks for, and returns the number of outcomes.
int handle_matches(GameServer& server) {
  ft_match_outcome outcome{};
  Bytes data;
  int count = 0;
  for (std::int32_t length = 0; (length = server.host.poll_outcome(outcome, data)) != FT_NONE; ++count) {
    check("poll_outcome", length);
    if (outcome.kind == FT_MATCH_OUTCOME_MATCH) {
      std::printf("match %s state %u\n", outcome.match_id, static_cast<unsigned>(outcome.match_state));
      const bool is_hosted = outcome.match_state == FT_MATCH_CONFIRMING || outcome.match_state == FT_MATCH_PLAYING;
      if (is_hosted) server.matches[outcome.match_id];
      if (!is_hosted) server.matches.erase(outcome.match_id);
    } else if (outcome.kind == FT_MATCH_OUTCOME_REPORTED) {
      std::printf("reported %s, rated %u\n", outcome.match_id, static_cast<unsigned>(outcome.is_rated));
      check("stop", server.host.stop(now_us()));
    } else if (outcome.kind == FT_MATCH_OUTCOME_REFUSED) {
      throw std::runtime_error(std::string("the report is refused: ") + outcome.reason + " " + support::text_of(data));
    } else if (outcome.kind == FT_MATCH_OUTCOME_ENDED) {
      if (outcome.end_reason != FT_MATCH_HOST_END_STOPPED) throw std::runtime_error(std::string("no host: ") + outcome.reason);
      server.has_host_ended = true;
      check("withdraw", server.advertisement.cancel(now_us()));
    }
  }
  return count;
}

// Waits for players, for Enter while a match is played, and for the next timeout.
void wait_for_event(GameServer& server) {
  std::vector<pollfd> waited = {{server.listener, POLLIN, 0}, {server.is_playing ? STDIN_FILENO : -1, POLLIN, 0}};
  for (const auto& connection : server.connections) waited.push_back({connection.socket, POLLIN, 0});
  const int pause_ms = support::pause_ms(server.host, support::pause_ms(server.advertisement, 1000));
  if (poll(waited.data(), waited.size(), pause_ms) > 0) {
    std::vector<Connection> open;
    for (std::size_t at = 0; at < server.connections.size(); ++at) {
      Connection& connection = server.connections[at];
      if (waited[at + 2].revents == 0 || read_player(server, connection)) {
        open.push_back(connection);
      } else {
        close(connection.socket);
      }
    }
    server.connections = open;
    if (waited[0].revents != 0) {
      const int accepted = accept(server.listener, nullptr, nullptr);
      if (accepted >= 0 && server.connections.size() < kConnectionsMax) {
        server.connections.push_back({accepted, {}});
      } else if (accepted >= 0) {
        close(accepted);
      }
    }
    if (waited[1].revents != 0) {
      server.is_playing = false;
      end_match(server);
    }
  }
  check("handle_timeout", server.advertisement.handle_timeout(now_us()));
  if (server.host) check("handle_timeout", server.host.handle_timeout(now_us()));
}

void run(char** arguments) {
  GameServer server;
  std::ifstream file(arguments[3], std::ios::binary);
  server.key_set = Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  server.client = support::open_client(arguments[1]);

  const std::string address = listen_for_players(server);
  std::printf("players at %s\n", address.c_str());
  const Bytes update = advertisement(address);
  ft_matching_options options{};
  options.set_id = static_cast<std::uint32_t>(std::strtoul(arguments[2], nullptr, 10));
  std::uint8_t random[FT_MATCHING_RANDOM_BYTES];
  support::fill_random(random);
  check("open the loop", server.advertisement.open(options, random));
  ft_hosting hosting{};
  hosting.advertisement = update.data();
  hosting.advertisement_length = update.size();
  hosting.keep_when_full = 1;
  const std::uint64_t start_us = now_us();
  check("advertise", server.advertisement.become_host(hosting, start_us));

  while (!server.has_ended) {
    if (now_us() - start_us > kTimeLimitUs) throw std::runtime_error("no match was played in time");
    int work = support::make_calls(server.advertisement, server.client, server.body) + handle_advertisement(server);
    if (server.host && !server.has_host_ended) {
      work += support::make_calls(server.host, server.client, server.body) + handle_matches(server);
    }
    if (work == 0) wait_for_event(server);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "use: %s URI SET_ID KEY_SET\n", arguments[0]);
    return 2;
  }
  return support::run([&] { run(arguments); });
}
