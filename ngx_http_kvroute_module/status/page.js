"use strict";

/* where the JSON is: beside the page, unless ?json=/path says otherwise */

const source = (() => {
  const asked = new URLSearchParams(location.search).get("json");
  const url = new URL(asked || "json", location.href);
  return url.origin === location.origin ? url.href : "json";
})();

const keep = 120;                       /* seconds of history */
const past = new Map();                 /* by upstream: [{t, u}] */
let last = null, paused = false, sort = { key: "wrong", down: true };

const $ = (id) => document.getElementById(id);

const make = (name, text, cls) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};

const set = (e, text) => { if (e.textContent !== text) e.textContent = text; };

/* --- numbers for people */

const bytes = (n) => {
  if (!(n >= 0)) return "–";
  for (const u of ["B", "KB", "MB", "GB", "TB"]) {
    if (n < 1000 || u === "TB")
      return (u === "B" || n >= 100 ? n.toFixed(0) : n.toFixed(1)) + " " + u;
    n /= 1024;
  }
};

const count = (n) => n >= 1e6 ? (n / 1e6).toFixed(1) + " M"
                   : n >= 1e4 ? (n / 1e3).toFixed(1) + " k" : String(n);

const rate = (n) => n === null ? "–" : n >= 10 ? n.toFixed(0) : n.toFixed(1);

const share = (a, b) => b > 0 ? (100 * a / b).toFixed(1) + "%" : "–";

const time = (s) => s === null || s === undefined ? "–"
                  : s >= 10 ? s.toFixed(1) + " s"
                  : s >= 1 ? s.toFixed(2) + " s"
                  : s >= 1e-3 ? (s * 1e3).toFixed(0) + " ms"
                  : (s * 1e6).toFixed(0) + " µs";

/* counters may be reset: what goes down starts anew */

const delta = (now, then) => now >= then ? now - then : now;

const total = (u, key) => u.peers.reduce((n, p) => n + (p[key] || 0), 0);

/* the value below which a share q of a histogram's new observations lies */

const quantile = (now, then, q) => {
  if (!now) return null;
  const old = then && then.count <= now.count ? then : { count: 0, buckets: {} };
  const all = now.count - old.count;
  if (all <= 0) return null;
  const bounds = Object.keys(now.buckets).filter((k) => k !== "+Inf")
    .map(Number).sort((a, b) => a - b);
  let low = 0, before = 0;
  for (const b of bounds) {
    const n = now.buckets[b] - (old.buckets[b] || 0);
    if (n >= q * all)
      return n > before ? low + (b - low) * (q * all - before) / (n - before)
                        : b;
    low = b;
    before = n;
  }
  return low;
};

/* --- servers */

/* errors of the last minute, as a share of its requests */

const errors = (p) => p.minute && p.minute.errors
  ? Math.min(1, p.minute.errors / Math.max(1, p.minute.requests)) : 0;

/* how much is wrong with a server: what is worst comes first */

const wrong = (p) => (p.state === "up" ? 0 : p.state === "draining" ? 1 : 4)
  + (errors(p) >= .05 ? 2 + errors(p) : 0)
  + (last && health(last).why.some((w) => w.startsWith(p.name + " ")) ? 1 : 0);

const health = (s) => {
  const u = s.upstreams[$("upstream").value];
  return u && u.health ? u.health : { state: "green", why: [] };
};

