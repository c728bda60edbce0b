
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_publishers: what engines answer to GET /kv_event_sources, of all three
 * kinds; answers that are wrong, and those that want us to go elsewhere.
 */


#include "util.h"
#include "core/events/kvr_publishers.h"


#define ONE(endpoint)                                                         \
    "{\"0\":{\"publisher\":\"zmq\",\"endpoint\":\"" endpoint "\","            \
    "\"replay_endpoint\":null,\"topic\":\"\"}}"


/* ports and host as text, or what is wrong, however it is cut */
static const char *
find(const char *answer)
{
    int               rc;
    size_t            n, len, cut;
    uint32_t          i;
    static char       said[512], first[512];
    kvr_publishers_t  r;

    len = strlen(answer);

    for (cut = 0; cut <= kvr_min(len, 400); cut++) {

        kvr_publishers_init(&r);

        for (n = 0; cut == 1 && n < len; n++) {
            kvr_publishers_read(&r, (const uint8_t *) answer + n, 1);
        }

        if (cut != 1) {
            kvr_publishers_read(&r, (const uint8_t *) answer, cut);
            kvr_publishers_read(&r, (const uint8_t *) answer + cut, len - cut);
        }

        rc = kvr_publishers_end(&r);

        n = (size_t) snprintf(said, sizeof(said), "%s",
                              rc == KVR_OK ? r.host : rc == KVR_ERROR ? "wrong"
                                                                     : "none");

        for (i = 0; rc == KVR_OK && i < r.number; i++) {
            n += (size_t) snprintf(said + n, sizeof(said) - n, " %u/%u",
                                   r.publisher[i].live, r.publisher[i].replay);
        }

        if (cut == 0) {
            memcpy(first, said, sizeof(said));
        }

        ck_assert_str_eq(said, first);
    }

    return first;
}


START_TEST(test_publishers_kinds)
{
    /* vLLM 0.32 */

    ck_assert_str_eq(find(ONE("tcp://*:5557")), " 5557/0");
    ck_assert_str_eq(find(
        "{\"0\":{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\","
        "\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:6557\","
        "\"buffer_steps\":10000,\"topic\":\"kv@\\\"pod\"},"
        " \"1\" : {\"endpoint\": \"tcp://*:5558\", \"replay_endpoint\": "
        "\"tcp://*:6558\"}}"), " 5557/6557 5558/6558");

    /* those after it */

    ck_assert_str_eq(find(
        "{\"sources\":[{\"data_parallel_rank\":1,\"endpoint\":"
        "\"tcp://10.0.0.1:41002\",\"replay_endpoint\":null,\"topic\":\"\"},"
        "{\"data_parallel_rank\":0,\"endpoint\":\"tcp://10.0.0.1:41001\","
        "\"replay_endpoint\":\"tcp://0.0.0.0:41003\",\"topic\":\"\"}]}"),
        "10.0.0.1 41001/41003 41002/0");
    ck_assert_str_eq(find(
        "[{\"data_parallel_rank\":0,\"endpoint\":\"tcp://[fd00::7]:5557\","
        "\"replay_endpoint\":null,\"topic\":\"\"}]"), "fd00::7 5557/0");

    /* in another order, and without ranks */

    ck_assert_str_eq(find(
        "[{\"endpoint\":\"tcp:\\/\\/[::]:5557\",\"replay_endpoint\":"
        "\"tcp://:::7001\"},{\"endpoint\":\"tcp://*:5558\","
        "\"replay_endpoint\":\"tcp://*:7002\"}]"), " 5557/7001 5558/7002");

    /* of a process that has some of the ranks only */

    ck_assert_str_eq(find("{\"13\":{\"endpoint\":\"tcp://*:5570\"},"
                          "\"12\":{\"endpoint\":\"tcp://*:5569\"}}"),
                     " 5569/0 5570/0");

    /* none */

    ck_assert_str_eq(find("{}"), "none");
    ck_assert_str_eq(find("[]"), "none");
    ck_assert_str_eq(find(" {\"sources\" : []} "), "none");
    ck_assert_str_eq(find("{\"detail\":\"Not Found\"}"), "none");
    ck_assert_str_eq(find("{\"0\":{\"endpoint\":null}}"), "none");
    ck_assert_str_eq(find("{\"0\":{\"replay_endpoint\":\"tcp://*:5557\"}}"),
                     "none");
}
END_TEST


START_TEST(test_publishers_wrong)
{
    uint32_t    i, n;
    const char  *said;
    static char  many[64 * 1024];

    static const char *const  wrong[] = {
        "", "   ", "no", "5557", "\"tcp://*:5557\"", "<html>", "{", "[",
        "{\"0\":{\"endpoint\":\"tcp://*:5557\"}", "{\"0\":5",
        "\x92\xcb\x01", "{0:{}}",
        ONE("ipc:///tmp/x"), ONE("inproc://kv"), ONE("udp://*:5557"),
        ONE("tcp://*"), ONE("tcp://*:"), ONE("tcp://"), ONE(""),
        ONE("tcp://*:0"), ONE("tcp://*:22"), ONE("tcp://*:1023"),
        ONE("tcp://*:65536"), ONE("tcp://*:4294972853"), ONE("tcp://*:55x7"),
        ONE("tcp://*: 5557"), ONE("tcp://*:+5557"), ONE("tcp://*:-1"),
        ONE("tcp://:5557"), ONE("tcp://[]:5557"), ONE("tcp://*:5557/x"),
        ONE("tcp://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            ":5557"),

        /* two hosts, one port for both, one rank twice, a rank too high */

        "[{\"data_parallel_rank\":0,\"endpoint\":\"tcp://10.0.0.1:5557\"},"
        "{\"data_parallel_rank\":1,\"endpoint\":\"tcp://10.0.0.2:5557\"}]",
        "[{\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":"
        "\"tcp://*:5557\"}]",
        "{\"0\":{\"endpoint\":\"tcp://*:5557\"},"
        "\"0\":{\"endpoint\":\"tcp://*:5558\"}}",
        "[{\"data_parallel_rank\":64,\"endpoint\":\"tcp://*:5557\"}]"
    };

    for (i = 0; i < kvr_nelts(wrong); i++) {
        said = find(wrong[i]);
        ck_assert_msg(strcmp(said, "wrong") == 0, "%s: %s", wrong[i], said);
    }

    /* no more than there is room for */

    n = (uint32_t) snprintf(many, sizeof(many), "[");

    for (i = 0; i < 100; i++) {
        n += (uint32_t) snprintf(many + n, sizeof(many) - n,
                                 "%s{\"endpoint\":\"tcp://*:%u\"}",
                                 i ? "," : "", 2000 + i);
    }

    snprintf(many + n, sizeof(many) - n, "]");
    ck_assert_str_eq(find(many), "wrong");
}
END_TEST


int
main(void)
{
    Suite  *s;

    s = suite_create("publishers");

    util_add(s, "kinds", test_publishers_kinds);
    util_add(s, "wrong", test_publishers_wrong);

    return util_run(s);
}
