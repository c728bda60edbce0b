/*
 * The openai and anthropic SDKs, as people use them: the same calls through an
 * upstream without the module and through one with it must end the same.  Is
 * told by t/clients.t where they are, and speaks TAP.
 *
 *     PLAIN=http://127.0.0.1:8080 ROUTED=http://127.0.0.1:8081 node clients.js
 */

"use strict";

const OpenAI = require("openai");
const Anthropic = require("@anthropic-ai/sdk");

const { isDeepStrictEqual } = require("util");

let n = 0;

const ok = (cond, name, why) => {
  n++;
  console.log(`${cond ? "ok" : "not ok"} ${n} - ${name}`);
  if (!cond && why !== undefined) console.log("# " + JSON.stringify(why));
};

/* what differs from answer to answer: names of answers and when they began */

const same = (v) => JSON.parse(JSON.stringify(v, (key, x) =>
  /^(created|created_at)$/.test(key) ? 0
  : /^(id|item_id|call_id|tool_call_id|tool_use_id|response_id)$/.test(key)
    ? "id" : x));

const words = (seed, count = 400) => Array.from({ length: count }, (_, i) =>
  `word${(i * 7919 + seed * 104729) % 100003}`).join(" ");

const weather = { name: "weather", description: "the weather of a city" };
const schema = { type: "object", properties: { city: { type: "string" } },
                 required: ["city"] };

const user = (text) => ({ role: "user", content: text });

const call = { headers: { "X-Engine-Tool-Call": "1" } };
const slow = { headers: { "X-Engine-Fault": "slow=100",
                          "X-Engine-Output-Tokens": "400" } };

const all = async (stream) => {
  const list = [];
  for await (const x of stream) list.push(x);
  return list;
};

/* what a failed call says */

const failure = async (promise) => {
  try {
    await promise;
    return "no error";
  } catch (e) {
    return { name: e.constructor.name, status: e.status, error: e.error };
  }
};

const aborted = (e) => /Abort/.test(e.constructor.name + e.name);

/* --- the calls, by name; each gives what is to be compared */

const openai = (base) => {
  const c = new OpenAI({ baseURL: base + "/v1", apiKey: "sk-none",
                         maxRetries: 0 });
  const chat = (body, options) => c.chat.completions.create(
    { model: "m", max_tokens: 24, ...body }, options);

  return {
    models: async () => all(c.models.list()),

    chat: () => chat({ messages: [user(words(1))] }),

    turns: async () => {
      const messages = [{ role: "system", content: words(2) }];
      for (let i = 0; i < 3; i++) {
        messages.push(user(`turn ${i}`));
        const r = await chat({ messages });
        messages.push(r.choices[0].message);
      }
      return messages;
    },

    streamed: async () => all(await chat({ stream: true,
      stream_options: { include_usage: true }, messages: [user(words(3))] })),

    /* at /broken the routed engine breaks it off, and another continues it */

    "continued": async () => {
      const d = new OpenAI({ baseURL: base + "/broken/v1", apiKey: "sk-none",
                             maxRetries: 0 });
      const list = await all(await d.chat.completions.create({ model: "m",
        max_tokens: 24, stream: true, messages: [user(words(30))] }));
      const runner = d.beta.chat.completions.stream({ model: "m",
        max_tokens: 24, messages: [user(words(31))] });
      return { list, whole: await runner.finalChatCompletion(),
               text: (await all(await d.completions.create({ model: "m",
                 max_tokens: 24, stream: true, prompt: words(32) })))
                 .map((x) => x.choices[0]?.text).join("") };
    },

    tools: async () => {
      const tools = [{ type: "function",
                       function: { ...weather, parameters: schema } }];
      const messages = [user(words(4))];
      const first = await chat({ messages, tools }, call);
      const message = first.choices[0].message;
      const calls = message.tool_calls || [];
      messages.push(message, ...calls.map((x) => ({ role: "tool",
        tool_call_id: x.id, content: "rain" })));
      const second = await chat({ messages, tools });
      return { calls: calls.length, first, second };
    },

    "tools, streamed": async () => {
      const runner = c.beta.chat.completions.stream({ model: "m",
        max_tokens: 24, messages: [user(words(5))],
        tools: [{ type: "function",
                  function: { ...weather, parameters: schema } }] }, call);
      return runner.finalChatCompletion();
    },

    completion: () => c.completions.create({ model: "m", max_tokens: 8,
                                             prompt: words(6) }),

    responses: () => c.responses.create({ model: "m", input: words(7) }),

    "responses, streamed": async () => all(await c.responses.create({
      model: "m", input: words(8), stream: true })),

    embeddings: () => c.embeddings.create({ model: "m", input: words(9, 40),
                                            encoding_format: "float" }),

    "what is no request": () => failure(c.post("/chat/completions",
      { body: { model: "m", messages: "none" } })),

    "what is not there": () => failure(c.get("/nothing")),

    "an engine's error": () => failure(chat({ messages: [user("hi")] },
      { headers: { "X-Engine-Fault": "status=500" } })),

    abort: async () => {
      const stream = await chat({ stream: true, max_tokens: 400,
                                  messages: [user(words(10))] }, slow);
      let seen = 0;
      try {
        for await (const x of stream)
          if (x.choices[0]?.delta?.content && ++seen === 2)
            stream.controller.abort();
      } catch (e) {
        if (!aborted(e)) throw e;
      }
      return seen;
    }
  };
};