const columns = [
  { key: "name", title: "server", get: (p) => p.name },
  { key: "state", title: "state", get: (p) => p.state, state: true,
    show: (v, p) => v === "draining" && p.drain
      ? `draining: ${p.drain.sessions} sessions` : p.ejected
      ? `${v}: ${p.ejected.reason}, ${Math.ceil(p.ejected.for)} s` : v },
  { key: "active", title: "active", get: (p) => p.active, bar: String },
  { key: "pending", title: "pending", get: (p) => p.pending || 0, bar: bytes },
  { key: "load", title: "load", num: true,
    get: (p) => p.load && p.load.utilization !== undefined
      ? p.load.utilization : null,
    show: (v) => v === null ? "–" : share(v, 1) },
  { key: "rate", title: "req/s", num: true, get: (p, o, s) =>
      o ? delta(p.requests || 0, o.requests || 0) / s : null, show: rate },
  { key: "cached", title: "cached share", num: true,
    get: (p) => p.prompt_bytes ? p.matched_bytes / p.prompt_bytes : null,
    show: (v, p) => share(p.matched_bytes, p.prompt_bytes) },
  { key: "regret", title: "regret", num: true,
    get: (p) => p.prompt_bytes
      ? (p.best_bytes - p.matched_bytes) / p.prompt_bytes : null,
    show: (v, p) => share(p.best_bytes - p.matched_bytes, p.prompt_bytes) },
  { key: "delivered", title: "delivered of predicted", num: true,
    get: (p) => p.cache && p.cache.predicted_tokens
      ? p.cache.delivered_tokens / p.cache.predicted_tokens : null,
    show: (v, p) => v === null ? "–"
      : share(p.cache.delivered_tokens, p.cache.predicted_tokens)
        + " of " + count(p.cache.predicted_tokens) },
  { key: "kv", title: "KV use", num: true,
    get: (p) => p.engine && p.engine.kv_usage !== undefined
      ? p.engine.kv_usage : null,
    show: (v) => v === null ? "–" : share(v, 1) },
  { key: "engine", title: "runs / waits", num: true,
    get: (p) => p.engine && p.engine.running !== undefined
      ? p.engine.running + (p.engine.waiting || 0) : null,
    show: (v, p) => v === null ? "–" : p.engine.waiting === undefined
      ? String(p.engine.running)
      : p.engine.running + " / " + p.engine.waiting },
  { key: "ttft", title: "TTFT", num: true,
    get: (p) => p.ttft_stream === undefined ? null : p.ttft_stream,
    show: time },
  { key: "errors", title: "errors / min", num: true, get: errors,
    show: (v, p) => v ? `${count(p.minute.errors)} (${share(v, 1)})` : "0",
    bad: (v) => v >= .05 },
  { key: "5xx", title: "5xx", num: true,
    get: (p) => p.responses ? p.responses["5xx"] : 0, show: count },
  { key: "fails", title: "fails", num: true, get: (p) => p.fails || 0,
    show: count }
];

const rows = new Map();

const drawHead = () => {
  const tr = $("peers").tHead.rows[0];
  for (const c of columns) {
    const th = make("th", undefined, c.num ? "num" : "");
    const b = make("button", c.title);
    th.scope = "col";
    b.addEventListener("click", () => {
      sort = { key: c.key, down: sort.key === c.key ? !sort.down : !!c.num };
      if (last) draw();
    });
    th.append(b);
    tr.append(th);
  }
};

const row = (name) => {
  const tr = document.createElement("tr");
  tr.cells_ = columns.map((c) => {
    const td = make("td", undefined, c.num ? "num" : "");
    td.dataset.label = c.title;
    td.dataset.key = c.key;
    if (c.bar) {
      const bar = make("div", undefined, "bar");
      td.fill = make("i");
      td.text = make("span");
      bar.append(td.fill, td.text);
      td.append(bar);
    } else if (c.state) {
      td.text = make("span", undefined, "state");
      td.append(td.text);
    } else {
      td.text = td;
    }
    tr.append(td);
    return td;
  });
  tr.dataset.name = name;

  /* an action is asked for twice: by the button, and by the question */

  tr.act = make("button");
  tr.act.hidden = true;
  tr.act.addEventListener("click", () => act(tr.act.dataset.act, name));
  tr.cells_[1].append(" ", tr.act);
  return tr;
};

const act = async (what, name) => {
  if (!confirm(`${what} ${name}?`)) return;
  try {
    const r = await fetch(last.api.replace(/\/?$/, "/") + what + "?peer="
      + encodeURIComponent(name), { method: "POST" });
    if (!r.ok) throw new Error(`${r.status}`);
    set($("error"), "");
  } catch (e) {
    set($("error"), `could not ${what} ${name}: ${e.message}`);
  }
};

