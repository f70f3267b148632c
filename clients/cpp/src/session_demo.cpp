// Session demo: plays both sides of a session against a running server. The host uses a Connect stream; the party searches,
// reserves and releases. Prints `ok`, or one line with the failed check.

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "demo_support.h"
#include "fireteam/v1/matchmaking.grpc.pb.h"

namespace {

namespace ft = fireteam::v1;

using demo::CheckFailed, demo::context, demo::expect, demo::expect_ok, demo::kMessagesMax, demo::random_key,
    demo::single_player;

// Connect data of the host.
const char kConnectData[] = "203.0.113.7:7777";

// Host with one advertisement, updated on a stream that also receives its reservation events.
class Host {
 public:
  Host(ft::MatchmakingService::Stub& stub, uint32_t set_id) : context_(context()), set_id_(set_id) {
    stream_ = stub.Connect(context_.get());
  }

  void advertise(const std::string& user_id, int seats) {
    ft::MatchmakingUpdateAdvertisementRequest update;
    update.set_matchmaking_set_id(set_id_);
    *update.mutable_session_composition() = single_player(user_id, 200);
    update.mutable_session_composition()->set_max_allowed_join_reservation_count(seats);
    update.set_connect_data(kConnectData);
    update.set_idempotency_key(random_key());
    const auto response = send(update);
    expect(response.created(), "the advertisement is created");
    expect(!response.advertisement_id().empty(), "the advertisement has an id");
    id_ = response.advertisement_id();
  }

  // Confirms a reservation, so that it does not expire.
  void confirm(const std::string& reservation_id) {
    ft::MatchmakingUpdateAdvertisementRequest heartbeat;
    heartbeat.add_confirmed_reservation_ids(reservation_id);
    const auto response = send(heartbeat);
    expect(response.reservations_size() == 1, "the heartbeat's response lists one reservation");
    expect(response.reservations(0).reservation_id() == reservation_id, "the listed reservation is the confirmed one");
  }

  // Reads the next reservation event from the stream.
  ft::ReservationEvent read_event() {
    ft::MatchmakingConnectResponse message;
    expect(stream_->Read(&message), "a reservation event arrives before the stream ends");
    expect(message.has_reservation(), "the next message on the stream is a reservation event");
    return message.reservation();
  }

  void delete_advertisement(ft::MatchmakingService::Stub& stub) {
    ft::MatchmakingDeleteAdvertisementRequest request;
    request.set_advertisement_id(id_);
    request.set_advertisement_token(token_);
    ft::MatchmakingDeleteAdvertisementResponse response;
    expect_ok(stub.DeleteAdvertisement(context().get(), request, &response), "delete the advertisement");
    expect_ok(stub.DeleteAdvertisement(context().get(), request, &response), "delete it again, which also succeeds");
  }

  void close_stream() {
    stream_->WritesDone();
    ft::MatchmakingConnectResponse message;
    for (int i = 0; i < kMessagesMax && stream_->Read(&message); ++i) {
    }
    expect_ok(stream_->Finish(), "close the stream");
  }

  const std::string& id() const { return id_; }

 private:
  // Sends an update as a core request, and reads the stream up to the response with the same nonce.
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

    ft::MatchmakingConnectResponse response;
    for (int i = 0; i < kMessagesMax; ++i) {
      if (!stream_->Read(&response)) {
        expect_ok(stream_->Finish(), "read the Connect stream");
        throw CheckFailed("a response arrives before the stream ends");
      }
      if (!response.has_core() || response.core().request_nonce() != nonce) continue;
      if (response.core().has_error()) {
        const auto& error = response.core().error();
        throw CheckFailed("update the advertisement: " + error.field() + " " + error.message());
      }
      expect(response.core().has_update_advertisement_response(), "the response is that of an update");
      token_ = response.core().update_advertisement_response().advertisement_token();
      return response.core().update_advertisement_response();
    }
    throw CheckFailed("a response arrives within " + std::to_string(kMessagesMax) + " messages");
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

// Party of one with one search; keeps the search token.
class Party {
 public:
  Party(ft::MatchmakingService::Stub& stub, uint32_t set_id, const std::string& user_id)
      : stub_(stub), set_id_(set_id), session_(single_player(user_id, 210)) {}

