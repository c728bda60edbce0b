
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests the rules of hashing with pairs of bodies that must have equal chains,
 * another root, or a common prefix.  Quotes are written as ', and "@a" is a
 * text of about 600 bytes, another one for each letter.
 */


#include "oracle.h"


#define CHAT   "/v1/chat/completions"

#define BASE   "'model':'m','messages':[{'role':'user','content':'@a'}]"


static oracle_result_t  one, two;


static void
expand(util_buf_t *b, const char *s)
{
    unsigned    i;
    util_rng_t  r;

    b->len = 0;

    for ( /* void */ ; *s; s++) {

        if (*s == '\'') {
            util_byte(b, '"');

        } else if (*s == '@') {

            r.state = (uint8_t) *++s;

            for (i = 0; i < 600; i++) {
                util_byte(b, (uint8_t) "etaoin shrdlu.,"[util_below(&r, 15)]);
            }

        } else {
            util_byte(b, (uint8_t) *s);
        }
    }
}


/* in one piece and in windows: equal results */
static void
get(oracle_result_t *res, const char *body, const char *path, const char *salt)
{
    unsigned                i;
    util_buf_t              b = { 0 };
    kvr_prompt_conf_t       conf = { 0 };
    oracle_stats_t          stats = { 0 };

    static oracle_result_t  other;
    static const size_t     steps[] = { 1, 7, 64, 300 };

    expand(&b, body);

    conf.path = (const uint8_t *) path;
    conf.path_len = strlen(path);
    conf.no_prefill = !kvr_endpoint_computes(kvr_endpoint(conf.path,
                                                     conf.path_len));
    conf.salt = (const uint8_t *) salt;
    conf.salt_len = salt ? strlen(salt) : 0;

    util_note("%s", body);

    oracle_read(res, &conf, b.p, b.len, UTIL_WHOLE, 0);
    oracle_verify(res, &conf, b.p, b.len, &stats);

    for (i = 0; i < 4; i++) {
        oracle_read(&other, &conf, b.p, b.len, UTIL_STEP, steps[i]);
        oracle_same(res, &other, "in windows");
    }

    util_drop(&b);
}


static void
good(oracle_result_t *res, const char *body, const char *path)
{
    get(res, body, path, NULL);
    util_check(res->rc == KVR_OK, "%d", res->rc);
}


static uint32_t
common(void)
{
    uint32_t  i;

    for (i = 0; i < one.pr.n && i < two.pr.n; i++) {
        if (one.chain[i] != two.chain[i]) {
            break;
        }
    }

    return i;
}


static void
pair(const char *a, const char *b)
{
    good(&one, a, CHAT);
    good(&two, b, CHAT);

    util_note("%s and %s", a, b);

    util_check(one.pr.n && two.pr.n, "no chain");
}


static void
equal(const char *a, const char *b)
{
    pair(a, b);

    util_check(one.pr.root == two.pr.root, "roots");
    util_check(one.pr.n == two.pr.n && common() == one.pr.n, "%u of %u, %u",
               common(), one.pr.n, two.pr.n);
    util_check(one.pr.bytes == two.pr.bytes, "bytes");
}


/* the root differs, and so does the whole chain */
static void
other_root(const char *a, const char *b)
{
    uint32_t  i, k;

    pair(a, b);

    util_check(one.pr.root != two.pr.root, "roots are equal");

    for (i = 0; i < one.pr.n; i++) {
        for (k = 0; k < two.pr.n; k++) {
            util_check(one.chain[i] != two.chain[k], "a common entry");
        }
    }
}


/* exactly n entries are common */
static void
shares(uint32_t n, const char *a, const char *b)
{
    pair(a, b);

    util_check(one.pr.root == two.pr.root, "roots");
    util_check(common() == n, "%u entries", common());
    util_check(n < one.pr.n || n < two.pr.n, "equal");
}


