// Objects of one workflow in another one's store: two proxies of one user, each of its own context,
// share the memory behind an object by its POSIX fd (docs/store.md).
//
//   owner     shares objects only when it was told to (StoreOptions::shared). It listens on
//             WORKFLOW.store in the runtime folder; a question names an object, the answer says
//             what it is and brings the fd of the memory that it lies in. The owner claims the
//             object for the asker, as long as the connection is open: that is the lease.
//   importer  asks in the session of the function that wants the object, maps the memory once and
//             enters the object into its own store as "//WORKFLOW/NAME", where all its functions
//             get it like any other. When none of them has it any more the mapping goes, and then
//             the lease.
//
// An end is an end of the connection, however it comes: an importer that dies drops its claims, an
// owner that dies takes the names of its objects, while whoever has one keeps the bytes, which the
// mapping keeps alive. An owner that deletes an object says so on the lease (kOver): the name goes
// at the importer's, too, which says when it has gone (kHeard): until then, but no longer than
// limits::kBrokerMs, whoever deletes the object waits. An importer whose functions have used an
// object up says that (kConsumed): it then was one get of the owner's.
//
// One thread, which sleeps in poll(2), serves both sides. It exists once there is something to
// share: a proxy that neither shares nor imports has none. Any thread may call; `mutex_` (rank 19)
// is never held together with the store's.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda_api.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/wire.gen.h"
#include "sharedmem/store_abi.h"

namespace tube::proxy {

class Store;

inline constexpr uint64_t kExchangeMagic = 0x3258434558425554ull;  // "TUBXECX2"

struct StoreQuestion {
  uint64_t magic;
  char name[abi::kStoreNameBytes];
};

struct StoreOffer {
  uint64_t magic;
  uint32_t answer;  // wire::StoreAnswer; the fd comes only with kOk
  uint32_t place;   // wire::StorePlace of the memory behind the fd
  uint64_t block_bytes;
  uint64_t offset;         // of the object in it
  unsigned char uuid[16];  // of the GPU
  abi::StoreBody body;     // what matters of it: bytes, dtype, ndim, shape, strides, expires_ns
};

// An object that another workflow has.
struct OfferedObject {
  StoreOffer offer{};
  UniqueFd memory;
  UniqueFd lease;
};

// "//WORKFLOW/NAME", taken apart. False: it is no such name.
bool split_foreign_name(const std::string& full, std::string* workflow, std::string* name);
// Asks the owner that listens there and waits for its answer, at most limits::kBrokerMs. What it
// says fits together. kNotFound: nobody shares it.
Result<OfferedObject> ask_for_object(const std::string& socket_path, const std::string& name);

class StoreExchange {
 public:
  explicit StoreExchange(Store& store) : store_(store) {}
  ~StoreExchange() { stop(); }
  StoreExchange(const StoreExchange&) = delete;
  StoreExchange& operator=(const StoreExchange&) = delete;

  // Owner: from now on other proxies may ask. Starts the thread.
  Status listen(const std::string& socket_path);
  // Importer: keeps the lease; the number of it, which end() takes. 0: there is no thread to watch
  // it.
  uint64_t keep(UniqueFd lease);
  // What was imported by it. An owner that is gone already is noticed then.
  void name(uint64_t lease, uint32_t slot, uint64_t generation);
  // Nothing of the object is mapped any more.
  void end(uint64_t lease, bool consumed);
  // Owner: an object that was lent has no name any more.
  void poke();
  // Owner: poked for these objects; returns when no other workflow finds them any more, or has not
  // said so in time. Not the thread's own.
  struct Lent {
    uint32_t slot;
    uint64_t generation;
  };
  void until_heard(const std::vector<Lent>& objects);
  // No thread any more; all that was lent is the store's own again.
  void stop();

 private:
  enum Word : char { kOver = 'o', kHeard = 'h', kConsumed = 'c' };
  struct Lease {  // of ours with an owner
    UniqueFd socket;
    uint32_t slot = 0;
    uint64_t generation = 0;
    bool named = false;
    bool over = false;  // the owner says so, or is gone
  };
  struct Asker {  // another proxy
    UniqueFd socket;
    pid_t pid = 0;
    uint64_t came_ns = 0;
    bool asked = false;  // `slot` is claimed for it
    bool lent = false;   // and it has the answer
    bool told = false;   // that the object is over
    bool consumed = false;
    uint32_t slot = 0;
    uint64_t generation = 0;
  };

  bool start();
  void run();
  void turn();
  int patience_ms() const;
  void accept_asker();
  // False: the connection ends.
  bool hear(uint64_t id, Asker& asker);
  bool lend(Asker& asker);
  bool answer(Asker& asker, const StoreOffer& offer, int fd);
  void tell_over();
  void heard(uint64_t asker);
  void drop(std::map<uint64_t, Asker>::iterator asker);
  void look_at_leases(const std::vector<uint64_t>& heard);

  Store& store_;
  std::mutex mutex_;
  std::map<uint64_t, Lease> leases_;
  uint64_t next_lease_ = 1;
  bool stopped_ = false;
  // Of askers that were told: the object, and whose process it is. Each leaves when it has heard.
  struct Unheard {
    uint32_t slot;
    uint64_t generation;
    uint64_t proxy;  // its process; of another PID namespace, which has no number here, the asker
  };
  std::map<uint64_t, Unheard> unheard_;
  std::set<uint64_t>
      deaf_;  // one of theirs was not heard of in time: nobody waits for the next ones
  uint64_t asked_ = 0, told_ = 0;  // rounds of telling: that somebody waits for, that are done
  std::condition_variable heard_;
  UniqueFd bell_;  // an eventfd
  std::atomic<bool> poked_{false};
  std::thread thread_;
  // The thread's own:
  UniqueFd listening_;
  std::string socket_path_;
  std::map<uint64_t, Asker> askers_;
  uint64_t next_ = 1;
};

}  // namespace tube::proxy
