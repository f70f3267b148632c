// Support code of the demos: checks, call contexts with a deadline, random keys, and main().

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

// Deadline of every call and every stream.
constexpr auto kDeadline = std::chrono::seconds(10);
// Maximum number of messages read from a stream while waiting for one message.
constexpr int kMessagesMax = 100;

// Failed check of a demo.
struct CheckFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws `CheckFailed` with `expectation` unless `holds`.
inline void expect(bool holds, const std::string& expectation) {
  if (!holds) throw CheckFailed(expectation);
}

// Throws `CheckFailed` with the step's name and the gRPC error unless `status` is OK.
inline void expect_ok(const grpc::Status& status, const std::string& step) {
  if (status.ok()) return;
  throw CheckFailed(step + ": code " + std::to_string(status.error_code()) + ", " + status.error_message());
}

// 128 random bits as 32 hexadecimal digits: an idempotency key, or a name that is unique to this run.
inline std::string random_key() {
  static const char digits[] = "0123456789abcdef";
  std::random_device random;
  std::string key;
  for (int i = 0; i < 32; ++i) key += digits[random() % 16];
  return key;
}

// Context of one call; gRPC does not allow a context to be used twice.
inline std::unique_ptr<grpc::ClientContext> context() {
  auto call_context = std::make_unique<grpc::ClientContext>();
  call_context->set_deadline(std::chrono::system_clock::now() + kDeadline);
  // Token of the caller, for a server with authentication.
  if (const char* token = std::getenv("FIRETEAM_TOKEN")) {
    call_context->AddMetadata("authorization", std::string("Bearer ") + token);
  }
  return call_context;
}

// Session composition with one player.
inline fireteam::v1::SessionCompositionData single_player(const std::string& user_id, double skill) {
  fireteam::v1::SessionCompositionData session;
  auto* player = session.add_players();
  player->set_user_id(user_id);
  player->set_skill(skill);
  return session;
}

// Connects to `target`; throws `CheckFailed` if no server accepts the connection before the deadline.
inline std::shared_ptr<grpc::Channel> connect(const std::string& target) {
  auto channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
  expect(channel->WaitForConnected(std::chrono::system_clock::now() + kDeadline), "a server listens at " + target);
  return channel;
}

// main() of a demo: NAME HOST:PORT [SET_ID]. Prints `ok`, or one line with the failed check. Returns the exit code.
inline int run(int argc, char** argv, uint32_t default_set_id,
               const std::function<void(const std::string& target, uint32_t set_id)>& demo) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: " << argv[0] << " HOST:PORT [SET_ID]\n";
    return 2;
  }
  try {
    demo(argv[1], argc == 3 ? static_cast<uint32_t>(std::stoul(argv[2])) : default_set_id);
  } catch (const std::exception& error) {
    std::cerr << "check failed: " << error.what() << "\n";
    return 1;
  }
  std::cout << "ok\n";
  return 0;
}

}  // namespace demo
