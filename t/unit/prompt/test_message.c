
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Compares messages with canonical bytes written by hand, with "^1" for the
 * control byte 1: ^1role^2content.  Quotes are written as ' and long texts as
 * @.  Each case is read with the text cut at each byte.
 */


#include "util.h"


static void
unquote(util_buf_t *b, const char *s)
{
    unsigned  i;

    b->len = 0;

    for ( /* void */ ; *s; s++) {

        if (*s == '\'') {
            util_byte(b, '"');

        } else if (*s == '@') {
            for (i = 0; i < 300; i++) {
                util_byte(b, 'a' + i % 23);
            }

        } else if (*s == '^') {
            util_byte(b, (unsigned) *++s - '0');

        } else {
            util_byte(b, (uint8_t) *s);
        }
    }
}


/* "^4<text>" stands for a media item, which is long in canonical text */
static void
unmedia(util_buf_t *want)
{
    int         i;
    size_t      at, end;
    uint64_t    digest;
    util_buf_t  out = { 0 };

    for (at = 0; at < want->len; at++) {

        util_byte(&out, want->p[at]);

        if (want->p[at] != 4) {
            continue;
        }

        end = at + 2;

        while (want->p[end] != '>') {
            end++;
        }

        digest = util_digest(want->p + at + 2, end - at - 2);

        if (end == at + 2) {
            digest = util_mix(0, '"') | 1;

        } else {
            digest = util_mix(util_mix(0, digest), '"') | 1;
        }

        for (i = 0; i < KVR_CANON_MEDIA_LEN / 8; i++) {
            util_put(&out, &digest, 8);
        }

        at = end;
    }

    want->len = 0;
    util_put(want, out.p, out.len);
    util_drop(&out);
}


static void
read_is(int (*fn)(kvr_walk_t *w), const char *json, int rc, const char *want,
    int system)
{
    int          got;
    size_t       n, blocks, rest;
    unsigned     k, kernel;
    uint64_t     out[128], expect[128];
    util_buf_t   text = { 0 }, canonical = { 0 };
    util_cut_e   cut;
    util_feed_t  f;
    kvr_walk_t   w;

    unquote(&text, json);
    util_byte(&text, ';');
    unquote(&canonical, want);
    unmedia(&canonical);

    blocks = util_blocks(&canonical, expect, 128, 0);
    rest = canonical.len % KVR_BLOCK;

    for (kernel = 0; util_kernel(kernel); kernel++) {

        for (k = 0; util_cut(text.len, k, &cut, &n); k++) {

            util_note("%s, cut %d %zu", json, cut, n);

            util_feed(&f, text.p, text.len - (rc == KVR_AGAIN), cut, n);

            memset(&w, 0, sizeof(w));
            kvr_json_init(&w.json, kvr_text_ops(), util_fetch, &f);
            kvr_block_init(&w.block, util_secret, w.json.ops->digest, out,
                           128);

            if (system) {
                w.system = 1;
                w.head = 1;
            }

            got = fn(&w);

            util_check(got == rc, "%d, not %d", got, rc);

            if (rc == KVR_OK) {
                util_check(w.block.n == blocks, "%zu blocks, not %zu",
                           w.block.n, blocks);
                util_check(memcmp(out, expect, blocks * 8) == 0, "digests");
                util_check(w.block.fill == rest
                           && (rest == 0
                               || memcmp(w.block.stage[w.block.cur],
                                         canonical.p + canonical.len - rest,
                                         rest) == 0),
                           "\"%s\", not \"%s\"",
                           util_show(w.block.stage[w.block.cur], w.block.fill),
                           util_show(canonical.p + canonical.len - rest, rest));
                util_check(kvr_json_peek(&w.json) == ';', "at another place");
                util_check(w.depth == 0 && w.drop == 0 && w.careful == 0,
                           "state is left");
            }

            util_unfeed(&f);
        }
    }

    util_drop(&text);
    util_drop(&canonical);
}


