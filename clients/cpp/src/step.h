// What both demos are written with: steps that are checked, calls that end, keys that nobody can guess.

#pragma once

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

#include <grpcpp/grpcpp.h>

#include "fireteam/v1/matchmaking.pb.h"

namespace demo {

// No call and no stream of a demo takes longer than this.
constexpr auto kDeadline = std::chrono::seconds(10);
// Messages that may come on a stream before the one that is waited for; more is a server gone wild.
constexpr int kMessagesMax = 100;

// A step that did not go as expected.
struct Unexpected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw Unexpected(what);
}

inline void expect_ok(const grpc::Status& status, const std::string& step) {
  if (status.ok()) return;
  throw Unexpected(step + ": code " + std::to_string(status.error_code()) + ", " + status.error_message());
}

// 128 random bits as text: an idempotency key that no stranger can guess, and a name that no other run has.
inline std::string random_key() {
  static const char digits[] = "0123456789abcdef";
  std::random_device dice;
  std::string key;
  for (int i = 0; i < 32; ++i) key += digits[dice() % 16];
  return key;
}

// Each call has its own context: gRPC does not let them be used twice.
inline std::unique_ptr<grpc::ClientContext> context() {
  auto made = std::make_unique<grpc::ClientContext>();
  made->set_deadline(std::chrono::system_clock::now() + kDeadline);
  // A server that wants to know who is calling takes a token of the player's.
  if (const char* token = std::getenv("FIRETEAM_TOKEN")) {
    made->AddMetadata("authorization", std::string("Bearer ") + token);
  }
  return made;
}

// One player, as host, searcher and whoever queues describe themselves.
inline fireteam::v1::SessionCompositionData solo(const std::string& user_id, double skill) {
  fireteam::v1::SessionCompositionData session;
  auto* player = session.add_players();
  player->set_user_id(user_id);
  player->set_skill(skill);
  return session;
}

// A connection to `target`, once there is one.
inline std::shared_ptr<grpc::Channel> connect(const std::string& target) {
  auto channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
  expect(channel->WaitForConnected(std::chrono::system_clock::now() + kDeadline), "a server listens at " + target);
  return channel;
}

// A demo's main: NAME HOST:PORT [SET_ID]. Ends with `ok`, or with one line that says what was not as expected.
inline int run(int argc, char** argv, uint32_t set_id,
               const std::function<void(const std::string& target, uint32_t set_id)>& play) {
  if (argc < 2 || 3 < argc) {
    std::cerr << "usage: " << argv[0] << " HOST:PORT [SET_ID]\n";
    return 2;
  }
  try {
    play(argv[1], argc == 3 ? static_cast<uint32_t>(std::stoul(argv[2])) : set_id);
  } catch (const std::exception& error) {
    std::cerr << "not as expected: " << error.what() << "\n";
    return 1;
  }
  std::cout << "ok\n";
  return 0;
}

}  // namespace demo