TEST(test_prompt_shapes)
{
    size_t  i;

    static const struct {
        const char          *body;
        const char          *path;
        kvr_prompt_shape_e   shape;
        uint32_t             n;
    } cases[] = {
        { "{'messages':[{'role':'user','content':'@a'}]}", CHAT,
          KVR_PROMPT_CHAT, 2 },
        { "{'messages':[]}", CHAT, KVR_PROMPT_CHAT, 0 },
        { "{'prompt':'@a'}", "/v1/completions", KVR_PROMPT_TEXT, 2 },
        { "{'prompt':['@a','@b']}", "/v1/completions", KVR_PROMPT_TEXT, 2 },
        { "{'prompt':[1,2,3]}", "/v1/completions", KVR_PROMPT_TOKENS, 0 },
        { "{'prompt':[[1,2,3],[4]]}", "/v1/completions", KVR_PROMPT_TOKENS,
          0 },
        { "{'prompt':[]}", "/v1/completions", KVR_PROMPT_NONE, 0 },
        { "{'input':'@a'}", "/v1/responses", KVR_PROMPT_INPUT, 2 },
        { "{'input':[{'role':'user','content':'@a'}]}", "/v1/responses",
          KVR_PROMPT_INPUT, 2 },
        { "{'system':'@a','messages':[]}", "/v1/messages", KVR_PROMPT_CHAT,
          3 },
        { "{'text':'@a'}", "/generate", KVR_PROMPT_TEXT, 2 },
        { "{'text':['@a']}", "/generate", KVR_PROMPT_TEXT, 2 },
        { "{'input_ids':[1,2]}", "/generate", KVR_PROMPT_TOKENS, 0 },
        { "{'token_ids':[1,2]}", "/inference/v1/generate",
          KVR_PROMPT_TOKENS, 0 },
        { "{'inputs':'@a'}", "/generate_stream", KVR_PROMPT_TEXT, 2 },
        { "{'inputs':'@a'}", "/", KVR_PROMPT_TEXT, 2 },
        { "{'text_input':'@a'}", "/v2/models/m/generate", KVR_PROMPT_TEXT,
          2 },
        { "{'messages':[{'role':'user','content':'@a'}]}", "/api/chat",
          KVR_PROMPT_CHAT, 2 },
        { "{'prompt':'@a','system':'@b'}", "/api/generate", KVR_PROMPT_TEXT,
          5 },
        { "{'prompt':'@a'}", "/completion", KVR_PROMPT_TEXT, 2 },

        /* routed by load */

        { "{'input':'@a'}", "/v1/embeddings", KVR_PROMPT_NO_KV, 0 },
        { "{'input':['@a','@b']}", "/v1/embeddings", KVR_PROMPT_NO_KV,
          0 },
        { "{'inputs':'@a'}", "/embed", KVR_PROMPT_NO_KV, 0 },
        { "{'query':'q','documents':['@a']}", "/v1/rerank",
          KVR_PROMPT_NO_KV, 0 },
        { "{'text_1':'q','text_2':['@a']}", "/score", KVR_PROMPT_NO_KV,
          0 },
        { "{'prompt':'@a'}", "/tokenize", KVR_PROMPT_NO_KV, 0 },
        { "{'prompt':'@a'}", "/v1/detokenize", KVR_PROMPT_NO_KV, 0 },
        { "{'input':'@a'}", "/pooling", KVR_PROMPT_NO_KV, 0 },
        { "{'input':'@a'}", "/classify", KVR_PROMPT_NO_KV, 0 },
        { "{'input':'@a'}", "/v1/moderations", KVR_PROMPT_NO_KV, 0 },

        { "{'inputs':'@a'}", "/embed_all", KVR_PROMPT_NO_KV, 0 },
        { "{'messages':[{'role':'user','content':'@a'}]}",
          "/v1/messages/count_tokens", KVR_PROMPT_NO_KV, 0 },
        { "{'messages':[{'role':'user','content':'@a'}]}",
          "/v1/chat/completions/render", KVR_PROMPT_NO_KV, 0 },
        { "{'input':'@a'}", "/v1/responses/input_tokens", KVR_PROMPT_NO_KV,
          0 },
        { "{'input':'@a'}", "/v1/responses/resp_1/cancel", KVR_PROMPT_NO_KV,
          0 },
        { "{'prompt':'@a'}", "/embed/v1/completions", KVR_PROMPT_TEXT, 2 },
        { "{'prompt':'@a'}", "/v1/reembed", KVR_PROMPT_TEXT, 2 },
        { "{'prompt':'@a'}", "/v1/scor", KVR_PROMPT_TEXT, 2 },
        { "{'prompt':'@a'}", "/v1/scores", KVR_PROMPT_TEXT, 2 },
        { "{'text_input':'@a'}", "/v2/models/scorer/generate",
          KVR_PROMPT_TEXT, 2 },
        { "{'prompt':'@a'}", "", KVR_PROMPT_TEXT, 2 },

        /* nothing to hash */

        { "{}", CHAT, KVR_PROMPT_NONE, 0 },
        { "{'model':'m'}", CHAT, KVR_PROMPT_NONE, 0 },
        { "{'messages':null}", CHAT, KVR_PROMPT_NONE, 0 },
        { "{'messages':'@a'}", CHAT, KVR_PROMPT_NONE, 0 },
        { "{'messages':{'role':'user','content':'@a'}}", CHAT,
          KVR_PROMPT_NONE, 0 },
        { "{'prompt':{'a':'@a'}}", CHAT, KVR_PROMPT_NONE, 0 },
        { "{'prompt':17}", CHAT, KVR_PROMPT_NONE, 0 },
        { "{'input':true}", CHAT, KVR_PROMPT_NONE, 0 },
        { "{'text':{'format':{'type':'text'}}}", "/v1/responses",
          KVR_PROMPT_NONE, 0 },
        { "{'inputs':[{'name':'x','shape':[1],'datatype':'BYTES',"
          "'data':['@a']}]}", "/v2/models/m/infer", KVR_PROMPT_TOKENS, 2 }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        good(&one, cases[i].body, cases[i].path);

        util_check(one.pr.shape == cases[i].shape, "shape %d", one.pr.shape);
        util_check(one.pr.n == cases[i].n, "%u entries", one.pr.n);
        util_check((one.pr.bytes == 0)
                   == (one.pr.shape == KVR_PROMPT_NONE || i == 1),
                   "%llu bytes", (unsigned long long) one.pr.bytes);
    }

    /* further prompts of a batch count as load, but are not in the chain */

    good(&one, "{'prompt':['@a','@b' , '@c']}", CHAT);
    good(&two, "{'prompt':['@a']}", CHAT);
    util_check(one.pr.n == 2 && common() == 2, "batch");
    util_check(one.pr.bytes == 600 && one.pr.extra == 1208, "%llu extra",
               (unsigned long long) one.pr.extra);
    util_check(two.pr.bytes == 600 && two.pr.extra == 0, "%llu extra",
               (unsigned long long) two.pr.extra);

    good(&two, "{'prompt':'@a'}", CHAT);
    util_check(common() == 2, "a batch of one");

    /* no object, no JSON */

    get(&one, "[{'messages':[]}]", CHAT, NULL);
    util_check(one.rc == KVR_ERROR, "array");
    get(&one, "'messages'", CHAT, NULL);
    util_check(one.rc == KVR_ERROR, "string");
    get(&one, "messages=1", CHAT, NULL);
    util_check(one.rc == KVR_ERROR, "form");
    get(&one, "{'messages':[]} x", CHAT, NULL);
    util_check(one.rc == KVR_ERROR, "garbage");
    get(&one, "", CHAT, NULL);
    util_check(one.rc == KVR_AGAIN, "empty");
    get(&one, " \n", CHAT, NULL);
    util_check(one.rc == KVR_AGAIN, "blank");
}