/* Puts a message in its own list. */
static void
message_is(const char *json, const char *want)
{
    util_buf_t  list = { 0 };

    util_byte(&list, '[');
    util_put(&list, json, strlen(json));
    util_put(&list, "]", 2);

    read_is(kvr_message_list, (char *) list.p, KVR_OK, want, 0);

    util_drop(&list);
}


static void
list_is(const char *json, const char *want)
{
    read_is(kvr_message_list, json, KVR_OK, want, 0);
}


static void
system_is(const char *json, const char *want)
{
    read_is(kvr_message_content, json, KVR_OK, want, 1);
}


TEST(test_message_text)
{
    message_is("{'role':'user','content':'hello'}", "^1user^2hello");
    message_is("{'role':'user','content':[{'type':'text','text':'hello'}]}",
               "^1user^2hello");
    message_is("{'role':'user','content':['hello']}", "^1user^2hello");
    message_is("{'role':'user','content':{'type':'text','text':'hello'}}",
               "^1user^2hello");
    message_is("{'role':'user','content':[{'text':'hello'}]}",
               "^1user^2hello");
    message_is("{'type':'message','role':'user','content':"
               "[{'type':'input_text','text':'hello'}]}", "^1user^2hello");
    message_is("{'role':'assistant','content':[{'type':'refusal','refusal':"
               "'no'}]}", "^1assistant^2no");

    message_is("{'role':'user','content':''}", "^1user^2");
    message_is("{'role':'user','content':null}", "^1user^2");
    message_is("{'role':'user','content':[]}", "^1user^2");
    message_is("{'role':'user'}", "^1user^2");
    message_is("{'role':null,'content':'x'}", "^1^2x");
    message_is("{'role':7,'content':8}", "^1^2");
    message_is("{}", "^1^2");
    message_is("{'type':'something'}", "^1something^2");
    message_is("{'role':'','type':'something','content':'x'}",
               "^1something^2x");

    /* parts */

    message_is("{'role':'user','content':[{'type':'text','text':'a'},"
               "{'type':'text','text':'b'},'c']}", "^1user^2a^3b^3c");
    message_is("{'role':'user','content':[{'type':'text','text':''},"
               "{'type':'text','text':'b'},'']}", "^1user^2^3b^3");
    message_is("{'role':'user','name':'bob','content':[{'text':''},'b']}",
               "^1user^2^5bob^3b");
    message_is("{'role':'user','content':[{'type':'unknown','x':1},"
               "{'type':'text','text':'b'}]}", "^1user^2b");
    message_is("{'role':'user','content':[1,null,[{'text':'x'}],true,'b']}",
               "^1user^2b");
    message_is("{'role':'user','content':[{'type':'text','text':null},'b']}",
               "^1user^2b");

    /* canonical text equals the body, except for rare spellings */

    message_is("{'role':'us\\u0065r','content':'a\\nb\\t\\u000a\\/\\u00e9'}",
               "^1user^2a\\nb\\t\\n/\xc3\xa9");
    message_is("{'role':'a role of more bytes than thirty-two','content':''}",
               "^1a role of more bytes than thirty^2");

    message_is("'a string'", "");
    message_is("[1,{'role':'user'}]", "");
    message_is("null ", "");
}


