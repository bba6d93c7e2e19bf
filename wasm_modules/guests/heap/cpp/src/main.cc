// Does with a record what its key says, all of it by way of the C and C++ libraries; other records are passed on.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "wasmline/transform.hpp"

namespace {

constexpr std::size_t block = 64 * 1024;

// Volatile, so that the compiler cannot see that nothing is read and drop the act.
void* volatile kept;
volatile int zero = 0;

// Takes blocks and writes to them until there are none, as a program does that checks what malloc returns.
void take_and_check() {
  while (void* memory = std::malloc(block)) {
    std::memset(memory, 1, block);
    kept = memory;
  }
  std::abort();
}

// The same without the check: the last write goes to address 0 and on, which WebAssembly allows, until it is over.
void take_and_trust() {
  for (;;) {
    char* memory = static_cast<char*>(std::malloc(block));
    if (memory == nullptr) memory = reinterpret_cast<char*>(0xffff0000u);
    std::memset(memory, 1, block);
    kept = memory;
  }
}

void fill_vector() {
  std::vector<std::string> texts;
  for (;;) texts.emplace_back(1000, 'x');
}

void take_at_once() { kept = new char[std::size_t{1} << 30]; }

int recurse(int depth) {
  if (depth < zero) return depth;
  volatile char frame[256];
  frame[depth % 256] = static_cast<char>(depth);
  return recurse(depth + 1) + frame[depth % 256];
}

void free_twice() {
  void* memory = std::malloc(block);
  for (int i = 0; i < 1000; ++i) std::free(memory);
  std::abort();
}

void sleep_for_ever() {
  for (;;) ::sleep(3600);
}

void read_files() {
  for (const char* path : {"/etc/passwd", "../../etc/passwd", "/proc/self/environ", "/dev/tcp/127.0.0.1/80"}) {
    if (std::fopen(path, "r") != nullptr) return;
  }
  std::abort();
}

const std::map<std::string_view, void (*)()> acts = {
    {"p-take-and-check", take_and_check},
    {"p-take-and-trust", take_and_trust},
    {"p-fill-vector", fill_vector},
    {"p-take-at-once", take_at_once},
    {"p-recurse", [] { std::exit(recurse(zero)); }},
    {"p-free-twice", free_twice},
    {"p-sleep", sleep_for_ever},
    {"p-files", read_files},
    {"p-abort", [] { std::abort(); }},
    {"p-exit", [] { std::exit(3); }},
    {"p-wild", [] { *reinterpret_cast<volatile int*>(0xfffffff0u) = 1; }},
    {"p-call-wild", [] { reinterpret_cast<void (*)()>(static_cast<std::uintptr_t>(0xffff + zero))(); }},
    {"p-fail", [] { wasmline::fail("nothing to be done"); }},
};

}  // namespace

int main() {
  wasmline::on_record([](const wasmline::Record& record, wasmline::Writer& writer) {
    writer.write(record);
    if (!record.key) return;
    if (const auto act = acts.find(*record.key); act != acts.end()) act->second();
  });
}