TEST(test_prompt_equal)
{
    /* text parts */

    equal("{'messages':[{'role':'user','content':'@a'}]}",
          "{'messages':[{'role':'user','content':[{'type':'text','text':'@a'}]"
          "}]}");
    equal("{'messages':[{'role':'user','content':'@a'}]}",
          "{'messages':[{'content':'@a','role':'user'}]}");
    equal("{'messages':[{'role':'user','content':[{'type':'text','text':'@a'},"
          "{'type':'text','text':'b'}]}]}",
          "{'messages':[{'role':'user','content':[{'text':'@a','type':'text'},"
          "'b']}]}");

    /* white space and spelling */

    equal("{" BASE "}", " { 'model' : 'm' ,\n'messages' : [ { 'role' : 'user' "
          ",\t'content' : '@a' } ] } \r\n");
    equal("{'messages':[{'role':'user','content':'@a/b\\n'}]}",
          "{'m\\u0065ssages':[{'rol\\u0065':'us\\u0065r','content':"
          "'@a\\/\\u0062\\u000A'}]}");

    /* the order of the keys of a body */

    equal("{'model':'m','tools':[{'name':'f'}],'system':'@s','messages':["
          "{'role':'user','content':'@a'}],'cache_salt':'x','think':true}",
          "{'think':true,'messages':[{'role':'user','content':'@a'}],'tools':"
          "[{'name':'f'}],'cache_salt':'x','system':'@s','model':'m'}");
    equal("{'instructions':'@i','input':'@a','tools':[{'name':'f'}]}",
          "{'tools':[{'name':'f'}],'input':'@a','instructions':'@i'}");
    equal("{'chat_template':'a','template':'b'," BASE "}",
          "{'template':'b','chat_template':'a'," BASE "}");
    equal("{'images':['a'],'image_data':'b'," BASE "}",
          "{'image_data':'b','images':['a']," BASE "}");
    equal("{'system':'@s','instructions':'@i'," BASE "}",
          "{'instructions':'@i','system':'@s'," BASE "}");
    equal("{'prompt':'@p'," BASE "}", "{" BASE ",'prompt':'@p'}");

    /* the last of equal keys, as in Python */

    equal("{'model':'x','model':'m','messages':[{'role':'user','content':'@x'}]"
          ",'messages':[{'role':'user','content':'@a'}]}", "{" BASE "}");
    equal("{'tools':[{'name':'x'}],'tools':[{'name':'f'}]," BASE "}",
          "{'tools':[{'name':'f'}]," BASE "}");
    equal("{'tools':[{'name':'x'}],'tools':null," BASE "}", "{" BASE "}");
    equal("{'system':'@x','system':'@s'," BASE "}", "{'system':'@s'," BASE "}");
    equal("{'cache_salt':'x','cache_salt':'y'," BASE "}",
          "{'cache_salt':'y'," BASE "}");
    equal("{'cache_salt':'x','cache_salt':null," BASE "}", "{" BASE "}");
    equal("{'messages':[{'role':'user','content':'@x'}],'messages':null,"
          "'prompt':'@a'}", "{'prompt':'@a'}");
    equal("{'prompt':'@x','prompt':'@a'}", "{'prompt':'@a'}");
    equal("{'prompt':'@a','messages':[{'role':'user'}],'messages':3}",
          "{'prompt':'@a'}");
    equal("{'input':'@x','input':[{'role':'user','content':'@a'}]}",
          "{'input':'@a'}");

    /* null equals an absent key */

    equal("{'tools':null,'system':null,'cache_salt':null,'tool_choice':null,"
          "'think':null,'chat_template_kwargs':null,'prompt':null,'input':null,"
          "'instructions':null,'reasoning':null,'documents':null," BASE "}",
          "{" BASE "}");
    equal("{'tools':[]," BASE "}", "{" BASE "}");
    equal("{'tools':[ ]," BASE "}", "{" BASE "}");
    equal("{'tools':{}," BASE "}", "{" BASE "}");
    equal("{'system':''," BASE "}", "{" BASE "}");
    equal("{'system':[]," BASE "}", "{" BASE "}");
    equal("{'messages':[{'role':'assistant','content':null,'name':null,"
          "'tool_calls':null,'function_call':null},{'role':'user','content':"
          "'@a'}]}",
          "{'messages':[{'role':'assistant'},{'role':'user','content':'@a'}]}");

    /* tools: white space does not matter */

    equal("{'tools':[{'name':'f','parameters':{'a':[1,2]}}]," BASE "}",
          "{'tools':[ { 'name' : 'f' ,\n 'parameters':{'a':[1 ,2]} } ]," BASE
          "}");

    /* Anthropic: string or blocks, billing header, cache marks, thinking */

    equal("{'system':'@s'," BASE "}",
          "{'system':[{'type':'text','text':'@s','cache_control':{'type':"
          "'ephemeral'}}]," BASE "}");
    equal("{'system':[{'type':'text','text':'x-anthropic-billing-header: a'},"
          "{'type':'text','text':'@s'}]," BASE "}",
          "{'system':[{'type':'text','text':'x-anthropic-billing-header: b'},"
          "{'type':'text','text':'@s'}]," BASE "}");
    equal("{'system':[{'type':'text','text':'x-anthropic-billing-header: a'},"
          "{'type':'text','text':'@s'}]," BASE "}",
          "{'system':'@s'," BASE "}");
    equal("{'system':[{'text':'x-anthropic-billing-header: a','type':'text'},"
          "{'text':'@s','type':'text'}]," BASE "}",
          "{'system':'@s'," BASE "}");
    equal("{'messages':[{'role':'user','content':[{'type':'text','text':'@a',"
          "'cache_control':{'type':'ephemeral'}}]},{'role':'user','content':"
          "'b'}]}",
          "{'messages':[{'role':'user','content':'@a'},{'role':'user',"
          "'content':[{'type':'text','text':'b','cache_control':{'type':"
          "'ephemeral','ttl':'1h'}}]}]}");
    equal("{'messages':[{'role':'assistant','content':[{'type':'thinking',"
          "'thinking':'hm','signature':'s'},{'type':'text','text':'@a'}]}]}",
          "{'messages':[{'role':'assistant','content':'@a'}]}");
    equal("{'messages':[{'role':'assistant','content':[{'type':"
          "'redacted_thinking','data':'hm'},{'type':'text','text':'@a'}]}]}",
          "{'messages':[{'role':'assistant','content':'@a'}]}");
    equal("{'messages':[{'role':'assistant','reasoning_content':'hm',"
          "'reasoning':'hm','content':'@a'}]}",
          "{'messages':[{'role':'assistant','content':'@a'}]}");

    /* Responses */

    equal("{'input':'@a'}",
          "{'input':[{'type':'message','role':'user','content':[{'type':"
          "'input_text','text':'@a'}]}]}");
    equal("{'input':[{'role':'user','content':'@a'},{'type':'reasoning','id':"
          "'rs_1','summary':[{'type':'summary_text','text':'hm'}],"
          "'encrypted_content':'x'},{'role':'assistant','content':'b'}]}",
          "{'input':[{'role':'user','content':'@a'},{'role':'assistant',"
          "'content':[{'type':'output_text','text':'b','annotations':[]}]}]}");

    /* ids are not hashed */

    equal("{'messages':[{'role':'user','content':'@a'},{'role':'assistant',"
          "'tool_calls':[{'id':'call_1','type':'function','function':{'name':"
          "'f','arguments':'{}'}}]},{'role':'tool','tool_call_id':'call_1',"
          "'content':'@b'}]}",
          "{'messages':[{'role':'user','content':'@a'},{'role':'assistant',"
          "'tool_calls':[{'id':'call_2','function':{'name':'f','arguments':"
          "'{}'}}]},{'content':'@b','role':'tool','tool_call_id':'call_2'}]}");
    equal("{'input':[{'role':'user','content':'@a'},{'id':'1','call_id':'c1',"
          "'type':'function_call','name':'f','arguments':'{}'},{'call_id':'c1',"
          "'type':'function_call_output','output':'@b'}]}",
          "{'input':[{'role':'user','content':'@a'},{'id':'2','call_id':'c2',"
          "'type':'function_call','name':'f','arguments':'{}','status':"
          "'completed'},{'type':'function_call_output','output':'@b'}]}");
}


