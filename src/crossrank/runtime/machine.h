// What the machine has: cores that this process may use, the last cache, huge pages.
#pragma once
#include <cstddef>
#include <cstdint>

namespace crossrank {

// CPUs that this process may run on.
int cores();

// Keep the calling thread on the `index`-th of them. The scheduler sometimes wakes two threads of a pool on one core
// and leaves them there for milliseconds.
void pin_to_core(int index);

// Go on on the `index`-th of them, counted round, from where the system may move the thread on. Of threads that begin
// together it often leaves some waiting for one core while another has nothing to do.
void begin_on_core(int index);

// Let the calling thread run on all of them: a thread starts with the cores of its maker, which may be pinned.
void unpin();

// Bytes that a collective moves in all, from which its stores should go past the caches: what it writes will not stay
// there for whoever reads it next.
uint64_t stream_above();

// Ask for huge pages under a buffer that may not have been touched yet: on the whole ones around it, which can only do
// its neighbours good.
void advise_huge(void* data, uint64_t bytes);

}  // namespace crossrank
