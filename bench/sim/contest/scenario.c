#include "bench/sim/contest/scenario.h"


/* models and GPUs */
#define KVS_8B    "llama-8b-bf16-h100"
#define KVS_24B   "devstral-24b-fp8-h100"
#define KVS_24B2  "devstral-24b-fp8-h100-tp2"
#define KVS_70B   "llama-70b-bf16-h100-tp4"
#define KVS_L40S  "llama-8b-bf16-l40s"


/* workloads */

#define KVS_CONVERSATION                                                      \
    { .shape = KVS_TRACE, .trace = "conversation" }

#define KVS_SYNTHETIC                                                         \
    { .shape = KVS_TRACE, .trace = "synthetic" }

/* a prompt of 2,000 tokens that all share; long replies, or long questions */

#define KVS_HOT_DECODE                                                        \
    { .shape = KVS_HOT, .prefixes = 1,                                        \
      .prefix_min = 2000, .prefix_max = 2000,                                 \
      .question = { 80, 0.8 }, .output = { 400, 0.8 } }

#define KVS_HOT_PREFILL                                                       \
    { .shape = KVS_HOT, .prefixes = 1,                                        \
      .prefix_min = 2000, .prefix_max = 2000,                                 \
      .question = { 4000, 0.8 }, .output = { 40, 0.8 } }

#define KVS_ZIPF                                                              \
    { .shape = KVS_HOT, .prefixes = 400, .zipf = 1.0,                         \
      .prefix_min = 1000, .prefix_max = 8000,                                 \
      .question = { 200, 1.0 }, .output = { 150, 0.8 } }

/* tool loops: 15 steps of 400 tokens over one of a few system prompts */

#define KVS_AGENT(pause_s)                                                    \
    { .shape = KVS_AGENTS, .prefixes = 4, .zipf = 1.0,                        \
      .prefix_min = 3000, .prefix_max = 5000,                                 \
      .question = { 400, 1.1 }, .output = { 200, 0.8 },                       \
      .steps = { 15, 0.6 }, .pause = { pause_s, 0.8 } }

#define KVS_PEOPLE                                                            \
    { .shape = KVS_AGENTS, .prefixes = 20, .zipf = 1.0,                       \
      .prefix_min = 200, .prefix_max = 1500,                                  \
      .question = { 120, 1.0 }, .output = { 300, 0.8 },                       \
      .steps = { 5, 0.8 }, .pause = { 10, 0.8 } }

#define KVS_SHORT                                                             \
    { .shape = KVS_HOT,                                                       \
      .question = { 300, 1.0 }, .output = { 200, 0.8 } }

#define KVS_REASON                                                            \
    { .shape = KVS_HOT, .prefixes = 8, .zipf = 0.8,                           \
      .prefix_min = 300, .prefix_max = 1000,                                  \
      .question = { 200, 0.8 }, .output = { 2500, 0.9 } }

#define KVS_CHATS                                                             \
    .shape = KVS_MIXED, .prefixes = 50, .zipf = 1.0,                          \
    .prefix_min = 300, .prefix_max = 2000,                                    \
    .question = { 200, 1.0 }, .output = { 200, 0.8 }

#define KVS_MIX                                                               \
    { KVS_CHATS, .document = { 14000, 0.9 }, .share = 0.08 }

/*
 * The same chats and documents: the documents' share of the requests, their
 * tokens, and their number (0: each document is sent once).
 */

#define KVS_CHATS_AND(part, tokens, n)                                        \
    { KVS_CHATS, .document = { tokens, 0.5 }, .share = part, .parts = n }

/* 8 of 2,000 documents, and a reply of this many tokens */

#define KVS_DOCS(out)                                                         \
    { .shape = KVS_RAG, .prefixes = 2000, .zipf = 0.9,                        \
      .prefix_min = 400, .prefix_max = 1000, .parts = 8,                      \
      .question = { 60, 0.6 }, .output = { out, 0.6 } }

#define KVS_SIBLINGS                                                          \
    { .shape = KVS_BURST, .parts = 16, .spread = 0.2,                         \
      .prefix_min = 1000, .prefix_max = 8000,                                 \
      .question = { 150, 0.8 }, .output = { 250, 0.8 } }


