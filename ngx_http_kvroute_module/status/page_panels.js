/* --- shadow: what kvroute would have found, since start and recently */

const drawShadow = (u, base, span) => {
  $("beside").hidden = u.shadow_requests === undefined;
  if ($("beside").hidden) return;

  const all = (key) => u["shadow_" + key];
  const recent = (key) => delta(all(key), base
    && base["shadow_" + key] !== undefined ? base["shadow_" + key] : 0);
  const tile = (title, part, whole) => [title, share(all(part), all(whole)),
    `since start; ${share(recent(part), recent(whole))} in ${span}`];

  tiles($("shadow"), [
    tile("found", "found_bytes", "prompt_bytes"),
    tile("would be found", "would_bytes", "prompt_bytes"),
    tile("same server", "same", "requests"),
    ["requests", count(all("requests")), `compared with ${u.policy}`]
  ]);
};

/* --- prefill and decode by two servers: failures first */

const drawLegs = (s, u, base, span) => {
  const now = u.disaggregated || {};

  $("two").hidden = !u.prefill && Object.keys(now).length === 0;
  if ($("two").hidden) return;

  const then = base && base.disaggregated || {};
  const list = Object.keys(outcomes).filter((k) => now[k] > 0);
  const recent = (k) => delta(now[k] || 0, then[k] || 0);
  const sum = (kind) => list.filter((k) => outcomes[k].kind === kind)
    .reduce((n, k) => n + recent(k), 0);
  const said = (kind) => list
    .filter((k) => outcomes[k].kind === kind && recent(k))
    .map((k) => `${k} ${count(recent(k))}`).join(", ");
  const all = sum("two") + sum("bad") + sum("one");
  const q = (x) => quantile(u.leg1_time, base && base.leg1_time, x);

  tiles($("legs"), [
    ...(u.prefill || []).filter((n) => s.upstreams[n]).map((n) => {
      const peers = s.upstreams[n].peers;
      return [`${n}: prefill servers`, `${peers.filter((p) =>
        p.state === "up").length} of ${peers.length} up`, ""];
    }),
    ["by two servers", share(sum("two"), all), `${count(sum("two"))} of `
      + `${count(all)} requests, ${span}`],
    ["fell back", count(sum("bad")), said("bad") || span],
    ["by one server", count(sum("one")), said("one") || span],
    ["leg 1 median", time(q(.5)), "P95 " + time(q(.95))]
  ]);

  drawTable("outcomes", "outcome", "tnnt", list.map((k) => ({ key: k,
    cells: [k, count(recent(k)), count(now[k]), outcomes[k].means],
    wrong: outcomes[k].kind === "bad" && recent(k) > 0 ? [1] : [] })));
};

/* --- by model and by tenant: most errors first, then most requests */

const drawTally = (u, base, span) => {
  const kind = $("by").value;
  const named = (k) => u[k].some((x) => x.name !== undefined);

  $("asked").hidden = !named("models") && !named("tenants");
  if ($("asked").hidden) return;

  const then = new Map((base ? base[kind] : []).map((x) => [x.name, x]));
  const list = u[kind].map((x) => {
    const old = then.get(x.name);
    const d = (key) => delta(x[key], old ? old[key] : 0);
    return { name: x.name, requests: d("requests"), errors: d("errors"),
      rejects: d("rejects"), prompt: d("prompt_bytes"),
      matched: d("matched_bytes"), streams: d("streams"),
      ttft: d("ttft_stream_sum") };
  });
  const bad = (x) => (x.errors + x.rejects)
    / Math.max(1, x.requests + x.rejects);
  const level = (x) => bad(x) >= .05 ? bad(x) : 0;

  list.sort((a, b) => level(b) - level(a) || b.requests - a.requests
    || (a.name || "").localeCompare(b.name || ""));

  set($("who"), kind === "models" ? "model" : "tenant");
  explain($("who"), $("who").textContent);
  set($("window"), list.length ? `requests that have ended, ${span}`
    : "no tenant was served: set kvroute_request tenant=");

  const many = (n, all) => n > 0 && n >= .05 * all;

  drawTable("tally", "name", "tnnnnnn", list.map((x) => ({
    key: x.name === undefined ? "" : x.name,
    cells: [x.name === undefined ? "all others" : x.name, count(x.requests),
      x.errors ? `${count(x.errors)} (${share(x.errors, x.requests)})` : "0",
      count(x.rejects), bytes(x.prompt), share(x.matched, x.prompt),
      time(x.streams ? x.ttft / x.streams : null)],
    wrong: [many(x.errors, x.requests) && 2,
            many(x.rejects, x.requests + x.rejects) && 3] })));
};

/* --- the queue, the index */

/* names of classes */

const classes = ["critical", "high", "interactive", "normal", "", "low", "batch",
                 "background"];

const drawQueue = (u, base) => {
  $("waiting").hidden = !u.queue;
  if (!u.queue) return;

  const q = (x) => quantile(u.queue_time, base && base.queue_time, x);
  const sum = (key) => u.queue.classes.reduce((n, c) => n + c[key], 0);
  const lost = sum("full") + sum("timeout") + sum("deadline")
    + sum("shed");

  tiles($("queue"), [
    ["waiting", `${u.queue.size} / ${u.queue.max_size}`,
     bytes(u.queue.bytes)],
    ["admitted / s", rate(u.queue.rate), count(sum("waited")) + " have waited"],
    ["wait median", time(q(.5)), "P95 " + time(q(.95))],
    ["rejected", count(lost), count(sum("passed")) + " passed at once"]
  ]);

  const keys = ["size", "passed", "waited", "wait_time_mean", "full",
                "timeout", "deadline", "shed", "aborted"];
  const used = u.queue.classes.filter((c) => keys.some((k) => c[k] > 0));

  drawTable("classes", "class", "tnnnnnnnnn", used.map((c) => ({ key: c.class,
    cells: [classes[c.class] || String(c.class), ...keys.map((k) =>
      k === "wait_time_mean" ? time(c.waited ? c[k] / 1000 : null)
                             : count(c[k]))] })));
};