/* members that engines do not render */
TEST(test_prompt_ignored)
{
    size_t  i;
    char    body[512];

    static const char *const  members[] = {
        "'temperature':0.7", "'top_p':1e-1", "'top_k':40", "'seed':1",
        "'stream':true", "'stream':false", "'user':'u'", "'n':2",
        "'metadata':{'user_id':'x','a':[{}]}", "'max_tokens':100",
        "'max_completion_tokens':1e3", "'max_new_tokens':5", "'stop':['x']",
        "'stream_options':{'include_usage':true}", "'logprobs':true",
        "'priority':3", "'request_id':'r'", "'session_id':'s'",
        "'prompt_cache_key':'k'", "'service_tier':'flex'", "'store':true",
        "'safety_identifier':'x'", "'previous_response_id':'resp_1'",
        "'response_format':{'type':'json_object'}", "'logit_bias':{'1':2}",
        "'tool_choice':'auto'", "'tool_choice':'required'",
        "'tool_choice':{'type':'function','function':{'name':'f'}}",
        "'parallel_tool_calls':true", "'presence_penalty':-1.5",
        "'options':{'num_predict':10,'temperature':0}",
        "'parameters':{'max_new_tokens':10}",
        "'sampling_params':{'max_new_tokens':10}", "'rid':'x'", "'':1",
        "'verbosity':'low'", "'messages_':[]", "'mes':[]", "'Model':'x'",
        "'cache_control':{'type':'ephemeral'}"
    };

    for (i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        sprintf(body, "{%s," BASE "}", members[i]);
        equal(body, "{" BASE "}");

        sprintf(body, "{" BASE ",%s}", members[i]);
        equal(body, "{" BASE "}");
    }
}