  // Open seats of `advertisement_id` in a search; throws `CheckFailed` if it is not a candidate.
  uint32_t open_seats(const std::string& advertisement_id) {
    ft::MatchmakingSearchRequest request;
    *request.mutable_session_composition() = session_;
    request.set_matchmaking_set_id(set_id_);
    request.set_search_token(token_);
    ft::MatchmakingSearchResponse found;
    expect_ok(stub_.Search(context().get(), request, &found), "search");
    token_ = found.search_token();
    print(found);
    double previous_score = 0;
    for (const auto& candidate : found.candidates()) {
      expect(candidate.score() >= previous_score, "candidates are ordered by score, best first");
      previous_score = candidate.score();
    }
    for (const auto& candidate : found.candidates()) {
      if (candidate.advertisement_id() == advertisement_id) return candidate.open_seats();
    }
    throw CheckFailed("the advertisement is among the candidates");
  }

  ft::Reservation reserve(const std::string& advertisement_id) {
    ft::MatchmakingReserveRequest request;
    request.set_advertisement_id(advertisement_id);
    request.set_matchmaking_set_id(set_id_);
    request.set_search_token(token_);
    request.set_idempotency_key(random_key());
    *request.mutable_session_composition() = session_;
    ft::MatchmakingReserveResponse first, retried;
    expect_ok(stub_.Reserve(context().get(), request, &first), "reserve");
    expect(first.connect_data() == kConnectData, "a reservation has the connect data of the host");
    expect(first.reservation().seats() == 1, "a party of one takes one seat");
    // Retry as after a lost response: the same idempotency key gives the same reservation.
    expect_ok(stub_.Reserve(context().get(), request, &retried), "reserve again with the same idempotency key");
    expect(retried.reservation().reservation_id() == first.reservation().reservation_id(),
           "the same idempotency key gives the same reservation");
    return first.reservation();
  }

  void release(const ft::Reservation& reservation) {
    ft::MatchmakingReleaseRequest request;
    request.set_reservation_id(reservation.reservation_id());
    request.set_reservation_token(reservation.reservation_token());
    ft::MatchmakingReleaseResponse response;
    expect_ok(stub_.Release(context().get(), request, &response), "release");
  }

 private:
  ft::MatchmakingService::Stub& stub_;
  uint32_t set_id_;
  ft::SessionCompositionData session_;
  std::string token_;
};

void session_demo(const std::string& target, uint32_t set_id) {
  auto stub = ft::MatchmakingService::NewStub(demo::connect(target));
  const std::string run_id = random_key().substr(0, 8);

  Host host(*stub, set_id);
  host.advertise("host-" + run_id, 3);
  std::cout << "published advertisement " << host.id() << "\n";

  Party party(*stub, set_id, "guest-" + run_id);
  expect(party.open_seats(host.id()) == 3, "all three seats are open");
  const auto reservation = party.reserve(host.id());

  const auto event = host.read_event();
  expect(event.advertisement_id() == host.id(), "the event is about this advertisement");
  expect(event.state() == ft::RESERVATION_STATE_HELD, "the event reports held seats");
  expect(event.reservation().reservation_id() == reservation.reservation_id(), "the event has the reservation's id");
  expect(event.reservation().reservation_token().empty(), "the event does not contain the reservation's token");
  host.confirm(reservation.reservation_id());
  expect(party.open_seats(host.id()) == 2, "a confirmed seat is not open");
  std::cout << "reserved, received the event, confirmed\n";

  party.release(reservation);
  expect(party.open_seats(host.id()) == 3, "a released seat is open");
  host.delete_advertisement(*stub);
  host.close_stream();
}

}  // namespace

// Default set: the first shipped ruleset.
int main(int argc, char** argv) { return demo::run(argc, argv, 1, session_demo); }