const drawZones = (s, u) => {
  tiles($("zones"), Object.entries(s.zones).flatMap(([name, z]) => [
    [`${name}: fill`, share(z.fill, 1), `${count(z.lines)} lines`],
    [`${name}: evicted`, count(z.evicted), "lines, while in use"],
    [`${name}: servers`, `${z.peers} / ${z.max_peers}`, ""],
    [`${name}: processes`, `${z.processes} / ${z.max_processes}`, ""],
    ...(z.budget ? [
      [`${name}: budgets`, `${count(z.budget.admitted)} admitted`,
        z.budget.accounts.filter((a) => a.rejected > 0)
          .sort((a, b) => b.rejected - a.rejected).slice(0, 5)
          .map((a) => `${a.name || "others"} ${count(a.rejected)} rejected`)
          .join(", ") || "none rejected"]] : []),
    ...(z.share ? [
      [`${name}: other hosts`, z.share.up ? count(z.share.others) : "not sharing",
        z.share.hosts.map((h) => h.alive ? h.name : `${h.name} (not heard)`)
          .join(", ")],
      [`${name}: lessons`, count(z.share.lessons_applied),
        `of others, ${count(z.share.lessons_sent)} sent, `
        + `lag ${z.share.lag_last} ms`]] : [])]));
};

/* --- receipts */

const drawReceipts = (s, name) => drawTable("receipts", "number", "ttttnnnnnt",
  s.receipts.filter((r) => r.upstream === name).slice(0, 12).map((r) => ({
    key: r.number,
    cells: [r.time.slice(11, 23), r.peer, r.reason, r.policy,
      bytes(r.prompt_bytes), bytes(r.matched_bytes), bytes(r.best_bytes),
      r.best_bytes > r.matched_bytes
        ? bytes(r.best_bytes - r.matched_bytes) : "0",
      time(r.ttft) + (r.ttft === undefined || r.stream ? "" : " (whole)"),
      r.prompt || "–"] })));

/* --- missing signals, and how to get them */

const named = (some, all) => some.length === all.length ? "any engine"
  : some.length <= 3 ? some.map((p) => p.name).join(", ")
  : `${some.length} of ${all.length} servers`;

const drawSignals = (s, u) => {
  const list = [];

  /* vLLM does not report 0 cached tokens: a server without a predicted hit may
     be silent, if others report */

  const known = u.peers.filter((p) => p.requests > 0);
  const mute = known.filter((p) => !(p.cache && p.cache.responses > 0));
  const silent = mute.length === known.length ? mute
    : mute.filter((p) => p.matched_bytes > 0);
  const unread = u.peers.filter((p) => !(p.engine
                                         && p.engine.kv_usage !== undefined));

  if (silent.length)
    list.push(["delivered", `Cached tokens: none reported by `
      + `${named(silent, known)}. vLLM reports them with `
      + "--enable-prompt-tokens-details, SGLang with --enable-cache-report; "
      + "llama.cpp, TGI and TensorRT-LLM need no flag; in streams of chat and "
      + "completions only if clients request usage (stream_options). Without "
      + "them predictions cannot be checked."]);
  if (unread.length)
    list.push(["kv", `KV use and capacity: not reported by `
      + `${named(unread, u.peers)}. Set kvroute_probe in this upstream; vLLM has `
      + "/metrics by default, SGLang needs --enable-metrics, llama.cpp "
      + "--metrics. Without it the assumed cache of each server is "
      + `${bytes(unread[0].capacity_bytes)} (${unread[0].capacity_source}).`]);
  for (const p of u.peers.filter((x) => x.engine && x.engine.probes > 0
                                        && x.engine.age_ms === undefined))
    list.push(["probe " + p.name, `${p.name} has been probed `
      + `${count(p.engine.probes)} times without a usable answer: see `
      + "kvroute_engine, path= of kvroute_probe, and the flags above."]);
  for (const p of u.peers.filter((x) => x.events
                                        && x.events.state !== "fresh"))
    if (p.events.state !== "silent")
      list.push(["events " + p.name, `KV events of ${p.name} do not arrive: `
        + "the error log has the reason. Until then its cache is estimated."]);
    else if (p.requests > 100)
      list.push(["events " + p.name, `KV events of ${p.name}: kvroute is `
        + "connected, but receives nothing usable. Are they enabled in the "
        + "engine?"]);
  if (u.decisions.unparsed > 0)
    list.push(["unparsed", `${count(u.decisions.unparsed)} requests `
      + "without a known prompt in the body, compressed, or larger than "
      + "what is read (client_max_body_size, 16m at least): they were routed by load."]);
  const cut = Object.entries(u.cut || {}).filter(([, n]) => n > 0);
  if (cut.length)
    list.push(["cut", "Answers broke off and were not continued: "
      + cut.map(([why, n]) => `${count(n)} (${why})`).join(", ")
      + ". See $kvroute_cut in the access log, and docs/unbroken.md."]);

  $("missing").hidden = list.length === 0;
  drawList($("signals"), list, () => make("li"), (e, [id, text]) => {
    e.dataset.signal = id;
    set(e, text);
  });
};

