/* what the words of the page mean: docs/glossary.md has the same (t/docs.t) */

const words = {
  "server": "an engine by its address, as nginx knows it",
  "servers": "number of servers by state",
  "state": "whether it receives requests, and if not, why",
  "active": "requests in flight",
  "pending": "prompt bytes sent there and not computed yet",
  "load": "prompt bytes sent recently, relative to what it can compute: "
    + "saturated near 1",
  "requests / s": "requests sent to it in the last second",
  "matched share": "share of prompt bytes that the chosen server had cached, "
    + "by the index",
  "regret": "share of prompt bytes computed again although another server had "
    + "them cached",
  "cache hits as predicted": "cached tokens reported by engines, relative to "
    + "the predicted ones",
  "KV use": "share of its KV cache in use, by the engine's metrics",
  "KV events": "whether the index follows the engine's KV events; lost "
    + "messages; time since the last message",
  "running / waiting": "requests inside the engine, by its metrics",
  "TTFT": "mean time to first token of streams",
  "TTFT median": "median time to first token of streams",
  "errors / min": "5xx responses and no response, in the last minute",
  "4xx / min": "answers of 400 to 499 in the last minute: the client's fault, "
    + "unless other servers do not answer so",
  "5xx": "responses 500 to 599 since the counters were reset",
  "fails": "attempts that nginx counts as failed (max_fails)",
  "not computed": "prompt tokens that the chosen server had cached",
  "prefill saved": "engine time that these tokens would have taken",
  "hottest server": "the server with the most requests in flight",
  "decision P99": "99 % of decisions take less, including reading the body",
  "found": "share of prompt bytes cached on the servers that the other method "
    + "chose",
  "would be found": "share of prompt bytes cached on the servers that kvroute "
    + "would have chosen",
  "same server": "requests for which both methods chose the same server",
  "prefill servers": "servers of the upstream that computes prompts for this "
    + "one",
  "by two servers": "requests with a prefill server and a decode server",
  "fell back": "requests whose prefill was wasted or unavailable",
  "by one server": "requests that one server serves faster, or must serve "
    + "alone",
  "leg 1 median": "median time that the prefill takes, with all servers that "
    + "were tried",
  "outcome": "$kvroute_disaggregated of the access log",
  "recent": "requests in the period shown above",
  "total": "requests since the counters were reset",
  "why": "what it means and where to look",
  "model": "the model in the request body",
  "tenant": "the tenant, by kvroute_request tenant=",
  "requests": "completed requests",
  "errors": "5xx responses and no response, of these requests",
  "rejected": "requests that the queue has rejected",
  "prompts": "prompt bytes",
  "class": "class in the queue, by kvroute_request priority=",
  "waiting": "requests in the queue, and the maximum",
  "admitted / s": "requests per second that leave the queue for a server",
  "wait median": "median queue time of admitted requests",
  "passed": "requests that bypassed the queue",
  "waited": "requests admitted after waiting",
  "mean wait": "mean queue time of admitted requests",
  "full": "rejected: the queue is full",
  "timeout": "rejected: queue timeout",
  "deadline": "rejected: deadline exceeded",
  "shed": "rejected: displaced by a more urgent request, or by one of a "
    + "tenant with fewer waiting for its weight",
  "aborted": "the client closed the connection while waiting",
  "reason": "why this server was chosen",
  "policy": "the policy that chose it",
  "prompt": "prompt bytes",
  "matched": "prompt bytes that the chosen server had cached",
  "best": "most prompt bytes that any server had cached",
  "hash": "keyed hash of the prompt: the same for equal prompts",
  "fill": "share of the index in use",
  "evicted": "index entries evicted while still in use",
  "budgets": "requests with a budget, by kvroute_budget, and who was rejected",
  "processes": "worker processes with counters in the zone, and the maximum",
  "other hosts": "hosts that share this zone, by kvroute_share",
  "lessons": "index updates received from other hosts and sent to them; the "
    + "lag is the time until an own batch comes back"
};

/*
 * Outcomes of a request with kvroute_prefill, as in docs/prefill-decode.md: two
 * servers; one server after a failure; one server because that is faster
 */