/* members that change the whole rendered prompt, or its cache */
TEST(test_prompt_root)
{
    size_t  i, k, n;
    char    a[512], b[512];

    static const char *const  members[] = {
        "'model':'x'", "'model':'M'", "'model':'m:adapter'",
        "'cache_salt':'x'", "'cache_salt':'y'", "'extra_key':'x'",
        "'chat_template':'x'", "'template':'x'",
        "'chat_template_kwargs':{'enable_thinking':false}",
        "'chat_template_kwargs':{'enable_thinking':true}",
        "'reasoning_effort':'low'", "'reasoning_effort':'high'",
        "'reasoning':{'effort':'low'}", "'think':true", "'think':false",
        "'tool_choice':'none'", "'documents':[{'title':'x'}]",
        "'add_special_tokens':false", "'mm_processor_kwargs':{'a':1}",
        "'lora_path':'x'",
        "'context':[1,2,3]", "'images':['x']", "'image_data':'x'",
        "'functions':[{'name':'f'}]", "'tools':[{'name':'f'}]",
        "'tools':[{'name':'g'}]", "'tools':[{'name':'f'},{'name':'g'}]",
        "'tools':[{'name':'g'},{'name':'f'}]",
        "'tools':[{'name':'f','a':1}]", "'tools':[{'a':1,'name':'f'}]"
    };

    n = sizeof(members) / sizeof(members[0]);

    for (i = 0; i < n; i++) {

        sprintf(a, "{%s,'messages':[{'role':'user','content':'@a'}]}",
                members[i]);
        other_root(a, "{'messages':[{'role':'user','content':'@a'}]}");

        for (k = 0; k < i; k++) {
            sprintf(b, "{%s,'messages':[{'role':'user','content':'@a'}]}",
                    members[k]);
            other_root(a, b);
        }
    }

    /* values of two keys are not interchangeable */

    other_root("{'cache_salt':'x','extra_key':'y'," BASE "}",
               "{'cache_salt':'y','extra_key':'x'," BASE "}");
    other_root("{'cache_salt':'xy'," BASE "}",
               "{'cache_salt':'x','extra_key':'y'," BASE "}");
    other_root("{'cache_salt':1," BASE "}", "{'cache_salt':'1'," BASE "}");

    /* tools are also in the chain, so that their length counts */

    good(&one, "{'tools':['@t']," BASE "}", CHAT);
    good(&two, "{" BASE "}", CHAT);
    util_check(one.pr.bytes == two.pr.bytes + 604 && one.pr.n == two.pr.n + 3,
               "tools in the chain");

    /* the caller's salt and secret */

    get(&one, "{" BASE "}", CHAT, "tenant");
    get(&two, "{" BASE "}", CHAT, "tenan");
    util_check(one.pr.root != two.pr.root && common() == 0, "salt");
    util_check(one.pr.model_root != two.pr.model_root, "salt");

    get(&two, "{'think':true," BASE "}", CHAT, "tenant");
    util_check(one.pr.root != two.pr.root, "root");
    util_check(one.pr.model_root == two.pr.model_root, "model's root");

    get(&two, "{'model':'n','messages':[]}", CHAT, "tenant");
    util_check(one.pr.model_root != two.pr.model_root, "model's root");
}


/* prompts that an engine does not look up, or truncates */
TEST(test_prompt_skips)
{
    size_t  i;
    char    body[512];

    static const struct {
        const char  *members;
        const char  *path;
        unsigned     skips;
    } cases[] = {
        { "'prompt':'@a'", "/v1/completions", 0 },
        { "'prompt':'@a','logprobs':1", "/v1/completions", 0 },
        { "'prompt':'@a','echo':true", "/v1/completions", 0 },
        { "'prompt':'@a','echo':true,'logprobs':1", "/v1/completions", 1 },
        { "'logprobs':0,'echo':true,'prompt':'@a'", "/v1/completions", 1 },
        { "'prompt':'@a','echo':false,'logprobs':1", "/v1/completions", 0 },
        { "'prompt':'@a','echo':true,'logprobs':null", "/v1/completions", 0 },
        { "'prompt':'@a','echo':true,'logprobs':1,'echo':false",
          "/v1/completions", 0 },
        { "'prompt':'@a','prompt_logprobs':0", "/v1/completions", 1 },
        { "'prompt':'@a','prompt_logprobs':null", "/v1/completions", 0 },
        { BASE ",'prompt_logprobs':5", CHAT, 1 },
        { BASE ",'logprobs':true,'top_logprobs':5", CHAT, 0 },
        { BASE ",'echo':true", CHAT, 1 },
        { BASE ",'echo':null", CHAT, 0 },
        { "'text':'@a','logprob_start_len':0", "/generate", 1 },
        { "'text':'@a','logprob_start_len':-1", "/generate", 0 },
        { "'text':'@a','logprob_start_len':7", "/generate", 0 },
        { "'prompt':'@a','cache_prompt':false", "/completion", 1 },
        { "'prompt':'@a','cache_prompt':true", "/completion", 0 },
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sprintf(body, "{%s}", cases[i].members);
        good(&one, body, cases[i].path);
        util_check(one.pr.skips == cases[i].skips && one.pr.n, "%s", body);
    }
}