const drawPeers = (u, then, seconds) => {
  const body = $("peers").tBodies[0];
  const old = new Map(then ? then.peers.map((p) => [p.name, p]) : []);
  const col = columns.find((c) => c.key === sort.key);
  const times = new Map();              /* a server may be given twice */
  const list = u.peers.map((p, i) => ({
    p, id: p.name + "#" + times.set(p.name, (times.get(p.name) || 0) + 1)
                               .get(p.name),
    i, v: columns.map((c) => c.get(p, old.get(p.name), seconds)) }));
  const at = columns.indexOf(col);
  const asked = $("search").value.trim().toLowerCase();
  const max = columns.map((c, k) =>
    c.bar ? Math.max(1, ...list.map((x) => x.v[k])) : 0);

  const all = list.length;
  const left = list.filter((x) => x.p.name.toLowerCase().includes(asked)
    && (!$("problems").checked || wrong(x.p) > 0));
  list.splice(0, all, ...left);
  set($("left"), left.length < all ? `${left.length} of ${all}` : "");

  list.sort((a, b) => {
    if (!col) return wrong(b.p) - wrong(a.p)
      || a.p.name.localeCompare(b.p.name, undefined, { numeric: true });
    const x = a.v[at], y = b.v[at];
    const n = x === y ? a.i - b.i
            : x === null ? 1 : y === null ? -1
            : typeof x === "string"
              ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
    return x === y || x === null || y === null ? n : sort.down ? -n : n;
  });

  const seen = new Set();
  list.forEach((x, n) => {
    seen.add(x.id);
    if (!rows.has(x.id)) rows.set(x.id, row(x.p.name));
    const tr = rows.get(x.id);
    columns.forEach((c, k) => {
      const td = tr.cells_[k], v = x.v[k];
      const text = c.bar ? c.bar(v) : c.show ? c.show(v, x.p) : v;
      set(td.text, c.key === "name" && x.p.backup ? text + " (backup)" : text);
      if (c.bar) td.fill.style.width = 100 * v / max[k] + "%";
      if (c.state) td.text.className = "state " + v;
      if (c.bad) td.classList.toggle("wrong", c.bad(v));
    });
    const action = x.p.state === "draining" ? "undrain" : "drain";
    tr.act.hidden = !last.api || x.p.id === undefined
                    || x.p.state === "down";
    tr.act.dataset.act = action;
    set(tr.act, action);
    if (body.rows[n] !== tr) body.insertBefore(tr, body.rows[n] || null);
  });

  for (const [id, tr] of rows)
    if (!seen.has(id)) { tr.remove(); rows.delete(id); }

  [...$("peers").tHead.rows[0].cells].forEach((th, k) => {
    if (columns[k].key === sort.key)
      th.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
    else
      th.removeAttribute("aria-sort");
  });
};

/* --- tiles */

const tiles = (box, list) => {
  while (box.children.length > list.length) box.lastChild.remove();
  list.forEach(([title, value, more], i) => {
    let e = box.children[i];
    if (!e) {
      e = make("div", undefined, "tile");
      e.append(make("span", undefined, "soft"), make("b"),
               make("span", undefined, "soft"));
      box.append(e);
    }
    set(e.children[0], title);
    set(e.children[1], value);
    set(e.children[2], more || "");
    e.dataset.title = title;
  });
};