const anthropic = (base) => {
  const c = new Anthropic({ baseURL: base, apiKey: "sk-none", maxRetries: 0 });
  const body = (o) => ({ model: "m", max_tokens: 24, ...o });
  const tools = [{ ...weather, input_schema: schema }];

  return {
    message: () => c.messages.create(body({ system: words(20),
                                            messages: [user("hi")] })),

    streamed: async () => all(await c.messages.create(body({ stream: true,
      messages: [user(words(21))] }))),

    "streamed, by events": async () => c.messages.stream(body({
      messages: [user(words(22))] })).finalMessage(),

    tools: async () => {
      const messages = [user(words(23))];
      const first = await c.messages.create(body({ messages, tools }), call);
      const uses = first.content.filter((x) => x.type === "tool_use");
      messages.push({ role: "assistant", content: first.content }, user(
        uses.length ? uses.map((x) => ({ type: "tool_result",
          tool_use_id: x.id, content: "rain" })) : "and?"));
      const second = await c.messages.create(body({ messages, tools }));
      return { calls: uses.length, first, second };
    },

    "tools, streamed": async () => c.messages.stream(
      body({ messages: [user(words(24))], tools }), call).finalMessage(),

    tokens: () => c.messages.countTokens({ model: "m",
                                           messages: [user(words(25))] }),

    "an engine's error": () => failure(c.messages.create(
      body({ messages: [user("hi")] }),
      { headers: { "X-Engine-Fault": "status=529" } })),

    abort: async () => {
      const stream = c.messages.stream(body({ max_tokens: 400,
        messages: [user(words(26))] }), slow);
      let seen = 0;
      stream.on("text", () => { if (++seen === 2) stream.abort(); });
      try {
        await stream.done();
      } catch (e) {
        if (!aborted(e)) throw e;
      }
      return seen;
    }
  };
};

/* --- both ways */

const main = async () => {
  const sdks = { openai, anthropic };

  for (const [sdk, calls] of Object.entries(sdks)) {
    const plain = calls(process.env.PLAIN), routed = calls(process.env.ROUTED);

    for (const name of Object.keys(plain)) {
      const a = same(await plain[name]()), b = same(await routed[name]());

      ok(isDeepStrictEqual(a, b), `${sdk}: ${name}: the same`, [a, b]);

      if (a.calls !== undefined)
        ok(a.calls > 0, `${sdk}: ${name}: were called`, a);

      if (/streamed$/.test(name) && Array.isArray(a))
        ok(a.length > 2, `${sdk}: ${name}: in pieces`, a);

      if (name === "abort")
        ok(b === 2, `${sdk}: ${name}: in the middle`, b);
    }
  }

  /* messages are not continued: the SDK gets the error as one */

  const c = new Anthropic({ baseURL: process.env.ROUTED + "/broken",
                            apiKey: "sk-none", maxRetries: 0 });
  const e = await c.messages.stream({ model: "m", max_tokens: 24,
    messages: [user(words(33))] }).finalMessage().catch((x) => x);
  ok(/broke off/.test(`${e.message} ${e.cause?.message}`),
     "anthropic: a broken stream", String(e));

  console.log(`1..${n}`);
};

main().catch((e) => {
  console.log(`not ok ${n + 1} - ${String(e).split("\n")[0]}`);
  console.log(String(e.stack).replace(/^/gm, "# "));
  process.exit(1);
});