TEST(test_message_order)
{
    message_is("{'content':'hello','role':'user'}", "^1user^2hello");
    message_is("{'content':[{'text':'hello','type':'text'}],'role':'user'}",
               "^1user^2hello");
    message_is("{'content':'x','name':'n','role':'user','type':'message'}",
               "^1user^2^5nx");

    /* the last of equal keys */

    message_is("{'role':'user','content':'a','content':'b'}", "^1user^2b");
    message_is("{'role':'system','role':'user','content':'a'}", "^1user^2a");
    message_is("{'role':'user','content':'a','role':'system'}",
               "^1system^2a");
    message_is("{'role':'user','content':'a','content':null}", "^1user^2");
    message_is("{'role':'user','content':[{'text':'a','text':'b'}]}",
               "^1user^2b");
    message_is("{'role':'user','content':[{'type':'text','text':'a',"
               "'type':'thinking'},'b']}", "^1user^2b");
    message_is("{'role':'user','content':[{'type':'thinking','text':'a',"
               "'type':'text'},'b']}", "^1user^2a^3b");
    message_is("{'role':'a','tool_calls':[{'function':{'name':'f','name':'g',"
               "'arguments':'1','arguments':'2'}}]}", "^1a^2^6g^72");
    message_is("{'type':'reasoning','type':'message','role':'a','content':'x'}",
               "^1a^2x");
    message_is("{'type':'message','type':'reasoning','role':'a','content':'x'}",
               "");

    /* across blocks: the first reading is undone */

    list_is("[{'role':'user','content':'one'},"
            "{'content':'@','role':'user'},"
            "{'role':'user','content':'three'}]",
            "^1user^2one^1user^2@^1user^2three");
    list_is("[{'role':'user','content':'@'},"
            "{'content':[{'text':'@','type':'reasoning'},'@'],'role':'user'},"
            "{'role':'user','content':'@','type':'reasoning'},"
            "{'role':'user','content':'three'}]",
            "^1user^2@^1user^2@^1user^2three");
    list_is("[{'content':'@','role':'a'},{'content':'@','content':'@',"
            "'role':'b'},{'content':'@'}]",
            "^1a^2@^1b^2@^1^2@");
}


TEST(test_message_list)
{
    list_is("[]", "");
    list_is("[{'role':'system','content':'s'},{'role':'user','content':'u'}]",
            "^1system^2s^1user^2u");
    list_is(" [ {'role':'user','content':['a','b']} , "
            "{'role':'assistant','content':'c'} ] ",
            "^1user^2a^3b^1assistant^2c");

    /* other values are not messages */

    list_is("[1,'x',null,{'role':'user','content':'u'},[]]", "^1user^2u");

    /* reasoning of earlier turns is omitted, in messages and in parts */

    list_is("[{'role':'user','content':'q'},"
            "{'type':'reasoning','id':'rs_1','summary':[{'type':'summary_text',"
            "'text':'hm'}],'content':[{'type':'reasoning_text','text':'hm'}]},"
            "{'role':'assistant','content':'a'}]",
            "^1user^2q^1assistant^2a");
    list_is("[{'role':'user','content':'q'},"
            "{'content':'hm','role':'assistant','type':'reasoning'},"
            "{'role':'assistant','content':'a'}]",
            "^1user^2q^1assistant^2a");
    list_is("[{'role':'assistant','content':[{'type':'thinking','thinking':"
            "'hm','signature':'x'},{'type':'redacted_thinking','text':'xx'},"
            "{'type':'text','text':'a'}],'reasoning_content':'hm',"
            "'reasoning':'hm'}]",
            "^1assistant^2a");
    list_is("[{'role':'assistant','content':[{'text':'hm','type':'thinking'},"
            "{'type':'reasoning','text':'hm'},"
            "{'type':'reasoning_text','text':'hm'}]}]", "^1assistant^2");

    read_is(kvr_message_list, "[{'role':'user'},{'role':", KVR_AGAIN, "", 0);
    read_is(kvr_message_list, "[{'role':'user'} {}]", KVR_ERROR, "", 0);
    read_is(kvr_message_list, "[{'role':'user',}]", KVR_ERROR, "", 0);
    read_is(kvr_message_list, "[{'role':'user','content':['a' 'b']}]",
            KVR_ERROR, "", 0);
}