const drawFleet = (u, prev, first, seconds, window) => {
  const states = {};
  for (const p of u.peers) states[p.state] = (states[p.state] || 0) + 1;
  const d = (key) => first ? delta(total(u, key), total(first, key))
                           : total(u, key);
  const prompt = d("prompt_bytes"), matched = d("matched_bytes");
  const span = first ? `the last ${Math.round(window)} s` : "since start";
  const base = first || null;
  const load = u.peers.filter((p) => p.load && p.load.utilization !== undefined)
    .map((p) => p.load.utilization);
  const mean = load.length ? load.reduce((a, b) => a + b, 0) / load.length : -1;
  const q = (h, x) => quantile(u[h], base && base[h], x);
  const hot = u.peers.reduce((a, p) => !a || p.active > a.active ? p : a, null);

  tiles($("tiles"), [
    ["servers", String(u.peers.length),
     Object.entries(states).map(([s, n]) => `${n} ${s}`).join(", ")],
    ["not computed", u.saved ? count(u.saved.tokens) + " tokens" : "–",
     u.saved ? `${share(u.saved.share, 1)} of prompts; any server: `
       + share(u.saved.round_robin_share, 1) : ""],
    ["prefill saved", u.saved ? count(u.saved.seconds) + " s" : "–",
     "of an engine, since start"],
    ["hottest server", hot && hot.active ? hot.name : "–",
     hot && hot.active ? `${hot.active} in flight` : "none in flight"],
    ["requests / s", prev ? rate(delta(total(u, "requests"),
       total(prev, "requests")) / seconds) : "–",
     count(total(u, "requests")) + " in all"],
    ["active", count(total(u, "active")), ""],
    ["pending", bytes(total(u, "pending")), "prompt bytes waiting"],
    ["load", mean < 0 ? "–" : share(mean, 1), mean < 0 ? "not known yet"
       : `busiest ${share(Math.max(...load), 1)}`],
    ["cached share", share(matched, prompt), span],
    ["regret", share(d("best_bytes") - matched, prompt), span],
    ["TTFT median", time(q("ttft_stream", .5)),
     "P95 " + time(q("ttft_stream", .95)) + ", of streams"],
    ["decision P99", time(q("decision_time", .99)), span]
  ]);
};

/* as kvroute_priority has them */

const classes = ["critical", "high", "interactive", "normal", "", "low", "batch",
                 "background"];

const drawQueue = (u, base) => {
  $("waiting").hidden = !u.queue;
  if (!u.queue) return;

  const q = (x) => quantile(u.queue_time, base && base.queue_time, x);
  const sum = (key) => u.queue.classes.reduce((n, c) => n + c[key], 0);
  const lost = sum("full") + sum("timeouts") + sum("late") + sum("shed");

  tiles($("queue"), [
    ["waiting", `${u.queue.size} / ${u.queue.max_size}`,
     bytes(u.queue.bytes)],
    ["admitted / s", rate(u.queue.rate), count(sum("waited")) + " have waited"],
    ["wait median", time(q(.5)), "P95 " + time(q(.95))],
    ["rejected", count(lost), count(sum("passed")) + " passed at once"]
  ]);

  /* classes that were ever used */

  const body = $("classes").tBodies[0];
  const keys = ["size", "passed", "waited", "wait_time_mean", "full",
                "timeouts", "late", "shed", "gone"];
  const list = u.queue.classes.filter((c) => keys.some((k) => c[k] > 0));

  while (body.rows.length > list.length) body.lastChild.remove();
  list.forEach((c, i) => {
    let tr = body.rows[i];
    if (!tr) {
      tr = make("tr");
      tr.append(make("td"), ...keys.map(() => make("td", "", "num")));
      body.append(tr);
    }
    tr.dataset.class = c.class;
    set(tr.cells[0], classes[c.class] || String(c.class));
    keys.forEach((k, n) => set(tr.cells[n + 1], k === "wait_time_mean"
      ? time(c.waited ? c[k] / 1000 : null) : count(c[k])));
  });
};

const drawZones = (s, u) => {
  tiles($("zones"), Object.entries(s.zones).flatMap(([name, z]) => [
    [`${name}: fill`, share(z.fill, 1), `${count(z.lines)} lines`],
    [`${name}: evicted`, count(z.evicted), "lines, while in use"],
    [`${name}: servers`, `${z.peers} / ${z.max_peers}`, ""],
    [`${name}: processes`, `${z.processes} / ${z.max_processes}`, ""]]));
};

/* --- decisions over time */

const reasons = () => {
  const list = past.get($("upstream").value) || [];
  const names = new Map();
  for (let i = 1; i < list.length; i++)
    for (const [k, n] of Object.entries(list[i].u.decisions))
      if (n) names.set(k, (names.get(k) || 0)
                          + delta(n, list[i - 1].u.decisions[k] || 0));
  return [...names].sort((a, b) => a[0] < b[0] ? -1 : 1);
};

