/*
 * Looks at the status page as people do: with a browser.  Is told by t/page.t
 * what to look at, and speaks TAP.
 *
 *     CHROMIUM= BASE=http://127.0.0.1:8080 SHOTS=folder node page.js
 */

"use strict";

const { chromium } = require("playwright-core");
const { mkdirSync } = require("fs");

const base = process.env.BASE;
const shots = process.env.SHOTS;
const url = base + "/kvroute/";

let n = 0;

const ok = (cond, name, why) => {
  n++;
  console.log(`${cond ? "ok" : "not ok"} ${n} - ${name}`);
  if (!cond && why !== undefined) console.log("# " + JSON.stringify(why));
};

const is = (got, want, name) => ok(got === want, name, { got, want });

/* large counts, as the page writes them */

const some = (n) => n >= 1e4 ? (n / 1e3).toFixed(1) + " k" : String(n);

const json = async () => (await fetch(url + "json")).json();

const send = (text, path = "/v1/chat/completions", headers = {}) =>
  fetch(base + path, { method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify({ model: "m", max_tokens: 1,
      messages: [{ role: "user", content: text }] }) });

const long = (seed) => Array.from({ length: 2000 }, (_, i) =>
  `word${(i * 7919 + seed * 104729) % 100003}`).join(" ");

const cell = (page, peer, key) => page.textContent(
  `#peers tr[data-name="${peer}"] td[data-key="${key}"]`);

/* what the page shows once it shows what we expect, or what it shows at last */

const until = async (what, want, tries = 300) => {
  let got;
  for (let i = 0; i < tries; i++) {
    got = await what().catch((e) => String(e));
    if (want(got)) return got;
    await new Promise((r) => setTimeout(r, 50));
  }
  return got;
};

const state_of = async (page, name) =>
  (await cell(page, name, "state")).match(/^\w+/)[0];