/* 600 bytes are about 150 tokens */
TEST(test_prompt_cut)
{
    good(&one, "{'prompt':'@a'}", "/v1/completions");
    util_check(one.pr.bytes > 590 && one.pr.n == 2 && !one.pr.unsized, "whole");

    good(&two, "{'truncate_prompt_tokens':8000,'prompt':'@a'}",
         "/v1/completions");
    util_check(two.pr.root == one.pr.root && two.pr.n == one.pr.n
               && !two.pr.unsized, "longer than it is");

    good(&two, "{'truncate_prompt_tokens':-1,'prompt':'@a'}",
         "/v1/completions");
    util_check(two.pr.n == one.pr.n && !two.pr.unsized, "the part that fits");

    good(&two, "{'prompt':'@a','truncate_prompt_tokens':20}",
         "/v1/completions");
    util_check(two.pr.n == 0 && two.pr.unsized && two.pr.bytes == 80
               && two.pr.shape == KVR_PROMPT_TEXT, "cut");

    good(&two, "{'inputs':'@a','parameters':{'truncate':20}}", "/generate");
    util_check(two.pr.n == 0 && two.pr.unsized && two.pr.bytes == 80, "TGI's");

    good(&two, "{'inputs':'@a','options':{'truncate':20}}", "/generate");
    util_check(two.pr.n == 2 && !two.pr.unsized, "a second object");

    /* their tokens do not match their bytes */

    good(&two, "{" BASE ",'documents':[{'text':'x'}]}", CHAT);
    util_check(two.pr.unsized && two.pr.n, "documents");
    good(&two, "{" BASE ",'documents':null}", CHAT);
    util_check(!two.pr.unsized, "no documents");
    good(&two, "{'input':'@a','previous_response_id':'resp_1'}",
         "/v1/responses");
    util_check(two.pr.unsized && two.pr.n, "earlier turns");
}


TEST(test_prompt_differs)
{
    /* the ends of parts and the roles count */

    shares(2, "{'messages':[{'role':'user','content':['@a','@b']}]}",
           "{'messages':[{'role':'user','content':['@a@b']}]}");
    shares(0, "{'messages':[{'role':'user','content':'@a'}]}",
           "{'messages':[{'role':'system','content':'@a'}]}");
    shares(2, "{'messages':[{'role':'user','content':'@a'},{'role':'user',"
           "'content':'@b'}]}",
           "{'messages':[{'role':'user','content':'@a'},{'role':'assistant',"
           "'content':'@b'}]}");
    shares(2, "{'messages':[{'role':'user','content':'@a'},{'role':'user',"
           "'content':'@b'}]}",
           "{'messages':[{'role':'user','content':['@a','@b']}]}");
    shares(0, "{'messages':[{'role':'user','content':'@a'},{'role':'user',"
           "'content':'@b'}]}",
           "{'messages':[{'role':'user','content':'@b'},{'role':'user',"
           "'content':'@a'}]}");
    shares(0, "{'messages':[{'role':'user','name':'n','content':'@a'}]}",
           "{'messages':[{'role':'user','content':'@a'}]}");

    /* the last byte of a block, and the first of the next */

    shares(2, "{'prompt':'@a@b@c'}", "{'prompt':'@a@d@c'}");
    shares(4, "{'prompt':'@a@b@c'}", "{'prompt':'@a@b@d'}");

    /* system, then tools, then messages */

    shares(3, "{'system':'@s'," BASE "}",
           "{'system':'@s','model':'m','messages':[{'role':'user','content':"
           "'@b'}]}");
    shares(0, "{'system':'@s'," BASE "}", "{'system':'@t'," BASE "}");
    shares(0, "{'system':'@s'," BASE "}", "{" BASE "}");
    shares(4, "{'system':'@s','tools':['f']," BASE "}",
           "{'tools':['f'],'model':'m','messages':[{'role':'user','content':"
           "'x@a'}],'system':'@s'}");

    /* calls by their name and arguments */

    shares(2, "{'messages':[{'role':'assistant','content':'@a','tool_calls':"
           "[{'function':{'name':'f','arguments':'@b'}}]}]}",
           "{'messages':[{'role':'assistant','content':'@a','tool_calls':"
           "[{'function':{'name':'g','arguments':'@b'}}]}]}");
    shares(2, "{'messages':[{'role':'assistant','content':'@a','tool_calls':"
           "[{'function':{'name':'f','arguments':'@b'}}]}]}",
           "{'messages':[{'role':'assistant','content':'@a@b'}]}");

    /* images by their data */

    shares(2, "{'messages':[{'role':'user','content':['@a',{'type':'image_url'"
           ",'image_url':{'url':'@u'}}]}]}",
           "{'messages':[{'role':'user','content':['@a',{'type':'image_url',"
           "'image_url':{'url':'@v'}}]}]}");
    equal("{'messages':[{'role':'user','content':['@a',{'type':'image_url',"
          "'image_url':{'url':'@u','detail':'low'}}]}]}",
          "{'messages':[{'role':'user','content':['@a',{'type':'image_url',"
          "'image_url':'@u'}]}]}");
    shares(18, "{'messages':[{'role':'user','content':[{'type':'image_url',"
           "'image_url':{'url':'u'}},'@a@b']}]}",
           "{'messages':[{'role':'user','content':[{'type':'image_url',"
           "'image_url':{'url':'u'}},'@a@c']}]}");

    /* tokens as written */

    equal("{'prompt':[[1,2,3,'@a']]}", "{'prompt':[1, 2,\n3,'@a']}");
    shares(0, "{'prompt':[1,2,3,'@a']}", "{'prompt':[1,2,4,'@a']}");
}


static const char *
images(util_buf_t *b, const char *head, unsigned n, const char *tail)
{
    unsigned  i;

    b->len = 0;
    util_puts(b, head);

    for (i = 0; i < n; i++) {
        util_printf(b, "%s{'file_id':'%u'}", i ? "," : "", i);
    }

    util_put(b, tail, strlen(tail) + 1);

    return (char *) b->p;
}


/*
 * the number of images that count is limited; a second reading does not count
 */