const colour = new Map();
const colourOf = (name) => {
  if (!colour.has(name)) colour.set(name, colour.size % 8);
  return getComputedStyle(document.documentElement)
    .getPropertyValue("--c" + colour.get(name)).trim();
};

const drawChart = (u) => {
  const list = past.get($("upstream").value) || [];
  const names = reasons();
  const canvas = $("chart"), ctx = canvas.getContext("2d");
  const dpr = devicePixelRatio || 1;
  const w = canvas.clientWidth, h = canvas.clientHeight;

  if (canvas.width !== w * dpr || canvas.height !== h * dpr) {
    canvas.width = w * dpr;
    canvas.height = h * dpr;
  }
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  ctx.clearRect(0, 0, w, h);

  const bars = [];
  let max = 1;
  for (let i = 1; i < list.length; i++) {
    const s = Math.max(.001, (list[i].t - list[i - 1].t) / 1000);
    const v = names.map(([k]) => delta(list[i].u.decisions[k] || 0,
                                       list[i - 1].u.decisions[k] || 0) / s);
    max = Math.max(max, v.reduce((a, b) => a + b, 0));
    bars.push({ t: list[i].t, v });
  }

  const end = list.length ? list[list.length - 1].t : 0;
  const step = w / keep;
  for (const b of bars) {
    let y = h;
    const x = w - (end - b.t) / 1000 * step - step;
    b.v.forEach((v, k) => {
      const dy = v / max * (h - 14);
      ctx.fillStyle = colourOf(names[k][0]);
      ctx.fillRect(x, y - dy, Math.max(1, step - .5), dy);
      y -= dy;
    });
  }
  ctx.fillStyle = getComputedStyle(document.body).color;
  ctx.font = "11px system-ui, sans-serif";
  ctx.fillText(rate(max) + " / s", 4, 11);

  const box = $("legend"), all = names.reduce((n, [, v]) => n + v, 0);
  const want = names.length ? names
    : Object.entries(u.decisions).filter(([, n]) => n);
  const sum = names.length ? all : want.reduce((n, [, v]) => n + v, 0);
  while (box.children.length > want.length) box.lastChild.remove();
  want.forEach(([k, n], i) => {
    let e = box.children[i];
    if (!e) {
      e = make("span");
      e.append(make("i"), make("span"));
      box.append(e);
    }
    e.dataset.reason = k;
    e.children[0].style.background = colourOf(k);
    set(e.children[1], `${k} ${share(n, sum)} (${count(u.decisions[k])})`);
  });
};

/* --- what nginx kept: the same for all who look */

const drawHistory = (u) => {
  const list = u.history || [];
  const canvas = $("history"), ctx = canvas.getContext("2d");
  const dpr = devicePixelRatio || 1;
  const w = canvas.clientWidth, h = canvas.clientHeight;
  const style = getComputedStyle(document.documentElement);

  canvas.width = w * dpr;
  canvas.height = h * dpr;
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);

  const max = Math.max(1, ...list.map((x) => x.requests + x.rejects));
  const end = Date.parse(last.timestamp), step = w / 61;

  for (const x of list) {
    const at = w - (end - Date.parse(x.time)) / 10000 * step - step;
    let y = h;
    const bad = Math.min(x.errors, x.requests);
    for (const [n, c] of [[bad, "--bad"], [x.rejects, "--warn"],
                          [x.requests - bad, "--accent"]]) {
      const dy = n / max * (h - 14);
      ctx.fillStyle = style.getPropertyValue(c).trim();
      ctx.fillRect(at, y - dy, Math.max(1, step - 1), dy);
      y -= dy;
    }
  }
  ctx.fillStyle = getComputedStyle(document.body).color;
  ctx.font = "11px system-ui, sans-serif";
  ctx.fillText(rate(max / 10) + " / s", 4, 11);

  const now = list[list.length - 1];
  set($("span"), !now ? "the first step takes 10 s" : `${list.length} steps; `
    + `in the last one ${now.requests} requests, ${now.errors} errors, `
    + `${now.rejects} rejected, TTFT median ${time(now.ttft_p50)}, P95 `
    + time(now.ttft_p95));
};