const main = async () => {
  mkdirSync(shots, { recursive: true });

  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });

  const errors = [], requested = new Set();

  const open = async (options, hash = "#llm") => {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    page.on("console", (m) => m.type() === "error" && errors.push(m.text()));
    page.on("pageerror", (e) => errors.push(String(e)));
    page.on("request", (r) => requested.add(new URL(r.url()).pathname));
    await page.goto(url + hash);
    await page.waitForSelector("#peers tbody tr");
    return page;
  };

  /* some traffic first */

  const a = long(1);
  for (let i = 0; i < 5; i++)
    is((await send(a)).status, 200, "served");
  await send(long(2));

  const page = await open({ viewport: { width: 1280, height: 900 },
                            colorScheme: "light" });

  /* values agree with the JSON */

  let s = await json();
  let u = s.upstreams.llm;

  is(await page.locator("#peers tbody tr").count(), u.peers.length,
     "a row for each peer");
  is(await page.title(), "kvroute", "title");
  ok(/^working: 3 of 3 servers up, /.test(await page.textContent("#verdict")),
     "the verdict: working", await page.textContent("#verdict"));
  is(await page.getAttribute("#health", "class"), "green", "green");
  is(await page.textContent('#tiles .tile[data-title="not computed"] b'),
     some(u.saved.tokens) + " tokens", "saved");

  for (const p of u.peers) {
    is((await cell(page, p.name, "state")).split(" ")[0], p.state, `${p.name}: state`);
    is(await cell(page, p.name, "active"), String(p.active),
       `${p.name}: active`);
    is(await cell(page, p.name, "fails"), String(p.fails), `${p.name}: fails`);
    is(await cell(page, p.name, "regret"), p.prompt_bytes
       ? (100 * (p.best_bytes - p.matched_bytes) / p.prompt_bytes).toFixed(1)
         + "%" : "–", `${p.name}: regret`);
    is(await cell(page, p.name, "cached"), p.prompt_bytes
       ? (100 * p.matched_bytes / p.prompt_bytes).toFixed(1) + "%" : "–",
       `${p.name}: matched share`);
  }

  is(await page.locator("#receipts tbody tr").count(), 6, "receipts");

  const r = s.receipts.filter((x) => x.upstream === "llm")[0];
  const shown = await page.locator("#receipts tbody tr").first()
    .locator("td").allTextContents();
  is(shown[2], r.reason, "the last receipt's reason");
  is(shown[9], r.prompt, "and its hash");
  ok(!(await page.content()).includes("word7919 "), "no text of prompts");

  ok((await page.textContent("#zones")).includes(`${s.zones.z.peers} / `),
     "index");

  /* what engines say, of themselves and in their answers */

  await until(async () => (s = await json()).upstreams.llm.peers,
    (v) => v.every((p) => p.engine && p.engine.kv_usage !== undefined
                          && p.state === "up"));
  u = s.upstreams.llm;

  const told = u.peers.filter((p) => p.cache.predicted_tokens > 0);
  ok(told.length > 0 && told[0].cache.delivered_tokens > 0,
     "cached tokens of a peer as predicted", u.peers);

  for (const p of told)
    is(await cell(page, p.name, "delivered"),
       (100 * p.cache.delivered_tokens / p.cache.predicted_tokens).toFixed(1)
       + "%", `${p.name}: delivered`);

  for (const p of u.peers) {
    is(await until(() => cell(page, p.name, "kv"), (v) => v !== "–"),
       (100 * p.engine.kv_usage).toFixed(1) + "%", `${p.name}: KV use`);
    is(await cell(page, p.name, "engine"),
       `${p.engine.running} / ${p.engine.waiting}`, `${p.name}: runs, waits`);
    is(p.health, "up", `${p.name}: healthy`);
  }

  /* how loaded they are: it fades, so that page and JSON come to agree */

  const loads = () => json().then((s) => s.upstreams.llm.peers
    .map((p) => [p.name, p.load.utilization])
    .filter(([, v]) => v !== undefined));
  const agrees = (shown, v) =>
    /^\d+\.\d%$/.test(shown) && Math.abs(parseFloat(shown) - 100 * v)
                                 <= .06 + 5 * v;
  const awaited = (what, v) => until(async () => {
    const shown = await what(), now = v(await loads());
    return { shown, now, ok: agrees(shown, now) };
  }, (x) => x.ok);

  const rated = await until(loads, (v) => v.length > 0);
  ok(rated.length > 0, "the load of a peer is known", rated);
  ok(rated.some(([, v]) => v > 0), "it is above 0", rated);

  for (const p of u.peers) {
    const what = () => cell(page, p.name, "load");
    if (!rated.some(([name]) => name === p.name)) {
      is(await what(), "–", `${p.name}: load not known`);
      continue;
    }
    const got = await awaited(what,
      (l) => l.find(([name]) => name === p.name)[1]);
    ok(got.ok, `${p.name}: load`, got);
  }

  const fleet = (part) => page.textContent(
    `#tiles .tile[data-title="load"] >> ${part}`);
  const mean = await awaited(() => fleet("b"),
    (l) => l.reduce((a, [, v]) => a + v, 0) / l.length);
  ok(mean.ok, "load of the fleet", mean);
  const busiest = await awaited(
    async () => (await fleet("span >> nth=1")).replace("busiest ", ""),
    (l) => Math.max(...l.map(([, v]) => v)));
  ok(busiest.ok, "load of the busiest", busiest);

  /* and of a fleet that has more to do, at once: no poll comes between */

  is(await page.evaluate(() => {
    const s = structuredClone(last);
    s.upstreams.llm.peers.forEach((p, i) => {
      p.load.utilization = [.25, .5, .9][i];
    });
    take(s);
    draw();
    return [...document.querySelectorAll('#peers td[data-key="load"],'
      + '#tiles .tile[data-title="load"] > :nth-child(n + 2)')]
      .map((e) => e.textContent).sort().join();
  }), "25.0%,50.0%,55.0%,90.0%,busiest 90.0%", "high loads have a mark");

  ok(!await page.isVisible("#missing"), "no signal is missing");
  ok(!await page.isVisible("#waiting"), "no queue");

  /* and what is missing, and what would give it */

  is((await send(long(3), "/bare/v1/chat/completions")).status, 200, "bare");
  await page.selectOption("#upstream", "bare");
  const signals = await until(() => page.textContent("#signals"),
    (v) => /--enable-prompt-tokens-details/.test(v));
  ok(/--enable-prompt-tokens-details/.test(signals),
     "cached tokens: the engine's flag", signals);
  ok(/kvroute_probe/.test(signals), "KV use: kvroute_probe is missing", signals);

  /* of one of two: it is said of which */

  const both = (await json()).upstreams.mixed.peers.map((p) => p.name);
  for (const name of [...both, ...both])
    is((await send(long(4), "/mixed/v1/chat/completions",
                   { "X-Pin": name })).status, 200, "mixed");
  await page.selectOption("#upstream", "mixed");
  const e3 = both[1];
  const signal = (name) => page.textContent(`#signals [data-signal="${name}"]`);
  const partly = await until(() => signal("delivered"), (v) => v.includes(e3));
  ok(partly.includes(`reported by ${e3}.`), "one engine reports no cached tokens",
     partly);
  ok((await signal("kv")).includes(`reported by ${e3}.`), "one engine reports no KV use",
     await signal("kv"));
  ok((await page.textContent("#missing h2")).includes("missing")
     && await page.isVisible("#missing"), "under a heading");

  is(await page.evaluate(() => {
    const s = structuredClone(last);
    s.upstreams.mixed.cut = { tools: 2, reasoning: 0 };
    take(s);
    draw();
    return document.querySelector('#signals [data-signal="cut"]').textContent
      .split(".")[0];
  }), "Answers broke off and were not continued: 2 (tools)", "the page names cut answers");

  /* the queue: one is served, two wait, two classes */

  const held = [3, 5, 5].map((c) => fetch(base
    + "/busy/v1/chat/completions", { method: "POST",
      headers: { "Content-Type": "application/json", "X-Class": String(c),
                 "X-Engine-Fault": "slow=200",
                 "X-Engine-Output-Tokens": "8" },
      body: JSON.stringify({ model: "m", max_tokens: 8,
        messages: [{ role: "user", content: "hello" }] }) }));
  await page.selectOption("#upstream", "busy");
  const tile = (name) => page.textContent(
    `#queue .tile[data-title="${name}"] b`);
  is(await until(() => tile("waiting"), (v) => v === "2 / 8"), "2 / 8",
     "two requests wait");
  await page.screenshot({ path: `${shots}/queue.png`, fullPage: true });
  await Promise.all(held.map(async (x) => (await x).text()));
  is(await until(() => tile("waiting"), (v) => v === "0 / 8"), "0 / 8",
     "no request waits");
  const q = (await json()).upstreams.busy;
  is(q.queue_time.count, 2, "time of waiting was counted");
  is(await page.locator("#classes tbody tr").count(),
     q.queue.classes.filter((c) => c.passed + c.waited > 0).length, "classes");
  for (const c of q.queue.classes.filter((x) => x.waited > 0))
    is(await page.textContent(`#classes tr[data-class="${c.class}"] >> `
       + "td >> nth=3"), String(c.waited), `class ${c.class}: waited`);

  /* a shadow: of the same long prompt in turn, round robin finds less */

  ok(!await page.isVisible("#beside"), "no shadow");

  /* KV events: a column where they are listened to, and what is wrong */

  ok(!await page.isVisible('#peers th[data-key="events"]'), "no KV events");
  await page.selectOption("#upstream", "deaf");

  const deaf = (await json()).upstreams.deaf.peers[0].name;

  is(await until(() => cell(page, deaf, "events"), (t) => t === "off"), "off",
     "KV events: off");
  ok(await page.isVisible('#peers th[data-key="events"]'), "KV events have a column");
  ok((await signal("events " + deaf)).includes("the error log has the reason"),
     "KV events have a sentence");
  for (let i = 0; i < 5; i++)
    is((await send(long(6), "/beside/v1/chat/completions")).status, 200,
       "beside another method");
  await page.selectOption("#upstream", "beside");
  const beside = (name) => page.textContent(
    `#shadow .tile[data-title="${name}"] b`);
  const shade = (await json()).upstreams.beside;
  const part = (n) => (100 * n / shade.shadow_prompt_bytes).toFixed(1) + "%";
  const found = part(shade.shadow_found_bytes);
  const would = part(shade.shadow_would_bytes);
  ok(parseFloat(would) > parseFloat(found) && found !== "0.0%",
     "shadow: more would be found", shade);
  is(await until(() => beside("found"), (v) => v === found), found,
     "shadow: found");
  is(await beside("would be found"), would, "shadow: would be found");
  ok(!(await page.textContent('#tiles .tile[data-title="not computed"]'))
    .includes("any server"), "shadow: no comparison with any server");
  ok((await page.textContent("#about")).startsWith("shadow: kv_cache"),
     "shadow: the policy");

  const control = (port, what) => fetch(`http://${port}/control`, {
    method: "POST", body: JSON.stringify(what) });

  /* two servers: whose pool is which, what fell back and why, how long it took */

  ok(!await page.isVisible("#two"), "no prefill by others");
  const two = (text) => send(text, "/two/v1/chat/completions");
  is((await two(long(20))).status, 200, "by two servers");
  await page.selectOption("#upstream", "computes");
  is(await page.textContent("#upstream option:checked"), "computes (prefill)",
     "the prefill pool");
  ok((await page.textContent("#about")).startsWith("prefill servers of answers; "),
     "prefill servers of which pool", await page.textContent("#about"));
  await page.selectOption("#upstream", "answers");
  is(await page.textContent("#upstream option:checked"), "answers (decode)",
     "the decode pool");
  ok((await page.textContent("#about")).startsWith(
     "decode servers, prefill by computes; "), "decode servers with which prefill pool");
  for (const p of (await json()).upstreams.computes.peers)
    await control(p.name, { fault: "status=503" });
  await two(long(21));
  for (const p of (await json()).upstreams.computes.peers)
    await control(p.name, { fault: "" });
  await two("short");
  const legs = (name) => page.textContent(
    `#legs .tile[data-title="${name}"] >> nth=0`);
  const outcomes = async () => (await page.locator("#outcomes tbody tr")
    .evaluateAll((l) => l.map((tr) => [...tr.cells].slice(0, 3)
      .map((td) => td.textContent).join()))).join(" ");
  const became = "failed,1,1 yes,1,1 short,1,1";
  is(await until(outcomes, (v) => v === became), became, "outcomes");
  ok(/failed 1$/.test(await legs("fell back")), "why a request fell back",
     await legs("fell back"));
  ok(/33\.3%1 of 3 requests/.test(await legs("by two servers")), "requests by two servers",
     await legs("by two servers"));
  ok(/\d+ m?s.*P95 /.test(await legs("leg 1 median")), "time of leg 1",
     await legs("leg 1 median"));
  is(await legs("computes: prefill servers"), "computes: prefill servers2 of 2 up",
     "prefill servers");
  is(await page.locator("#outcomes td.wrong").count(), 1, "a bad outcome is red");

  /* by model and by tenant: who fails is on top */

  const as = (who, fault) => send(long(7), "/hot/v1/chat/completions",
    { "X-Tenant": who, "X-Engine-Fault": fault });
  for (const who of ["acme", "acme", "acme", "beta"])
    is((await as(who, "none")).status, 200, who);
  is((await as("beta", "status=500")).status, 500, "beta fails");
  await page.selectOption("#upstream", "hot");
  const tally = async () => (await page.locator("#tally tbody tr")
    .evaluateAll((l) => l.map((tr) => [...tr.cells].slice(0, 4)
      .map((td) => td.textContent).join())))
    .join(" ");
  is(await until(tally, (v) => v === "m,5,1 (20.0%),0"), "m,5,1 (20.0%),0",
     "by model");
  await page.selectOption("#by", "tenants");
  const tenants = "beta,2,1 (50.0%),0 acme,3,0,0";
  is(await until(tally, (v) => v === tenants), tenants, "by tenant");
  is(await page.textContent("#who"), "tenant", "the column is named tenant");

  await page.selectOption("#upstream", "llm");

  /* each word is explained */

  const unsaid = await page.evaluate(() =>
    [...document.querySelectorAll("th, .tile")].filter((e) => !e.title)
      .map((e) => e.dataset.title || e.textContent));
  is(unsaid.join(), "time", "each term has a title that explains it");

  /* it is live */

  s = await json();
  const before = s.receipts.reduce((a, r) => Math.max(a, r.number), 0);
  for (let i = 0; i < 3; i++) await send(a);
  const top = await until(
    () => page.getAttribute("#receipts tbody tr", "data-number"),
    (v) => Number(v) >= before + 3);
  is(Number(top), before + 3, "new decisions appear by themselves");

  const legend = await until(() => page.textContent("#legend"),
                             (v) => /affinity/.test(v));
  ok(/affinity/.test(legend), "decisions by reason");

  const painted = await until(() => page.evaluate(() => {
    const c = document.getElementById("chart");
    const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
    let k = 0;
    for (let i = 3; i < d.length; i += 4) k += d[i] > 0;
    return k;
  }), (v) => v > 200);
  ok(painted > 200, "the chart is not empty", painted);

  await page.screenshot({ path: `${shots}/light.png`, fullPage: true });

  /* states */

  const sick = (status, port) => control(port, { health_status: status });
  const second = u.peers[1].name;
  for (const [status, state] of [[500, "unhealthy"], [200, "up"]]) {
    await sick(status, second);
    is(await until(() => state_of(page, second), (v) => v === state),
       state, `state: ${state}`);
  }

  const peer = u.peers[0].name;
  for (const [action, state] of [["drain", "draining"], ["undrain", "up"]]) {
    await fetch(`${base}/api/${action}?peer=${peer}`, { method: "POST" });
    is(await until(() => state_of(page, peer), (v) => v === state), state,
       `state: ${state}`);
  }

  /* one fails, fast: red, by name, on top, and alone among the problems */

  const verdict = () => page.textContent("#verdict");

  await control(second, { fault: "status=500" });
  for (let i = 0; i < 60; i++)
    await send(long(5), "/pinned/v1/chat/completions", { "X-Pin": second });
  const fails = await until(verdict, (v) => v.includes(`${second} fails (`));
  ok(/fails \(5xx\): \d+% of its \d+ requests in the last minute/.test(fails),
     "one fails: the sentence", fails);
  is(await page.getAttribute("#health", "class"), "red", "red");
  ok((await page.title()).startsWith("red: "), "in the title",
     await page.title());
  is(await page.getAttribute("#peers tbody tr", "data-name"), second,
     "the failed server comes first");
  await page.check("#problems");
  is(await page.locator("#peers tbody tr").count(), 1, "only problems");
  await page.uncheck("#problems");
  await page.fill("#search", second);
  is(await page.locator("#peers tbody tr").count(), 1, "search");
  await page.fill("#search", "");
  await control(second, { fault: "" });

  /* drained and back, by the page: who says no does nothing */

  const third = u.peers[2].name;
  const press = (yes) => {
    page.once("dialog", (d) => yes ? d.accept() : d.dismiss());
    return page.click(`#peers tr[data-name="${third}"] button`);
  };
  const was = async () => (await json()).upstreams.llm.peers[2].state;
  await press(false);
  is(await was(), "up", "not confirmed");
  await press(true);
  is(await until(was, (v) => v === "draining"), "draining", "drained");
  await until(() => page.textContent(`#peers tr[data-name="${third}"] button`),
              (v) => v === "undrain");
  ok(/drained by the operator/.test(await page.textContent("#health")),
     "the cause is named");
  await press(true);
  is(await until(was, (v) => v === "up"), "up", "undrained");

  /* one is slow, as to its first tokens */

  const stream = (path, headers, words = 2) => fetch(base + path, {
    method: "POST", headers: { "Content-Type": "application/json",
      "X-Engine-Output-Tokens": String(words), ...headers },
    body: JSON.stringify({ model: "m", max_tokens: words, stream: true,
      messages: [{ role: "user", content: long(8) }] }) })
    .then(async (x) => ({ status: x.status, text: await x.text() }));

  /* what, where, since when, what to do: in sight, and with a link to its row */

  const incident = async (upstream, said, state, todo, code) => {
    await page.selectOption("#upstream", upstream);
    const got = await until(verdict, (v) => said.test(v));
    ok(said.test(got), `${upstream}: the sentence`, got);
    is(await page.getAttribute("#health", "class"), state, state);
    const since = await page.textContent("#since");
    ok(/^since \d\d:\d\d:\d\d UTC, \d+ (s|min)\. $/.test(since), "since when", since);
    const does = await page.textContent("#todo");
    ok(does.replace(/^Do: (.*)\.$/, "$1").match(`^(${todo})$`), "what to do", does);
    is(await page.getAttribute("#row", "href"), `#incident-${code}`, "the link to its row");
    is(await page.locator(`#runbook tr:has(#incident-${code})`).count(), 1,
       "its row exists");
    const low = await page.evaluate(() =>
      document.getElementById("row").getBoundingClientRect().bottom + scrollY);
    ok(low > 0 && low < 720, "above the fold", low);
    const wide = await page.evaluate(() => {
      const e = document.querySelector('[aria-label="servers"]');
      return e.scrollWidth - e.clientWidth;
    });
    ok(wide <= 0, "the servers fit", wide);
  };
  const name = (s) => s.replace(/\./g, "\\.");

  const pinned = (who, more) => Promise.all(Array.from({ length: 6 }, () =>
    stream("/slow/v1/chat/completions", { "X-Pin": who, ...more })));
  await pinned(peer, {});
  await pinned(second, { "X-Engine-Delay-Ms": "900" });
  await incident("slow", new RegExp(`^${name(second)} is slow: first tokens `
    + "after [\\d.]+ m?s, elsewhere after [\\d.]+ m?s$"), "amber",
    "check its GPU and what else runs there; drain it if it lasts", "slow");
  is(await page.getAttribute("#peers tbody tr", "data-name"), second,
     "the slow server comes first");

  /* one is gone */

  const fourth = (await json()).upstreams.gone.peers[2].name;
  await control(fourth, { down: true });
  await incident("gone", new RegExp("^1 of 3 servers not up: "
    + `${name(fourth)} \\(unhealthy: connection refused\\)$`), "amber", "start the engine",
    "not_up");
  ok(/^unhealthy \d+ s: connection refused/.test(await cell(page, fourth,
     "state")), "the state since", await cell(page, fourth, "state"));
  is(await page.getAttribute("#peers tbody tr", "data-name"), fourth,
     "the failed server comes first");

  /* more than the servers can do: nine have a place for as long as they want,
     the others have none */

  const leave = new AbortController();
  const nine = Array.from({ length: 9 }, () => fetch(base
    + "/busy/v1/chat/completions", { method: "POST", signal: leave.signal,
      headers: { "Content-Type": "application/json",
                 "X-Engine-Delay-Ms": "600000" },
      body: JSON.stringify({ model: "m", max_tokens: 2, stream: true,
        messages: [{ role: "user", content: "wait" }] }) }).catch(() => 0));
  await page.selectOption("#upstream", "busy");
  is(await until(() => tile("waiting"), (v) => v === "8 / 8"), "8 / 8",
     "the queue is full");
  const crowd = await Promise.all(Array.from({ length: 99 }, () =>
    send("hello", "/busy/v1/chat/completions").then((x) => x.status)));
  is(crowd.filter((x) => x === 429).length, 99, "all others are rejected");
  await incident("busy", /^9\d% of requests rejected in the last minute \(99\): every server is at max_conns=1(, load is \d+%)?$/,
    "red", "raise this cap: .*|add engines; .*", "rejects");
  leave.abort();
  await Promise.all(nine);

  /* all are at the server that holds what they share */

  const hot = Array.from({ length: 14 }, () => stream("/hot/v1/chat/completions",
    { "X-Pin": peer, "X-Engine-Fault": "slow=300" }, 8));
  await incident("hot", new RegExp(`^${name(peer)} is hot: \\d+ of \\d+ `
    + "requests in flight$"), "amber",
    "nothing, unless it lasts: then set max_pending=auto", "hot");
  await Promise.all(hot);
  await page.selectOption("#upstream", "llm");

  /* what is said is no markup */

  const seen = await page.evaluate(() => {
    const s = structuredClone(last);
    s.upstreams.llm.health = { state: "red",
      why: [{ code: "<img src=x onerror=alert(1)>" }, { code: "<b>more" }] };
    s.upstreams.llm.models = [{ name: "<i>m", requests: 1, errors: 0,
      rejects: 0, prompt_bytes: 0, matched_bytes: 0, streams: 0,
      ttft_stream_sum: 0 }];
    s.upstreams.llm.tenants = [];
    $("by").value = "models";
    take(s);
    draw();
    return [$("verdict").textContent, $("health").className,
            $("why").textContent, $("tally").tBodies[0].textContent].join();
  });
  ok(seen.startsWith("<img src=x onerror=alert(1)>,red,<b>more,<i>m1"),
     "markup in values is escaped", seen);

  /* ten minutes are kept by nginx */

  const kept = await until(async () =>
    (await json()).upstreams.llm.history.length, (v) => v > 0);
  ok(kept > 0, "history");
  ok(/\d+ steps?; /.test(await until(() => page.textContent("#span"),
     (v) => /; /.test(v))), "the time span is shown");

  /* pause, by keyboard */

  await page.keyboard.press("p");
  is(await page.getAttribute("#pause", "aria-pressed"), "true", "p pauses");
  const at = await page.textContent("#state");
  await page.waitForTimeout(1500);
  is(await page.textContent("#state"), at, "paused: no change");
  is(await page.textContent("#pause"), "resume", "resume");
  await page.keyboard.press("p");
  ok(await until(() => page.textContent("#state"), (v) => v !== at) !== at,
     "continues after the pause");

  /* all by keyboard: what can be done is reached by Tab, and shows it */

  await page.evaluate(() => document.activeElement.blur());
  const reached = new Set();
  for (let i = 0; i < 40; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      if (e === document.body) return null;
      return { what: e.id || e.getAttribute("aria-label") || e.textContent,
               seen: getComputedStyle(e).outlineStyle !== "none" };
    });
    if (at === null) continue;
    ok(at.seen || reached.has(at.what), `focus is seen: ${at.what}`);
    reached.add(at.what);
  }
  for (const what of ["upstream", "pause", "servers", "receipts", "problems", "search", "state"])
    ok(reached.has(what), `Tab comes to ${what}`);

  /* sorting, by keyboard: each heading is a button */

  await page.locator("#peers th button", { hasText: "server" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  is(await page.getAttribute("#peers th >> nth=0", "aria-sort"), "descending",
     "sorted downwards");
  const names = await page.locator("#peers tbody tr").evaluateAll(
    (l) => l.map((e) => e.dataset.name));
  const sorted = [...names].sort((x, y) =>
    y.localeCompare(x, undefined, { numeric: true }));
  is(names.join(), sorted.join(), "rows are sorted");

  /* another upstream, with 64 peers */

  await page.selectOption("#upstream", "many");
  is(await until(() => page.locator("#peers tbody tr").count(),
                 (v) => v === 64), 64, "64 peers");
  const cost = await page.evaluate(() => {
    const t = performance.now();
    for (let i = 0; i < 20; i++) draw();
    return (performance.now() - t) / 20;
  });
  ok(true, `drawing 64 peers takes ${cost.toFixed(1)} ms`);
  await page.screenshot({ path: `${shots}/many.png`, fullPage: true });

  const again = await open({ viewport: { width: 1280, height: 900 },
                             colorScheme: "dark" }, "#many");
  is(await again.inputValue("#upstream"), "many", "a link to an upstream");
  const dark = await again.evaluate(() =>
    getComputedStyle(document.body).backgroundColor);
  const light = await page.evaluate(() =>
    getComputedStyle(document.body).backgroundColor);
  ok(dark !== light, "the dark scheme is dark", { dark, light });
  await again.selectOption("#upstream", "llm");
  await again.screenshot({ path: `${shots}/dark.png`, fullPage: true });

  /* a phone */

  const phone = await open({ viewport: { width: 390, height: 844 },
                             hasTouch: true, isMobile: true,
                             deviceScaleFactor: 2, colorScheme: "light" });
  const wide = await phone.evaluate(() =>
    document.documentElement.scrollWidth - innerWidth);
  ok(wide <= 0, "the page fits on a phone", wide);
  const cut = () => phone.evaluate(() => {
    const e = document.querySelector('[aria-label="servers"]');
    return e.scrollWidth - e.clientWidth;
  });
  ok(await cut() <= 0, "no value of a peer is cut", await cut());
  await phone.screenshot({ path: `${shots}/phone.png`, fullPage: true });

  /* nginx gone and back */

  await phone.selectOption("#upstream", "many");
  is(await until(() => phone.locator("#peers tbody tr").count(),
                 (v) => v === 64), 64, "64 peers on a phone");
  ok(await phone.evaluate(() =>
    document.documentElement.scrollWidth - innerWidth) <= 0, "64 peers fit on a phone");
  ok(await cut() <= 0, "no value of 64 peers is cut", await cut());
  const label = await phone.evaluate(() => getComputedStyle(
    document.querySelector('#peers td[data-key="ttft"]'), "::before").content);
  ok(label.includes("TTFT"), "values have their labels", label);

  is(errors.join("\n"), "", "no errors in the console");

  await page.route("**/kvroute/json", (x) => x.abort());
  ok(/no status/.test(await until(() => page.textContent("#error"),
     (v) => v !== "")), "reports that there is no status");
  ok((await page.textContent("#state")).startsWith("last known"),
     "reports the age of the figures");
  await page.unroute("**/kvroute/json");
  is(await until(() => page.textContent("#error"), (v) => v === ""), "",
     "the report ends with the next status");

  /* nothing from elsewhere */

  const other = [...requested].filter((p) =>
    !["/kvroute/", "/kvroute/json", "/favicon.ico", "/api/drain",
     "/api/undrain"].includes(p));
  is(other.join(), "", "requests only its JSON and pressed buttons");

  await browser.close();
  console.log(`1..${n}`);
};

main().catch((e) => {
  console.log(`not ok ${n + 1} - ${String(e).split("\n")[0]}`);
  console.log(String(e.stack).replace(/^/gm, "# "));
  process.exit(1);
});