TEST(test_prompt_media)
{
    unsigned    n;
    uint64_t    bytes;
    util_buf_t  a = { 0 }, b = { 0 }, c = { 0 };

    for (n = 40; n < 100; n += 12) {

        equal(images(&a, "{'messages':[{'role':'user','content':[", n, "]}]}"),
              images(&b, "{'messages':[{'content':[", n, "],'role':'user'}]}"));
        equal(images(&a, "{'messages':[{'role':'user','content':[", n, "]}]}"),
              images(&b, "{'messages':[{'content':[{'file_id':'x'}],'content':"
                     "[", n, "],'role':'user'}]}"));

        bytes = one.pr.bytes;
        util_check(bytes == 1 + 4 + 1 + kvr_min(n, 64) * 4097
                            + (n > 64 ? (n - 64) * 9 : 0) + n - 1,
                   "%llu bytes", (unsigned long long) bytes);

        (void) images(&c, ",'messages':[{'role':'user','content':[", n, "]}]}");
        (void) images(&b, "{'messages':[{'role':'user','content':[", n, "]}]");
        b.len--;
        util_put(&b, c.p, c.len);

        equal(images(&a, "{'messages':[{'role':'user','content':[", n, "]}]}"),
              (char *) b.p);

        (void) images(&c, ",'messages':[{'role':'user','content':[", n, "]}]}");
        (void) images(&a, "{'system':[", n, "]");
        a.len--;
        util_put(&a, c.p, c.len);

        (void) images(&c, ",'system':[", n, "]}");
        (void) images(&b, "{'messages':[{'role':'user','content':[", n, "]}]");
        b.len--;
        util_put(&b, c.p, c.len);

        equal((char *) a.p, (char *) b.p);

        (void) images(&b, "{'system':[{'text':'','type':'thinking'},", n, "]");
        b.len--;
        (void) images(&c, ",'messages':[{'role':'user','content':[", n, "]}]}");
        util_put(&b, c.p, c.len);

        equal((char *) a.p, (char *) b.p);

        (void) images(&b, "{'system':[", n, ",{'text':'','type':'thinking'}]");
        b.len--;
        util_put(&b, c.p, c.len);

        equal((char *) a.p, (char *) b.p);
    }

    util_drop(&a);
    util_drop(&b);
    util_drop(&c);
}


/* the chain of each turn begins with that of the previous turn */
TEST(test_prompt_append)
{
    int         turn, api;
    util_buf_t  body = { 0 }, messages;

    static const char *const  turns[3][6] = {
        {
            "{'role':'user','content':'@a'}",
            ",{'role':'assistant','content':'@b','reasoning_content':'@z'}",
            ",{'role':'user','content':[{'type':'text','text':'@c'},"
            "{'type':'image_url','image_url':{'url':'@i'}}]}",
            ",{'role':'assistant','content':null,'tool_calls':[{'id':'1',"
            "'type':'function','function':{'name':'f','arguments':'@d'}}]}",
            ",{'role':'tool','tool_call_id':'1','content':'@e'}",
            ",{'content':'@f','role':'assistant'}"
        },
        {
            "{'role':'user','content':[{'type':'text','text':'@a'}]}",
            ",{'role':'assistant','content':[{'type':'thinking','thinking':"
            "'@z','signature':'s'},{'type':'text','text':'@b'},{'type':"
            "'tool_use','id':'1','name':'f','input':{'x':'@c'}}]}",
            ",{'role':'user','content':[{'type':'tool_result','tool_use_id':"
            "'1','content':[{'type':'text','text':'@d'},{'type':'image',"
            "'source':{'type':'base64','data':'@i'}}]}]}",
            ",{'role':'assistant','content':[{'type':'text','text':'@e'}]}",
            ",{'role':'user','content':'@f'}",
            ",{'role':'user','content':'@g'}"
        },
        {
            "{'role':'user','content':[{'type':'input_text','text':'@a'}]}",
            ",{'type':'reasoning','id':'r','summary':[],'encrypted_content':"
            "'@z'},{'type':'function_call','call_id':'1','name':'f',"
            "'arguments':'@b'}",
            ",{'type':'function_call_output','call_id':'1','output':'@c'}",
            ",{'type':'reasoning','id':'r2','summary':[]},{'type':'message',"
            "'role':'assistant','content':[{'type':'output_text','text':'@d'}"
            "]}",
            ",{'role':'user','content':'@e'}",
            ",{'role':'user','content':'@f'}"
        }
    };

    static const char *const  heads[3] = {
        "{'model':'m','temperature':0,'tools':['@t'],'messages':[",
        "{'model':'m','system':[{'type':'text','text':'@s'}],'tools':['@t'],"
        "'messages':[",
        "{'model':'m','instructions':'@s','input':["
    };

    memset(&messages, 0, sizeof(messages));

    for (api = 0; api < 3; api++) {

        messages.len = 0;

        for (turn = 0; turn < 6; turn++) {

            util_puts(&messages, turns[api][turn]);

            body.len = 0;
            util_puts(&body, heads[api]);
            util_put(&body, messages.p, messages.len);
            util_puts(&body, "],'max_tokens':100,'think':false}");
            util_byte(&body, 0);

            good(&two, (char *) body.p, CHAT);

            if (turn) {
                util_note("api %d, turn %d", api, turn);
                util_check(one.pr.root == two.pr.root, "root");
                util_check(two.pr.n > one.pr.n, "%u, %u", one.pr.n, two.pr.n);
                util_check(common() == one.pr.n, "%u of %u", common(),
                           one.pr.n);
            }

            one = two;
        }
    }

    util_drop(&body);
    util_drop(&messages);
}