const drawHealth = (u) => {
  const v = health(last), sum = (k) => u.peers.reduce((n, p) =>
    n + (p.minute ? p.minute[k] : 0), 0);
  const up = u.peers.filter((p) => p.state === "up").length;

  $("health").className = v.state;
  set($("verdict"), v.why.length ? v.why[0]
    : `working: ${up} of ${u.peers.length} servers up, `
      + `${count(sum("requests"))} requests in the last minute, `
      + `${count(sum("errors"))} errors`);
  document.title = v.state === "green" ? "kvroute"
                                       : `${v.state}: ${v.why[0]} – kvroute`;

  const box = $("why"), more = v.why.slice(1);
  while (box.children.length > more.length) box.lastChild.remove();
  more.forEach((text, i) =>
    set(box.children[i] || box.appendChild(make("li")), text));
};

/* --- receipts */

const drawReceipts = (s, name) => {
  const body = $("receipts").tBodies[0];
  const list = s.receipts.filter((r) => r.upstream === name).slice(0, 24);
  while (body.rows.length > list.length) body.lastChild.remove();
  list.forEach((r, i) => {
    let tr = body.rows[i];
    if (!tr) {
      tr = make("tr");
      for (let k = 0; k < 10; k++)
        tr.append(make("td", "", k >= 4 && k <= 8 ? "num" : ""));
      tr.lastChild.append(make("code"));
      body.append(tr);
    }
    tr.dataset.number = r.number;
    [r.time.slice(11, 23), r.peer, r.reason, r.policy, bytes(r.prompt_bytes),
     bytes(r.matched_bytes), bytes(r.best_bytes),
     r.best_bytes > r.matched_bytes
       ? bytes(r.best_bytes - r.matched_bytes) : "0",
     r.ttft === undefined || r.stream ? time(r.ttft)
       : time(r.ttft) + " (whole)"].forEach((v, k) => set(tr.cells[k], v));
    set(tr.cells[9].firstChild, r.prompt || "–");
  });
};

/* --- what is not known, and what would make it known */

const who = (some, all) => some.length === all.length ? "any engine"
  : some.length <= 3 ? some.map((p) => p.name).join(", ")
  : `${some.length} of ${all.length} servers`;

const drawSignals = (s, u) => {
  const list = [];

  /* vLLM says nothing of none: who has been asked for nothing that it was
     thought to hold may be silent, if others are not */

  const known = u.peers.filter((p) => p.requests > 0);
  const mute = known.filter((p) => !(p.cache && p.cache.responses > 0));
  const silent = mute.length === known.length ? mute
    : mute.filter((p) => p.matched_bytes > 0);
  const unread = u.peers.filter((p) => !(p.engine
                                         && p.engine.kv_usage !== undefined));

  if (silent.length)
    list.push(["delivered", `Cached tokens, as engines deliver them: `
      + `none reported by ${who(silent, known)}. vLLM says so with `
      + "--enable-prompt-tokens-details, SGLang with --enable-cache-report; "
      + "llama.cpp, TGI and TensorRT-LLM need no flag; in streams of chat and "
      + "completions only if clients ask for usage (stream_options). Without "
      + "it predictions cannot be checked."]);
  if (unread.length)
    list.push(["kv", `KV use and capacity: not told by `
      + `${who(unread, u.peers)}. Set kvroute_probe in this upstream; vLLM has `
      + "/metrics as it is, SGLang needs --enable-metrics, llama.cpp "
      + "--metrics. Without it the cache of each server is taken to be "
      + bytes(unread[0].capacity_bytes) + "."]);
  for (const p of u.peers.filter((x) => x.engine && x.engine.probes > 0
                                        && x.engine.age_ms === undefined))
    list.push(["probe " + p.name, `${p.name} has been asked `
      + `${count(p.engine.probes)} times and has said nothing of use: see `
      + "engine= and path= of kvroute_probe, and the flags above."]);
  if (u.decisions.unparsed > 0)
    list.push(["unparsed", `${count(u.decisions.unparsed)} requests had a `
      + "body that is no prompt known here, was compressed, or was larger "
      + "than kvroute_max_body: they went by load."]);
  if (u.peers.some((p) => p.id === undefined))
    list.push(["crowded", "Some servers have no counters, since the zone is "
      + "full: the error log says what it has too few of."]);
  if (u.locked)
    list.push(["locked", "The lock of the servers is held, if for long by a "
      + "process that was killed: see the error log."]);
  for (const [name, z] of Object.entries(s.zones))
    if (name === u.zone && z.evicted > 0 && z.fill > .9)
      list.push(["full", `The index of zone ${name} is full and forgets what `
        + "engines may still hold: a larger zone would remember more."]);

  const box = $("signals");
  $("missing").hidden = list.length === 0;
  while (box.children.length > list.length) box.lastChild.remove();
  list.forEach(([id, text], i) => {
    const e = box.children[i] || box.appendChild(make("li"));
    e.dataset.signal = id;
    set(e, text);
  });
};

