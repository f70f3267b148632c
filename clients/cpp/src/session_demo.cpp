// Plays both sides of one session against a running server: a host that advertises on the Connect stream, and a party
// that searches, reserves and releases. Ends with `ok`, or with one line that says what was not as expected.

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "fireteam/v1/matchmaking.grpc.pb.h"
#include "step.h"

namespace {

namespace ft = fireteam::v1;

using demo::context, demo::expect, demo::expect_ok, demo::kMessagesMax, demo::random_key, demo::solo, demo::Unexpected;

// The host: one advertisement, updated on the stream that also tells of its reservations.
class Host {
 public:
  Host(ft::Matchmaking::Stub& stub, uint32_t set_id) : context_(context()), set_id_(set_id) {
    stream_ = stub.Connect(context_.get());
  }

  void advertise(const std::string& user_id, int seats) {
    ft::MatchmakingUpdateAdvertisementRequest update;
    update.set_matchmaking_set_id(set_id_);
    *update.mutable_session_composition() = solo(user_id, 200);
    update.mutable_session_composition()->set_max_allowed_join_reservation_count(seats);
    update.set_connect_data("203.0.113.7:7777");
    update.set_idempotency_key(random_key());
    const auto answer = send(update);
    expect(answer.created(), "a new advertisement is created");
    expect(!answer.advertisement_id().empty(), "a new advertisement has an id");
    id_ = answer.advertisement_id();
  }

  // Says that the party has been seen coming: its seats no longer lapse.
  void confirm(const std::string& reservation_id) {
    ft::MatchmakingUpdateAdvertisementRequest heartbeat;
    heartbeat.add_confirmed_reservation_ids(reservation_id);
    const auto answer = send(heartbeat);
    expect(answer.reservations_size() == 1, "the heartbeat's answer lists one reservation");
    expect(answer.reservations(0).reservation_id() == reservation_id, "and it is the one that was taken");
  }

  // Reads the stream until the next reservation event.
  ft::ReservationEvent hear() {
    ft::MatchmakingConnectResponse message;
    expect(stream_->Read(&message), "a reservation event arrives before the stream ends");
    expect(message.has_reservation(), "the next message on the stream is a reservation event");
    return message.reservation();
  }

  void withdraw(ft::Matchmaking::Stub& stub) {
    ft::MatchmakingDeleteAdvertisementRequest request;
    request.set_advertisement_id(id_);
    request.set_advertisement_token(token_);
    ft::MatchmakingDeleteAdvertisementResponse answer;
    expect_ok(stub.DeleteAdvertisement(context().get(), request, &answer), "withdraw the advertisement");
    expect_ok(stub.DeleteAdvertisement(context().get(), request, &answer), "withdraw it again, which also succeeds");
  }

  void leave() {
    stream_->WritesDone();
    ft::MatchmakingConnectResponse message;
    for (int i = 0; i < kMessagesMax && stream_->Read(&message); ++i) {
    }
    expect_ok(stream_->Finish(), "close the stream");
  }

  const std::string& id() const { return id_; }

 private:
  // Sends an update in its envelope and reads up to the answer with the same nonce.
  ft::MatchmakingUpdateAdvertisementResponse send(ft::MatchmakingUpdateAdvertisementRequest update) {
    if (!id_.empty()) update.set_advertisement_id(id_);
    if (!token_.empty()) update.set_advertisement_token(token_);
    const uint64_t nonce = next_nonce_++;
    ft::MatchmakingConnectRequest message;
    auto* core = message.mutable_core();
    core->set_platform_type(ft::DEVICE_TYPE_PC);
    core->set_request_type(ft::MATCHMAKING_CORE_REQUEST_TYPE_UPDATE_ADVERTISEMENT);
    core->set_request_nonce(nonce);
    *core->mutable_update_advertisement_request() = std::move(update);
    if (!stream_->Write(message)) expect_ok(stream_->Finish(), "open the Connect stream");

    ft::MatchmakingConnectResponse answer;
    for (int i = 0; i < kMessagesMax; ++i) {
      if (!stream_->Read(&answer)) {
        expect_ok(stream_->Finish(), "read the Connect stream");
        throw Unexpected("the stream ended without an answer");
      }
      if (!answer.has_core() || answer.core().request_nonce() != nonce) continue;
      if (answer.core().has_refusal()) {
        const auto& refusal = answer.core().refusal();
        throw Unexpected("update refused: " + refusal.field() + " " + refusal.message());
      }
      expect(answer.core().has_update_advertisement_response(), "the answer is that of an update");
      token_ = answer.core().update_advertisement_response().advertisement_token();
      return answer.core().update_advertisement_response();
    }
    throw Unexpected("an answer comes before a hundred pushes");
  }

  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<ft::MatchmakingConnectRequest, ft::MatchmakingConnectResponse>> stream_;
  uint32_t set_id_;
  uint64_t next_nonce_ = 1;
  std::string id_;
  std::string token_;
};

void print(const ft::MatchmakingSearchResponse& found) {
  std::cout << found.candidates_size() << " candidates among " << found.evaluated() << "\n";
  for (const auto& candidate : found.candidates()) {
    std::cout << "  " << candidate.advertisement_id() << " score " << candidate.score();
    for (const auto& term : candidate.terms()) std::cout << ", " << term.name() << " " << term.value();
    if (candidate.has_distance_miles()) std::cout << ", " << candidate.distance_miles() << " miles";
    std::cout << ", " << candidate.open_seats() << " open seats\n";
  }
}

// The party: one search that keeps its token.
class Party {
 public:
  Party(ft::Matchmaking::Stub& stub, uint32_t set_id, const std::string& user_id)
      : stub_(stub), set_id_(set_id), session_(solo(user_id, 210)) {}