const outcomes = {
  "failed": { kind: "bad", means: "the prefill failed: see the prefill servers, "
    + "and $kvroute_leg1_status in the access log" },
  "answer": { kind: "bad", means: "the prefill server reported no transfer: is "
    + "the connector configured there?" },
  "nobody": { kind: "bad", means: "no server of one of the two pools was "
    + "available" },
  "expired": { kind: "bad", means: "the descriptor was too old, so the prompt was "
    + "computed again" },
  "retried": { kind: "bad", means: "the decode server failed, and another one "
    + "computed the prompt again" },
  "yes": { kind: "two", means: "two servers have served it" },
  "unread": { kind: "one", means: "no prompt was found in the body" },
  "kind": { kind: "one", means: "one server must serve such a request" },
  "short": { kind: "one", means: "the prompt is shorter than min=" },
  "cached": { kind: "one", means: "a decode server holds all but min= of it" },
  "cost": { kind: "one", means: "two servers would have cost more" }
};

/* where the capacity of a server's cache comes from */

const sources = {
  api: "set by the API", configured: "capacity= with \"!\"",
  events: "by its KV events", reported: "by its engine's metrics",
  learned: "learned from its answers", assumed: "capacity=, nothing is known"
};

/* last errors of servers and stores, by reason: docs/status.md has the same */

const faults = {
  "refused": "connection refused", "unreachable": "unreachable",
  "timeout": "timed out", "closed": "connection closed",
  "reset": "connection closed", "tls": "TLS handshake failed",
  "expired": "certificate expired", "untrusted": "certificate not trusted",
  "other_host": "certificate of another host", "not_http": "not HTTP",
  "no_metrics": "no usable metrics", "loading": "model loading",
  "unresolved": "name not resolved", "password": "password rejected",
  "rejected": "command rejected", "status": "unexpected status",
  "broken": "answers break off", "slow": "slow first tokens",
  "silent": "no response", "error": "errors in answers",
  "unclear": "ambiguous errors", "401": "401 key rejected",
  "403": "403 key rejected", "404": "404 model not found"
};

/* of a probe or a check: its path is unknown, not the model */

const fault = (reason, asked) => asked && reason === "404" ? "404 no such path"
  : faults[reason] || reason;

const said = (p) => fault(p.reason, p.state === "unhealthy");

/* causes of health as sentences, by code: docs/status.md has the same list */

/* an ejected server that the next request may probe is still ejected */

const shown = (state) => state === "probed" ? "ejected" : state;

const listed = (w) => w.servers.map((s) => s.name + (s.state !== "up"
    ? ` (${shown(s.state)}${s.reason ? ": " + said(s) : ""})`
    : s.reason ? ` (${fault(s.reason, true)})` : "")).join(", ")
  + (w.number > w.servers.length
    ? ` and ${w.number - w.servers.length} more` : "");

const some = (w, what) => `${w.number} of ${w.of} servers ${what}: `
  + listed(w);

const capped = (c) => [
  ...(c.max_conns ? [`max_conns=${c.max_conns}`] : []),
  ...(c.target_ttft_ms
    ? [`max_pending=${c.target_ttft_ms / 2}ms`] : []),
  ...(c.max_pending ? [`max_pending=${bytes(c.max_pending)}`] : []),
  ...(c.max_waiting !== undefined ? [`max_waiting=${c.max_waiting}`] : [])
].join(" or ") || "its cap";

const first = (w) => w.servers[0].name;

const ms = (n) => time(n / 1000);