/* --- all of it */

const draw = () => {
  const s = last, name = $("upstream").value, u = s.upstreams[name];
  if (!u) return;
  const list = past.get(name) || [];
  const now = list[list.length - 1], prev = list[list.length - 2];
  const first = list.length > 1 ? list[Math.max(0, list.length - 61)] : null;
  const seconds = prev ? Math.max(.001, (now.t - prev.t) / 1000) : 1;
  const window_ = first ? (now.t - first.t) / 1000 : 0;

  set($("about"), `${u.policy}, nginx ${s.nginx_version}, `
    + `kvroute ${s.version}`);
  drawHealth(u);
  drawFleet(u, prev && prev.u, first && first.u, seconds, window_);
  drawPeers(u, prev && prev.u, seconds);
  drawQueue(u, first && first.u);
  drawHistory(u);
  drawChart(u);
  drawReceipts(s, name);
  drawZones(s, u);
  drawSignals(s, u);
};

const take = (s) => {
  const select = $("upstream"), names = Object.keys(s.upstreams);
  const t = Date.parse(s.timestamp);

  if ([...select.options].map((o) => o.value).join("\n") !== names.join("\n")) {
    const chosen = select.value || decodeURIComponent(location.hash.slice(1));
    select.replaceChildren(...names.map((n) => new Option(n, n)));
    if (names.includes(chosen)) select.value = chosen;
  }
  for (const n of names) {
    const list = past.get(n) || [];
    if (list.length && list[list.length - 1].t > t) list.length = 0;
    list.push({ t, u: s.upstreams[n] });
    while (list.length && t - list[0].t > keep * 1000) list.shift();
    past.set(n, list);
  }
  last = s;
};

const poll = async () => {
  if (!paused && !document.hidden) {
    try {
      const r = await fetch(source, { cache: "no-store",
        signal: AbortSignal.timeout(5000) });
      if (!r.ok) throw new Error(`${r.status} from ${source}`);
      take(await r.json());
      draw();
      set($("error"), "");
      set($("state"), "live " + last.timestamp.slice(11, 19) + " UTC");
    } catch (e) {
      set($("error"), "no status: " + e.message);
      set($("state"), last ? "what was known at "
        + last.timestamp.slice(11, 19) + " UTC" : "");
    }
  }
  setTimeout(poll, 1000);
};

const pause = () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
  set($("pause"), paused ? "resume" : "pause");
};

$("pause").addEventListener("click", pause);
$("upstream").addEventListener("change", () => {
  location.hash = encodeURIComponent($("upstream").value);
  rows.forEach((tr) => tr.remove());
  rows.clear();
  if (last) draw();
});
document.addEventListener("keydown", (e) => {
  if (e.target.closest("select, input") || e.ctrlKey || e.metaKey || e.altKey)
    return;
  if (e.key === "p") pause();
});
for (const id of ["problems", "search"])
  $(id).addEventListener("input", () => { if (last) draw(); });
addEventListener("resize", () => { if (last) draw(); });

drawHead();
poll();