static void
field_is(kvr_prompt_field_e f, const char *want)
{
    util_check(one.pr.field[f].len == strlen(want)
               && memcmp(one.pr.field[f].data, want, strlen(want)) == 0,
               "field %d: %s", f, util_show(one.pr.field[f].data,
                                            one.pr.field[f].len));
}


static void
model_is(const char *body, const char *path, const char *want)
{
    good(&one, body, path);

    util_check(one.pr.model_len == strlen(want)
               && memcmp(one.pr.model, want, strlen(want)) == 0,
               "model %s", util_show(one.pr.model, one.pr.model_len));
}


static void
limit_is(const char *body, int64_t want)
{
    good(&one, body, CHAT);

    util_check(one.pr.max_tokens == want, "%lld",
               (long long) one.pr.max_tokens);
}


TEST(test_prompt_fields)
{
    char  body[1000], text[400];

    model_is("{'model':'meta-llama\\/L'}", CHAT, "meta-llama/L");
    model_is("{'model':'\\u00e9'}", CHAT, "\xc3\xa9");
    model_is("{'model':null}", CHAT, "");
    model_is("{'model':['m']}", CHAT, "");
    model_is("{'model':'a','model':7}", CHAT, "");
    model_is("{}", "/v2/models/llama/generate", "llama");
    model_is("{}", "/v2/models/llama/versions/1/generate", "llama");
    model_is("{}", "/v2/models/llama", "llama");
    model_is("{}", "/v2/models/", "");
    model_is("{}", "/v2/models", "");
    model_is("{'model':null}", "/v2/models/llama/generate", "llama");
    model_is("{'model':'m'}", "/v2/models/llama/generate", "m");

    memset(text, 'x', sizeof(text));
    text[256] = '\0';
    sprintf(body, "{'model':'%s'}", text);
    model_is(body, CHAT, text);
    sprintf(body, "{'model':'%sy'}", text);
    model_is(body, CHAT, text);

    good(&one, "{'prompt_cache_key':'k','session_id':'s','service_tier':'flex',"
         "'previous_response_id':'resp_1'}", CHAT);
    field_is(KVR_PROMPT_CACHE_KEY, "k");
    field_is(KVR_PROMPT_SESSION_ID, "s");
    field_is(KVR_PROMPT_SERVICE_TIER, "flex");
    field_is(KVR_PROMPT_PREVIOUS_ID, "resp_1");

    good(&one, "{'prompt_cache_key':null,'session_id':5,'service_tier':['x'],"
         "'previous_response_id':'a','previous_response_id':null}", CHAT);
    field_is(KVR_PROMPT_CACHE_KEY, "");
    field_is(KVR_PROMPT_SESSION_ID, "");
    field_is(KVR_PROMPT_SERVICE_TIER, "");
    field_is(KVR_PROMPT_PREVIOUS_ID, "");

    text[128] = '\0';
    sprintf(body, "{'session_id':'%s','prompt_cache_key':'%sy'}", text, text);
    good(&one, body, CHAT);
    field_is(KVR_PROMPT_SESSION_ID, text);
    field_is(KVR_PROMPT_CACHE_KEY, "");

    good(&one, "{'priority':-5}", CHAT);
    util_check(one.pr.priority_set && one.pr.priority == -5, "priority");
    good(&one, "{'priority':'1'}", CHAT);
    util_check(!one.pr.priority_set, "priority: a string");
    good(&one, "{'priority':1,'priority':null}", CHAT);
    util_check(!one.pr.priority_set, "priority: null");
    good(&one, "{'priority':2.9}", CHAT);
    util_check(one.pr.priority == 2, "priority: a fraction");

    good(&one, "{'stream': true}", CHAT);
    util_check(one.pr.stream, "a stream");
    good(&one, "{'stream':true,'stream':false}", CHAT);
    util_check(!one.pr.stream, "no stream");
    good(&one, "{'stream':'true'}", CHAT);
    util_check(!one.pr.stream, "a string");
    good(&one, "{}", CHAT);
    util_check(!one.pr.stream, "no stream by default");

    limit_is("{}", 0);
    limit_is("{'max_tokens':100}", 100);
    limit_is("{'max_tokens':-1}", 0);
    limit_is("{'max_tokens':1e3}", 0);
    limit_is("{'max_tokens':null}", 0);
    limit_is("{'max_tokens':100,'max_tokens':200}", 200);
    limit_is("{'max_tokens':100,'max_tokens':null}", 0);
    limit_is("{'max_tokens':100,'max_completion_tokens':null}", 100);
    limit_is("{'max_completion_tokens':null,'max_tokens':100}", 100);
    limit_is("{'max_completion_tokens':50,'max_tokens':100}", 50);
    limit_is("{'max_tokens':100,'max_completion_tokens':50}", 50);
    limit_is("{'max_output_tokens':7}", 7);
    limit_is("{'max_new_tokens':8}", 8);
    limit_is("{'n_predict':9}", 9);
    limit_is("{'n_predict':-1}", 0);
    limit_is("{'options':{'num_predict':10,'num_ctx':3}}", 10);
    limit_is("{'parameters':{'max_new_tokens':11,'details':{}}}", 11);
    limit_is("{'sampling_params':{'max_new_tokens':12}}", 12);
    limit_is("{'options':{'num_predict':10},'options':{}}", 0);
    limit_is("{'options':5}", 0);
}