TEST(test_message_tools)
{
    /* Chat Completions */

    message_is("{'role':'assistant','content':null,'tool_calls':[{'id':'c1',"
               "'type':'function','function':{'name':'f','arguments':"
               "'{\\'a\\':1}'}}]}", "^1assistant^2^6f^7{\\'a\\':1}");
    message_is("{'role':'assistant','content':'x','tool_calls':[{'id':'c1',"
               "'function':{'name':'f','arguments':'1'}},{'id':'c2','function'"
               ":{'arguments':'2','name':'g'}}]}",
               "^1assistant^2x^6f^71^6g^72");
    message_is("{'role':'assistant','content':[{'type':'text','text':'x'}],"
               "'tool_calls':[{'function':{'name':'f','arguments':'1'}}]}",
               "^1assistant^2x^6f^71");
    message_is("{'role':'assistant','tool_calls':[]}", "^1assistant^2");
    message_is("{'role':'assistant','tool_calls':null}", "^1assistant^2");
    message_is("{'role':'assistant','function_call':{'name':'f','arguments':"
               "'1'}}", "^1assistant^2^6f^71");
    message_is("{'role':'assistant','tool_calls':[{'type':'custom','custom':"
               "{'name':'f','input':'raw'}}]}", "^1assistant^2^6f^7raw");

    /* Ollama has objects for arguments */

    message_is("{'role':'assistant','tool_calls':[{'function':{'name':'f',"
               "'arguments':{ 'b' : 1, 'a' : [ 'x y' ] }}}]}",
               "^1assistant^2^6f^7{'b':1,'a':['x y']}");

    /* ids are not rendered */

    message_is("{'role':'tool','tool_call_id':'c1','content':'42'}",
               "^1tool^242");
    message_is("{'role':'tool','tool_call_id':'c1','name':'f','content':'42'}",
               "^1tool^2^5f42");

    /* Anthropic */

    message_is("{'role':'assistant','content':[{'type':'text','text':'x'},"
               "{'type':'tool_use','id':'t1','name':'f','input':{'a': 1}}]}",
               "^1assistant^2x^3^6f^7{'a':1}");
    message_is("{'role':'user','content':[{'type':'tool_result','tool_use_id':"
               "'t1','content':'42'},{'type':'text','text':'go on'}]}",
               "^1user^242^3go on");
    message_is("{'role':'user','content':[{'type':'tool_result','tool_use_id':"
               "'t1','content':[{'type':'text','text':'4'},{'type':'text',"
               "'text':'2'}]},{'type':'text','text':'go on'}]}",
               "^1user^24^32^3go on");
    message_is("{'role':'user','content':[{'type':'tool_result','content':"
               "[{'type':'thinking','text':'x'}]},{'type':'text','text':'b'}]}",
               "^1user^2b");
    message_is("{'role':'user','content':[{'text':'x','content':[{'type':"
               "'thinking','text':'y'}]},{'text':'b'}]}", "^1user^2x^3b");
    message_is("{'role':'user','content':[{'text':'x','content':['y','z']},"
               "{'content':[{'content':['a']},'b']},'c']}",
               "^1user^2xy^3z^3a^3b^3c");
    message_is("{'role':'user','content':[{'type':'text','text':'x',"
               "'cache_control':{'type':'ephemeral'}},{'text':'y'}]}",
               "^1user^2x^3y");

    /* Responses */

    list_is("[{'type':'function_call','id':'fc','call_id':'c','name':'f',"
            "'arguments':'{}','status':'completed'},"
            "{'type':'function_call_output','call_id':'c','output':'42'},"
            "{'type':'function_call_output','output':[{'type':'input_text',"
            "'text':'4'},{'type':'input_text','text':'2'}]}]",
            "^1function_call^2^5f^7{}^1function_call_output^242"
            "^1function_call_output^24^32");

    list_is("[{'type':'custom_tool_call','call_id':'c','name':'f','input':'x'},"
            "{'type':'custom_tool_call_output','call_id':'c','output':'y'}]",
            "^1custom_tool_call^2^5f^7x^1custom_tool_call_output^2y");

    /* SGLang allows tools in a message */

    message_is("{'role':'system','content':'x','tools':[ {'a' : 1 } ]}",
               "^1system^2x^7[{'a':1}]");
    message_is("{'role':'system','content':'x','tools':null}", "^1system^2x");
}