/* a shared prefix, a part of the request's own, an answer */

#define KVS_BEGIN(shared, own, answer)                                        \
    { .shape = KVS_HOT, .prefixes = 1,                                        \
      .prefix_min = shared, .prefix_max = shared,                             \
      .question = { own, 0.5 }, .output = { answer, 0.5 } }

/* for a quarter of the run most requests share a prefix */

#define KVS_SURGE                                                             \
    { .shape = KVS_HOT, .prefixes = 200, .zipf = 1.0,                         \
      .prefix_min = 4000, .prefix_max = 4000,                                 \
      .share = 0.7, .from = 0.45, .to = 0.7,                                  \
      .question = { 400, 0.5 }, .output = { 400, 0.5 } }

/* two models, or two adapters of one model, on the same engines */

#define KVS_TWO                                                               \
    { .shape = KVS_HOT, .prefixes = 2, .zipf = 1.0,                           \
      .prefix_min = 4000, .prefix_max = 4000,                                 \
      .question = { 400, 0.5 }, .output = { 400, 0.5 } }

#define KVS_GROUPS_OF(n)                                                      \
    { .shape = KVS_BURST, .parts = n, .spread = 0.2,                          \
      .prefix_min = 2000, .prefix_max = 12000,                                \
      .question = { 150, 0.5 }, .output = { 250, 0.5 } }

/* agents that fork over 40,000 tokens, some time after the first one */

#define KVS_FORKS(after)                                                      \
    { .shape = KVS_BURST, .parts = 43, .spread = 0.2, .pause = { after, 0 },  \
      .prefix_min = 40000, .prefix_max = 40000,                               \
      .question = { 800, 0.5 }, .output = { 250, 0.5 } }

/* conversations about documents of 48,000 tokens */

#define KVS_QUESTIONS                                                         \
    { .shape = KVS_AGENTS, .prefixes = 192,                                   \
      .prefix_min = 48000, .prefix_max = 48000,                               \
      .question = { 200, 0.5 }, .output = { 200, 0.5 },                       \
      .steps = { 4, 0.3 }, .pause = { 5, 0.5 } }

/* a link of 200 Gbit/s */

#define KVS_FETCHES  .fetch_rate = 25e9

#define KVS_ASKED_BY(n)                                                       \
    { .shape = KVS_ASKED, .prefixes = 64, .parts = n,                         \
      .prefix_min = 4000, .prefix_max = 12000,                                \
      .question = { 150, 0.5 }, .output = { 250, 0.5 } }

/* sessions that grow by 700 tokens a step, with one long prefix */

#define KVS_THIRDS(shared, pause_s)                                           \
    { .shape = KVS_AGENTS, .prefixes = 1,                                     \
      .prefix_min = shared, .prefix_max = shared,                             \
      .question = { 500, 0.5 }, .output = { 200, 0.5 },                       \
      .steps = { 12, 0.3 }, .pause = { pause_s, 0.8 } }


#define KVS_FLEET(hw, ...)                                                    \
    { .hardware = hw, .replicas = __VA_ARGS__ }


const double  kvs_loads_always[KVS_LOADS + 1] = { 0.6, 0.9, 1.15, 1.5 };
const double  kvs_loads_full[KVS_LOADS + 1] =
    { 0.4, 0.7, 0.9, 1.1, 1.3, 1.7 };
const double  kvs_loads_hot[KVS_LOADS + 1] =
    { 0.1, 0.2, 0.3, 0.45, 0.6, 0.9 };


