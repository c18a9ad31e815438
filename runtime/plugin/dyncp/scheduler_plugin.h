/* A scheduler as a shared library: the C interface that `dyncp check-scheduler --plugin FILE.so`
 * loads. Implement the three functions at the end with C linkage; examples in C and C++ stand in
 * fixtures/plugins. The library runs in a process of its own: a crash or a hang is reported, it
 * does not take dyncp with it. Lengths in tokens. */
#ifndef DYNCP_SCHEDULER_PLUGIN_H_
#define DYNCP_SCHEDULER_PLUGIN_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a struct below changes its meaning. Fields are only ever added at the end: compare
 * struct_size before reading one that is newer than your header. */
#define DYNCP_PLUGIN_ABI 1

/* One instance. All pointers are valid during the call only. */
typedef struct dyncp_problem {
  uint64_t struct_size;        /* sizeof(dyncp_problem) of the caller */
  int64_t sequences;           /* number of sequences; their ids are 0..sequences-1 */
  const int64_t* real;         /* real lengths, [sequences] */
  const int64_t* padded;       /* padded lengths, [sequences]; NULL when padding is "group" */
  int64_t max_tokens_per_rank; /* m */
  int32_t ranks;               /* P */
  int32_t min_cp;              /* smallest CP group */
  int32_t tensor_parallel;     /* padding "group" pads to 2 * size * tensor_parallel */
  int32_t microbatch_multiple; /* the number of microbatches must be a multiple of this */
  int32_t max_sequences;       /* most sequences in a pack, 0 = no limit */
  int32_t reserved;
  const char* execution;    /* "pack" or "serial" */
  const char* group_policy; /* "aligned", "pow2-any-slice", "divisors" or "interval" */
  const char* padding;      /* "none", "global" or "group" */
} dyncp_problem;

/* Where the answer goes. Call begin_microbatch, then add_group for each of its CP groups, and so
 * on; or refuse once. Everything passed is copied. */
typedef struct dyncp_answer {
  uint64_t struct_size;
  void* handle; /* pass it back to every function */
  void (*begin_microbatch)(void* handle);
  void (*add_group)(void* handle, int32_t first_rank, int32_t size, const int32_t* ids,
                    int64_t count);
  void (*refuse)(void* handle, const char* reason);
} dyncp_answer;

/* Returns DYNCP_PLUGIN_ABI of the header the library was built with. */
int32_t dyncp_plugin_abi(void);

/* A short name for reports; a string literal. */
const char* dyncp_plugin_name(void);

/* Answers one instance. Returns 0; anything else is reported as a failure with that number. */
int32_t dyncp_plugin_schedule(const dyncp_problem* problem, const dyncp_answer* answer);

#ifdef __cplusplus
}
#endif

#endif /* DYNCP_SCHEDULER_PLUGIN_H_ */