TEST(test_message_media)
{
    message_is("{'role':'user','content':[{'type':'image_url','image_url':"
               "{'url':'u1','detail':'high'}}]}", "^1user^2^4<u1>");
    message_is("{'role':'user','content':[{'type':'input_image','image_url':"
               "'u1'}]}", "^1user^2^4<u1>");
    message_is("{'role':'user','content':[{'type':'image','source':{'type':"
               "'base64','media_type':'image/png','data':'QUJD'}}]}",
               "^1user^2^4<QUJD>");
    message_is("{'role':'user','content':[{'type':'image','source':{'type':"
               "'url','url':'u1'}}]}", "^1user^2^4<u1>");
    message_is("{'role':'user','content':[{'type':'input_audio','input_audio':"
               "{'data':'QUJD','format':'wav'}}]}", "^1user^2^4<QUJD>");
    message_is("{'role':'user','content':[{'type':'file','file':{'file_id':"
               "'f1'}},{'type':'file','file':{'file_data':'f2'}}]}",
               "^1user^2^4<f1>^3^4<f2>");
    message_is("{'role':'user','content':[{'type':'input_file','file_id':'f1'},"
               "{'type':'input_file','file_data':'f2'},"
               "{'type':'video_url','video_url':{'url':'f3'}},"
               "{'type':'audio_url','audio_url':{'url':'f4'}},"
               "{'type':'image_embeds','image_embeds':'f5'}]}",
               "^1user^2^4<f1>^3^4<f2>^3^4<f3>^3^4<f4>^3^4<f5>");
    message_is("{'role':'user','content':'x','images':['i1','i2']}",
               "^1user^2x^4<i1>^4<i2>");
    message_is("{'role':'user','content':['x',{'type':'image_url','image_url':"
               "{'url':'u1'}},'y']}", "^1user^2x^3^4<u1>^3y");
    message_is("{'role':'user','content':[{'type':'image_url','image_url':"
               "{'url':''}}]}", "^1user^2^4<>");
    message_is("{'role':'user','content':[{'type':'image_url','image_url':"
               "{'url':null}},{'type':'image_url','image_url':null},'x']}",
               "^1user^2x");
    message_is("{'role':'user','images':null}", "^1user^2");
    message_is("{'role':'user','images':[]}", "^1user^2");
}


TEST(test_message_system)
{
    system_is("'You are.'", "You are.");
    system_is("[{'type':'text','text':'You are.'}]", "You are.");
    system_is("[{'type':'text','text':'You','cache_control':{'type':"
              "'ephemeral'}},{'type':'text','text':'are.'}]", "You^3are.");
    system_is("null ", "");
    system_is("[]", "");

    /* Claude Code's first block has a hash of the request */

    system_is("[{'type':'text','text':'x-anthropic-billing-header: cch=1'},"
              "{'type':'text','text':'You are.'}]", "You are.");
    system_is("[{'type':'text','text':'You are.'},"
              "{'type':'text','text':'x-anthropic-billing-header'}]",
              "You are.");
    system_is("[{'type':'text','text':'x-anthropic-billing-head'},'b']",
              "x-anthropic-billing-head^3b");
    system_is("[{'type':'text','text':'X-anthropic-billing-header'},'b']",
              "X-anthropic-billing-header^3b");
    system_is("[{'type':'text','text':'x-anthropic-billing-heade\\u0072'},"
              "'b']", "x-anthropic-billing-header^3b");

    /* not inside messages */

    message_is("{'role':'user','content':[{'type':'text','text':"
               "'x-anthropic-billing-header: 1'}]}",
               "^1user^2x-anthropic-billing-header: 1");

    read_is(kvr_message_content, "[{'type':'text','text':'x-anthropic-bil",
            KVR_AGAIN, "", 1);
    read_is(kvr_message_content, "[{'type':'text','text':'x-anthropic-billing-"
            "header: 1", KVR_AGAIN, "", 1);
}