const kvs_scenario_t  kvs_scenarios[] = {

    /* Mooncake's traces */

    { "conversation", KVS_ALWAYS|KVS_INDEX, KVS_FLEET(KVS_8B, 8),
      KVS_CONVERSATION, NULL },
    { "conversation_ample", KVS_FULL|KVS_INDEX,
      KVS_FLEET(KVS_8B, 8, .kv_tokens = 4000000), KVS_CONVERSATION, NULL },
    { "conversation_24b", KVS_FULL, KVS_FLEET(KVS_24B, 8), KVS_CONVERSATION,
      NULL },
    { "conversation_4", KVS_FULL, KVS_FLEET(KVS_8B, 4), KVS_CONVERSATION,
      NULL },
    { "synthetic", KVS_ALWAYS|KVS_INDEX, KVS_FLEET(KVS_8B, 8),
      KVS_SYNTHETIC, NULL },
    { "synthetic_70b", KVS_FULL|KVS_INDEX, KVS_FLEET(KVS_70B, 8),
      KVS_SYNTHETIC, NULL },
    { "synthetic_starved", KVS_FULL|KVS_INDEX|KVS_STARVED,
      KVS_FLEET(KVS_8B, 8, .kv_tokens = 160000), KVS_SYNTHETIC, NULL },

    /* hot prefixes */

    { "hot_decode", KVS_ALWAYS, KVS_FLEET(KVS_8B, 8), KVS_HOT_DECODE, NULL },
    { "hot_decode_70b", KVS_FULL, KVS_FLEET(KVS_70B, 8), KVS_HOT_DECODE,
      NULL },
    { "hot_decode_32", KVS_FULL|KVS_INDEX, KVS_FLEET(KVS_8B, 32),
      KVS_HOT_DECODE, NULL },
    { "hot_prefill", KVS_ALWAYS, KVS_FLEET(KVS_8B, 8), KVS_HOT_PREFILL,
      NULL },
    { "hot_prefill_70b", KVS_FULL, KVS_FLEET(KVS_70B, 8), KVS_HOT_PREFILL,
      NULL },
    { "zipf", KVS_ALWAYS|KVS_INDEX, KVS_FLEET(KVS_8B, 8), KVS_ZIPF, NULL },
    { "zipf_starved", KVS_FULL|KVS_INDEX|KVS_STARVED,
      KVS_FLEET(KVS_8B, 8, .kv_tokens = 120000), KVS_ZIPF, NULL },
    { "zipf_24b_2", KVS_FULL, KVS_FLEET(KVS_24B, 2), KVS_ZIPF, NULL },
    { "zipf_l40s_16", KVS_FULL, KVS_FLEET(KVS_L40S, 16), KVS_ZIPF, NULL },

    /* agents and people */

    { "agents", KVS_ALWAYS|KVS_INDEX, KVS_FLEET(KVS_24B2, 4), KVS_AGENT(2),
      NULL },
    { "agents_paced", KVS_FULL|KVS_INDEX, KVS_FLEET(KVS_24B, 8),
      KVS_AGENT(12), NULL },
    { "agents_starved", KVS_ALWAYS|KVS_INDEX|KVS_STARVED,
      KVS_FLEET(KVS_24B, 8, .kv_tokens = 120000), KVS_AGENT(5), NULL },
    { "agents_2", KVS_FULL, KVS_FLEET(KVS_8B, 2), KVS_AGENT(3), NULL },
    { "agents_32", KVS_FULL|KVS_INDEX, KVS_FLEET(KVS_24B2, 32),
      KVS_AGENT(5), NULL },
    { "agents_64", KVS_FULL, KVS_FLEET(KVS_8B, 64), KVS_AGENT(5), NULL },
    { "large_agents_64", KVS_LARGE, KVS_FLEET(KVS_8B, 64), KVS_AGENT(5), NULL },
    { "large_agents_128", KVS_LARGE, KVS_FLEET(KVS_8B, 128), KVS_AGENT(5),
      NULL },
    { "large_agents_512", KVS_LARGE, KVS_FLEET(KVS_8B, 512), KVS_AGENT(5),
      NULL },
    { "ranks_agents", KVS_LARGE, KVS_FLEET(KVS_8B, 16), KVS_AGENT(5), NULL },
    { "large_hot_64", KVS_LARGE, KVS_FLEET(KVS_8B, 64), KVS_HOT_DECODE, NULL },
    { "large_hot_128", KVS_LARGE, KVS_FLEET(KVS_8B, 128), KVS_HOT_DECODE,
      NULL },
    { "large_hot_512", KVS_LARGE, KVS_FLEET(KVS_8B, 512), KVS_HOT_DECODE,
      NULL },
    { "people", KVS_ALWAYS|KVS_INDEX, KVS_FLEET(KVS_8B, 8), KVS_PEOPLE,
      NULL },
    { "people_70b", KVS_FULL|KVS_INDEX, KVS_FLEET(KVS_70B, 8), KVS_PEOPLE,
      NULL },

    /* little or no reuse */

    { "short", KVS_ALWAYS, KVS_FLEET(KVS_8B, 8), KVS_SHORT, NULL },
    { "short_70b", KVS_FULL, KVS_FLEET(KVS_70B, 4), KVS_SHORT, NULL },
    { "reason", KVS_FULL, KVS_FLEET(KVS_8B, 8), KVS_REASON, NULL },
    { "mixed", KVS_ALWAYS, KVS_FLEET(KVS_8B, 8), KVS_MIX, NULL },
    { "mixed_70b", KVS_FULL, KVS_FLEET(KVS_70B, 8), KVS_MIX, NULL },
    { "mixed_l40s_16", KVS_FULL, KVS_FLEET(KVS_L40S, 16), KVS_MIX, NULL },

    /* other shares and lengths of documents; make bench-burst */

    { "mixed_5_8k", KVS_FULL, KVS_FLEET(KVS_8B, 8),
      KVS_CHATS_AND(0.05, 8000, 0), NULL },
    { "mixed_5_30k", KVS_FULL, KVS_FLEET(KVS_8B, 8),
      KVS_CHATS_AND(0.05, 30000, 0), NULL },
    { "mixed_5_100k", KVS_FULL, KVS_FLEET(KVS_8B, 8),
      KVS_CHATS_AND(0.05, 100000, 0), NULL },
    { "mixed_20_8k", KVS_FULL, KVS_FLEET(KVS_8B, 8),
      KVS_CHATS_AND(0.2, 8000, 0), NULL },
    { "mixed_20_30k", KVS_FULL, KVS_FLEET(KVS_8B, 8),
      KVS_CHATS_AND(0.2, 30000, 0), NULL },
    { "mixed_20_100k", KVS_FULL, KVS_FLEET(KVS_8B, 8),
      KVS_CHATS_AND(0.2, 100000, 0), NULL },
    { "mixed_50_8k", KVS_FULL, KVS_FLEET(KVS_8B, 8),
      KVS_CHATS_AND(0.5, 8000, 0), NULL },
    { "mixed_50_30k", KVS_FULL, KVS_FLEET(KVS_8B, 8),
      KVS_CHATS_AND(0.5, 30000, 0), NULL },
    { "mixed_50_100k", KVS_FULL, KVS_FLEET(KVS_8B, 8),
      KVS_CHATS_AND(0.5, 100000, 0), NULL },
    { "mixed_again", KVS_FULL, KVS_FLEET(KVS_8B, 8, .kv_tokens = 358400),
      KVS_CHATS_AND(0.2, 14000, 300), NULL },
    { "mixed_again_30k", KVS_FULL, KVS_FLEET(KVS_8B, 8, .kv_tokens = 358400),
      KVS_CHATS_AND(0.2, 30000, 150), NULL },

    /* documents */

    { "rag_19", KVS_FULL, KVS_FLEET(KVS_8B, 8), KVS_DOCS(300), NULL },
    { "rag_47", KVS_ALWAYS, KVS_FLEET(KVS_8B, 8), KVS_DOCS(120), NULL },

    /* siblings */

    { "burst", KVS_ALWAYS, KVS_FLEET(KVS_8B, 8), KVS_SIBLINGS, NULL },
    { "burst_70b", KVS_FULL, KVS_FLEET(KVS_70B, 8), KVS_SIBLINGS, NULL },

    /* alternatives to waiting and computing; make bench-burst */

    { "forks", KVS_FULL, KVS_FLEET(KVS_24B, 8, KVS_FETCHES),
      KVS_FORKS(4), "forks_new" },
    { "forks_new", KVS_FULL, KVS_FLEET(KVS_24B, 8, KVS_FETCHES),
      KVS_FORKS(0), NULL },
    { "forks_slow", KVS_FULL, KVS_FLEET(KVS_24B, 8, .fetch_rate = 3e9),
      KVS_FORKS(4), "forks_new" },
    { "siblings_new", KVS_FULL, KVS_FLEET(KVS_24B, 8, KVS_FETCHES),
      KVS_GROUPS_OF(50), "siblings_50" },
    { "documents", KVS_FULL,
      KVS_FLEET(KVS_8B, 8, KVS_FETCHES, .host = 2, .host_rate = 50e9,
                .closed = 128), KVS_QUESTIONS, NULL },
    { "documents_gpu", KVS_FULL,
      KVS_FLEET(KVS_8B, 8, KVS_FETCHES, .closed = 128), KVS_QUESTIONS, NULL },

    /* failures and changes */

    { "agents_restart", KVS_ALWAYS|KVS_INDEX|KVS_RESTART,
      KVS_FLEET(KVS_24B2, 4, .restart_at = 0.5, .restart_for = 30),
      KVS_AGENT(2), "agents" },
    { "people_restart", KVS_FULL,
      KVS_FLEET(KVS_8B, 8, .restart_at = 0.5, .restart_for = 30), KVS_PEOPLE,
      "people" },
    { "agents_slow", KVS_ALWAYS, KVS_FLEET(KVS_24B2, 4, .slow = 0.5),
      KVS_AGENT(2), NULL },
    { "mixed_slow", KVS_FULL, KVS_FLEET(KVS_8B, 8, .slow = 0.5), KVS_MIX,
      NULL },
    { "agents_added", KVS_FULL, KVS_FLEET(KVS_24B2, 4, .add_at = 0.5),
      KVS_AGENT(2), NULL },
    { "people_added", KVS_FULL, KVS_FLEET(KVS_8B, 8, .add_at = 0.5),
      KVS_PEOPLE, NULL },
    { "mixed_foreign", KVS_FULL, KVS_FLEET(KVS_8B, 8, .foreign = 0.15),
      KVS_MIX, NULL },
    { "people_foreign", KVS_ALWAYS, KVS_FLEET(KVS_8B, 8, .foreign = 0.15),
      KVS_PEOPLE, NULL },
    { "mixed_aborts", KVS_FULL, KVS_FLEET(KVS_8B, 8, .aborts = 0.2), KVS_MIX,
      "mixed" },
    { "zipf_aborts", KVS_FULL, KVS_FLEET(KVS_8B, 8, .aborts = 0.2), KVS_ZIPF,
      "zipf" },

    /* several routers, with shared memory and without */

    { "agents_routers_2", KVS_FULL, KVS_FLEET(KVS_24B2, 4, .routers = 2),
      KVS_AGENT(2), "agents" },
    { "agents_routers_4", KVS_FULL, KVS_FLEET(KVS_24B2, 4, .routers = 4),
      KVS_AGENT(2), "agents" },
    { "agents_routers_8", KVS_FULL, KVS_FLEET(KVS_24B2, 4, .routers = 8),
      KVS_AGENT(2), "agents" },
    { "agents_apart_2", KVS_FULL,
      KVS_FLEET(KVS_24B2, 4, .routers = 2, .unshared = 1), KVS_AGENT(2),
      "agents" },
    { "agents_apart_4", KVS_FULL,
      KVS_FLEET(KVS_24B2, 4, .routers = 4, .unshared = 1), KVS_AGENT(2),
      "agents" },
    { "agents_apart_8", KVS_FULL,
      KVS_FLEET(KVS_24B2, 4, .routers = 8, .unshared = 1), KVS_AGENT(2),
      "agents" },
    { "zipf_routers_8", KVS_FULL, KVS_FLEET(KVS_8B, 8, .routers = 8),
      KVS_ZIPF, "zipf" },
    { "zipf_apart_8", KVS_FULL,
      KVS_FLEET(KVS_8B, 8, .routers = 8, .unshared = 1), KVS_ZIPF, "zipf" },

    /*
     * Hot prefixes: shared tokens, tokens of the request's own, tokens of the
     * answer.  The list was fixed before any score was tried on it.
     */

    { "hot_1k_100_50", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(1000, 100, 50), NULL },
    { "hot_1k_100_400", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(1000, 100, 400), NULL },
    { "hot_1k_100_2000", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(1000, 100, 2000), NULL },
    { "hot_1k_400_50", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(1000, 400, 50), NULL },
    { "hot_1k_400_400", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(1000, 400, 400), NULL },
    { "hot_1k_400_2000", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(1000, 400, 2000), NULL },
    { "hot_1k_2000_50", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(1000, 2000, 50), NULL },
    { "hot_1k_2000_400", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(1000, 2000, 400), NULL },
    { "hot_1k_2000_2000", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(1000, 2000, 2000), NULL },
    { "hot_4k_100_50", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(4000, 100, 50), NULL },
    { "hot_4k_100_400", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(4000, 100, 400), NULL },
    { "hot_4k_100_2000", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(4000, 100, 2000), NULL },
    { "hot_4k_400_50", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(4000, 400, 50), NULL },
    { "hot_4k_400_400", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(4000, 400, 400), NULL },
    { "hot_4k_400_2000", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(4000, 400, 2000), NULL },
    { "hot_4k_2000_50", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(4000, 2000, 50), NULL },
    { "hot_4k_2000_400", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(4000, 2000, 400), NULL },
    { "hot_4k_2000_2000", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(4000, 2000, 2000), NULL },
    { "hot_16k_100_50", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(16000, 100, 50), NULL },
    { "hot_16k_100_400", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(16000, 100, 400), NULL },
    { "hot_16k_100_2000", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(16000, 100, 2000), NULL },
    { "hot_16k_400_50", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(16000, 400, 50), NULL },
    { "hot_16k_400_400", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(16000, 400, 400), NULL },
    { "hot_16k_400_2000", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(16000, 400, 2000), NULL },
    { "hot_16k_2000_50", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(16000, 2000, 50), NULL },
    { "hot_16k_2000_400", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(16000, 2000, 400), NULL },
    { "hot_16k_2000_2000", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_BEGIN(16000, 2000, 2000), NULL },
    { "hot_4k_400_400_8b", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_8B, 8),
      KVS_BEGIN(4000, 400, 400), NULL },
    { "hot_4k_400_400_70b", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_70B, 4),
      KVS_BEGIN(4000, 400, 400), NULL },
    { "hot_cools", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8), KVS_SURGE,
      NULL },
    { "hot_two", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8), KVS_TWO, NULL },
    { "hot_added", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8, .add_at = 0.4),
      KVS_BEGIN(4000, 400, 400), NULL },
    { "siblings_2", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8), KVS_GROUPS_OF(2),
      NULL },
    { "siblings_5", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_GROUPS_OF(5), NULL },
    { "siblings_50", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_GROUPS_OF(50), NULL },
    { "asked_2", KVS_FULL|KVS_HOTS, KVS_FLEET(KVS_24B, 8), KVS_ASKED_BY(2),
      NULL },
    { "asked_5", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8), KVS_ASKED_BY(5),
      NULL },
    { "asked_50", KVS_ALWAYS|KVS_HOTS, KVS_FLEET(KVS_24B, 8),
      KVS_ASKED_BY(50), NULL },

    /* a replica can cache a third of the sessions at most */

    { "thirds", KVS_ALWAYS|KVS_HOTS,
      KVS_FLEET(KVS_24B, 3, .kv_tokens = 40000, .closed = 24),
      KVS_THIRDS(6000, 10), NULL },
    { "thirds_busy", KVS_FULL|KVS_HOTS,
      KVS_FLEET(KVS_24B, 3, .kv_tokens = 40000, .closed = 24),
      KVS_THIRDS(6000, 3), NULL },
    { "thirds_idle", KVS_FULL|KVS_HOTS,
      KVS_FLEET(KVS_24B, 3, .kv_tokens = 40000, .closed = 24),
      KVS_THIRDS(6000, 30), NULL },
    { "thirds_2k", KVS_FULL|KVS_HOTS,
      KVS_FLEET(KVS_24B, 3, .kv_tokens = 36000, .closed = 24),
      KVS_THIRDS(2000, 10), NULL },

    { .name = NULL }
};


/* knees under least_request, from "contest --calibrate" */

static const struct {
    const char  *name;
    double       knee;
} kvs_knees[] = {
#include "bench/sim/contest/knees.inc"
    { NULL, 0 }
};


double
kvs_scenario_knee(const kvs_scenario_t *sc)
{
    size_t       i;
    const char  *name;

    name = sc->knee_of ? sc->knee_of : sc->name;

    for (i = 0; kvs_knees[i].name; i++) {
        if (strcmp(kvs_knees[i].name, name) == 0) {
            return kvs_knees[i].knee;
        }
    }

    return 0;
}
