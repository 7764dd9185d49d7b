// The client's user objects: the driver counts their references (a graph's, its clones', its
// instances'), and when the last one goes its own thread tells the client, through a bit in a word
// of the segment, to run the destructor there.
//
// The driver's handle is used only while a reference is known to keep it alive: the client's own,
// or one of a living graph. All but the destructor's way runs on the session's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "proxy/session/objects.h"

namespace tube::proxy {

// Shared with the driver until the destructor has run, which may be long after the session.
struct UserObjectEnd {
  std::mutex mutex;          // below; leaf
  uint64_t* word = nullptr;  // in the client's segment; nullptr when nobody listens any more
  uint64_t bit = 0;          // of the word
  bool fired = false;
  std::shared_ptr<std::atomic<uint64_t>> ends;  // of all objects of the session
};

struct UserObjectState final : ObjectState {
  std::shared_ptr<UserObjectEnd> end;
  uint64_t own = 0;  // references that the client holds
  std::map<uint64_t, uint64_t>
      graphs;  // that graphs hold, by id; those that are gone count for nothing
};

// Member of a session, declared behind its segment.
class UserObjectEnds {
 public:
  UserObjectEnds();
  UserObjectEnds(const UserObjectEnds&) = delete;
  UserObjectEnds& operator=(const UserObjectEnds&) = delete;
  ~UserObjectEnds();
  std::shared_ptr<UserObjectEnd> add(uint64_t* word, uint32_t bit);
  // Whether one has ended since the last time.
  bool news();
  // The segment goes away.
  void close();

 private:
  std::vector<std::shared_ptr<UserObjectEnd>> ends_;
  std::shared_ptr<std::atomic<uint64_t>> fired_ = std::make_shared<std::atomic<uint64_t>>(0);
  uint64_t seen_ = 0;
};

}  // namespace tube::proxy