  // Open seats of `advertisement_id` as this party sees them; fails when it is not among the candidates.
  uint32_t open_seats(const std::string& advertisement_id) {
    ft::MatchmakingSearchRequest request;
    *request.mutable_session_composition() = session_;
    request.set_matchmaking_set_id(set_id_);
    request.set_search_token(token_);
    ft::MatchmakingSearchResponse found;
    expect_ok(stub_.Search(context().get(), request, &found), "search");
    token_ = found.search_token();
    print(found);
    double last = 0;
    for (const auto& candidate : found.candidates()) {
      expect(last <= candidate.score(), "candidates come best first");
      last = candidate.score();
    }
    for (const auto& candidate : found.candidates()) {
      if (candidate.advertisement_id() == advertisement_id) return candidate.open_seats();
    }
    throw Unexpected("the advertisement is among the candidates");
  }

  ft::Reservation reserve(const std::string& advertisement_id) {
    ft::MatchmakingReserveRequest request;
    request.set_advertisement_id(advertisement_id);
    request.set_matchmaking_set_id(set_id_);
    request.set_search_token(token_);
    request.set_idempotency_key(random_key());
    *request.mutable_session_composition() = session_;
    ft::MatchmakingReserveResponse first, again;
    expect_ok(stub_.Reserve(context().get(), request, &first), "reserve");
    expect(first.connect_data() == "203.0.113.7:7777", "a reservation says how to reach the host");
    expect(first.reservation().seats() == 1, "a party of one takes one seat");
    // As after a lost answer: the same key is the same reservation.
    expect_ok(stub_.Reserve(context().get(), request, &again), "reserve again with the same key");
    expect(again.reservation().reservation_id() == first.reservation().reservation_id(),
           "the same key twice is the same reservation");
    return first.reservation();
  }

  void release(const ft::Reservation& reservation) {
    ft::MatchmakingReleaseRequest request;
    request.set_reservation_id(reservation.reservation_id());
    request.set_reservation_token(reservation.reservation_token());
    ft::MatchmakingReleaseResponse answer;
    expect_ok(stub_.Release(context().get(), request, &answer), "release");
  }

 private:
  ft::Matchmaking::Stub& stub_;
  uint32_t set_id_;
  ft::SessionCompositionData session_;
  std::string token_;
};

void play(const std::string& target, uint32_t set_id) {
  auto stub = ft::Matchmaking::NewStub(demo::connect(target));
  const std::string run = random_key().substr(0, 8);

  Host host(*stub, set_id);
  host.advertise("host-" + run, 3);
  std::cout << "advertised " << host.id() << "\n";

  Party party(*stub, set_id, "guest-" + run);
  expect(party.open_seats(host.id()) == 3, "all three seats are open");
  const auto reservation = party.reserve(host.id());

  const auto held = host.hear();
  expect(held.advertisement_id() == host.id(), "the event is about this advertisement");
  expect(held.state() == ft::RESERVATION_STATE_HELD, "the host hears that seats are held");
  expect(held.reservation().reservation_id() == reservation.reservation_id(), "and by which reservation");
  expect(held.reservation().reservation_token().empty(), "but not how to release it");
  host.confirm(reservation.reservation_id());
  expect(party.open_seats(host.id()) == 2, "a confirmed seat is not open");
  std::cout << "reserved, heard of, confirmed\n";

  party.release(reservation);
  expect(party.open_seats(host.id()) == 3, "a seat given back is open");
  host.withdraw(*stub);
  host.leave();
}

}  // namespace

int main(int argc, char** argv) { return demo::run(argc, argv, 1, play); }