const sentences = {
  "locked": () => "the list of servers is locked: requests hang",
  "none_up": (w) => `none of ${w.of} servers is up`
    + (w.servers ? ": " + listed(w) : ""),
  "not_up": (w) => some(w, "not up"),
  "errors": (w) => `${first(w)} fails${w.servers[0].reason
    ? ` (${fault(w.servers[0].reason)})` : ""}: ${w.percent}% of its `
    + `${w.requests} requests in the last minute, ${w.percent_of_all}% of all `
    + "requests",
  "client_errors": (w) => first(w) + (w.requests
    ? ` answers ${w.status} to ${w.percent}% of requests, others to `
      + `${w.percent_elsewhere}%` : ` answered ${w.status}`),
  "rejects": (w) => `${w.percent}% of requests rejected in the last minute `
    + `(${w.rejects}): every server is at ${capped(w.caps)}`
    + (w.load === undefined ? "" : `, load is ${Math.round(100 * w.load)}%`),
  "silent": (w) => first(w) + (w.active
    ? ` does not respond: ${w.active} in flight, and nothing has come`
    : " did not respond to its last request"),
  "slow": (w) => `${first(w)} is slow: first tokens after ${ms(w.ttft_ms)}, `
    + `elsewhere after ${ms(w.others_ms)}`,
  "starved": (w) => `${first(w)} gets ${w.requests} requests in the last minute,`
    + ` its share is ${w.share}` + (w.ttft_ms ? `: first tokens after `
    + `${ms(w.ttft_ms)}, elsewhere after ${ms(w.others_ms)}` : ""),
  "hot": (w) => `${first(w)} is hot: ${w.active} of ${w.of} requests in flight`,
  "old_metrics": (w) => `old metrics, because the probe fails: ${listed(w)}`,
  "not_sharing": (w) => "nothing is shared with other hosts"
    + (w.reason ? `: ${fault(w.reason)} at the store` : ""),
  "drained": (w) => some(w, "drained by the operator"),
  "no_counters": (w) => some(w, "without counters, because all slots are "
    + "taken")
};

const sentence = (w) => (sentences[w.code] || (() => w.code))(w);

/* what to do: by the reason of the first server, or else by the code */

const look = "check its GPU and what else runs there; drain it if it lasts";

const hung = "read the engine's log; restart it if a request sent there directly "
  + "hangs too";

const returns = "check the engine's log; it returns by itself once it answers";

const remedies = {
  "refused": "start the engine",
  "unreachable": "check the engine's host and the network",
  "timeout": "check whether the engine hangs or is overloaded",
  "silent": hung,
  "slow": look,
  "tls": "check whether this is a TLS port, and its certificate",
  "expired": "renew its certificate",
  "untrusted": "fix its certificate, or the trusted certificates",
  "other_host": "fix its certificate, or the name that is checked",
  "loading": "wait until the engine has loaded its model",
  "401": "give it the same API key as the others",
  "403": "give it the same API key as the others",
  "404": "serve the same model name there as at the others",
  "429": "give it the same limits as the others",
  "503": "give it the same limits as the others"
};

const stores = {
  "password": "check password_file= and the store's ACL",
  "rejected": "check the store's ACL and memory",
  "unresolved": "check the name in server= and the resolver"
};

const byReason = (w, other) => w.servers
  && !(w.servers[0].reason === "404" && w.servers[0].state === "unhealthy")
  && remedies[w.servers[0].reason] || other;

const advice = {
  "locked": () => "if it lasts, reload nginx and kill the old workers that hang",
  "none_up": (w) => w.servers && w.servers[0].state === "placeholder"
    ? "the ingress controller has no endpoints: start engines"
    : byReason(w, "check the engines' logs"),
  "not_up": (w) => byReason(w, returns),
  "errors": (w) => byReason(w, w.servers[0].state === "up"
    ? "check the engine's log; drain it if it lasts" : returns),
  "client_errors": (w) => remedies[w.status]
    || "compare its configuration with the others', or find the client",
  "rejects": (w) => w.load !== undefined && w.load < .7
    ? "raise this cap: the engines have room"
    : "add engines; raise this cap only if they have room",
  "silent": () => hung,
  "slow": () => look,
  "starved": () => look,
  "hot": () => "nothing, unless it lasts: then set max_pending=auto",
  "old_metrics": () => "check kvroute_probe: url=, key, TLS",
  "not_sharing": (w) => stores[w.reason]
    || "start the store, or check server= of kvroute_share",
  "drained": (w) => `undrain ${w.number === 1 ? "it" : "them"} when the work is `
    + "done",
  "no_counters": () => "raise max_peers= of kvroute_zone, and restart nginx"
};

const advise = (w) => advice[w.code] ? advice[w.code](w) : "";

/* since when, with the age: "since 02:10:31 UTC, 45 s" */

const lasted = (s) => s < 120 ? `${Math.max(0, Math.round(s))} s`
  : s < 7200 ? `${Math.round(s / 60)} min`
  : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;

const age = (since, now) => lasted((now - Date.parse(since)) / 1000);

const sinceOf = (w, now) => w.since === undefined ? ""
  : `since ${w.since.slice(11, 19)} UTC, ${age(w.since, now)}`;

const explain = (e, word) => {
  if (Object.hasOwn(words, word)) e.title = words[word];
};
